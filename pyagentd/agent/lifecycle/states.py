"""The states of an agent and what moves it between them: a table, no code (SPEC 003 State Diagram).

A named agent's state stands in ``state.db``; whether a conversation goes on follows from its log: it is active while
there are rows that no boundary has put behind it (DD-43).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Life(StrEnum):
    """Where an agent is."""

    CREATED = "created"  # being made
    IDLE = "idle"  # it listens, and no conversation goes on
    ACTIVE = "active"  # a conversation goes on; its idle timer runs
    DESTROYED = "destroyed"  # it is gone; records of it are kept


class Happening(StrEnum):
    """What happened to an agent."""

    MADE = "made"  # its creation is complete
    MESSAGE = "message"  # somebody, or something, spoke to it
    SAVE = "save"  # its conversation was saved, and goes on
    RESTORE = "restore"  # a saved conversation goes on
    CLEAR = "clear"  # its conversation was put behind it
    IDLE_TIMEOUT = "idle_timeout"  # nobody spoke to it for long: saved, and put behind it
    SHUTDOWN = "shutdown"  # the daemon ends: saved; the next one finds it idle
    DESTROY = "destroy"


TRANSITIONS: Mapping[Life, Mapping[Happening, Life]] = {
    Life.CREATED: {Happening.MADE: Life.IDLE},
    Life.IDLE: {
        Happening.MESSAGE: Life.ACTIVE,
        Happening.RESTORE: Life.ACTIVE,
        Happening.SHUTDOWN: Life.IDLE,
        Happening.DESTROY: Life.DESTROYED,
    },
    Life.ACTIVE: {
        Happening.MESSAGE: Life.ACTIVE,
        Happening.SAVE: Life.ACTIVE,
        Happening.RESTORE: Life.ACTIVE,
        Happening.CLEAR: Life.IDLE,
        Happening.IDLE_TIMEOUT: Life.IDLE,
        Happening.SHUTDOWN: Life.IDLE,
        Happening.DESTROY: Life.DESTROYED,
    },
    Life.DESTROYED: {},
}


def after(life: Life, happening: Happening) -> Life | None:
    """Return the state after ``happening``; None where the diagram has no such arrow."""
    return TRANSITIONS[life].get(happening)
