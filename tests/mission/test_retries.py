"""When a failing model is called again."""

import asyncio
import math
import sys
from datetime import timedelta

import pytest

from pyagentd.errors import ProviderError, TransientProviderError
from pyagentd.mission.delegation import adelegate, delegate, gather_sync, mission
from pyagentd.mission.options import LLMError, Retry, retry
from pyagentd.mission.registry import Scripted
from pyagentd.mission.turn import AttemptsFailed, delay_s, reason_of, with_retries
from tests.mission.answers import RETURN_1, code, told


class Waits:
    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.now = 0.0

    def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        self.now += seconds


def failing(*errors: Exception):
    left = list(errors)

    def call():
        if left:
            raise left.pop(0)
        return "answer"

    return call


@pytest.mark.parametrize(
    ("given", "waits"),
    [
        (Retry(max_attempts=4), [1.0, 2.0, 4.0]),
        (Retry(max_attempts=4, backoff="linear"), [1.0, 2.0, 3.0]),
        (Retry(max_attempts=4, base_ms=10), [0.01, 0.02, 0.04]),
        (Retry(max_attempts=4, base_s=timedelta(milliseconds=10)), [0.01, 0.02, 0.04]),
    ],
)
def test_the_waits_grow_as_the_backoff_says(given, waits):
    slept = Waits()
    call = failing(*[ValueError("no")] * 3)
    assert with_retries(call, given, sleep=slept, seconds_left=lambda: 100) == "answer"
    assert slept.seconds == waits


def test_it_gives_up_after_the_last_attempt():
    slept = Waits()
    with pytest.raises(AttemptsFailed) as gave_up:
        with_retries(
            failing(*[LLMError("rate_limit", "slow down")] * 9), Retry(), sleep=slept, seconds_left=lambda: 100
        )
    assert (gave_up.value.reason, gave_up.value.attempts, str(gave_up.value)) == ("rate_limit", 3, "slow down")
    assert len(slept.seconds) == 2


def test_an_error_that_is_not_listed_is_final():
    given = Retry(retryable_errors=("rate_limit", "timeout"))
    with pytest.raises(AttemptsFailed) as gave_up:
        with_retries(failing(LLMError("client_error")), given, sleep=Waits(), seconds_left=lambda: 100)
    assert gave_up.value.attempts == 1
    assert with_retries(failing(TimeoutError()), given, sleep=Waits(), seconds_left=lambda: 100) == "answer"


def test_a_wait_beyond_the_deadline_is_not_begun():
    slept = Waits()
    with pytest.raises(AttemptsFailed):
        with_retries(
            failing(*[ValueError()] * 5), Retry(max_attempts=9), sleep=slept, seconds_left=lambda: 3 - slept.now
        )
    assert slept.seconds == [1.0]


def test_a_server_that_names_a_wait_gets_it():
    slept = Waits()
    error = TransientProviderError("busy", retry_after=7)
    assert with_retries(failing(error), Retry(), sleep=slept, seconds_left=lambda: 100) == "answer"
    assert slept.seconds == [7.0]


class Refused(Exception):
    def __init__(self, status: int) -> None:
        self.status_code = status


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (LLMError("quota"), "quota"),
        (TimeoutError(), "timeout"),
        (ConnectionResetError(), "server_error"),
        (TransientProviderError("x"), "server_error"),
        (TransientProviderError("x", retry_after=1), "rate_limit"),
        (ProviderError("x"), "unknown"),
        (Refused(429), "rate_limit"),
        (Refused(503), "server_error"),
        (Refused(404), "client_error"),
        (Refused(408), "timeout"),
        (Refused(302), "unknown"),
        (ValueError(), "unknown"),
    ],
)
def test_a_failure_has_a_name(error, reason):
    assert reason_of(error) == reason


def test_a_retry_may_be_given_as_a_map():
    given = retry({"max_attempts": 5, "backoff": "linear", "retryable_errors": [":rate_limit"]})
    assert given == Retry(max_attempts=5, backoff="linear", retryable_errors=("rate_limit",))
    assert retry(None) == Retry()
    assert delay_s(given, 3) == 3


# Whatever tools and callbacks of models do wrong ends in a sentence, and in nothing else.


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("in str")


def mute(*_):
    raise Mute


def leave(*_):
    sys.exit(3)


def cancel(*_):
    raise asyncio.CancelledError


async def leave_later(*_):
    await asyncio.sleep(0)
    sys.exit(3)


async def cancel_later(*_):
    await asyncio.sleep(0)
    raise asyncio.CancelledError


BAD = {
    mute: "mute, without a message",
    leave: "it tried to end the process (sys.exit)",
    cancel: "it was cancelled",
    leave_later: "it tried to end the process (sys.exit)",
    cancel_later: "ancelled",
}


@pytest.mark.parametrize(("tool", "said"), BAD.items(), ids=[each.__name__ for each in BAD])
def test_a_tool_fails_with_a_sentence_and_the_mission_goes_on(tool, said):
    llm, seen = Scripted([code('(call "bad")'), code(RETURN_1)]), []
    step = delegate("Go.", llm=llm, tools={"bad": tool}, telemetry=lambda event: seen.append(event.name))
    assert step.ok
    assert 'The tool "bad" failed: ' in told(llm) and said in told(llm)
    assert seen[-1] == "mission_stop"


@pytest.mark.parametrize("tool", BAD, ids=[each.__name__ for each in BAD])
async def test_the_event_loop_stands_it_too(tool):
    step = await adelegate("Go.", llm=Scripted([code('(call "bad")'), code(RETURN_1)]), tools={"bad": tool})
    assert step.ok and step.trace[0].error.reason == "tool_error"


@pytest.mark.parametrize("llm", BAD, ids=[each.__name__ for each in BAD])
async def test_so_do_callbacks_of_models(llm):
    step = await adelegate("Go.", llm=llm, llm_retry={"max_attempts": 1})
    assert step.fail.reason == "llm_error"
    assert delegate("Go.", llm=llm, llm_retry={"max_attempts": 1}).fail.reason == "llm_error"


def test_a_bad_mission_does_not_take_the_others_along():
    bad, good = (
        mission("Go.", llm=leave, llm_retry={"max_attempts": 1}),
        mission("Go.", llm=Scripted([code("1")] * 5)),
    )
    assert [step.fail.reason for step in gather_sync([bad, good])] == ["llm_error", "max_turns_exceeded"]


def test_the_users_interrupt_passes():
    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        delegate("Go.", llm=Scripted([code('(call "bad")')]), tools={"bad": interrupt})


@pytest.mark.parametrize("tokens", [{"input": "x", "output": -3}, "many", {"input": math.nan}, [1], math.inf])
def test_an_answer_that_cannot_be_counted_is_an_answer(tokens):
    asked = []

    def llm(request):
        asked.append(request)
        return {"content": code(RETURN_1), "tokens": tokens, "cost_usd": "?"}

    step = delegate("Go.", llm=llm)
    assert (step.value, len(asked), step.usage.total_tokens, step.usage.cost_usd) == (1, 1, 0, 0)


@pytest.mark.parametrize("cost", [math.nan, -1, "free"])
def test_a_cost_that_is_none_does_not_pass_the_limit(cost):
    step = delegate("Go.", llm=lambda _: {"content": code(RETURN_1), "cost_usd": cost}, max_cost_usd=1)
    assert (step.ok, step.fail.reason) == (False, "validation_error")
