"""How often a server is listened to that says again and again that it changed: the less, the longer it goes on."""

from __future__ import annotations

LEAST_S = 2.0
MOST_S = 60.0


class Pace:
    """When something may be done next: at once, then after 2 s, 4 s, …, 60 s, until nothing was done for a while."""

    def __init__(self) -> None:
        self._pause = 0.0
        self._last = float("-inf")

    def wait(self, now: float) -> float:
        """Return after how many seconds it may be done, 0 for at once; ``now`` in seconds."""
        return max(0.0, self._last + self._pause - now)

    def done(self, now: float) -> None:
        """Note that it was done at ``now``."""
        is_quiet = now - self._last > 2 * max(self._pause, LEAST_S)
        self._pause = LEAST_S if is_quiet else min(MOST_S, 2 * self._pause)
        self._last = now
