"""Every reason of the specification's table: what the model reads, and what stands in the step."""

from __future__ import annotations

import pytest

from pyagentd.mission.budget import Budget
from pyagentd.mission.delegation import delegate
from pyagentd.mission.options import LLMError
from pyagentd.mission.registry import Scripted
from tests.mission.test_loop import RETURN_1, code, told


def soft(program: str, **options) -> tuple[str, str]:
    """Return the reason of a turn that failed and what the model was told; the next turn ends the mission."""
    llm = Scripted([code(program), code(RETURN_1)])
    step = delegate("Go.", llm=llm, **options)
    assert step.ok and len(llm.requests) == 2
    assert step.usage.llm_requests == 2
    assert "Traceback" not in told(llm) and "Error (" in told(llm)
    return step.trace[0].error.reason, told(llm)


def single(program: str, **options) -> str:
    """Return the reason in the step of a mission that has one turn."""
    return delegate("Go.", llm=Scripted([code(program)]), max_turns=1, **options).fail.reason


@pytest.mark.spec("004", "Error reason parse_error")
def test_a_syntax_error_is_told_with_its_place():
    reason, said = soft("(+ 1\n  (* 2 3)")
    assert reason == "parse_error"
    assert "line 1" in said and "^" in said
    assert single("(+ 1") == "parse_error"


@pytest.mark.spec("004", "Error reason analysis_error")
def test_an_unknown_name_is_told_with_what_was_meant():
    reason, said = soft("(fliter odd? [1 2])")
    assert reason == "analysis_error"
    assert "filter" in said
    assert single("(let [x] x)") == "analysis_error"


@pytest.mark.spec("004", "Error reason eval_error")
def test_a_run_time_error_is_told():
    reason, said = soft("(/ 1 0)")
    assert reason == "eval_error"
    assert "undone" not in said and "stays done" not in said
    assert single("(+ 1 nil)") == "eval_error"


def test_what_stays_done_of_a_program_that_failed_is_told():
    _, said = soft('(do (memory/put :a (call "ping")) (/ 1 0))', tools={"ping": lambda: 1})
    assert "What the program put into memory is undone.\nIt had called ping before; that stays done." in said


@pytest.mark.spec("004", "Error reason timeout")
def test_a_program_that_takes_too_long_is_stopped():
    forever = "(loop [n 0] (recur (inc n)))"
    reason, said = soft(forever, timeout_ms=20)
    assert reason == "timeout"
    assert "20 ms" in said
    assert single(forever, timeout_ms=20) == "timeout"


@pytest.mark.spec("004", "Error reason memory_exceeded")
@pytest.mark.spec("004", "Memory Size")
def test_memory_has_a_size():
    grow = '(memory/put :text (apply str (repeat 300 "0123456789")))'
    reason, said = soft(grow, memory_bytes=2_000)
    assert reason == "memory_exceeded"
    assert "memory" in said
    assert single(grow, memory_bytes=2_000) == "memory_exceeded"
    step = delegate("Go.", llm=Scripted([code(grow), code(RETURN_1)]), memory_bytes=4_000)
    assert 3_000 < step.usage.memory_bytes < 4_000


@pytest.mark.spec("004", "DD-7: Erlang Term Format for Memory Size Limit")
def test_the_size_of_memory_is_one_megabyte_of_its_canonical_text():
    put = '(memory/put :text (subs (apply str (repeat 110000 "0123456789")) 0 {}))'
    ok = delegate("Go.", llm=Scripted([code(put.format(1_048_000)), code(RETURN_1)]))
    assert ok.trace[0].error is None
    over = delegate("Go.", llm=Scripted([code(put.format(1_049_000)), code(RETURN_1)]))
    assert over.trace[0].error.reason == "memory_exceeded"


@pytest.mark.spec("004", "Error reason validation_error")
def test_arguments_and_results_that_do_not_fit_are_told():
    called = []
    tools = {"get": (lambda args: called.append(args) or "x", "(id :int) -> :int")}
    reason, said = soft('(call "get" {:id "seven"})', tools=tools)
    assert reason == "validation_error"
    assert "id" in said and "get(id :int) -> :int" in said and called == []
    reason, said = soft('(call "get" {:id 7})', tools=tools)
    assert (reason, called) == ("validation_error", [{"id": 7}])
    assert "does not fit its signature" in said
    assert delegate("Go.", llm=Scripted([]), signature="(n :int) -> :int", context={"n": "x"}).fail.reason == (
        "validation_error"
    )


