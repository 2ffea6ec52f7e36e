"""For any data: what a judge says arrives, what a plan or a checkpoint holds comes back, no call breaks."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pyagentd import lisp
from pyagentd.lisp import values
from pyagentd.mission import Plan, State, normalize, response
from pyagentd.mission.plan import PlanStep
from pyagentd.mission.tools import program_of
from tests.examples import examples

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=examples(40))
@given(JSON)
def test_what_a_judge_says_in_json_is_what_the_mission_returns(value: Any) -> None:
    program = response.parse(program_of(json.dumps(value))).program
    assert program is not None
    result = lisp.run(program)
    assert result.signal == "return" and values.to_python(result.value) == value


@settings(max_examples=examples(40))
@given(st.text(max_size=40))
def test_whatever_a_judge_says_is_a_program_or_a_mistake_in_one(text: str) -> None:
    program = response.parse(program_of(text)).program
    assert program is not None
    try:
        lisp.run(program, limits=lisp.Limits(steps=10_000))
    except lisp.LispError as error:
        assert error.message


def tool(query: str, limit: int = 3, *, where: dict[str, float] | None = None, tags: list[str] | None = None) -> str:
    return f"{query} {limit} {where} {tags}"


NAMES = st.sampled_from(["query", "limit", "where", "tags", "other"])


@settings(max_examples=examples(40))
@given(st.dictionaries(NAMES | NAMES.map(lisp.Keyword), JSON, max_size=5), st.sampled_from(["enabled", "strict"]))
def test_a_call_whose_arguments_are_in_order_can_be_made(args: dict[Any, Any], mode: str) -> None:
    searching = normalize([tool])["tool"]
    prepared = searching.prepare(args, mode)
    if not prepared.problems:
        assert isinstance(searching.call(prepared.args), str)


@settings(max_examples=examples(40))
@given(st.dictionaries(st.text(max_size=5), JSON, max_size=4), st.dictionaries(st.text(max_size=5), JSON, max_size=4))
def test_a_state_comes_back_from_json(memory: dict[str, Any], context: dict[str, Any]) -> None:
    state = State(prompt="p", turn=1, memory=memory, context=context)
    assert State.from_json(json.loads(json.dumps(state.to_json()))) == state


@settings(max_examples=examples(40))
@given(JSON, st.dictionaries(st.text(max_size=5), JSON, max_size=4))
def test_a_plan_comes_back_from_json(result: Any, args: dict[str, Any]) -> None:
    step = PlanStep(id="a", tool="t", args=args, status="done", result=result)
    plan = Plan(steps=(step,))
    if not step.predecessors:
        assert Plan.of(json.loads(json.dumps(plan.to_json()))) == plan
