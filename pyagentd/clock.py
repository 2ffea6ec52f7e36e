"""Time, through one seam: nothing else in the package reads a clock for a fact.

Timers and timeouts use asyncio's own clock; a fact (an id, a row, a metadata file) uses a ``Clock``.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Where facts get their time from."""

    def now(self) -> datetime:
        """Return the current time, aware, in UTC."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the current time, aware, in UTC."""
        return datetime.fromtimestamp(time.time(), UTC)


def epoch_ms(moment: datetime) -> int:
    """Return ``moment`` as milliseconds since the epoch, the unit of every ``*_at`` column."""
    return int(moment.timestamp() * 1000)


def iso8601(moment: datetime) -> str:
    """Return ``moment`` in UTC with seconds and ``Z``, the form of the metadata files (DD-5)."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def stamp(moment: datetime) -> str:
    """Return ``YYYYMMDDHHMMSS`` in local time, the form used inside ids (SPEC 001, DD-5)."""
    return moment.astimezone().strftime("%Y%m%d%H%M%S")
