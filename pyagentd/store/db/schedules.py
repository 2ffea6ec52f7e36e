"""Schedules in ``state.db``, and the deliveries of triggers that were received.

The rows are the only copy. Deleting a session deletes its schedules.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from sqlite3 import IntegrityError
from typing import Any, Literal

from pyagentd.store.db.state import State, Table

Kind = Literal["at", "every", "cron"]
Source = Literal["schedule", "self-schedule"]

KEPT_MS = 8 * 24 * 3600 * 1000  # of deliveries; a day more than a schedule lives


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """One schedule; the fields are the columns of ``schedules``."""

    id: str
    branch_dir: str  # below the sessions root, or absolute
    source: Source
    text: str
    reason: str = ""  # of a self-schedule
    kind: Kind
    value: str  # at: ISO 8601 in UTC; every: seconds; cron: the expression
    zone: str = ""  # of a cron expression; "" is the machine's
    auth_subject: str  # who made it
    options: Mapping[str, Any] = field(default_factory=dict)  # of the run: {env, allow}
    created_at: int  # epoch ms, like all that follow
    next_at: int
    expires_at: int | None = None
    fired: int = 0  # how often
    last_at: int | None = None
    last_error: str = ""  # why the last firing failed, or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One delivery of a trigger; the fields are the columns of ``deliveries``."""

    source: str
    delivery_id: str
    branch_dir: str
    at_ms: int
    message_id: str


_SCHEDULES = Table("schedules", Schedule)
_DELIVERIES = Table("deliveries", Delivery)


def put(state: State, schedule: Schedule) -> None:
    """Add a schedule; raises as ``State.writing``."""
    with state.writing() as db:
        _SCHEDULES.insert(db, [schedule])


def update(state: State, schedule: Schedule) -> None:
    """Update a schedule after it fired, unless it was removed; raises as ``State.writing``."""
    with state.writing() as db:
        db.execute(
            "UPDATE schedules SET next_at = ?, fired = ?, last_at = ?, last_error = ? WHERE id = ?",
            (schedule.next_at, schedule.fired, schedule.last_at, schedule.last_error, schedule.id),
        )


def remove(state: State, ids: Iterable[str]) -> None:
    """Remove schedules; raises as ``State.writing``."""
    with state.writing() as db:
        db.executemany("DELETE FROM schedules WHERE id = ?", [(id,) for id in ids])


def remove_within(state: State, directory: str) -> int:
    """Remove the schedules of a branch and of all agents below; return how many. Raises as ``State.writing``."""
    with state.writing() as db:
        found = db.execute(
            "DELETE FROM schedules WHERE branch_dir = ? OR substr(branch_dir, 1, ?) = ?",
            (directory, len(directory) + 1, f"{directory}/"),
        )
        return found.rowcount


def find(state: State, *, branch_dir: str | None = None, due_ms: int | None = None) -> list[Schedule]:
    """Return schedules, next first, only of one branch or due by ``due_ms`` if given; raises as ``State.reading``."""
    where = "WHERE (?1 IS NULL OR branch_dir = ?1) AND (?2 IS NULL OR next_at <= ?2)"
    return _SCHEDULES.select(state, f"{where} ORDER BY next_at, id", (branch_dir, due_ms))


def within(state: State, directory: str) -> list[Schedule]:
    """Return the schedules of a branch and of all agents below; raises as ``State.reading``."""
    return [each for each in find(state) if f"{each.branch_dir}/".startswith(f"{directory}/")]


def get(state: State, id: str) -> Schedule | None:
    """Return the schedule with this id; raises as ``State.reading``."""
    return next(iter(_SCHEDULES.select(state, "WHERE id = ?", (id,))), None)


def note_delivery(state: State, delivery: Delivery) -> None:
    """Add a delivery, for the rate limits, and remove old ones; raises as ``State.writing``."""
    with state.writing() as db:
        db.execute("DELETE FROM deliveries WHERE at_ms < ?", (delivery.at_ms - KEPT_MS,))
        with suppress(IntegrityError):  # it was noted, and the log has lost it
            _DELIVERIES.insert(db, [delivery])


def deliveries_since(state: State, since_ms: int, *, branch_dir: str | None = None, source: str | None = None) -> int:
    """Return the number of deliveries after ``since_ms`` from one source to a branch; raises as ``State.reading``."""
    where = "WHERE at_ms > ?1 AND (?2 IS NULL OR branch_dir = ?2) AND (?3 IS NULL OR source = ?3)"
    with state.reading() as db:
        row = db.execute(f"SELECT count(*) FROM deliveries {where}", (since_ms, branch_dir, source)).fetchone()
    return int(row[0])
