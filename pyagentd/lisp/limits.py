"""How much a program may use, and the meter that charges it before anything is allocated.

Four quantities are charged: steps (work), cells (slots of vectors, maps and sets), bytes (text) and bits (of one
integer). Steps and time end a run as ``timeout``; cells, bytes, bits and depth as ``memory_exceeded``. Time is looked
at every ``SLICE`` steps, so whoever works longer than that between two charges goes through ``Budget.each``.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

from pyagentd.lisp.errors import LispError

SLICE = 1024
"""Steps between two looks at the clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one run of a program may use.

    Args:
        timeout_ms: Wall time of one run.
        steps: Calls, iterations and items handled.
        cells: Slots of vectors, maps and sets made in the whole run, whether still alive or not.
        bytes: Characters of text made in the whole run.
        bits: Size of one integer.
        depth: Nesting of one value.
        tool_calls: Calls of tools in one run; None is no limit.
        memory_bytes: Size of the memory map after the run (``encoding.size``).
        tool_time_counts: Whether the time spent inside tools counts against ``timeout_ms``.
    """

    timeout_ms: int = 5000
    steps: int = 50_000_000
    cells: int = 5_000_000
    bytes: int = 50_000_000
    bits: int = 13_000
    depth: int = 200
    tool_calls: int | None = 1000
    memory_bytes: int = 1_048_576
    tool_time_counts: bool = True


DEFAULT_LIMITS = Limits()


class Budget:
    """The meter of one run; made when the run starts, never shared by two.

    Args:
        limits: What may be used.
        now: Monotonic seconds.
        cancelled: Asked at every look at the clock; true ends the run.
    """

    __slots__ = (
        "_cancelled",
        "_deadline",
        "_next_look",
        "_now",
        "_started",
        "_used",
        "bytes_used",
        "cells_used",
        "limits",
        "tick",
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
        self._used = 0
        self._next_look = SLICE
        self._now = now
        self._cancelled = cancelled
        self._started = now()
        self._deadline = self._started + limits.timeout_ms / 1000
        # One step for every ``tick()``, counted by C code: this is what a call and a loop's turn cost.
        self.tick: Callable[[], Any] = chain.from_iterable(self._slices()).__next__

    def _slices(self) -> Iterator[Iterable[None]]:
        """Charge the ticks of one slice ahead, as often as they are used up."""
        while True:
            self.steps(64)
            yield repeat(None, 64)

    @property
    def steps_used(self) -> int:
        """Steps charged so far; ticks are charged 64 at a time."""
        return self._used

    @property
    def duration_ms(self) -> float:
        """Wall time since the run started."""
        return (self._now() - self._started) * 1000

    def steps(self, count: int) -> None:
        """Charge ``count`` steps of work that is about to be done."""
        self._used += count
        if self._used >= self._next_look:
            self.look()

    def look(self) -> None:
        """Look at steps, clock and cancellation now.

        Raises:
            LispError: ``timeout``.
        """
        self._next_look = min(self._used + SLICE, self.limits.steps + 1)
        if self._used > self.limits.steps:
            raise LispError(
                "timeout",
                f"the program took more than {self.limits.steps} steps",
                hint="Handle less data, or check that every loop and recursion ends.",
            )
        if self._now() > self._deadline:
            raise LispError(
                "timeout",
                f"the program ran longer than {self.limits.timeout_ms} ms",
                hint="Handle less data, or check that every loop and recursion ends.",
            )
        if self._cancelled is not None and self._cancelled():
            raise LispError("timeout", "the program was cancelled")

    def cells(self, count: int) -> None:
        """Charge ``count`` slots of a vector, map or set that is about to be made."""
        self.cells_used += count
        if self.cells_used > self.limits.cells:
            raise LispError(
                "memory_exceeded",
                f"the program makes more than {self.limits.cells} items",
                hint="Filter or aggregate before building new collections.",
            )

    def charger(self, count: int) -> Callable[[], Any]:
        """Return what charges ``count`` slots whenever it is called, at the speed of C: for what is made often.

        More and more is charged ahead, up to 64 times ``count``.
        """
        return chain.from_iterable(self._ahead(count)).__next__

    def _ahead(self, count: int) -> Iterator[Iterable[None]]:
        times = 1
        while True:
            self.cells(times * count)
            yield repeat(None, times)
            times = min(2 * times, 64)

    def bytes(self, count: int) -> None:
        """Charge ``count`` characters of text that is about to be made."""
        self.bytes_used += count
        if self.bytes_used > self.limits.bytes:
            raise LispError(
                "memory_exceeded",
                f"the program makes more than {self.limits.bytes} characters of text",
                hint="Build shorter strings.",
            )

    def bits(self, count: int) -> None:
        """Check that an integer of ``count`` bits may be made, and charge its bytes."""
        if count > self.limits.bits:
            raise LispError(
                "memory_exceeded",
                f"an integer would have more than {self.limits.bits} bits",
                hint="Use floating-point numbers for magnitudes like this.",
            )
        self.bytes(count >> 3)

    def too_deep(self) -> LispError:
        """Return the error for a value or a chain of calls that is nested too deeply."""
        return LispError(
            "memory_exceeded",
            f"a value is nested deeper than {self.limits.depth} levels",
            hint="Keep data flat: collect into one vector or map instead of wrapping it again and again.",
        )

    def each(self, items: Sequence[Any]) -> Iterable[Any]:
        """Charge a step for every item and return them to go through once.

        The clock is looked at while they are gone through, so this is what every loop over a collection whose body
        may be slow goes over.
        """
        count = len(items)
        if count <= 64:
            self.steps(count)
            return items
        return chain.from_iterable(self._parts(items, count))

    def _parts(self, items: Sequence[Any], count: int) -> Iterator[Sequence[Any]]:
        for start in range(0, count, 64):
            part = items[start : start + 64]
            self._used += len(part)
            if self._used >= self._next_look:
                self.look()
            yield part

    def pause(self, seconds: float) -> None:
        """Move the deadline by ``seconds`` that do not count."""
        self._deadline += seconds
