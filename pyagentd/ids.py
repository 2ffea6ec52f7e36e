"""Identifiers: readable for sessions and agents, time-ordered for messages.

A session id is ``<slug>-<YYYYMMDDHHMMSS>`` (SPEC 001 Session identification); an agent id is
``<preset>-<YYYYMMDDHHMMSS>-<slug>`` (SPEC 000 Agent session ID format). Making them unique on disk is the
store's work: it adds ``-2``, ``-3`` when a directory exists.
"""

from __future__ import annotations

import re
from typing import Literal

from anyascii import anyascii
from uuid6 import uuid7

_OTHER = re.compile(r"[^a-z0-9]+")
_SLUG_LENGTH = 60

Prefix = Literal["msg", "prt", "run", "ask", "edt", "hid", "snp", "hok", "ema", "sch", "call"]


def slugify(name: str, *, fallback: str = "session") -> str:
    """Return ``name`` as lowercase words joined by single dashes, at most 60 characters (DD-4)."""
    slug = _OTHER.sub("-", anyascii(name).lower()).strip("-")
    return slug[:_SLUG_LENGTH].rstrip("-") or fallback


def session_id(name: str, stamp: str) -> str:
    """Return the id of a new session called ``name``; ``stamp`` is ``clock.stamp(now)``."""
    return f"{slugify(name)}-{stamp}"


def agent_id(preset: str, stamp: str, description: str) -> str:
    """Return the id of a new agent; both model-supplied parts are slugified, so it is one path segment."""
    return f"{slugify(preset, fallback='agent')}-{stamp}-{slugify(description, fallback='task')}"


def new_id(prefix: Prefix) -> str:
    """Return a fresh id such as ``msg_…``; ids of one process sort in the order they were made (DD-13)."""
    return f"{prefix}_{uuid7().hex}"
