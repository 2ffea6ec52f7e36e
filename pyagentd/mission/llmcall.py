"""One request to the model: the call of the LLM callback, its retries, its telemetry, its cost."""

import asyncio
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pyagentd.errors import TransientProviderError
from pyagentd.mission.budget import Scope
from pyagentd.mission.firewall import well_formed
from pyagentd.mission.options import LLM, LLMError, Request, Retry
from pyagentd.mission.runtime import Runtime, call_foreign, error_text
from pyagentd.mission.step import Usage
from pyagentd.mission.telemetry import new_span

# Retries. Only failures of the callback are retried: it raised, or returned something that is no answer. Mistakes of
# the model (syntax, types, tools) are reported to the model and cost a turn, never an attempt.

_T = TypeVar("_T")

LONGEST_WAIT_S = 60.0
"""The longest wait that a server's retry-after can ask for."""


class AttemptsFailed(Exception):
    """No attempt succeeded, or the last failure is not one to retry; that failure is the cause."""

    def __init__(self, reason: str, message: str, attempts: int) -> None:
        super().__init__(message)
        self.reason = reason
        self.attempts = attempts


def reason_of(error: BaseException) -> str:
    """Return the name by which ``retryable_errors`` knows a callback's failure."""
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
    """Return how long to wait after that many failures in a row, in milliseconds."""
    match retry.backoff:
        case "exponential":
            return retry.base_ms << (failures - 1)
        case "linear":
            return retry.base_ms * failures


def _retry_after(error: BaseException) -> float:
    """Return the seconds that a server asked to wait (retry-after)."""
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
    """Return the result of ``call``, tried again as ``retry`` allows.

    Args:
        call: One attempt; any ``Exception`` is a failure.
        retry: How often, and how long to wait.
        sleep: Waits that many seconds.
        seconds_left: How long the mission may still last; a longer wait is not begun.
        failed: Called with every failure and the number of its attempt.

    Raises:
        AttemptsFailed: The last failure is its cause.
    """
    attempt = 0
    while True:
        attempt += 1
        try:
            return call()
        except Exception as error:
            failed(error, attempt)
            reason = reason_of(error)
            wait = max(delay_ms(retry, attempt) / 1000, _retry_after(error))
            listed = retry.retryable_errors is None or reason in retry.retryable_errors
            hopeless = not listed or getattr(error, "final", False)
            if hopeless or attempt >= retry.max_attempts or wait >= seconds_left():
                raise AttemptsFailed(reason, error_text(error) or type(error).__name__, attempt) from error
        sleep(wait)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAnswer:
    """An answer of the model.

    Attributes:
        text: Its text.
        usage: Tokens and cost as the callback reported them.
        tells_cost: Whether the callback reported a cost.
    """

    text: str
    usage: Usage
    tells_cost: bool = False


def ask(llm: LLM, request: Request, retry: Retry, *, scope: Scope, span: str, runtime: Runtime) -> ModelAnswer:
    """Return the model's answer to ``request``.

    Args:
        llm: The callback.
        request: The request.
        retry: How often it may fail.
        scope: The mission that pays.
        span: The span of the turn.
        runtime: Clock, waiting, telemetry, cancelling.

    Raises:
        AttemptsFailed: No attempt gave an answer.
    """

    def attempt() -> ModelAnswer:
        return _attempt(llm, request, scope=scope, span=span, runtime=runtime)

    return attempted(
        attempt,
        retry,
        sleep=runtime.sleep,
        seconds_left=lambda: 0 if runtime.cancelled() else scope.deadline - runtime.monotonic(),
    )


def _attempt(llm: LLM, request: Request, *, scope: Scope, span: str, runtime: Runtime) -> ModelAnswer:
    own, started = new_span(), runtime.monotonic()
    runtime.tell("llm_start", own, span, metadata={"turn": request["turn"], "messages": len(request["messages"])})
    scope.spend(Usage(llm_requests=1))
    try:
        given = call_foreign(llm, request)
        if inspect.isawaitable(given):
            given = call_foreign(runtime.awaited, given, scope.deadline - runtime.monotonic())
        answered = _parse_answer(given)
    except Exception as error:
        took = _ms(runtime.monotonic() - started)
        about = {"turn": request["turn"], "reason": reason_of(error), "message": error_text(error)}
        runtime.tell("llm_exception", own, span, {"duration_ms": took}, about)
        raise
    scope.spend(answered.usage)
    answered = replace(answered, text=well_formed(answered.text))
    numbers = {
        "duration_ms": _ms(runtime.monotonic() - started),
        "input_tokens": answered.usage.input_tokens,
        "output_tokens": answered.usage.output_tokens,
        "cost_usd": answered.usage.cost_usd,
    }
    runtime.tell("llm_stop", own, span, numbers, {"turn": request["turn"], "content": answered.text})
    return answered


def _parse_answer(given: Any) -> ModelAnswer:
    match given:
        case str():
            return ModelAnswer(text=given, usage=Usage())
        case Mapping() if isinstance(given.get("content"), str):
            tokens = given.get("tokens") or {}
            cost = _number(given.get("cost_usd"))
            counted = Usage(
                input_tokens=int(_count(tokens, "input") or 0),
                output_tokens=int(_count(tokens, "output") or 0),
                cost_usd=cost or 0.0,
            )
            return ModelAnswer(text=given["content"], usage=counted, tells_cost=cost is not None)
    raise LLMError("invalid_answer", f'An LLM callback gives text or {{"content": text}}, got {type(given).__name__}')


def _count(tokens: Any, name: str) -> float | None:
    if isinstance(tokens, Mapping):
        return _number(tokens.get(name) or tokens.get(f"{name}_tokens"))
    return _number(tokens) if name == "output" else None


def _number(given: Any) -> float | None:
    """Return ``given`` as a finite number from 0, or None; odd token counts must not lose an answer."""
    try:
        number = float(given)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if 0 <= number < math.inf else None


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
