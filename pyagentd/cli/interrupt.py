"""Ctrl-C while following a run: counted, not raised, so that no half-read event is lost."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType


class Interrupts:
    """Counts SIGINT while entered."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Interrupts:
        self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
