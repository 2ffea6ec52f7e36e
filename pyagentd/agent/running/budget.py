"""How long a run may go on: turns, tokens and time, as its preset says.

A budget is checked between two requests to the model, so an answer is never cut and its calls have their results;
only time also ends what is going on. Time in which a human is asked does not count. Whoever exceeds a budget ends
with the error ``budget`` and keeps what was said so far.
"""

from __future__ import annotations

import asyncio
import contextlib
from asyncio import get_running_loop
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pyagentd.errors import BudgetSpent
from pyagentd.messages import Usage
from pyagentd.policy.presets import Preset


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a run may use; None is no limit."""

    turns: int | None = None  # requests to the model
    tokens: int | None = None  # all buckets of all requests of the run together
    time_s: float | None = None

    def check(self, turns: int, usage: Usage) -> None:
        """Return if one more request is within the limits.

        Raises:
            BudgetSpent: ``turns`` requests that cost ``usage`` are all there may be.
        """
        if self.turns is not None and turns >= self.turns:
            raise BudgetSpent(f"Agent stopped: turn limit ({self.turns}) reached")
        if self.tokens is not None and usage.total >= self.tokens:
            raise BudgetSpent(f"Agent stopped: token limit ({self.tokens:,}) reached")


def limits_of(preset: Preset) -> Limits:
    """Return what ``max-turns``, ``token-budget`` and ``time-budget`` of a preset allow."""
    return Limits(turns=preset.max_turns, tokens=preset.token_budget, time_s=preset.time_budget_s)


class Stopwatch:
    """Ends a run when its time is up.

    Args:
        time_s: How long it may take; None is for ever.
        expire: Called once with the error that says so.
    """

    def __init__(self, time_s: float | None, expire: Callable[[BudgetSpent], None]) -> None:
        self._time_s = time_s
        self._expire = expire
        self._left_s = time_s or 0.0
        self._pauses = 0
        self._since = 0.0
        self._counting = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_running(self) -> bool:
        """Whether time counts now."""
        return self._timer is not None

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Count the time the block takes."""
        if self._time_s is None:
            yield
            return
        self._counting = True
        self._go_on()
        try:
            yield
        finally:
            self._counting = False
            self._halt()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Count nothing while the block waits for a human; blocks may overlap."""
        self._pauses += 1
        if self._pauses == 1:
            self._halt()
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses and self._counting:
                self._go_on()

    def _go_on(self) -> None:
        loop = get_running_loop()
        self._since = loop.time()
        self._timer = loop.call_later(max(0.0, self._left_s), self._expired)

    def _halt(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._left_s -= get_running_loop().time() - self._since

    def _expired(self) -> None:
        self._timer = None
        self._expire(BudgetSpent(f"Agent stopped: time limit ({self._time_s:g} s) reached"))
