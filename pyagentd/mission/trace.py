"""Turns as plain JSON and back: for checkpoints, files and people (SPEC 004 Tracing)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pyagentd.mission.step import Fail, Step, ToolCall, Turn, Usage


def step_to_json(step: Step) -> dict[str, Any]:
    """Return all of a step as plain JSON; what JSON cannot say is its text."""
    return {
        "ok": step.ok,
        "value": plain(step.value),
        "fail": _fail_to_json(step.fail),
        "memory": plain(step.memory),
        "signature": step.signature,
        "usage": usage_to_json(step.usage),
        "warnings": list(step.warnings),
        "trace": [turn_to_json(turn) for turn in step.trace],
    }


def turn_to_json(turn: Turn) -> dict[str, Any]:
    """Return a turn as plain JSON."""
    return {
        "turn": turn.number,
        "program": turn.program,
        "value": plain(turn.value),
        "error": _fail_to_json(turn.error),
        "tool_calls": [_call_to_json(call) for call in turn.tool_calls],
        "feedback": turn.feedback,
        "usage": usage_to_json(turn.usage),
        "started_at": turn.started_at,
        "duration_ms": turn.duration_ms,
        "reasoning": turn.reasoning,
    }


def turn_from_json(data: Mapping[str, Any]) -> Turn:
    """Return the turn that ``turn_to_json`` made ``data`` of; the steps inside its calls keep what was written."""
    return Turn(
        number=data["turn"],
        program=data.get("program"),
        lisp_value=data.get("value"),
        error=_fail_from_json(data.get("error")),
        tool_calls=tuple(_call_from_json(call) for call in data.get("tool_calls", ())),
        feedback=data.get("feedback", ""),
        usage=usage_from_json(data.get("usage", {})),
        started_at=data.get("started_at", 0),
        duration_ms=data.get("duration_ms", 0),
        reasoning=data.get("reasoning", ""),
    )


def usage_to_json(usage: Usage) -> dict[str, Any]:
    """Return what was spent, with the sum of the tokens."""
    return {**asdict(usage), "total_tokens": usage.total_tokens}


def usage_from_json(data: Mapping[str, Any]) -> Usage:
    """Return the usage that ``usage_to_json`` made ``data`` of."""
    return Usage(**{name: data[name] for name in Usage.__slots__ if name in data})


def plain(value: Any) -> Any:
    """Return ``value`` as JSON can have it; what it cannot have becomes text."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [plain(item) for item in value]
    return str(value)


def _call_to_json(call: ToolCall) -> dict[str, Any]:
    return {
        "name": call.name,
        "args": plain(call.args),
        "result": plain(call.result),
        "error": call.error,
        "started_at": call.started_at,
        "duration_ms": call.duration_ms,
        "children": [step_to_json(step) for step in call.children],
    }


def _call_from_json(data: Mapping[str, Any]) -> ToolCall:
    known = {name: data[name] for name in ("name", "args", "error", "started_at", "duration_ms")}
    children = tuple(_step_from_json(step) for step in data.get("children", ()))
    return ToolCall(**known, lisp_result=data.get("result"), children=children)


def _step_from_json(data: Mapping[str, Any]) -> Step:
    return Step(
        ok=data["ok"],
        value=data.get("value"),
        fail=_fail_from_json(data.get("fail")),
        memory=data.get("memory") or {},
        signature=data.get("signature"),
        trace=tuple(turn_from_json(turn) for turn in data.get("trace", ())),
        usage=usage_from_json(data.get("usage", {})),
        warnings=tuple(data.get("warnings", ())),
    )


def _fail_to_json(fail: Fail | None) -> dict[str, Any] | None:
    if fail is None:
        return None
    return {"reason": fail.reason, "message": fail.message, "op": fail.op, "details": plain(fail.details)}


def _fail_from_json(data: Mapping[str, Any] | None) -> Fail | None:
    return Fail(**data) if data else None
