"""A request to the model: calling the LLM callback, with retries, telemetry and cost."""

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pyagentd.errors import TransientProviderError
from pyagentd.mission.budget import Scope, call_within, may_block
from pyagentd.mission.firewall import well_formed
from pyagentd.mission.options import LLM, LLMError, Request, Retry, seconds
from pyagentd.mission.runtime import Runtime, error_text, new_span
from pyagentd.mission.step import Usage

# Retries. Only failures of the callback are retried: it raised, or returned something that is not an answer. Mistakes
# in the model's program (syntax, types, tools) are reported to the model; they cost a turn, not an attempt.

_T = TypeVar("_T")

LONGEST_WAIT_S = 60.0
"""The longest wait that a server's retry-after can ask for."""


class AttemptsFailed(Exception):
    """Every attempt failed, or the last failure must not be retried; it is the ``__cause__``."""

    def __init__(self, reason: str, message: str, attempts: int) -> None:
        super().__init__(message)
        self.reason = reason
        self.attempts = attempts


def reason_of(error: BaseException) -> str:
    """Return the name of a callback's failure in ``retryable_errors``: such as ``rate_limit``."""
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


def delay_s(retry: Retry, failures: int) -> float:
    """Return the seconds to wait after ``failures`` failures in a row."""
    match retry.backoff:
        case "exponential":
            return seconds(retry.base_s) * 2.0 ** (failures - 1)
        case "linear":
            return seconds(retry.base_s) * failures


def _retry_after(error: BaseException) -> float:
    """Return the seconds of the server's retry-after, at most ``LONGEST_WAIT_S``; 0 without one."""
    after = getattr(error, "retry_after", None) or getattr(error.__cause__, "retry_after", None)
    return min(float(after), LONGEST_WAIT_S) if isinstance(after, int | float) else 0.0


def with_retries(
    call: Callable[[], _T],
    retry: Retry,
    *,
    sleep: Callable[[float], None],
    seconds_left: Callable[[], float],
    failed: Callable[[Exception, int], None] = lambda error, attempt: None,
) -> _T:
    """Return the result of ``call``, retried as ``retry`` allows.

    Args:
        call: One attempt; any ``Exception`` is a failure.
        retry: How many attempts, and the waits between them.
        sleep: Waits that many seconds.
        seconds_left: Returns how long the mission may still last; instead of a longer wait it gives up.
        failed: Called with each failure and the number of its attempt, from 1.

    Raises:
        AttemptsFailed: No attempt succeeded.
    """
    attempt = 0
    while True:
        attempt += 1
        try:
            return call()
        except Exception as error:
            failed(error, attempt)
            reason = reason_of(error)
            wait = max(delay_s(retry, attempt), _retry_after(error))
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
        reports_cost: Whether the callback reported a cost.
    """

    text: str
    usage: Usage
    reports_cost: bool = False


def ask(llm: LLM, request: Request, retry: Retry, *, scope: Scope, span: str, runtime: Runtime) -> ModelAnswer:
    """Return the model's answer to ``request``.

    Args:
        llm: The callback.
        request: The request.
        retry: How many attempts.
        scope: The mission that the usage is counted for.
        span: The span of the turn.
        runtime: Clock, sleeping, telemetry, cancellation.

    Raises:
        AttemptsFailed: No attempt succeeded.
    """

    def attempt() -> ModelAnswer:
        return _attempt(llm, request, scope=scope, span=span, runtime=runtime)

    return with_retries(
        attempt,
        retry,
        sleep=runtime.sleep,
        seconds_left=lambda: 0 if runtime.cancelled() else scope.deadline - runtime.monotonic(),
    )


def _attempt(llm: LLM, request: Request, *, scope: Scope, span: str, runtime: Runtime) -> ModelAnswer:
    own, started = new_span(), runtime.monotonic()
    runtime.emit("llm_start", own, span, metadata={"turn": request["turn"], "messages": len(request["messages"])})
    scope.spend(Usage(llm_requests=1))
    try:
        answer = _parse_answer(call_within(scope, runtime, "the model", llm, request, blocks=may_block(llm, runtime)))
    except Exception as error:
        took = _ms(runtime.monotonic() - started)
        scope.add_time("model", took / 1000)
        about = {"turn": request["turn"], "reason": reason_of(error), "message": error_text(error)}
        runtime.emit("llm_exception", own, span, {"duration_ms": took}, about)
        raise
    scope.spend(answer.usage)
    answer = replace(answer, text=well_formed(answer.text))
    numbers = {
        "duration_ms": _ms(runtime.monotonic() - started),
        "input_tokens": answer.usage.input_tokens,
        "output_tokens": answer.usage.output_tokens,
        "cost_usd": answer.usage.cost_usd,
    }
    scope.add_time("model", runtime.monotonic() - started)
    runtime.emit("llm_stop", own, span, numbers, {"turn": request["turn"], "content": answer.text})
    return answer


def _parse_answer(reply: Any) -> ModelAnswer:
    match reply:
        case str():
            return ModelAnswer(text=reply, usage=Usage())
        case Mapping() if isinstance(reply.get("content"), str):
            tokens = reply.get("tokens") or {}
            cost = _number(reply.get("cost_usd"))
            counted = Usage(
                input_tokens=int(_count(tokens, "input") or 0),
                output_tokens=int(_count(tokens, "output") or 0),
                cost_usd=cost or 0.0,
            )
            return ModelAnswer(text=reply["content"], usage=counted, reports_cost=cost is not None)
    raise LLMError("invalid_answer", f'An LLM callback gives text or {{"content": text}}, got {type(reply).__name__}')


def _count(tokens: Any, name: str) -> float | None:
    if isinstance(tokens, Mapping):
        return _number(tokens.get(name) or tokens.get(f"{name}_tokens"))
    return _number(tokens) if name == "output" else None


def _number(reply: Any) -> float | None:
    """Return ``reply`` as a finite number from 0, or None; an invalid token count must not make an answer fail."""
    try:
        number = float(reply)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if 0 <= number < math.inf else None


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
