"""When a failing LLM is called again (SPEC 004 LLM Retry Scope, DD-4).

Only the callback's own failures are retried: it raised, or it gave something that is no answer. What the model got
wrong (syntax, types, tools) is told to the model and costs a turn, never an attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from pyagentd.errors import TransientProviderError
from pyagentd.mission.callbacks import words_of
from pyagentd.mission.options import Retry

_T = TypeVar("_T")

LONGEST_WAIT_S = 60.0
"""The most a server's word is waited for."""


class LLMError(Exception):
    """An LLM callback could not answer.

    Args:
        reason: The name that ``retryable_errors`` can list: ``rate_limit``, ``timeout``, ``server_error``,
            ``client_error``, ``config_error``, or any other.
        message: What happened.
        final: Whether another attempt would be no use, whatever ``retryable_errors`` says.
    """

    def __init__(self, reason: str, message: str = "", *, final: bool = False) -> None:
        super().__init__(message or reason)
        self.reason = reason
        self.final = final


class GaveUp(Exception):
    """No attempt succeeded, or the failure is not worth another one; the cause is the last failure."""

    def __init__(self, reason: str, message: str, attempts: int) -> None:
        super().__init__(message)
        self.reason = reason
        self.attempts = attempts


def reason_of(error: BaseException) -> str:
    """Return the name of a callback's failure for ``retryable_errors``."""
    match error:
        case LLMError(reason=reason):
            return reason
        case TimeoutError() | asyncio.TimeoutError():
            return "timeout"
        case TransientProviderError(retry_after=after) if after is not None:
            return "rate_limit"
        case ConnectionError() | TransientProviderError():
            return "server_error"
    status = getattr(error, "status_code", getattr(getattr(error, "response", None), "status_code", None))
    return _of_status(status) if isinstance(status, int) else "unknown"


def _of_status(status: int) -> str:
    match status:
        case 408:
            return "timeout"
        case 429:
            return "rate_limit"
        case _ if status >= 500:
            return "server_error"
        case _ if status >= 400:
            return "client_error"
    return "unknown"


def delay_ms(retry: Retry, failures: int) -> int:
    """Return how long to wait after that many failures in a row."""
    match retry.backoff:
        case "exponential":
            return retry.base_ms << (failures - 1)
        case "linear":
            return retry.base_ms * failures


def _asked_for(error: BaseException) -> float:
    """Return the seconds a server asked to wait for."""
    after = getattr(error, "retry_after", None) or getattr(error.__cause__, "retry_after", None)
    return min(float(after), LONGEST_WAIT_S) if isinstance(after, int | float) else 0.0


def attempted(
    call: Callable[[], _T],
    retry: Retry,
    *,
    sleep: Callable[[float], None],
    seconds_left: Callable[[], float],
    failed: Callable[[Exception, int], None] = lambda error, attempt: None,
) -> _T:
    """Return what ``call`` gives, after as many attempts as it needs and may have.

    Args:
        call: One attempt; any ``Exception`` is a failure.
        retry: How often and how patiently.
        sleep: Waits that many seconds.
        seconds_left: How long the mission may still last; a wait beyond it is not begun.
        failed: Told about every failure with the number of its attempt.

    Raises:
        GaveUp: The last failure is its cause.
    """
    attempt = 0
    while True:
        attempt += 1
        try:
            return call()
        except Exception as error:
            failed(error, attempt)
            reason = reason_of(error)
            wait = max(delay_ms(retry, attempt) / 1000, _asked_for(error))
            listed = retry.retryable_errors is None or reason in retry.retryable_errors
            hopeless = not listed or getattr(error, "final", False)
            if hopeless or attempt >= retry.max_attempts or wait >= seconds_left():
                raise GaveUp(reason, words_of(error) or type(error).__name__, attempt) from error
        sleep(wait)
