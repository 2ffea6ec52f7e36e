"""A compiled program, what one run of it gave, and running it (SPEC 004 "Execution Flow").

A ``Program`` holds code only and may be kept and run any number of times, in any thread; everything a run changes is
in its ``Run``. Memory is rolled back when the program fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pyagentd.lisp.limits import DEFAULT_LIMITS, Limits
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
        tool_calls: Every call of a tool, in order.
        signal: How the program ended itself, or None when it came to its end.
        usage: What it used.
    """

    value: Value
    memory: dict[str, Value]
    tool_calls: tuple[ToolCall, ...] = ()
    signal: Literal["return", "fail"] | None = None
    usage: Usage = Usage()


class Program:
    """A program that has been read, analysed and compiled."""

    __slots__ = ("source",)

    def __init__(self, source: str) -> None:
        self.source = source

    def run(
        self,
        context: Mapping[str, Value] | None = None,
        memory: Mapping[str, Value] | None = None,
        tools: Tools | None = None,
        limits: Limits = DEFAULT_LIMITS,
        cancelled: Callable[[], bool] | None = None,
        isolation: Isolation = "none",
    ) -> Result:
        """Run the program.

        Args:
            context: What ``ctx/name`` reads.
            memory: What ``memory/name`` reads; not changed, the new one is in the result.
            tools: Calls a tool.
            limits: What the run may use.
            cancelled: Asked now and then; true ends the run.
            isolation: ``process`` runs it in a forked child with limits of the operating system.

        Raises:
            LispError: with the reason, the place and what to do.
        """
        raise NotImplementedError


def compile(text: str) -> Program:
    """Read, analyse and compile a program.

    Raises:
        LispError: ``parse_error`` or ``analysis_error``, with the place.
    """
    return Program(text)


def run(text: str, context: Mapping[str, Value] | None = None, **options: Any) -> Result:
    """Compile and run a program; the arguments are those of ``Program.run``."""
    return compile(text).run(context, **options)
