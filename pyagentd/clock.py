"""Time, through one seam: nothing else in the package reads a clock for a fact.

Timers and timeouts use asyncio's own clock; a fact (an id, a row, a metadata file) uses a ``Clock``.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Literal, Protocol

from anyascii import anyascii
from uuid6 import uuid7


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
    """Return ``moment`` in UTC with seconds and ``Z``, the form of the metadata files."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def stamp(moment: datetime) -> str:
    """Return ``YYYYMMDDHHMMSS`` in local time, the form used inside ids."""
    return moment.astimezone().strftime("%Y%m%d%H%M%S")


# Identifiers: readable for sessions and agents, time-ordered for messages.
#
# A session id is ``<slug>-<YYYYMMDDHHMMSS>``; an agent id is
# ``<preset>-<YYYYMMDDHHMMSS>-<slug>``. Making them unique on disk is the store's
# work: it adds ``-2``, ``-3`` when a directory exists.

_OTHER = re.compile(r"[^a-z0-9]+")
_SLUG_LENGTH = 60

Prefix = Literal["msg", "prt", "run", "ask", "edt", "hid", "snp", "hok", "ema", "sch", "call"]


def slugify(name: str, *, fallback: str = "session") -> str:
    """Return ``name`` as lowercase words joined by single dashes, at most 60 characters."""
    slug = _OTHER.sub("-", anyascii(name).lower()).strip("-")
    return slug[:_SLUG_LENGTH].rstrip("-") or fallback


def session_id(name: str, stamp: str) -> str:
    """Return the id of a new session called ``name``; ``stamp`` is ``clock.stamp(now)``."""
    return f"{slugify(name)}-{stamp}"


def agent_id(preset: str, stamp: str, description: str) -> str:
    """Return the id of a new agent; both model-supplied parts are slugified, so it is one path segment."""
    return f"{slugify(preset, fallback='agent')}-{stamp}-{slugify(description, fallback='task')}"


def new_id(prefix: Prefix) -> str:
    """Return a fresh id such as ``msg_…``; ids of one process sort in the order they were made."""
    return f"{prefix}_{uuid7().hex}"
