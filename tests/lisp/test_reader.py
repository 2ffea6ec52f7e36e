"""Texts become forms, and what is wrong with a text is said with its place and a hint."""

import threading

import pytest

from pyagentd import lisp
from pyagentd.lisp import reader
from pyagentd.lisp.values import Keyword, Pattern

READ = [
    ("nil", None),
    ("true", True),
    ("false", False),
    ("42", 42),
    ("-7", -7),
    ("+5", 5),
    ("0x1F", 31),
    ("2N", 2),
    ("1.5", 1.5),
    ("-0.5", -0.5),
    ("1e3", 1000.0),
    ("2.5E-2", 0.025),
    ("3M", 3.0),
    ("##Inf", float("inf")),
    ("##-Inf", float("-inf")),
    ('"a b"', "a b"),
    (r'"q\"b\\n\n\t\r"', 'q"b\\n\n\t\r'),
    (r'"\u00e9\ud83d\ude00"', "é😀"),
    (r'"\d+ stays"', r"\d+ stays"),
    ('"two\nlines"', "two\nlines"),
    (":a", Keyword("a")),
    (":a.b/c-d?!", Keyword("a.b/c-d?!")),
    ("::auto", Keyword("auto")),
    (":1st", Keyword("1st")),
    (":ünïcode", Keyword("ünïcode")),
    (r"\a", "a"),
    (r"\newline", "\n"),
    (r"\space", " "),
    (r"\u0041", "A"),
    (r"\(", "("),
    (r'#"\d+"', Pattern(r"\d+")),
    ("; a comment\n5 ; another", 5),
    ("#!/usr/bin/env pyagentd\n5", 5),
    ("#_ (ignored #_ twice) 5", 5),
    ("#_ #_ 1 2 5", 5),
    ("^:private 5", 5),
    ("^{:doc 1} 5", 5),
    ("[1,2,,3]", [1, 2, 3]),
    ("\ufeff 5", 5),
    ("'(1 (2))", [1, [2]]),
    ("{}", {}),
    ('{"a" 1 :b [2]}', {"a": 1, Keyword("b"): [2]}),
    ("nilly", "undefined variable: nilly"),
]


@pytest.mark.parametrize(("text", "value"), READ, ids=[text for text, _ in READ])
def test_a_text_is_read(text: str, value: object) -> None:
    try:
        found = lisp.run(text).value
    except lisp.LispError as error:
        found = error.message
    assert (type(found), found) == (type(value), value)


WRONG = [
    ("", 1, 1, "the program is empty"),
    ("; nothing", 1, 1, "the program is empty"),
    ("(+ 1 2", 1, 1, "unclosed '(' opened at line 1 column 1"),
    ("(let [x 1]\n  (inc x)", 1, 1, "unclosed '(' opened at line 1 column 1"),
    ("(defn f [x]\n  (inc x)\n(f 1)", 1, 1, "unclosed '(' opened at line 1 column 1"),
    ("(a\n  [1 2", 2, 3, "unclosed '[' opened at line 2 column 3"),
    ("#{1 2", 1, 1, "unclosed '#{' opened at line 1 column 1"),
    ("(+ 1 2))", 1, 8, "surplus ')': nothing is open here"),
    ("(+ 1 2]", 1, 7, "']' does not close '(' opened at line 1 column 1"),
    ("(f [1 2)", 1, 8, "')' does not close '[' opened at line 1 column 4"),
    ("{:a 1 :b}", 1, 1, "a map needs pairs of key and value, got 3 forms"),
    ('"abc', 1, 1, "unterminated string"),
    ('(f #"abc', 1, 4, "unterminated string"),
    ('"a\\\nb"', 1, 1, "a backslash at the end of a line"),
    ("(inc @)", 1, 6, "nothing follows '@'"),
    ("`(a)", 1, 1, "there are no macros"),
    ("(f ~x)", 1, 4, "there are no macros"),
    ("# {1}", 1, 1, "'#' must be followed by"),
    ("#'f", 1, 1, "'#' must be followed by"),
    ("(f :)", 1, 4, "a keyword needs a name"),
    ("1/2", 1, 1, "1/2 is not a number"),
    ("12abc", 1, 1, "12abc is not a number"),
    (".5", 1, 1, ".5 is not a number"),
    ("1e999", 1, 1, "larger than any floating-point number"),
    ("9" * 1001, 1, 1, "more than 1000 digits"),
    (r"\nope", 1, 1, r"unknown character \nope"),
    ("##Nope", 1, 1, "unknown number ##Nope"),
    ("(f '", 1, 4, 'nothing follows "\'"'),
    ("(f ')", 1, 4, 'nothing follows "\'"'),
    ("[#_]", 1, 2, "nothing follows '#_'"),
    ("(" * 101, 1, 101, "nested deeper than 100 levels"),
    ("'" * 200 + "a", 1, 101, "nested deeper than 100 levels"),
    ("x" * (reader.MAX_TEXT + 1), 1, 1, "more than 200000 characters"),
    ("1 " * (reader.MAX_FORMS + 1), 1, 2 * reader.MAX_FORMS + 1, "more than 10000 parts"),
]


