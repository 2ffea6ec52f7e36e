"""An answer whose pieces come when the test says so, not by the clock."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from tests.server.answers import Answer, sse
from tests.server.http import Pause, Reply, Request, Step, event_stream


class Valve:
    """Holds back the deltas of an answer."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._allowed = threading.Semaphore(0)
        self._open = threading.Event()

    def let(self, deltas: int) -> None:
        """Let so many more deltas through."""
        self._allowed.release(deltas)

    def open(self) -> None:
        """Let everything through."""
        self._open.set()

    def reply(self, request: Request) -> Reply:
        return event_stream(self._steps(request))

    def _steps(self, request: Request) -> Iterator[Step]:
        for event in self._answer.events(request):
            if event["type"] == "content_block_delta":
                while not (self._open.is_set() or self._allowed.acquire(blocking=False)):
                    yield Pause(0.005)
            yield sse(event)
