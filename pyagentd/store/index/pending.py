"""Where something waits, in ``state.db``: the hint that tells a daemon which branches to open when it starts.

A projection: what waits is in the logs. A hint too many costs one look; without a hint what waits is found when its
branch is opened, or when all branches are looked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pyagentd.store.index.state import State


class Hint(NamedTuple):
    """Something that waits."""

    branch_dir: str  # as chat_sessions.id
    kind: str  # "ask", "background" or "queue"
    id: str  # of the ask, of the agent, or of the message


def change(state: State, noted: Iterable[Hint], forgotten: Iterable[Hint], *, now_ms: int) -> None:
    """Add hints and remove others; raises as ``State.writing``."""
    with state.writing() as db:
        db.executemany("DELETE FROM pending WHERE branch_dir = ? AND kind = ? AND id = ?", list(forgotten))
        db.executemany(
            "INSERT OR IGNORE INTO pending (branch_dir, kind, id, created_at) VALUES (?, ?, ?, ?)",
            [(*hint, now_ms) for hint in noted],
        )


def found(state: State) -> list[Hint]:
    """Return all hints, the oldest first; raises as ``State.reading``."""
    with state.reading() as db:
        rows = db.execute("SELECT branch_dir, kind, id FROM pending ORDER BY created_at, id")
        return [Hint(*row) for row in rows]


def forget_branch(state: State, branch_dir: str) -> None:
    """Remove the hints of a branch in which nothing waits; raises as ``State.writing``."""
    with state.writing() as db:
        db.execute("DELETE FROM pending WHERE branch_dir = ?", (branch_dir,))
