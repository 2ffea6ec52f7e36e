"""Sessions as tables (neighbours B.2) and their full-text index: derived from the files, and only from them.

A branch is one transaction: it is there as its files were at some moment, or as it was before. Whether it is up to
date is told by the stamps of its files, so what another program or machine wrote is noticed; nobody has to tell.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from pyagentd.store.index.indexed import Stamps, index_branch, stamps_of
from pyagentd.store.index.state import State
from pyagentd.store.index.tables import BranchTables
from pyagentd.store.paths import BranchRef


class Facts(NamedTuple):
    """What a list of sessions shows of a branch, as the tables have it."""

    stamps: Stamps
    title: str
    archived_at: int | None  # epoch ms
    preset: str | None
    created: str | None  # as in the metadata


class Projection:
    """The tables of one sessions root; methods raise ``StoreError`` when the database or a file cannot be used.

    Args:
        state: The database.
        root: The sessions root, to which the branches' keys are relative.
    """

    def __init__(self, state: State, root: Path) -> None:
        self._state = state
        self._root = f"{root.resolve()}/"

    def key(self, directory: Path) -> str:
        """Return the ``id`` of the branch in ``directory``: where it is below the root, or absolute."""
        return str(directory).removeprefix(self._root)

    def directory(self, key: str) -> Path:
        """Return the directory of the branch with this ``id``."""
        return Path(self._root) / key

    def stamps(self) -> dict[str, Stamps]:
        """Return every branch there is in the tables, by its key, with the stamps of what was read of it."""
        query = "SELECT id, plan_stamp, journal_stamp, document_stamp FROM chat_sessions"
        with self._state.reading() as db:
            return {key: Stamps(*stamps) for key, *stamps in db.execute(query)}

    def facts(self) -> dict[str, Facts]:
        """Return what a list of sessions needs, by key."""
        query = "SELECT id, plan_stamp, journal_stamp, document_stamp, title, archived_at, preset, created"
        with self._state.reading() as db:
            rows = db.execute(f"{query} FROM chat_sessions")
            return {key: Facts(Stamps(a, b, c), *rest) for key, a, b, c, *rest in rows}

    def update(self, ref: BranchRef) -> int:
        """Read what changed in the files of a branch; return how many messages that concerned, 0 if nothing did."""
        key, stamps = self.key(ref.branch_dir), stamps_of(ref.key)
        with self._state.writing() as db:
            known = _known(db, key)
            if known is not None and _stamps(known) == stamps:
                return 0
            return index_branch(db, key, ref, known, stamps)

    def drop(self, keys: Iterable[str]) -> None:
        """Forget branches that are gone."""
        for key in keys:
            with self._state.writing() as db:
                BranchTables(db, key).remove()

    def clear(self) -> None:
        """Forget all branches."""
        with self._state.writing() as db:
            db.execute("INSERT INTO texts_index (texts_index) VALUES ('delete-all')")
            for table in ("texts", "requests", "chat_parts", "chat_messages", "chat_sessions"):
                db.execute(f"DELETE FROM {table}")

    def totals(self) -> tuple[int, int]:
        """Return how many branches and messages there are."""
        with self._state.reading() as db:
            branches, messages = db.execute(
                "SELECT (SELECT count(*) FROM chat_sessions), (SELECT count(*) FROM chat_messages)"
            ).fetchone()
            return branches, messages


def _known(db: sqlite3.Connection, key: str) -> dict[str, Any] | None:
    cursor = db.execute("SELECT * FROM chat_sessions WHERE id = ?", (key,))
    row = cursor.fetchone()
    return None if row is None else dict(zip((column[0] for column in cursor.description), row, strict=True))


def _stamps(known: dict[str, Any]) -> Stamps:
    return Stamps(known["plan_stamp"], known["journal_stamp"], known["document_stamp"])
