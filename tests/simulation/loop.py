"""An event loop in virtual time, so that a schedule takes no longer than its work and is the same for the same seed.

Nothing waits: when no callback is ready, time jumps to the next one that is due. Work for threads is done on the loop
after a random while, whole, which is one of the orders in which threads can end. A loop in which nothing is due any
more while somebody waits is a hang, and says so.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from pyagentd.clock import Clock

LONGEST_WORK_S = 0.02  # of what a thread does
BEGINNING = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


class Hang(AssertionError):
    """Somebody waits for what nobody will do."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """One life of a daemon.

    Args:
        random: Decides how long work in threads takes.
        start_s: The virtual time at which it begins, in seconds.
    """

    def __init__(self, random: Random, start_s: float = 0.0) -> None:
        super().__init__(_Jumping(self))
        self._random = random
        self.now_s = start_s

    def time(self) -> float:
        """Return the virtual time."""
        return self.now_s

    def run_in_executor(  # type: ignore[override]  # the one in typeshed is generic in the arguments
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Do ``func`` on the loop after a while."""
        done = self.create_future()
        self.call_later(self._random.random() * LONGEST_WORK_S, _perform, done, func, args)
        return done


class VirtualClock(Clock):
    """The time of facts, of one loop after the other."""

    def __init__(self) -> None:
        self.loop: VirtualLoop | None = None

    def now(self) -> datetime:
        """Return the virtual time as a date."""
        assert self.loop is not None
        return BEGINNING + timedelta(seconds=self.loop.now_s)


class _Jumping(selectors.SelectSelector):
    """A selector that never waits."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Hang("nothing is due and somebody waits")
        found = super().select(0)
        if not found and timeout > 0:
            self._loop.now_s += timeout
        return found


def _perform(done: asyncio.Future[Any], func: Callable[..., Any], args: tuple[Any, ...]) -> None:
    if done.cancelled():  # a thread would have done it all the same, and nobody hears how it went
        with suppress(Exception):
            func(*args)
        return
    try:
        result = func(*args)
    except BaseException as error:
        done.set_exception(error)
    else:
        done.set_result(result)
