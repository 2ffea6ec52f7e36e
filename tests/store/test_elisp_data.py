from __future__ import annotations

import base64
import json
import shutil
import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyagentd.wire.sexp import SexpError, Symbol, print_call, print_json, print_lisp, read, read_call, to_json

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)

# What prin1 of Emacs 28.2 prints for these.
AS_EMACS_PRINTS = [
    ({"command": "ls | wc -l"}, '(:command "ls | wc -l")'),
    ({"a b": 1, "q?;": 2, "x.y": 3}, r"(:a\ b 1 :q\?\; 2 :x\.y 3)"),
    ({"#a": "", "é": "😀", "": 0}, '(:\\#a "" :é "😀" : 0)'),
    ({"\u00a0": "\n\t"}, '(:\\\u00a0 "\n\t")'),
    ({"s": 'say "hi" \\ bye'}, r'(:s "say \"hi\" \\ bye")'),
    ([True, False, None, {}, []], "[t :json-false :null nil []]"),
    ([1, -2, 1.5, 1e20, -0.0, 1e-7], "[1 -2 1.5 1e+20 -0.0 1e-07]"),
    ({"deep": [{"a": {"b": [1]}}]}, "(:deep [(:a (:b [1]))])"),
]


@pytest.mark.parametrize(("value", "printed"), AS_EMACS_PRINTS)
def test_json_is_printed_as_emacs_prints_it(value: Any, printed: str) -> None:
    assert print_json(value) == printed


@given(st.text(), st.dictionaries(st.text(), json_values))
def test_a_call_is_read_back_exactly(name: str, arguments: dict[str, Any]) -> None:
    printed = print_call(name, arguments)
    read_name, read_arguments, end = read_call(printed + "\n\nresult")
    assert (read_name, end) == (name, len(printed))
    assert json.dumps(read_arguments) == json.dumps(arguments)  # also tells 1 from 1.0 and from true


@pytest.mark.skipif(shutil.which("emacs") is None, reason="needs Emacs")
def test_emacs_reads_what_we_print_and_prints_it_alike() -> None:
    program = "(princ (prin1-to-string (read (decode-coding-string (base64-decode-string (pop argv)) 'utf-8))))"
    values = [value for value, _ in AS_EMACS_PRINTS]
    printed = base64.b64encode(print_json(values).encode()).decode()
    done = subprocess.run(
        ["emacs", "-Q", "--batch", "--eval", program, printed], capture_output=True, text=True, check=True
    )
    assert done.stdout == print_json(values)


@pytest.mark.parametrize(
    ("text", "datum"),
    [
        ("foo", Symbol("foo")),
        (r"gpt-5\.2", Symbol("gpt-5.2")),
        (r"\1", Symbol("1")),
        ("12.", 12),
        ('"a\\n\\t\\u00e9\\x41\\ b\\\nc"', "a\n\té" + "Abc"),
        ("; note\n (1 [2 (3)])", [1, [2, [3]]]),
    ],
)
def test_data_that_people_write_is_read(text: str, datum: Any) -> None:
    assert read(text)[0] == datum


@pytest.mark.parametrize("text", ["", "(", "(1", ")", "(1]", "'a", '"open', "#<buffer x>", "?a", "`(a)"])
def test_other_lisp_is_refused(text: str) -> None:
    with pytest.raises(SexpError):
        read(text)


@pytest.mark.parametrize("text", ["(:a)", "(a 1)", "(1 2)", "foo"])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(SexpError):
        to_json(read(text)[0])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "(:args nil)",
        "(:name 3 :args nil)",
        '(:name "x" :args [1])',
        "[1]",
        r'(:name "a\x110000")',
        r'(:name "a\xffffffffff")',
        f'(:name "x" :args (:a {"[" * 3000}{"]" * 3000}))',
    ],
    ids=lambda text: text[:30],
)
def test_what_is_no_call_is_refused(text: str) -> None:
    with pytest.raises(SexpError):
        read_call(text)


@pytest.mark.parametrize(
    ("name", "printed"), [("claude-sonnet-4-6", "claude-sonnet-4-6"), ("gpt-5.2", r"gpt-5\.2"), ("1", r"\1")]
)
def test_symbols_are_escaped_as_emacs_does(name: str, printed: str) -> None:
    assert print_lisp(Symbol(name)) == printed
    assert read(printed)[0] == Symbol(name)


def test_a_number_of_thousands_of_digits_is_refused_as_other_bad_data_is() -> None:
    with pytest.raises(SexpError, match="too many digits"):
        read("1" * 6000)
