"""Whatever a model says and a tool does, a delegation ends with a step within its limits."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from pyagentd.mission import step as trace
from pyagentd.mission.budget import Budget
from pyagentd.mission.delegation import delegate
from pyagentd.mission.options import LLMError
from pyagentd.mission.registry import Scripted
from pyagentd.mission.step import Step
from tests.examples import examples
from tests.mission.test_loop import code

PIECES = [
    "(",
    ")",
    "[",
    "}",
    '"',
    "call",
    "return",
    "fail",
    ":reason",
    "ctx/x",
    "memory/put",
    "odd",
    "1",
    "nil",
    "#(",
    "%",
]

SAYINGS = st.one_of(
    st.sampled_from(
        [
            code("ctx/x"),
            code('(call "odd" {:n ctx/x})'),
            code('(call "raise")'),
            code("(memory/put :m ctx/last)"),
            code("{:x ctx/last :_y memory/m}"),
            code('(call "return" ctx/x)'),
            code('(call "return" {:n 1})'),
            code('(call "fail" ctx/x)'),
            code("(fn [] 1)"),
            code("(nope"),
            {"content": code("1"), "tokens": {"input": 1}, "cost_usd": 0.1},
            {"text": "x"},
            None,
            ValueError("lost"),
            LLMError("quota"),
        ]
    ),
    st.text(max_size=20),
    st.lists(st.sampled_from(PIECES), max_size=8).map(" ".join).map(code),
)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "_b", "c d"]), inner, max_size=3)
    ),
    max_leaves=8,
)


def raising() -> int:
    raise RuntimeError


@settings(max_examples=examples(40), deadline=None)
@given(
    says=st.lists(SAYINGS, max_size=6),
    value=VALUES,
    signature=st.sampled_from([None, "{n :int}", ":any", "(x :int) -> :string", "[:any]"]),
    mode=st.sampled_from(["enabled", "warn_only", "disabled", "strict"]),
    turns=st.integers(1, 4),
    tools=st.booleans(),
)
def test_it_ends_with_a_step(says, value, signature, mode, turns, tools):
    llm = Scripted([*says, code("1")], repeat=True)
    budget = Budget(turns=3)
    step = delegate(
        "Go with {{x}}.",
        llm=llm,
        context={"x": value},
        signature=signature,
        signature_validation=mode,
        max_turns=turns,
        tools={"odd": (lambda args: value, "(n :any) -> :any"), "raise": (raising, "() -> :int")} if tools else {},
        budget=budget,
        llm_retry={"max_attempts": 2},
        sleep=lambda seconds: None,
    )
    assert isinstance(step, Step) and step.ok == (step.fail is None)
    assert budget.used == len(step.trace) == step.usage.turns <= min(turns, 3)
    assert all(turn.feedback for turn in step.trace[:-1])
    json.dumps(trace.step_to_json(step))
    for request in llm.requests:
        roles = [message["role"] for message in request["messages"]]
        assert roles == ["user", *["assistant", "user"] * (len(roles) // 2)]
        assert all(message["content"].strip() for message in request["messages"])
