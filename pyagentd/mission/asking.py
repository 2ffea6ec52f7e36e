"""One question to the model: called, retried, told of, counted (SPEC 004 LLM Callback Contract, LLM Retry Scope)."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyagentd.mission.budget import Scope
from pyagentd.mission.callbacks import called, words_of
from pyagentd.mission.firewall import well_formed
from pyagentd.mission.options import LLM, Request, Retry
from pyagentd.mission.retry import LLMError, attempted, reason_of
from pyagentd.mission.runtime import Runtime
from pyagentd.mission.step import Usage
from pyagentd.mission.telemetry import new_span


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What a model said and what that took.

    Attributes:
        text: What it said.
        usage: Tokens and cost as the callback reported them.
        tells_cost: Whether it reported a cost.
    """

    text: str
    usage: Usage
    tells_cost: bool = False


def ask(llm: LLM, request: Request, retry: Retry, *, scope: Scope, span: str, runtime: Runtime) -> Answered:
    """Return the model's answer to ``request``.

    Args:
        llm: The callback.
        request: What it is asked.
        retry: How often it may fail.
        scope: The mission that pays.
        span: Of the turn.
        runtime: The world.

    Raises:
        GaveUp: It did not answer.
    """

    def attempt() -> Answered:
        return _attempt(llm, request, scope=scope, span=span, runtime=runtime)

    return attempted(
        attempt,
        retry,
        sleep=runtime.sleep,
        seconds_left=lambda: 0 if runtime.cancelled() else scope.deadline - runtime.monotonic(),
    )


def _attempt(llm: LLM, request: Request, *, scope: Scope, span: str, runtime: Runtime) -> Answered:
    own, started = new_span(), runtime.monotonic()
    runtime.tell("llm_start", own, span, metadata={"turn": request["turn"], "messages": len(request["messages"])})
    scope.spend(Usage(llm_requests=1))
    try:
        given = called(llm, request)
        if inspect.isawaitable(given):
            given = called(runtime.awaited, given, scope.deadline - runtime.monotonic())
        answered = _read(given)
    except Exception as error:
        took = _ms(runtime.monotonic() - started)
        about = {"turn": request["turn"], "reason": reason_of(error), "message": words_of(error)}
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


def _read(given: Any) -> Answered:
    match given:
        case str():
            return Answered(text=given, usage=Usage())
        case Mapping() if isinstance(given.get("content"), str):
            tokens = given.get("tokens") or {}
            cost = _number(given.get("cost_usd"))
            counted = Usage(
                input_tokens=int(_count(tokens, "input") or 0),
                output_tokens=int(_count(tokens, "output") or 0),
                cost_usd=cost or 0.0,
            )
            return Answered(text=given["content"], usage=counted, tells_cost=cost is not None)
    raise LLMError("invalid_answer", f'An LLM callback gives text or {{"content": text}}, got {type(given).__name__}')


def _count(tokens: Any, name: str) -> float | None:
    if isinstance(tokens, Mapping):
        return _number(tokens.get(name) or tokens.get(f"{name}_tokens"))
    return _number(tokens) if name == "output" else None


def _number(given: Any) -> float | None:
    """Return a number that something can be counted with: an answer that was paid for is not lost for another."""
    try:
        number = float(given)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if 0 <= number < math.inf else None


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
