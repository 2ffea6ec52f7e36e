"""One heartbeat for all streams: first record, then show, at most thirty times a second.

Everything that arrives between two beats is merged by its owner (the recorder merges text of a part, the outbox
merges text of a branch), so the cost of a stream depends on time and not on the number of its chunks. The first
two beats after a quiet time come at once: the first shows that a run has begun, the second its first word.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal

PERIOD_S = 0.033

Phase = Literal["record", "show"]


class Pulse:
    """Calls those who asked, recorders before outboxes, each at most once a beat."""

    def __init__(self, loop: asyncio.AbstractEventLoop, period_s: float = PERIOD_S) -> None:
        self._loop = loop
        self._period = period_s
        self._due = -period_s  # when the next beat may come
        self._timer: asyncio.Handle | None = None
        self._record: dict[Callable[[], None], None] = {}
        self._show: dict[Callable[[], None], None] = {}

    def request(self, phase: Phase, flush: Callable[[], None]) -> None:
        """Have ``flush`` called at the next beat; asking twice is asking once."""
        (self._record if phase == "record" else self._show)[flush] = None
        if self._timer is None:
            self._timer = self._loop.call_at(max(self._loop.time(), self._due), self._beat)

    def _beat(self) -> None:
        # At most one period is saved up while nothing happens.
        self._due = max(self._due, self._loop.time() - self._period) + self._period
        try:
            # Recording may itself ask to show, so the second set is taken only after the first ran.
            _run(self._record)
            _run(self._show)
        finally:
            waiting = self._record or self._show
            self._timer = self._loop.call_at(self._due, self._beat) if waiting else None


def _run(flushes: dict[Callable[[], None], None]) -> None:
    """Call those who asked so far, each once; one that fails ends the beat, and the rest come with the next."""
    for flush in list(flushes):
        del flushes[flush]
        flush()
