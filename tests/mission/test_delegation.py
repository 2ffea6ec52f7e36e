"""How strictly a mission checks what goes in and what comes out."""

import asyncio
import inspect
import json
import threading
from datetime import timedelta
from typing import get_overloads

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyagentd.mission import step as trace
from pyagentd.mission.budget import Budget, current
from pyagentd.mission.delegation import adelegate, delegate
from pyagentd.mission.options import Limits, LLMError, Options, PromptLimit, Retry
from pyagentd.mission.registry import Scripted
from pyagentd.mission.step import MissionFailed, Step
from tests.examples import examples
from tests.mission.answers import RETURN_1, code, told

COUNT = "(n :int) -> {count :int}"


def returning(value: str, **options):
    llm = Scripted([code(f'(call "return" {value})'), code('(call "fail" {:reason :gave_up :message "m"})')])
    return delegate("Go.", llm=llm, **options), llm


@pytest.mark.spec("004", "Validation Options")
@pytest.mark.parametrize(
    ("mode", "reason", "warned"),
    [
        ("enabled", "gave_up", False),
        ("strict", "gave_up", False),
        ("warn_only", None, True),
        ("disabled", None, False),
    ],
)
def test_a_wrong_result_is_refused_let_pass_or_not_looked_at(mode, reason, warned):
    step, _ = returning('{:count "x"}', signature="{count :int}", signature_validation=mode)
    assert (step.fail.reason if step.fail else None) == reason
    assert bool(step.warnings) == warned


@pytest.mark.spec("004", "Signature Validation Strictness")
@pytest.mark.spec("004", "DD-3: Lenient Extra Fields by Default")
def test_extra_fields_are_refused_only_when_strict():
    value = '{:count 5 :extra "bonus"}'
    step, _ = returning(value, signature="{count :int, note :string?}")
    assert step.value == {"count": 5, "extra": "bonus"}
    strict, llm = returning(value, signature="{count :int}", signature_validation="strict")
    assert strict.fail.reason == "gave_up"
    assert strict.trace[0].error.reason == "validation_error" and "extra" in told(llm)


@pytest.mark.parametrize(
    ("mode", "reason"),
    [("enabled", "validation_error"), ("strict", "validation_error"), ("warn_only", None), ("disabled", None)],
)
def test_a_context_that_does_not_fit_is_refused_before_the_model_is_asked(mode, reason):
    step, llm = returning("{:count 1}", signature=COUNT, context={"n": "many"}, signature_validation=mode)
    assert (step.fail.reason if step.fail else None) == reason
    assert bool(llm.requests) == (reason is None)


def test_inputs_are_converted_to_what_the_signature_says():
    step, _ = returning("{:count (inc ctx/n)}", signature=COUNT, context={"n": "41"})
    assert step.value == {"count": 42}
    assert any("coerced" in warning for warning in step.warnings)


def test_a_missing_input_matters_only_when_strict():
    assert returning("{:count 1}", signature=COUNT)[0].ok
    strict, _ = returning("{:count 1}", signature=COUNT, signature_validation="strict")
    assert strict.fail.reason == "validation_error" and "no n" in strict.fail.message


def test_the_types_of_a_context_are_checked():
    wrong, _ = returning("1", context={"n": "x"}, context_signature="{n :int}")
    assert (wrong.fail.reason, wrong.fail.details["problems"][0]["path"]) == ("validation_error", "n")
    strict, _ = returning("1", context={}, context_signature="{n :int}", signature_validation="strict")
    assert strict.fail.reason == "validation_error"


def test_strict_needs_a_signature_for_every_tool():
    def bare(thing):
        return thing

    tools = {"ok": (lambda args: 1, "() -> :int"), "bare": bare}
    step, llm = returning("1", tools=tools, signature_validation="strict")
    assert step.fail.reason == "validation_error" and "bare" in step.fail.message and "ok" not in step.fail.message
    assert llm.requests == []
    assert returning("1", tools=tools)[0].ok


