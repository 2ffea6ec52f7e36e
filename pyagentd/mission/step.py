"""The result of a mission (``Step``) with its trace of turns and tool calls, its usage and failure; and as JSON.

``delegate`` always returns a ``Step``, whether the mission succeeded or not. All of it is immutable: a step can be
stored, used as the context of another mission, and read from several threads.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Generic, TypeVar

from pyagentd.lisp import values
from pyagentd.mission.firewall import json_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens, cost and time of a mission with its children.

    Attributes:
        duration_ms: Wall time.
        turns: Turns taken.
        llm_requests: Calls of the LLM callback, including retries.
        input_tokens: As the callback reported, or 0.
        output_tokens: As the callback reported, or 0.
        cost_usd: As the callback reported, or 0.
        memory_bytes: Size of the mission's memory map at its end.
    """

    duration_ms: int = 0
    turns: int = 0
    llm_requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    memory_bytes: int = 0

    @property
    def total_tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens

    def plus(self, other: "Usage") -> "Usage":
        """Return the sum; duration and memory are those of ``self``."""
        return replace(self, **{name: getattr(self, name) + getattr(other, name) for name in _SUMMED})

    def minus(self, before: "Usage") -> "Usage":
        """Return the usage since ``before``; duration and memory are those of ``self``."""
        return replace(self, **{name: getattr(self, name) - getattr(before, name) for name in _SUMMED})


_SUMMED = ("turns", "llm_requests", "input_tokens", "output_tokens", "cost_usd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """Why a mission failed.

    Attributes:
        reason: A name such as ``validation_error``, or the reason in ``(call "fail" {:reason …})``.
        message: One sentence for people.
        op: The operation or tool that failed, if known.
        details: Further data as plain Python, such as ``original_failure`` of a chained failure.
    """

    reason: str
    message: str
    op: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call of a tool by a program.

    Attributes:
        name: The tool.
        args: The converted arguments that the tool was called with.
        lisp_result: Its result as programs see it, or None.
        error: Why it failed, or None.
        started_at: Milliseconds since the epoch.
        duration_ms: Wall time.
        children: The steps of the missions that ran inside this call.
    """

    name: str
    args: Mapping[str, Any]
    lisp_result: Any = field(default=None, repr=False)
    error: str | None = None
    started_at: int = 0
    duration_ms: int = 0
    children: tuple["Step[Any]", ...] = ()

    @property
    def result(self) -> Any:
        """The result as plain Python, converted on each access."""
        return values.to_python(self.lisp_result)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One answer of the model and its outcome.

    Attributes:
        number: From 1.
        program: The source; None when the answer had none.
        lisp_value: The program's value, as a value of the language.
        error: Why there is no value, or why it was refused; None for a successful turn.
        tool_calls: In the order they were made.
        feedback: The next message to the model; "" for the last turn.
        usage: Of this turn, including child missions.
        started_at: Milliseconds since the epoch.
        duration_ms: Wall time, including the model's.
        reasoning: The text around the program in the answer.
    """

    number: int
    program: str | None
    lisp_value: Any = field(default=None, repr=False)
    error: Fail | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    feedback: str = ""
    usage: Usage = field(default_factory=Usage)
    started_at: int = 0
    duration_ms: int = 0
    reasoning: str = ""

    @property
    def value(self) -> Any:
        """The program's value as plain Python, converted on each access."""
        return values.to_python(self.lisp_value)


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(Generic[T]):
    """The result of a mission.

    Attributes:
        ok: Whether it succeeded.
        value: The returned value: an instance of the type that was the signature, else plain Python; None on failure.
        lisp_value: The same as a value of the language, with keywords and sets.
        fail: Why it failed; None when ``ok``.
        memory: The program's memory at the end, as plain Python.
        signature: The signature in its canonical spelling, or None.
        trace: All turns.
        usage: What was spent, including children.
        lisp_context: The values of ``ctx/`` at the end, as programs see them.
        warnings: Sentences about converted inputs, and about mismatches under ``signature_validation="warn_only"``.
    """

    ok: bool
    value: T = None  # type: ignore[assignment]  # None only where ``ok`` is false
    lisp_value: Any = field(default=None, repr=False)
    fail: Fail | None = None
    memory: Mapping[str, Any] = field(default_factory=dict)
    signature: str | None = None
    trace: tuple[Turn, ...] = field(default=(), repr=False)
    usage: Usage = field(default_factory=Usage)
    lisp_context: Mapping[str, Any] = field(default_factory=dict, repr=False)
    warnings: tuple[str, ...] = ()

    @property
    def context(self) -> dict[str, Any]:
        """The values of ``ctx/`` at the end as plain Python, converted on each access."""
        return dict(values.to_python(dict(self.lisp_context)))

    def unwrap(self) -> T:
        """Return the value.

        Raises:
            MissionFailed: The mission failed.
        """
        if not self.ok:
            raise MissionFailed(self)
        return self.value


class MissionFailed(Exception):
    """A mission failed where its value was needed; ``step`` is its step, ``fail`` the failure."""

    def __init__(self, step: Step[Any]) -> None:
        fail = step.fail or Fail(reason="unknown", message="The mission failed")
        super().__init__(f"{fail.reason}: {fail.message}")
        self.step = step
        self.fail = fail


def failed_step(
    reason: str, message: str, *, op: str | None = None, details: Mapping[str, Any] | None = None
) -> Step[Any]:
    """Return the step of a mission that failed before its first turn."""
    return Step(ok=False, fail=Fail(reason=reason, message=message, op=op, details=details or {}))


# Steps and turns as plain JSON and back.


def step_to_json(step: Step[Any]) -> dict[str, Any]:
    """Return a step as plain JSON; values that JSON cannot represent become strings."""
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
    """Return the turn that ``turn_to_json`` wrote as ``data``."""
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
    """Return usage as plain JSON, with the sum of the tokens."""
    return {**asdict(usage), "total_tokens": usage.total_tokens}


def usage_from_json(data: Mapping[str, Any]) -> Usage:
    """Return the usage that ``usage_to_json`` wrote as ``data``."""
    return Usage(**{name: data[name] for name in Usage.__slots__ if name in data})


_NAMES = (str, int, float, tuple, type(None))


def plain(value: Any) -> Any:
    """Return ``value`` as plain JSON; values that JSON cannot represent become strings."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Mapping():
            return {
                json_name(key) if isinstance(key, _NAMES) else str(key): plain(item) for key, item in value.items()
            }
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


def _step_from_json(data: Mapping[str, Any]) -> Step[Any]:
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