@pytest.mark.parametrize(("text", "line", "column", "message"), WRONG, ids=[text[:30] for text, *_ in WRONG])
def test_what_cannot_be_read_is_named_with_its_place(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(lisp.LispError) as caught:
        lisp.compile(text)
    error = caught.value
    assert error.reason == "parse_error"
    assert (error.line, error.column) == (line, column)
    assert message in error.message


def hint(text: str) -> str:
    with pytest.raises(lisp.LispError) as caught:
        lisp.compile(text)
    return caught.value.hint


def test_the_hint_for_a_missing_bracket_says_which_to_add_and_where() -> None:
    assert hint("(let [x (inc 1") == "Add )]) at the end."
    assert hint("(defn f [x]\n  (inc x)\n(f 1)") == "Add ) at the end, or close what is open before line 3."


def test_the_caret_stands_below_the_column() -> None:
    with pytest.raises(lisp.LispError) as caught:
        lisp.compile("(let [x 1]\n\t(inc x]")
    assert caught.value.caret() == "\t(inc x]\n\t      ^"
    assert caught.value.explain().splitlines()[0].endswith("(line 2, column 8)")


def test_the_caret_of_a_long_line_shows_a_part_of_it() -> None:
    with pytest.raises(lisp.LispError) as caught:
        lisp.compile(f'(str "{"x" * 500}" `y)')
    line, caret = caught.value.caret().splitlines()
    assert len(line) <= 100
    assert line[len(caret) - 1] == "`"


def deep_programs() -> list[str]:
    shapes = [
        ("(str ", ")", "1"),
        ("(if ctx/x 2 ", ")", "1"),
        ("(let [x ", "] x)", "1"),
        ("(fn [x] ", ")", "x"),
        ("(or ctx/x ", ")", "1"),
        ("(if-let [y ctx/x] 1 ", ")", "2"),
        ("[", "]", "1"),
        ("{:a ", "}", "1"),
        ("(loop [i 0] (if (< i 1) (recur (inc i)) ", "))", "1"),
        ("(for [x [1]] ", ")", "x"),
        ("(for [x ", "] x)", "[1]"),
        ("(map (fn [x] x) ", ")", "[1]"),
        ("(try ", " (catch e 1))", "1"),
        ("(cond nil 1 nil 2 nil 3 nil 4 nil 5 :else ", ")", "1"),
        ("(some-> ", " inc)", "1"),
        ("(memory/put :a ", ")", "1"),
        ("(case 1 2 3 ", ")", "4"),
    ]
    return [before * depth + core + after * depth for before, after, core in shapes for depth in (30, 99, 5000)]


@pytest.mark.parametrize("program", deep_programs(), ids=lambda program: program[:20])
def test_deep_nesting_runs_or_is_refused_in_any_thread(program: str) -> None:
    outcomes: list[object] = []

    def run() -> None:
        try:
            outcomes.append(lisp.run(program, {"x": 1}).value)
        except lisp.LispError as error:
            outcomes.append(error.reason)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert len(outcomes) == 1, "the thread died of another exception"
    if len(program) > 20_000:
        assert outcomes == ["parse_error"]


WIDE = {
    "cond": ("(cond " + "nil 1 " * 1000 + ":else 7)", 7),
    "cond inside": ("(+ 1 (cond " + "nil 1 " * 1000 + ":else 7))", 8),
    "->": ("(-> 0 " + "inc " * 1000 + ")", 1000),
    "some->": ("(some-> 0 " + "inc " * 500 + ")", 500),
    "cond->": ("(cond-> 0 " + "true inc " * 500 + ")", 500),
    "or": ("(or " + "nil " * 1000 + "5)", 5),
    "and": ("(and " + "1 " * 1000 + "5)", 5),
    "let": ("(let [x 0 " + "x (+ x 1) " * 500 + "] x)", 500),
    "call": ("(+ " + "1 " * 2000 + ")", 2000),
    "case": ("(case 500 " + " ".join(f"{n} {n}" for n in range(1000)) + ")", 500),
    "forms": ("1 " * 2000, 1),
    "vector": ("(count [" + "1 " * 2000 + "])", 2000),
}


@pytest.mark.parametrize("name", WIDE)
def test_long_forms_need_no_nesting(name: str) -> None:
    program, value = WIDE[name]
    assert lisp.run(program).value == value
