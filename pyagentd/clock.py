"""Time, ids, and the one heartbeat at which streamed text is recorded and shown."""

import asyncio
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from typing import Literal

# Time, through one seam: nothing else in the package reads a clock for a fact.
#
# Timers and timeouts use asyncio's own clock; a fact (an id, a row, a metadata file) uses a ``Clock``.


class Clock(ABC):
    """Where facts get their time from."""

    @abstractmethod
    def now(self) -> datetime:
        """Return the current time, aware, in UTC."""

    def now_ms(self) -> int:
        """Return the current time in milliseconds since the epoch, the unit of every ``*_at`` column."""
        return epoch_ms(self.now())


class SystemClock(Clock):
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the current time, aware, in UTC."""
        return datetime.fromtimestamp(time.time(), UTC)

    def now_ms(self) -> int:
        """Return the current time in milliseconds since the epoch."""
        return int(time.time() * 1000)


def epoch_ms(moment: datetime) -> int:
    """Return ``moment`` in milliseconds since the epoch."""
    return int(moment.timestamp() * 1000)


def iso8601(moment: datetime) -> str:
    """Return ``moment`` in UTC with seconds and ``Z``, the form of the metadata files."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def stamp(moment: datetime) -> str:
    """Return ``YYYYMMDDHHMMSS`` in local time, the form used inside ids."""
    return moment.astimezone().strftime("%Y%m%d%H%M%S")


# Identifiers of what is recorded, ordered by time: UUIDs of version 7 (RFC 9562), as ``uuid.uuid7`` of Python 3.14.
# Importing the package ``uuid6`` for them would delay the daemon's hello.

Prefix = Literal["msg", "prt", "run", "ask", "edt", "hid", "snp", "ema", "sch", "call"]
_last_ms = 0


def new_id(prefix: Prefix) -> str:
    """Return a fresh id such as ``msg_…``; ids of one process sort in the order they were made."""
    global _last_ms
    _last_ms = max(time.time_ns() // 1_000_000, _last_ms + 1)
    random = int.from_bytes(os.urandom(10))
    made = _last_ms << 80 | 7 << 76 | (random >> 68) << 64 | 2 << 62 | random & (1 << 62) - 1
    return f"{prefix}_{made:032x}"


def claim(wanted: str, taken: set[str]) -> str:
    """Return ``wanted``, or that with the first number behind it that nobody has, and add it to what is ``taken``."""
    numbered = (wanted if number == 1 else f"{wanted}-{number}" for number in count(1))
    name = next(each for each in numbered if each not in taken)
    taken.add(name)
    return name


# One heartbeat for all streams: first record, then show, at most thirty times a second.
#
# Everything that arrives between two beats is merged by its owner (the recorder merges text of a part, the outbox
# merges text of a branch), so the cost of a stream depends on time and not on the number of its chunks. The first
# beats after a quiet time come at once: they show that the document is written, that a run has begun, and its first
# words. What somebody waits for (the end of a run, a question) does not wait for the beat; what is queued before it
# comes along.

PERIOD_S = 0.033
_SAVED_UP = 12  # beats that come at once after a quiet time, beside the one that is due

Phase = Literal["record", "show"]


class Pulse:
    """Runs the requested callbacks, recorders before outboxes, each at most once a beat."""

    def __init__(self, loop: asyncio.AbstractEventLoop, period_s: float = PERIOD_S) -> None:
        self._loop = loop
        self._period = period_s
        self._due = -period_s  # when the next beat may come
        self._timer: asyncio.Handle | None = None
        self._record: dict[Callable[[], None], None] = {}
        self._show: dict[Callable[[], None], None] = {}

    def request(self, phase: Phase, flush: Callable[[], None], *, urgent: bool = False) -> None:
        """Call ``flush`` at the next beat, or soon if ``urgent``; a second request changes nothing."""
        waiting = self._record if phase == "record" else self._show
        waiting[flush] = None
        if urgent:
            self._loop.call_soon(_run_if_waiting, waiting, flush)
        if self._timer is None:
            self._timer = self._loop.call_at(max(self._loop.time(), self._due), self._beat)

    def _beat(self) -> None:
        self._due = max(self._due, self._loop.time() - _SAVED_UP * self._period) + self._period
        try:
            # Recording may itself ask to show, so the second set is taken only after the first ran. If a callback
            # fails, the rest run with the next beat.
            for flushes in (self._record, self._show):
                for flush in list(flushes):
                    del flushes[flush]
                    flush()
        finally:
            waiting = self._record or self._show
            self._timer = self._loop.call_at(self._due, self._beat) if waiting else None


def _run_if_waiting(flushes: dict[Callable[[], None], None], flush: Callable[[], None]) -> None:
    if flush in flushes:
        del flushes[flush]
        flush()


def span(seconds: float) -> str:
    """Return a duration in words, in its largest even unit: ``30 minutes``, ``90 seconds``, ``1 hour``."""
    for size, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")):
        if (seconds >= size and seconds % size == 0) or size == 1:
            return f"{seconds / size:g} {unit}{'' if seconds == size else 's'}"
    raise AssertionError(seconds)


_NUMBER = r"(\d++(?:\.\d++)?)\s*+"
# Possessive quantifiers: the text may come from a model, and backtracking over its blanks could block the loop.
_SPAN = re.compile(
    rf"\s*+(?:{_NUMBER}d)?\s*+(?:{_NUMBER}h)?\s*+(?:{_NUMBER}m(?:in)?)?\s*+(?:{_NUMBER}s)?\s*+|\s*+{_NUMBER}",
    re.IGNORECASE,
)


def seconds_of(text: str) -> float:
    """Return the seconds in a duration as people write it: ``90s``, ``45min``, ``1h30m``, ``7d``, or a number.

    Raises:
        ValueError: It is no duration.
    """
    found = _SPAN.fullmatch(text)
    if found is None or not any(found.groups()):
        raise ValueError(text)
    days, hours, minutes, seconds, plain = (float(number or 0) for number in found.groups())
    return 86_400 * days + 3_600 * hours + 60 * minutes + seconds + plain