@pytest.mark.parametrize("program", ['(call "get" 1)', '(call "get" 1 2)', '(call "get" "id" 7)', '(call "get" [1])'])
def test_arguments_are_one_map(program):
    reason, _ = soft(program, tools={"get": (lambda args: 1, "(id :int) -> :int")})
    assert reason == "validation_error"


@pytest.mark.spec("004", "Error reason tool_error")
@pytest.mark.spec("004", "Tool Error Handling Convention")
def test_a_tool_that_raises_is_told_without_a_traceback():
    def get_user(id: int) -> dict:
        raise LookupError("User not found")

    reason, said = soft('(call "get_user" {:id 7})', tools={"get_user": get_user})
    assert reason == "tool_error"
    assert 'The tool "get_user" failed: User not found.' in said


@pytest.mark.spec("004", "DD-5: Tool Error Handling via Conventions")
def test_an_error_map_is_a_value_that_programs_look_at():
    tools = {"get": lambda: {"error": "not_found", "message": "No such user"}}
    llm = Scripted([code('(let [u (call "get")] (call "return" (or (:error u) "fine")))')])
    assert delegate("Go.", llm=llm, tools=tools).value == "not_found"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KeyError("id"), "there is no id"),
        (TimeoutError(), "timeout error, without a message"),
        (ValueError("x" * 5000), "x" * 900),
    ],
)
def test_a_bare_exception_is_put_into_words(error, said):
    def broken() -> int:
        raise error

    assert said in soft('(call "broken")', tools={"broken": broken})[1]


def test_a_tool_that_gives_what_programs_cannot_use_is_told():
    reason, said = soft('(call "odd")', tools={"odd": lambda: object()})
    assert reason == "tool_error"
    assert "0x" not in said


@pytest.mark.spec("004", "Error reason tool_not_found")
def test_an_unknown_tool_is_told_with_those_that_are_there():
    reason, said = soft('(call "serch" {})', tools={"search": lambda: 1, "get": lambda: 2})
    assert reason == "tool_not_found"
    assert 'Did you mean "search"?' in said and "get, search" in said


@pytest.mark.spec("004", "tools vs tool_catalog")
def test_a_tool_of_the_catalog_cannot_be_called():
    reason, said = soft('(call "book" {:id 1})', tool_catalog={"book": "(id :int) -> {ok :bool}"})
    assert reason == "tool_not_found"
    assert "for planning only" in said


@pytest.mark.spec("004", "Error reason max_turns_exceeded")
def test_the_last_turn_is_the_last():
    llm = Scripted([code("1"), code("(/ 1 0)")], repeat=True)
    step = delegate("Go.", llm=llm, max_turns=2)
    assert (step.fail.reason, len(llm.requests), len(step.trace)) == ("max_turns_exceeded", 2, 2)
    assert step.fail.details["last_error"]["reason"] == "eval_error"


@pytest.mark.spec("004", "Total Turn Budget")
@pytest.mark.spec("004", "Error reason turn_budget_exhausted")
def test_the_turns_of_a_tree_are_shared():
    inner = Scripted([code("1"), code("2"), code(RETURN_1)], repeat=True)
    outer = Scripted([code('(call "child")')], repeat=True)
    tools = {"child": lambda: delegate("Inner.", llm=inner).unwrap()}
    step = delegate("Outer.", llm=outer, tools=tools, max_turns=99)
    assert step.fail.reason == "turn_budget_exhausted"
    assert step.usage.turns == 20 == len(inner.requests) + len(outer.requests)
    assert delegate("Go.", llm=Scripted([code("1")], repeat=True), max_turns=99).usage.turns == 20
    few = delegate("Go.", llm=Scripted([code("1")], repeat=True), budget=Budget(turns=2))
    assert (few.fail.reason, len(few.trace)) == ("turn_budget_exhausted", 2)