def test_a_tool_says_itself_how_strictly_it_is_checked():
    tools = {
        "strict": (lambda args: 1, "(n :int) -> :int", {"validation": "strict"}),
        "lenient": (lambda args: "x", "(n :int) -> :int", {"validation": "warn_only"}),
        "free": (lambda args: args, "(n :int) -> :int", {"validation": "disabled"}),
    }
    llm = Scripted(
        [
            code('(call "strict" {:n 1 :extra 2})'),
            code('(call "lenient" {:n "x"})'),
            code('(call "return" (call "free" {:n "x" :more 1}))'),
        ]
    )
    step = delegate("Go.", llm=llm, tools=tools)
    assert step.trace[0].error.reason == "validation_error"
    assert step.trace[1].error is None and "Note: " in step.trace[1].feedback
    assert step.value == {"n": "x", "more": 1}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"limits": Limits(max_turns=0)}, "max_turns is 0"),
        ({"timeout_s": timedelta(0)}, "timeout_s is datetime.timedelta(0), not a time"),
        ({"max_turns": 0}, "max_turns is 0"),
        ({"max_turns": True}, "max_turns is True"),
        ({"timeout_ms": -1}, "timeout_s is -0.001"),
        ({"mission_timeout_ms": 0}, "mission_timeout_s is 0.0, not a time above 0: seconds, or a timedelta"),
        ({"max_consecutive_failures": 0}, "max_consecutive_failures is 0"),
        ({"max_cost_usd": -1}, "max_cost_usd is -1"),
        ({"max_cost_usd": "1"}, "max_cost_usd is '1', not a number from 0"),
        ({"timeout_s": float("inf")}, "timeout_s is inf: a time has an end"),
        ({"mission_timeout_s": float("inf")}, "mission_timeout_s is inf: a time has an end; None is no limit"),
        ({"signature_validation": "loose"}, "not one of enabled, warn_only, disabled, strict"),
        ({"isolation": "vm"}, "not one of none, process"),
        ({"llm_retry": {"backoff": "random"}}, "not one of exponential, linear"),
        ({"llm_retry": {"max_attempts": 0}}, "llm_retry.max_attempts is 0"),
        ({"prompt_limit": {"list": -1}}, "prompt_limit.list is -1"),
        ({"signature": "{count"}, "The signature cannot be read"),
        ({"context": {"x": object()}}, "The context holds something that programs cannot use"),
        ({"context": {"x": 10**4000}}, "value.x is an integer of 13288 bits, and 13000 are the most"),
        ({"context": 5}, "context"),
        ({"tools": {"t": 5}}, '"t"'),
        ({"llm": 5}, "llm"),
    ],
)
def test_what_cannot_be_meant_is_a_failed_step(options, message):
    step = delegate(**{"prompt": "Go.", "llm": Scripted([]), **options})
    assert step.fail.reason == "validation_error"
    assert message in step.fail.message


def test_no_prompt_is_a_failed_step():
    assert delegate(" ", llm=Scripted([])).fail.reason == "validation_error"


def test_the_defaults_are_the_specifications():
    options = Options()
    assert options.prompt_limit == PromptLimit(list=5, string=1000)
    assert options.llm_retry == Retry(max_attempts=3, backoff="exponential", retryable_errors=None)
    assert (options.max_turns, options.memory_bytes, list(options.mistakes())) == (5, 1_048_576, [])


def test_a_failed_step_is_raised_where_a_value_is_needed():
    step = delegate("Go.", llm=Scripted([code(RETURN_1)]), tools={"return": lambda: 1})
    assert step.fail.reason == "reserved_tool_name"
    with pytest.raises(MissionFailed, match="reserved_tool_name") as failed:
        step.unwrap()
    assert failed.value.step is step
    assert delegate("Go.", llm=Scripted([code(RETURN_1)])).unwrap() == 1


@pytest.mark.parametrize("isolation", ["none", "process"])
def test_programs_run_in_either_isolation(isolation):
    llm = Scripted(
        [code('(memory/put :n (call "get" {:n 20}))'), code('(call "return" {:n (+ 1 memory/n ctx/last)})')]
    )
    tools = {"get": (lambda args: args["n"], "(n :int) -> :int")}
    step = delegate("Go.", llm=llm, tools=tools, isolation=isolation)
    assert step.value == {"n": 41}
    assert step.trace[0].tool_calls[0].result == 20


def test_resuming_goes_on_after_the_last_turn(tmp_path):
    llm = Scripted([code("{:a 1}"), code("(memory/put :b 2)"), code("(nope)")])
    states = []
    first = delegate(
        "Go {{x}}.", llm=llm, context={"x": 5}, checkpoint_dir=tmp_path, on_checkpoint=states.append, max_turns=3
    )
    assert first.fail.reason == "max_turns_exceeded"
    assert [state.turn for state in states] == [1, 2, 3]
    again = Scripted([code('(call "return" [ctx/x ctx/a memory/b])')])
    step = delegate(
        "Go {{x}}.", llm=again, context={"x": 5}, resume_from="checkpoint-2.json", checkpoint_dir=tmp_path
    )
    assert step.value == [5, 1, 2]
    assert [turn.number for turn in step.trace] == [1, 2, 3]
    assert (step.usage.turns, again.requests[0]["turn"], len(again.requests[0]["messages"])) == (3, 3, 5)
    late = delegate("Go {{x}}.", llm=Scripted([]), context={"x": 5}, resume_from=states[2], max_turns=3)
    assert late.fail.reason == "max_turns_exceeded"
    assert delegate("Go.", llm=Scripted([]), resume_from=tmp_path / "none").fail.reason == "checkpoint_error"


def test_an_integer_that_could_not_be_written_is_a_failure_of_its_tool():
    llm = Scripted([code('(call "big")'), code('(call "return" 1)')])
    step = delegate("Go.", llm=llm, tools={"big": lambda: [10**5000]})
    assert step.value == 1
    assert "value[0] is an integer of 16610 bits" in step.trace[0].error.message


