"""What the prompt says of the language is so."""

from __future__ import annotations

import re

import pytest

from pyagentd import lisp
from pyagentd.lisp.values import Keyword
from pyagentd.mission.prompt import language_reference

BEFORE, PROGRAM, RULES = re.split(r"```(?:clojure)?\n?", language_reference())
SPANS = [span.replace("\n ", " ") for span in re.findall(r"`(\([^`]+\))`", RULES)]

ORDERS = [
    {"name": "a", "status": "open", "total": 150, "customer": {"vip": True}},
    {"name": "b", "status": "done", "total": 50, "customer": {"vip": False}},
]
AROUND = """(let [orders ctx/orders, xs ctx/orders, m {"name" 1}, x nil, names ["a" "b"], line "a,b",
                  p (where :total > 100), q (where :name = "a"), pred (where :total < 100)] %s)"""


def run(program: str):
    return lisp.run(AROUND % program, context={"orders": ORDERS}).value


def test_the_program_that_it_shows_runs():
    asked = []
    result = lisp.run(PROGRAM, context={"orders": []}, tools=lambda name, args: asked.append((name, args)))
    assert (result.value, result.signal, result.memory) == ({Keyword("count"): 3}, "return", {"seen": 3})
    assert asked == [("search", {Keyword("query"): "x"})]


@pytest.mark.parametrize("span", SPANS)
def test_every_example_runs(span):
    assert run(span) is not None


@pytest.mark.parametrize(
    ("program", "value"),
    [
        ("(/ 6 2)", 3.0),
        ("[(quot 7 2) (mod 7 2) (rem 7 2)]", [3, 1, 1]),
        ("(= 3 3.0)", True),
        ("(or x 0)", 0),
        ("(let [{:keys [name]} m] name)", 1),
        ('(filter (where :status includes "op") xs)', ORDERS[:1]),
        ('(filter (where :status in ["done"]) xs)', ORDERS[1:]),
        ("(map first {:b 1 :a 2})", [Keyword("a"), Keyword("b")]),
        ("ctx/none", None),
        ("memory/none", None),
        ("(max-by :total xs)", ORDERS[0]),
        ("(max-by :total [])", None),
    ],
)
def test_what_it_says_is_so(program, value):
    assert run(program) == value


@pytest.mark.parametrize("program", ["(+ 1 x)", '(< "a" "b")'])
def test_what_it_says_is_an_error_is_one(program):
    with pytest.raises(lisp.LispError) as caught:
        run(program)
    assert caught.value.reason == "eval_error"
