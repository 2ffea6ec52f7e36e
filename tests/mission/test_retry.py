"""When a failing model is called again."""

from __future__ import annotations

import pytest

from pyagentd.errors import ProviderError, TransientProviderError
from pyagentd.mission.llmcall import AttemptsFailed, attempted, delay_ms, reason_of
from pyagentd.mission.options import LLMError, Retry, retry


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
    ],
)
def test_the_waits_grow_as_the_backoff_says(given, waits):
    slept = Waits()
    call = failing(*[ValueError("no")] * 3)
    assert attempted(call, given, sleep=slept, seconds_left=lambda: 100) == "answer"
    assert slept.seconds == waits


def test_it_gives_up_after_the_last_attempt():
    slept = Waits()
    with pytest.raises(AttemptsFailed) as gave_up:
        attempted(failing(*[LLMError("rate_limit", "slow down")] * 9), Retry(), sleep=slept, seconds_left=lambda: 100)
    assert (gave_up.value.reason, gave_up.value.attempts, str(gave_up.value)) == ("rate_limit", 3, "slow down")
    assert len(slept.seconds) == 2


def test_an_error_that_is_not_listed_is_final():
    given = Retry(retryable_errors=("rate_limit", "timeout"))
    with pytest.raises(AttemptsFailed) as gave_up:
        attempted(failing(LLMError("client_error")), given, sleep=Waits(), seconds_left=lambda: 100)
    assert gave_up.value.attempts == 1
    assert attempted(failing(TimeoutError()), given, sleep=Waits(), seconds_left=lambda: 100) == "answer"


def test_a_wait_beyond_the_deadline_is_not_begun():
    slept = Waits()
    with pytest.raises(AttemptsFailed):
        attempted(
            failing(*[ValueError()] * 5), Retry(max_attempts=9), sleep=slept, seconds_left=lambda: 3 - slept.now
        )
    assert slept.seconds == [1.0]


def test_a_server_that_names_a_wait_gets_it():
    slept = Waits()
    error = TransientProviderError("busy", retry_after=7)
    assert attempted(failing(error), Retry(), sleep=slept, seconds_left=lambda: 100) == "answer"
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
    assert delay_ms(given, 3) == 3000
