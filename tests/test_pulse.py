"""When beats come."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Any, cast

from pyagentd.clock import Pulse


class Loop:
    """An event loop whose time passes only when told."""

    def __init__(self) -> None:
        self.now = 100.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], None]) -> object:
        heapq.heappush(self._due, (when, len(self._due), callback))
        return object()

    def call_soon(self, callback: Callable[..., None], *arguments: object) -> None:
        self.call_at(self.now, lambda: callback(*arguments))

    def run(self, until: float) -> None:
        while self._due and self._due[0][0] <= until:
            when, _, callback = heapq.heappop(self._due)
            self.now = max(self.now, when)
            callback()
        self.now = until


def beats(requests: list[float], until: float) -> list[float]:
    """Return when something requested at these times was shown, all counted from the start, in periods."""
    loop = Loop()
    pulse = Pulse(cast(Any, loop), period_s=1.0)
    shown: list[float] = []

    def show() -> None:
        shown.append(round(loop.now - 100.0, 6))

    for request in requests:
        loop.run(100.0 + request)
        pulse.request("show", show)
    loop.run(100.0 + until)
    return shown


AT_ONCE = 13  # beats after a quiet time


def test_the_first_beats_after_a_quiet_time_come_at_once() -> None:
    quick = [number / 20 for number in range(AT_ONCE)]
    assert beats([*quick, 0.8], until=5.0) == [*quick, 1.0]
    later = [50.0 + each for each in quick]
    assert beats([*quick, *later], until=60.0) == [*quick, *later]


def test_a_steady_stream_has_one_beat_a_period() -> None:
    shown = beats([number / 20 for number in range(200)], until=20.0)
    assert len(shown) == 10 + AT_ONCE
    assert all(later - earlier >= 0.999 for earlier, later in itertools.pairwise(shown[AT_ONCE:]))


def test_asking_twice_is_asking_once_and_what_is_recorded_is_shown_in_the_same_beat() -> None:
    loop = Loop()
    pulse = Pulse(cast(Any, loop), period_s=1.0)
    done: list[str] = []

    def show() -> None:
        done.append("show")

    def record() -> None:
        done.append("record")
        pulse.request("show", show)

    pulse.request("show", show)
    pulse.request("record", record)
    pulse.request("record", record)
    loop.run(100.0)
    assert done == ["record", "show"]


def test_what_is_urgent_is_shown_at_once_and_not_again_at_the_beat() -> None:
    loop = Loop()
    pulse = Pulse(cast(Any, loop), period_s=1.0)
    shown: list[float] = []

    def show() -> None:
        shown.append(loop.now)

    for _ in range(AT_ONCE + 1):
        pulse.request("show", show)
        loop.run(loop.now)
    pulse.request("show", show)
    loop.run(100.5)
    assert shown == [100.0] * AT_ONCE
    pulse.request("show", show, urgent=True)
    pulse.request("show", show, urgent=True)
    loop.run(110.0)
    assert shown == [*[100.0] * AT_ONCE, 100.5]
