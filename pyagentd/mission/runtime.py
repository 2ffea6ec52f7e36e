"""The outside of a mission: time, waiting, whoever listens and whoever may cancel.

Everything a mission takes from its surroundings comes through here, so that a test gives a clock that stands still
and a caller with an event loop gets its coroutines awaited there.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyagentd.mission.bridge import run_here
from pyagentd.mission.budget import Scope
from pyagentd.mission.telemetry import Event, Listener, tell


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """What a mission needs of the world.

    Attributes:
        monotonic: Seconds, for durations and deadlines.
        epoch: Seconds since the epoch, for facts.
        sleep: Waits that many seconds.
        awaited: Waits for what a coroutine function gave, that many seconds at most.
        listener: Told of everything.
        cancelled: Whether somebody asked for the end.
    """

    monotonic: Callable[[], float] = time.monotonic
    epoch: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    awaited: Callable[[Awaitable[Any], float], Any] = run_here
    listener: Listener | None = None
    cancelled: Callable[[], bool] = lambda: False

    def within(self, around: Scope | None) -> Runtime:
        """Return what a mission below ``around`` needs: its cancellation, its listener and loop unless it has own."""
        if around is None:
            return self
        own, above = self.cancelled, around.cancelled
        awaited = self.awaited if self.awaited is not run_here else around.awaited or run_here
        listener = self.listener or around.telemetry
        return replace(self, listener=listener, cancelled=lambda: own() or above(), awaited=awaited)

    def now_ms(self) -> int:
        """Return milliseconds since the epoch."""
        return int(self.epoch() * 1000)

    def tell(
        self,
        name: str,
        span: str,
        parent: str | None,
        measurements: Mapping[str, int | float] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Send an event."""
        event = Event(
            name=name,
            span_id=span,
            parent_span_id=parent,
            at_ms=self.now_ms(),
            measurements=measurements or {},
            metadata=metadata or {},
        )
        tell(self.listener, event)
