"""What a run of a program gives, and how a program reaches tools (SPEC 004 "PtcRunner.Step")."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from pyagentd.lisp.values import Value

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
