"""Whatever a mission does, no text that its model is sent has a firewalled value (SPEC 004 Data Privacy)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyagentd.mission.delegation import delegate
from pyagentd.mission.firewall import HIDDEN
from pyagentd.mission.registry import Scripted
from tests.examples import examples
from tests.mission.test_loop import RETURN_1, code

SECRET, NUMBER = "S3CR3T-TOKEN", 987654321

CONTEXT = {
    "_token": SECRET,
    "_pin": NUMBER,
    "user": {"name": "Ada", "_token": SECRET, "_deep": [{"x": SECRET}]},
    "rows": [{"id": 1, "_note": f"about {SECRET}"}, {"id": 2, "_note": SECRET}],
}

PROGRAMS = [
    "ctx/_token",
    "ctx/_pin",
    "ctx/user",
    "ctx/rows",
    "(:_token ctx/user)",
    "(+ 1 ctx/_token)",
    "(+ :x ctx/_pin)",
    "(nth ctx/_token ctx/_pin)",
    "(ctx/_token 1)",
    "(call ctx/_token {})",
    '(str "a" ctx/_token "b")',
    "(str ctx/user)",
    "(pr-str ctx/rows)",
    '(join "," (map :_note ctx/rows))',
    "{:shown ctx/_token}",
    "{:shown {:deep [ctx/_pin]}}",
    "{ctx/_token 1}",
    "#{ctx/_token}",
    "{:_kept (str ctx/_token ctx/_token)}",
    "ctx/_kept",
    "(get-in ctx/user [:_deep 0 :x])",
    "(map :_note ctx/rows)",
    "(group-by :_note ctx/rows)",
    '(call "echo" {:text ctx/_token})',
    '(call "echo" {:text ctx/user})',
    '(call "raise" {:text ctx/_token})',
    '(call "private")',
    "(:_secret ctx/private)",
    '(call "child")',
    '(call "broken_child")',
    "(memory/put :_m ctx/_token)",
    "memory/_m",
    "(memory/put :m ctx/_token)",
    "memory/m",
    '(call "return" {:n ctx/_token})',
    '(call "return" {:n {:_t ctx/_token :u ctx/_pin}})',
    '(call "nothing" {:a ctx/_token})',
    '(call "typed" {:n ctx/_token})',
    "(parse-long ctx/_token)",
    "(subs ctx/_token ctx/_token)",
    "(let [{:keys [_token]} ctx/user] (/ _token 2))",
    "(zipmap [ctx/_token] [1])",
    "(assoc ctx/user :copy ctx/_token)",
    "(reduce (fn [a b] (+ a b)) ctx/_token [1])",
]


def raising(text):
    raise ValueError(f"cannot use {text!r}")


def child():
    return delegate(
        "Inner.", llm=Scripted([code('(call "return" {:n 1 :_inner ctx/_own})')]), context={"_own": SECRET + "-INNER"}
    ).unwrap()


def broken_child():
    program = '(call "fail" {:reason :bad :message (str "no: " ctx/_own)})'
    return delegate("Inner.", llm=Scripted([code(program)]), context={"_own": "INNER-" + SECRET}).unwrap()


TOOLS = {
    "echo": lambda args: args["text"],
    "raise": lambda args: raising(args["text"]),
    "private": lambda: {"private": {"_secret": "other-" + SECRET}},
    "child": child,
    "broken_child": broken_child,
    "typed": (lambda args: 1, "(n :int) -> :int"),
}

PROMPT = "Use {{_token}} of {{user.name}}: {{user}} {{user._token}} {{#rows}}{{id}}{{_note}}{{/rows}}."


def leaked(programs: list[str]) -> list[str]:
    llm = Scripted([*map(code, programs), "no program here", code(RETURN_1)])
    delegate(
        PROMPT,
        llm=llm,
        context=CONTEXT,
        tools=TOOLS,
        signature="{n :int}",
        max_turns=60,
        context_signature="{_pin :int}",
    )
    ours = [text for text in llm.texts if not text.startswith("```")]
    assert len(llm.requests) > len(programs) // 3
    return [text for text in ours if "S3CR3T" in text or str(NUMBER) in text]


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_program_brings_a_firewalled_value_before_the_model(program):
    assert leaked([program]) == []


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.sampled_from(PROGRAMS), min_size=1, max_size=8))
def test_no_sequence_of_programs_does_either(programs):
    assert leaked(programs) == []


def test_the_program_has_what_the_model_has_not():
    llm = Scripted([code('(call "return" {:t ctx/_token :n (count ctx/_token)})')])
    step = delegate("Use {{_token}}.", llm=llm, context=CONTEXT)
    assert step.value == {"t": SECRET, "n": len(SECRET)}
    assert llm.requests[0]["messages"][0]["content"] == f"Use {HIDDEN}."
    assert f"`ctx/_token` :string {HIDDEN}" in llm.requests[0]["system"]
