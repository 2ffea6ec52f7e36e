"""Values on their way to Emacs and back: tables for the language, properties for the round trip."""

from __future__ import annotations

import math
from collections import namedtuple
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import sexpdata
from hypothesis import given, settings
from hypothesis import strategies as st

from pyagentd.wire.sexp import (
    SexpError,
    Symbol,
    Unencodable,
    decode,
    encode,
    plist_to_dict,
    plists_to_dicts,
    to_symbols,
)
from tests.examples import examples


class Plain(Enum):
    A = "a"


class Text(StrEnum):
    B = "b"


class Number(IntEnum):
    C = 3


Pair = namedtuple("Pair", "left right")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "nil"),
        (False, "nil"),
        (True, "t"),
        ([], "nil"),
        ((), "nil"),
        ({}, "nil"),
        (0, "0"),
        (-(2**80), "-1208925819614629174706176"),
        (1.5, "1.5"),
        (-0.0, "-0.0"),
        (1e16, "1e+16"),
        (math.inf, "1.0e+INF"),
        (-math.inf, "-1.0e+INF"),
        (math.nan, "0.0e+NaN"),
        ("", '""'),
        ('say "hi" \\ bye', '"say \\"hi\\" \\\\ bye"'),
        ("line\nbreak\ttab\0nul", '"line\nbreak\ttab\0nul"'),
        ("é 🎉", '"é 🎉"'),
        ([1, [2, []], "x"], '(1 (2 nil) "x")'),
        ({"tool_use_id": 1, "ok": False}, "(:tool-use-id 1 :ok nil)"),
        ({Text.B: 1}, "(:b 1)"),
        (MappingProxyType({"a": 1}), "(:a 1)"),
        (Symbol("edit"), "edit"),
        (Symbol(""), "##"),
        (Symbol("12"), "\\12"),
        (Symbol("-1.5e3"), "\\-1\\.5e3"),
        (Symbol("."), "\\."),
        (Symbol("a b"), "a\\ b"),
        (Symbol("?x"), "\\?x"),
        (Symbol("#<"), "\\#<"),
        (Plain.A, '"a"'),
        (Text.B, '"b"'),
        (Number.C, "3"),
        (Pair(1, "r"), '(1 "r")'),
        (Path("/tmp/x y"), '"/tmp/x y"'),
        ("lone \ud800 surrogate", '"lone \ufffd surrogate"'),
        ("a pair \ud83c\udf89", '"a pair 🎉"'),
    ],
)
def test_values_have_the_form_emacs_reads(value: object, text: str) -> None:
    assert encode(value).decode() == text


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (b"bytes", "Bytes"),
        ([bytearray(b"x")], "Bytes"),
        (object(), "object"),
        ({1: 2}, "key"),
        ({1, 2}, "set"),
        ((x for x in ()), "generator"),
        pytest.param(10**5000, "digits", id="10**5000"),
    ],
)
def test_what_has_no_form_on_the_wire_is_refused(value: object, complaint: str) -> None:
    with pytest.raises(Unencodable, match=complaint):
        encode(value)


def test_endless_nesting_is_refused_when_encoding() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    with pytest.raises(Unencodable, match="deep"):
        encode(cycle)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("nil", None),
        ("()", None),
        ("t", True),
        ("  42 ; comment\n", 42),
        ("42.", 42),
        ("+7", 7),
        ("-1.5e-3", -0.0015),
        (".5", 0.5),
        ("1e+16", 1e16),
        ("-1.0e+INF", -math.inf),
        ("(a . b)", (Symbol("a"), Symbol("b"))),
        ("(a b . 3)", (Symbol("a"), Symbol("b"), 3)),
        ("(a . nil)", [Symbol("a")]),
        ("[1 (2) []]", [1, [2], []]),
        ('#("bold text" 0 4 (face bold) 5 9 (face (:inherit x)))', "bold text"),
        ('(1 #("x" 0 1 (gptel (tool . "id"))) 2)', [1, "x", 2]),
        ('"a\\\nb\\ c"', "abc"),
        ('"\\n\\t\\e\\d\\s"', "\n\t\x1b\x7f "),
        ('"\\x41 \\u00e9 \\U0001f389"', "A é 🎉"),
        ('"\\303\\251"', "é"),
        ('"\\0a\\101"', "\0aA"),
        ('"\\377"', "\udcff"),
        ("##", Symbol("")),
        ("a\\ b", Symbol("a b")),
        ("\\12", Symbol("12")),
        ("a\\.b", Symbol("a.b")),
        (":key", Symbol(":key")),
        ("nan", Symbol("nan")),
        ("inf", Symbol("inf")),
        ("infinity", Symbol("infinity")),
        ("1_000", Symbol("1_000")),
        ("1+", Symbol("1+")),
        ("-", Symbol("-")),
        ("...", Symbol("...")),
        ("a#b?c", Symbol("a#b?c")),
        ("٣", Symbol("٣")),
    ],
)
def test_what_emacs_prints_is_understood(text: str, value: object) -> None:
    result = decode(text)
    assert result == value
    assert type(result) is type(value)


def test_a_symbol_equals_its_name_but_travels_as_a_symbol() -> None:
    mode = decode("edit")
    assert mode == "edit"
    assert encode([mode, "edit"]) == b'(edit "edit")'


