"""One run of a program: what it reads and changes, the tools it calls, how it ends and what it catches."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from pyagentd.errors import PyagentdError, ToolError
from pyagentd.lisp.builtins import BUILTINS
from pyagentd.lisp.encoding import size
from pyagentd.lisp.errors import MISSING, Fail, LispError, Return
from pyagentd.lisp.limits import Budget
from pyagentd.lisp.printing import check_extent
from pyagentd.lisp.values import Keyword, Value, a_type, find

# What a run of a program gives, and how a program reaches tools.

Tools = Callable[[str, dict[Any, Value]], Value]
"""Calls the tool of a name with a map; raises ``ToolError`` or ``LispError``."""

Isolation = Literal["none", "process"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call of a tool by a program.

    Args:
        name: The tool.
        args: The map it was called with.
        result: What it returned; None when it failed.
        error: Why it failed, in a sentence.
        started_at: Seconds since the epoch.
        duration_ms: Wall time.
    """

    name: str
    args: dict[Any, Value]
    result: Value = None
    error: str | None = None
    started_at: float = 0.0
    duration_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a run has used, in the units of ``Limits``."""

    steps: int = 0
    cells: int = 0
    bytes: int = 0
    duration_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a run gave.

    Args:
        value: The value of the last form, or what ``return`` or ``fail`` was given.
        memory: The memory map after the run, keys as names.
        put: Whether the run put anything into the memory.
        tool_calls: Every call of a tool, in order.
        signal: How the program ended itself, or None when it came to its end.
        usage: What it used.
    """

    value: Value
    memory: dict[str, Value]
    put: bool = False
    tool_calls: tuple[ToolCall, ...] = ()
    signal: Literal["return", "fail"] | None = None
    usage: Usage = Usage()


class Run:
    """One run of a program: what it reads, what it has changed, what it has used."""

    __slots__ = ("budget", "calls", "context", "memory", "put", "tools")

    def __init__(
        self, context: Mapping[Any, Value], memory: Mapping[Any, Value], tools: Tools | None, budget: Budget
    ) -> None:
        self.context = context
        self.put = False
        # Callers may name by keyword; a program's own names are strings.
        self.memory = {key.name if type(key) is Keyword else key: value for key, value in memory.items()}
        self.tools = tools
        self.budget = budget
        self.calls: list[ToolCall] = []


def ctx_value(run: Run, name: str) -> Value:
    """Return ``ctx/name``; nil when nothing of that name was given."""
    return _named(run.context, name)


def memory_value(run: Run, name: str) -> Value:
    """Return ``memory/name``; nil when there is nothing of that name."""
    return _named(run.memory, name)


def _named(space: Mapping[Any, Value], name: str, default: Value = None) -> Value:
    found = space.get(name, MISSING)
    return space.get(Keyword(name), default) if found is MISSING else found


def memory_get(run: Run, key: Value, default: Value = None) -> Value:
    """Return what the memory has under a key."""
    return _named(run.memory, _memory_key(key), default)


def memory_put(run: Run, key: Value, value: Value) -> Value:
    """Put a value into the memory and return it.

    Raises:
        LispError: ``memory_exceeded`` when the value alone is larger than the memory may be.
    """
    name = _memory_key(key)
    limit = run.budget.limits.memory_bytes
    if size(value, run.budget, limit) > limit:
        raise memory_full(limit)
    run.memory[name] = value
    run.put = True
    return value


def memory_full(limit: int) -> LispError:
    """Return the error for a memory that is too large."""
    return LispError(
        "memory_exceeded",
        f"the memory would be larger than {limit} bytes",
        hint="Store aggregates or ids instead of whole data; what is in ctx/ need not be stored.",
    )


def _memory_key(key: Value) -> str:
    if type(key) is Keyword:
        return key.name
    if type(key) is str:
        return key
    raise LispError(
        "eval_error", f"a key of the memory is a keyword, got {a_type(key)}", hint="Write (memory/put :key value)."
    )


def call_tool(run: Run, name: Value, args: Value) -> Value:
    """Call a tool with a map of arguments and record the call.

    Raises:
        LispError: ``tool_not_found``, ``validation_error``, ``tool_error``.
    """
    if type(name) is not str:
        raise LispError("eval_error", f"the name of a tool is a string, got {a_type(name)}")
    if name == "return":
        raise Return(args)
    if name == "fail":
        raise Fail(args)
    if args is None:
        args = {}
    if type(args) is not dict:
        raise LispError(
            "validation_error",
            f"the tool {name} takes a map of arguments, got {a_type(args)}",
            hint=f'Write (call "{name}" {{:arg value}}).',
        )
    budget = run.budget
    limit = budget.limits.tool_calls
    if limit is not None and len(run.calls) >= limit:
        raise LispError("tool_error", f"the program calls tools more than {limit} times", hint="Call fewer tools.")
    if run.tools is None:
        raise LispError("tool_not_found", f"unknown tool: {name}", hint="There are no tools here.")
    check_extent(args, budget.limits)
    budget.look()
    started_at, started = time.time(), time.monotonic()

    def record(result: Value, error: str | None) -> None:
        spent = time.monotonic() - started
        if not budget.limits.tool_time_counts:
            budget.pause(spent)
        run.calls.append(
            ToolCall(
                name=name, args=args, result=result, error=error, started_at=started_at, duration_ms=spent * 1000
            )
        )

    try:
        result = run.tools(name, args)
    except LispError as error:
        record(None, error.message)
        raise
    except (ToolError, RecursionError) as error:
        message = error.message if isinstance(error, PyagentdError) else "it is nested too deeply"
        record(None, message)
        raise LispError("tool_error", f"the tool {name} failed: {message}") from error
    record(result, None)
    items, characters = check_extent(result, budget.limits)
    budget.cells(items)  # what tools give is in memory like what the program makes
    budget.bytes(characters)
    budget.look()
    return result


def leave_return(run: Run, value: Value) -> Value:
    """End the program with its result."""
    raise Return(value)


def leave_fail(run: Run, value: Value) -> Value:
    """End the program with the reason why it cannot be done."""
    raise Fail(value)


def throw(run: Run, value: Value) -> Value:
    """Raise an error that ``catch`` gets."""
    message, data = value, None
    if type(value) is dict:
        message, data = find(value, Keyword("message"), "error"), find(value, Keyword("data"), None)
    text = BUILTINS["str"]
    shown = text.function(run.budget, message) if text.charges else text.function(message)
    raise LispError("eval_error", shown, data=data)


_CAUGHT: Final = frozenset({"eval_error", "tool_error", "tool_not_found", "validation_error"})


def attempt(
    run: Run,
    body: Callable[[], Value],
    handler: Callable[[Value], Value] | None,
    final: Callable[[], Value] | None,
) -> Value:
    """Run ``body``; hand an error to ``handler`` as a map; run ``final`` whatever happened.

    Errors that end the whole run (time, memory) are not caught.
    """
    try:
        if handler is None:
            return body()
        try:
            return body()
        except LispError as error:
            if error.reason not in _CAUGHT:
                raise
            return handler(_caught(error.message, error.reason, error.data))
        except (ZeroDivisionError, OverflowError) as error:
            return handler(_caught(str(error), "eval_error", None))
    finally:
        if final is not None:
            final()


def _caught(message: str, reason: str, data: Value) -> dict[Any, Value]:
    """Return the map that ``catch`` binds."""
    return {Keyword("message"): message, Keyword("reason"): Keyword(reason), Keyword("data"): data}
