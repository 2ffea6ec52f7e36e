"""The result of a mission (``Step``) with its trace of turns and tool calls, its usage and failure; and as JSON.

``delegate`` always returns a ``Step``, whether the mission succeeded or not. All of it is immutable: a step can be
stored, used as the context of another mission, and read from several threads.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
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


def failed_step(reason: str, message: str) -> Step[Any]:
    """Return the step of a mission that failed before its first turn."""
    return Step(ok=False, fail=Fail(reason=reason, message=message))


# Steps and turns as plain JSON and back.


_WRITTEN: Mapping[type, Mapping[str, str]] = {
    Turn: {"number": "turn", "lisp_value": "value"},
    ToolCall: {"lisp_result": "result"},
    Step: {"lisp_value": "", "lisp_context": ""},
    Fail: {},
}
"""The names in JSON of fields that are called differently there; "" leaves a field out."""


def _written(of: type) -> Iterator[tuple[str, str]]:
    """Yield the fields of a step, or of a part of one, each with its name in JSON."""
    names = ((each.name, _WRITTEN[of].get(each.name, each.name)) for each in fields(of))
    return ((name, written) for name, written in names if written)


def turn_from_json(data: Mapping[str, Any]) -> Turn:
    """Return the turn that ``plain`` wrote as ``data``."""
    return Turn(**_read(Turn, data))


def _read(of: type, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a step, or of a part of one, that ``data`` has."""
    found = {name: data[written] for name, written in _written(of) if written in data}
    for name, kind in (("trace", Turn), ("tool_calls", ToolCall), ("children", Step)):
        if name in found:
            found[name] = tuple(kind(**_read(kind, each)) for each in found[name])
    for name in found.keys() & {"fail", "error"} if of is not ToolCall else ():
        found[name] = Fail(**found[name]) if found[name] else None
    if "usage" in found:
        found["usage"] = usage_from_json(found["usage"])
    return found


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
        case Usage():
            return usage_to_json(value)
        case Step() | Turn() | ToolCall() | Fail():
            named = _written(type(value))
            return {written: plain(getattr(value, name.removeprefix("lisp_"))) for name, written in named}
    return str(value)