def test_not_a_number_is_read_as_one() -> None:
    assert math.isnan(decode("0.0e+NaN"))
    assert math.isnan(decode("-0.0e+NaN"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "(",
        ")",
        "(]",
        "1 2",
        '"open',
        "#<buffer *scratch*>",
        "(a #<marker> b)",
        "#s(hash-table)",
        "#1=(a #1#)",
        "'a",
        "`a",
        "?a",
        "(a . b c)",
        "( . b)",
        "(a .)",
        "(a . (b))",
        "[a . b]",
        ".",
        '"\\C-a"',
        '"\\UFFFFFFFF"',
        "#(1 2)",
        "#()",
        pytest.param("9" * 5000, id="5000 digits"),
    ],
)
def test_what_is_no_value_is_refused(text: str) -> None:
    with pytest.raises(SexpError):
        decode(text)


def test_a_million_open_parentheses_do_not_exhaust_the_stack() -> None:
    with pytest.raises(SexpError, match="1000000 unclosed"):
        decode("(" * 1_000_000)


def test_bytes_that_are_not_utf8_are_kept_as_file_names_are() -> None:
    assert decode(b'"\xff/\xc3\xa9"') == "\udcff/é"


def test_plists_become_dicts_at_any_depth() -> None:
    plist = decode(
        '(:branch "b" :env (:PATH "/bin" :HTTPS_PROXY "p") :inserts ((1 "x" nil)) :agents ((:branch-dir "d")))'
    )
    assert plist_to_dict(plist) == {
        "branch": "b",
        "env": {"PATH": "/bin", "HTTPS_PROXY": "p"},
        "inserts": [[1, "x", None]],
        "agents": [{"branch_dir": "d"}],
    }
    assert plist_to_dict(None) == {}
    assert plists_to_dicts(decode("(:a [] :b nil)")) == {"a": [], "b": None}


@pytest.mark.parametrize("text", ["(:a)", "(a 1)", '(":a" 1)', "(1 2)"])
def test_a_list_that_is_no_plist_is_refused(text: str) -> None:
    with pytest.raises(SexpError, match="plist"):
        plist_to_dict(decode(text))
    assert plists_to_dicts(decode(text)) == decode(text)


def test_closed_set_values_become_symbols() -> None:
    values = [to_symbols(each) for each in (None, "response", ("tool", "id"))]
    assert encode(values) == b'(nil response (tool "id"))'


# Properties

text = st.text(st.characters(exclude_categories=["Cs"]))
symbols = (
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda s: s not in ("nil", "t")).map(Symbol)
)
atoms = st.none() | st.just(True) | st.integers() | st.floats(allow_nan=False) | text | symbols
values = st.recursive(atoms, lambda inner: st.lists(inner, min_size=1, max_size=6), max_leaves=30)


@settings(max_examples=examples(500), deadline=None)
@given(values)
def test_decode_undoes_encode(value: Any) -> None:
    assert _typed(decode(encode(value))) == _typed(value)


@settings(max_examples=examples(300), deadline=None)
@given(st.text(alphabet="()[]\"\\;#.?a1 \n'-:e", max_size=40))
def test_any_text_is_a_value_or_a_clean_error(source: str) -> None:
    try:
        value = decode(source)
    except SexpError:
        return
    assert _typed(decode(encode(value))) == _typed(_as_lists(value))


# What sexpdata gets right: no floats that are not finite, symbols without specials, strings without octal escapes.
plain_symbols = st.from_regex(r"[a-z][a-z-]{0,8}", fullmatch=True).filter(lambda s: s not in ("nil", "t")).map(Symbol)
plain = st.recursive(
    st.just(True) | st.integers() | text | plain_symbols, lambda inner: st.lists(inner, min_size=1), max_leaves=30
)


@settings(max_examples=examples(300), deadline=None)
@given(plain)
def test_sexpdata_reads_what_we_write(value: Any) -> None:
    assert _typed(_from_sexpdata(sexpdata.loads(encode(value).decode()))) == _typed(value)


@settings(max_examples=examples(300), deadline=None)
@given(plain)
def test_we_read_what_sexpdata_writes(value: Any) -> None:
    assert _typed(decode(sexpdata.dumps(_to_sexpdata(value)))) == _typed(value)


def _typed(value: Any) -> Any:
    """Return ``value`` so that 1, True and 1.0, and a symbol and its name, differ."""
    if isinstance(value, list | tuple):
        return (type(value).__name__, [_typed(item) for item in value])
    return (type(value).__name__, repr(value))


def _as_lists(value: Any) -> Any:
    """Return ``value`` as it comes back: pairs become lists, an empty vector becomes nil."""
    if isinstance(value, list | tuple):
        return [_as_lists(item) for item in value] or None
    return value


def _to_sexpdata(value: Any) -> Any:
    if isinstance(value, list):
        return [_to_sexpdata(item) for item in value]
    return sexpdata.Symbol(value) if isinstance(value, Symbol) else value


def _from_sexpdata(value: Any) -> Any:
    if isinstance(value, list):
        return [_from_sexpdata(item) for item in value]
    return Symbol(value.value()) if isinstance(value, sexpdata.Symbol) else value
