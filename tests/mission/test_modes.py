"""How strictly a mission checks what goes in and what comes out."""

from __future__ import annotations

import pytest

from pyagentd.mission.delegation import delegate
from pyagentd.mission.options import Options, PromptLimit, Retry
from pyagentd.mission.registry import Scripted
from pyagentd.mission.step import MissionFailed
from tests.mission.test_loop import RETURN_1, code, told

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
        ({"max_turns": 0}, "max_turns is 0"),
        ({"max_turns": True}, "max_turns is True"),
        ({"timeout_ms": -1}, "timeout_ms is -1"),
        ({"mission_timeout_ms": 0}, "mission_timeout_ms is 0"),
        ({"max_consecutive_failures": 0}, "max_consecutive_failures is 0"),
        ({"max_cost_usd": -1}, "max_cost_usd is -1"),
        ({"signature_validation": "loose"}, "not one of enabled, warn_only, disabled, strict"),
        ({"isolation": "vm"}, "not one of none, process"),
        ({"llm_retry": {"backoff": "random"}}, "not one of exponential, linear"),
        ({"llm_retry": {"max_attempts": 0}}, "llm_retry.max_attempts is 0"),
        ({"prompt_limit": {"list": -1}}, "prompt_limit.list is -1"),
        ({"signature": "{count"}, "The signature cannot be read"),
        ({"context": {"x": object()}}, "The context holds something that programs cannot use"),
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