def test_what_fails_at_a_checkpoint_is_logged_and_ends_nothing(caplog):
    step = delegate("Go.", llm=Scripted([code("1"), code('(call "return" 2)')]), on_checkpoint=lambda state: 1 / 0)
    assert step.value == 2
    assert "What is called with checkpoints failed at turn 1" in caplog.text


# Missions started from an event loop, and coroutines in missions that were not.


async def answering(request):
    await asyncio.sleep(0)
    return code('(call "return" (call "get" {:n 4}))')


async def get(n: int) -> int:
    await asyncio.sleep(0)
    return n + 1


async def test_coroutines_run_on_the_callers_loop():
    loops = []

    async def where(n: int) -> int:
        loops.append(asyncio.get_running_loop())
        return n

    step = await adelegate("Go.", llm=answering, tools={"get": where})
    assert step.value == 4
    assert loops == [asyncio.get_running_loop()]


def test_coroutines_run_where_there_is_no_loop():
    assert delegate("Go.", llm=answering, tools={"get": get}).value == 5


async def test_a_synchronous_mission_on_a_loop_still_runs_coroutines():
    assert delegate("Go.", llm=answering, tools={"get": get}).value == 5


async def test_listeners_are_called_on_the_loop_before_the_mission_goes_on():
    here, seen = threading.get_ident(), []
    llm = Scripted([code("1"), code(RETURN_1)])
    step = await adelegate(
        "Go.",
        llm=llm,
        telemetry=lambda event: seen.append((threading.get_ident(), event.name, len(llm.requests))),
        on_checkpoint=lambda state: seen.append((threading.get_ident(), "checkpoint", state.turn)),
    )
    assert step.ok
    assert {thread for thread, *_ in seen} == {here}
    assert (here, "program_start", 1) in seen and (here, "checkpoint", 1) in seen


async def test_missions_below_await_on_the_same_loop_and_spend_the_same_budget():
    async def below() -> int:
        scope = current()
        step = await adelegate("Inner.", llm=Scripted([code("1"), code('(call "return" 7)')]))
        return step.value + scope.depth

    outer = Scripted([code('(call "return" (call "below"))')])
    step = await adelegate("Go.", llm=outer, tools={"below": below})
    assert (step.value, step.usage.turns) == (7, 3)


async def test_many_missions_below_each_other_do_not_wait_for_a_thread():
    async def leaf(request):
        await asyncio.sleep(0)
        return code(RETURN_1)

    async def fan() -> int:
        steps = await asyncio.gather(*(adelegate("Leaf.", llm=leaf) for _ in range(12)))
        return sum(step.value for step in steps)

    step = await adelegate("Go.", llm=Scripted([code('(call "return" (call "fan"))')]), tools={"fan": fan})
    assert step.value == 12


async def test_cancelling_ends_the_callback_that_is_awaited():
    began, ended = asyncio.Event(), asyncio.Event()

    async def hanging(request):
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(adelegate("Go.", llm=hanging))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_cancelling_stops_a_program():
    began = asyncio.Event()
    loop = asyncio.get_running_loop()
    llm = Scripted([code('(do (call "begin") (loop [n 0] (recur (inc n))))')])
    task = asyncio.create_task(
        adelegate("Go.", llm=llm, tools={"begin": lambda: loop.call_soon_threadsafe(began.set)}, timeout_ms=60_000)
    )
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_callback_that_hangs_is_given_up_at_the_deadline():
    async def hanging(request):
        await asyncio.Event().wait()

    step = await adelegate("Go.", llm=hanging, mission_timeout_ms=30)
    assert step.fail.reason == "mission_timeout"


@pytest.mark.spec("004", "Quick Reference: Delegation Options")
def test_both_take_the_same_options_with_the_specifications_defaults():
    options = get_overloads(delegate)
    assert [inspect.signature(each).parameters for each in get_overloads(adelegate)] == [
        inspect.signature(each).parameters for each in options
    ]
    assert all(inspect.signature(each).parameters["llm"].default is inspect.Parameter.empty for each in options)
    assert (Limits().max_turns, Limits().timeout_s, Limits().mission_timeout_s) == (5, 5, 60)
    with pytest.raises(TypeError, match=r"no option 'max_turn'\. Did you mean \"max_turns\""):
        delegate("Go.", llm=Scripted([]), max_turn=3)
    seen = []
    delegate("Go.", llm=lambda request: seen.append(current()) or code(RETURN_1))
    (scope,) = seen
    assert (scope.budget.turns, scope.budget.depth, Options().signature_validation) == (20, 3, "enabled")


# Every reason of the specification's table: what the model reads, and what stands in the step.


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
    assert step.fail.message == "The model did not answer after 1 attempt: quota"


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


# Whatever a model says and a tool does, a delegation ends with a step within its limits.


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
    json.dumps(trace.plain(step))
    for request in llm.requests:
        roles = [message["role"] for message in request["messages"]]
        assert roles == ["user", *["assistant", "user"] * (len(roles) // 2)]
        assert all(message["content"].strip() for message in request["messages"])