@pytest.mark.spec("004", "Nested Depth")
@pytest.mark.spec("004", "Error reason max_depth_exceeded")
def test_missions_nest_three_levels_deep():
    models: list[Scripted] = []

    def below() -> int:
        models.append(Scripted([code('(call "return" (call "below"))'), code('(call "return" 5)')]))
        return delegate("Deeper.", llm=models[-1], tools={"below": below}).unwrap()

    llm = Scripted([code('(call "return" (call "below"))')])
    step = delegate("Root.", llm=llm, tools={"below": below})
    assert step.value == 5
    assert [len(model.requests) for model in models] == [1, 1, 2, 0]
    assert "max_depth_exceeded" in told(models[2])
    (call,) = step.trace[0].tool_calls
    assert call.children[0].trace[0].tool_calls[0].children[0].usage.turns == 3


@pytest.mark.spec("004", "Error reason mission_timeout")
def test_a_mission_has_a_deadline():
    now = [0.0]

    def slow(request):
        now[0] += 25
        return code("1")

    step = delegate("Go.", llm=slow, monotonic=lambda: now[0])
    assert step.fail.reason == "mission_timeout"
    assert len(step.trace) == 3
    assert delegate("Go.", llm=slow, monotonic=lambda: now[0], mission_timeout_ms=None).fail.reason == (
        "max_turns_exceeded"
    )


@pytest.mark.spec("004", "LLM Retry Scope")
@pytest.mark.spec("004", "Error reason llm_error")
def test_a_callback_that_fails_is_called_again():
    waits: list[float] = []
    llm = Scripted([LLMError("rate_limit", "slow down"), RuntimeError("reset"), code(RETURN_1)])
    step = delegate("Go.", llm=llm, sleep=waits.append)
    assert (step.ok, waits) == (True, [1.0, 2.0])
    assert (step.usage.llm_requests, step.usage.turns) == (3, 1)
    step = delegate("Go.", llm=Scripted([LLMError("quota", "over")], repeat=True), sleep=waits.append)
    assert step.fail.reason == "llm_error"
    assert step.fail.details == {"reason": "quota", "attempts": 3}
    step = delegate("Go.", llm=Scripted([LLMError("quota")]), llm_retry={"retryable_errors": ["timeout"]})
    assert (step.fail.reason, step.fail.details["attempts"]) == ("llm_error", 1)


@pytest.mark.parametrize("answer", [None, 7, {"text": "x"}, {"content": None}])
def test_an_answer_of_another_kind_is_a_failure_of_the_callback(answer):
    step = delegate("Go.", llm=lambda request: answer, llm_retry={"max_attempts": 1})
    assert (step.fail.reason, step.fail.details["reason"]) == ("llm_error", "invalid_answer")


@pytest.mark.spec("004", "DD-4: Soft Failures Don't Consume Retry Budget")
def test_what_a_model_gets_wrong_costs_turns_and_no_attempts():
    wrong = [code("(+ 1"), code("(nope)"), code('(call "return" "x")'), "words", code('(call "return" 1)')]
    waits: list[float] = []
    step = delegate("Go.", llm=Scripted(wrong), signature=":int", llm_retry={"max_attempts": 1}, sleep=waits.append)
    assert (step.ok, step.usage.turns, step.usage.llm_requests, waits) == (True, 5, 5, [])


@pytest.mark.spec("004", "Cost Budget Option")
def test_a_mission_costs_no_more_than_it_may():
    llm = Scripted([{"content": code("1"), "cost_usd": 0.2}], repeat=True)
    step = delegate("Go.", llm=llm, max_cost_usd=0.5)
    assert (step.fail.reason, len(llm.requests)) == ("max_cost_exceeded", 3)
    assert "$0.5 " in step.fail.message
    unknown = delegate("Go.", llm=Scripted([code(RETURN_1)]), max_cost_usd=0.5)
    assert unknown.fail.reason == "validation_error"


@pytest.mark.spec("004", "Consecutive Failure Limit")
def test_failures_in_a_row_end_a_mission():
    bad, good = code("(nope)"), code("1")
    llm = Scripted([bad, bad, good, bad, bad, bad, code(RETURN_1)])
    step = delegate("Go.", llm=llm, max_turns=10, max_consecutive_failures=3)
    assert (step.fail.reason, len(llm.requests)) == ("max_consecutive_failures_exceeded", 6)
    assert step.fail.details["last_error"]["reason"] == "analysis_error"


def test_whoever_cancels_ends_it():
    ends = []
    llm = Scripted([lambda request: ends.append(1) or code("1")], repeat=True)
    step = delegate("Go.", llm=llm, cancelled=lambda: len(ends) > 1)
    assert (step.fail.reason, len(llm.requests)) == ("cancelled", 2)
