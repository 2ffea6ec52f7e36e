"""The limits of a program, and the budget that is charged before work is done or memory allocated.

Four quantities are charged: steps (work), cells (slots of vectors, maps and sets), bytes (text) and bits (of one
integer). Exceeding steps or time raises ``timeout``; cells, bytes, bits or depth ``memory_exceeded``. The clock is
read every ``SLICE`` steps, so loops over collections iterate over ``Budget.each``, which charges steps.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

from pyagentd.lisp.errors import LispError

SLICE = 1024
"""Steps between two readings of the clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one run of a program.

    Args:
        timeout_ms: Computing time of one run, in milliseconds: without the time inside tools.
        steps: Calls, iterations and items processed.
        cells: Slots of vectors, maps and sets created in the whole run, including those already freed.
        bytes: Characters of text created in the whole run.
        bits: Size of one integer.
        depth: Nesting of one value.
        tool_calls: Tool calls in one run; None for no limit.
        memory_bytes: Size of the memory map after the run (``serialization.size``).
        tool_time_counts: Whether the time inside tools counts against ``timeout_ms`` too.
        parallel: How many calls ``pmap`` and similar functions run at a time; 1 for one after another.
    """

    timeout_ms: int = 5000
    steps: int = 50_000_000
    cells: int = 5_000_000
    bytes: int = 50_000_000
    bits: int = 13_000
    depth: int = 200
    tool_calls: int | None = 1000
    memory_bytes: int = 1_048_576
    tool_time_counts: bool = False
    parallel: int = 10


DEFAULT_LIMITS = Limits()


class Budget:
    """The budget of one run, created when the run starts; ``cancelled`` is called whenever the clock is read."""

    __slots__ = (
        "_cancelled",
        "_deadline",
        "_next_look",
        "_now",
        "_paused",
        "_started",
        "bytes_used",
        "cells_used",
        "limits",
        "steps_used",
        "tick",
        "ticks",
    )

    def __init__(
        self,
        limits: Limits = DEFAULT_LIMITS,
        *,
        now: Callable[[], float] = time.monotonic,
        cancelled: Callable[[], bool] | None = None,
    ) -> None:
        self.limits = limits
        self.cells_used = 0
        self.bytes_used = 0
        self.steps_used = 0  # ticks are charged 64 at a time
        self._next_look = SLICE
        self._now = now
        self._cancelled = cancelled
        self._started = now()
        self._deadline = self._started + limits.timeout_ms / 1000
        self._paused = 0.0
        # ``tick()``, and each item of ``ticks``, charges one step, in C: the cost of a call and of an iteration.
        self.ticks: Iterator[None] = chain.from_iterable(self._slices())
        self.tick: Callable[[], Any] = self.ticks.__next__

    def _slices(self) -> Iterator[Iterable[None]]:
        """Charge 64 ticks in advance, whenever they are used up; an error there does not end the ticks."""
        while True:
            yield map(self.steps, (64,))
            yield repeat(None, 63)

    @property
    def duration_ms(self) -> float:
        """Wall time since the run started, in milliseconds."""
        return (self._now() - self._started) * 1000

    def steps(self, count: int) -> None:
        """Charge ``count`` steps before the work is done."""
        self.steps_used += count
        if self.steps_used >= self._next_look:
            self.look()

    def look(self) -> None:
        """Check steps, clock and cancellation now.

        Raises:
            LispError: ``timeout``.
        """
        self._next_look = min(self.steps_used + SLICE, self.limits.steps + 1)
        if self.steps_used > self.limits.steps:
            raise LispError(
                "timeout",
                f"the program took more than {self.limits.steps} steps",
                hint="Handle less data, or check that every loop and recursion ends.",
            )
        if self._now() > self._deadline:
            raise too_long(self.limits, self._paused)
        if self._cancelled is not None and self._cancelled():
            raise LispError("timeout", "the program was cancelled")

    def cells(self, count: int) -> None:
        """Charge ``count`` slots before a vector, map or set is created."""
        self.cells_used += count
        if self.cells_used > self.limits.cells:
            raise LispError(
                "memory_exceeded",
                f"the program makes more than {self.limits.cells} items",
                hint="Filter or aggregate before building new collections.",
            )

    def charger(self, count: int) -> Callable[[], Any]:
        """Return a function that charges ``count`` slots on each call, in C, for collections that are created often.

        It charges in advance, up to 64 times ``count``.
        """
        return chain.from_iterable(self._charge_ahead(count)).__next__

    def _charge_ahead(self, count: int) -> Iterator[Iterable[None]]:
        times = 1
        while True:
            yield map(self.cells, (times * count,))
            yield repeat(None, times - 1)
            times = min(2 * times, 64)

    def bytes(self, count: int) -> None:
        """Charge ``count`` characters before text is created."""
        self.bytes_used += count
        if self.bytes_used > self.limits.bytes:
            raise LispError(
                "memory_exceeded",
                f"the program makes more than {self.limits.bytes} characters of text",
                hint="Build shorter strings.",
            )

    def bits(self, count: int) -> None:
        """Check that an integer of ``count`` bits is allowed, and charge its bytes."""
        self.check_bits(count)
        self.bytes(count >> 3)

    def check_bits(self, count: int) -> None:
        """Check that an integer of ``count`` bits is allowed."""
        if count > self.limits.bits:
            raise LispError(
                "memory_exceeded",
                f"an integer would have more than {self.limits.bits} bits",
                hint="Use floating-point numbers for magnitudes like this.",
            )

    def too_deep(self) -> LispError:
        """Return the error for a value or a chain of calls that is nested too deeply."""
        return LispError(
            "memory_exceeded",
            f"a value is nested deeper than {self.limits.depth} levels",
            hint="Keep data flat: collect into one vector or map instead of wrapping it again and again.",
        )

    def each(self, items: Sequence[Any]) -> Iterable[Any]:
        """Charge a step for each item and return an iterable of the items, to be used once.

        The clock is checked during the iteration, so each loop whose body may be slow iterates over this.
        """
        count = len(items)
        if count <= 64:
            self.steps(count)
            return items
        return chain.from_iterable(self._parts(items, count))

    def _parts(self, items: Sequence[Any], count: int) -> Iterator[Sequence[Any]]:
        for start in range(0, count, 64):
            part = items[start : start + 64]
            self.steps_used += len(part)
            if self.steps_used >= self._next_look:
                self.look()
            yield part

    def pause(self, seconds: float) -> None:
        """Extend the deadline by ``seconds`` that do not count."""
        self._deadline += seconds
        self._paused += seconds


def too_long(limits: Limits, in_tools: float = 0.0) -> LispError:
    """Return the error for a program that used up its time; ``in_tools`` are the seconds that did not count."""
    if limits.tool_time_counts:
        what = f"the program and its tools ran longer than {limits.timeout_ms} ms"
    else:
        what = f"the program computed longer than {limits.timeout_ms} ms"
        if in_tools >= 0.001:
            what += f"; the {in_tools * 1000:.0f} ms in tools do not count"
    return LispError("timeout", what, hint="Handle less data, or check that every loop and recursion ends.")
