"""The saved conversations in ``state.db``: where each one's file is (SPEC 003 Session Persistence Summary).

The records stay when their agent is destroyed and its files are gone.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from pyagentd.store.contexts import Trigger
from pyagentd.store.index.state import State


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextRow:
    """One saved conversation; the fields are the columns of ``contexts``."""

    id: str
    agent_name: str  # or the session's id
    description: str
    saved_at: str  # ISO 8601
    message_count: int
    file_path: str  # absolute
    trigger: Trigger
    first_seq: int | None = None  # rows of messages.jsonl that it holds
    last_seq: int | None = None


_NAMES = tuple(field.name for field in dataclasses.fields(ContextRow))
_COLUMNS = ", ".join(_NAMES)


def put(state: State, row: ContextRow) -> None:
    """Write the row of a context, in the place of the one it has; raises as ``State.writing``."""
    marks = ", ".join("?" * len(_NAMES))
    with state.writing() as db:
        db.execute(f"INSERT OR REPLACE INTO contexts ({_COLUMNS}) VALUES ({marks})", dataclasses.astuple(row))


def of(state: State, agent_name: str | None = None) -> list[ContextRow]:
    """Return the contexts of an agent or a session, or all, the last one first; raises as ``State.reading``."""
    with state.reading() as db:
        rows = db.execute(
            f"SELECT {_COLUMNS} FROM contexts WHERE ?1 IS NULL OR agent_name = ?1"
            " ORDER BY saved_at DESC, last_seq DESC, id",
            (agent_name,),
        ).fetchall()
    return [ContextRow(**dict(zip(_NAMES, row, strict=True))) for row in rows]


def ever(state: State, agent_name: str) -> list[ContextRow]:
    """Return the contexts of all agents that were ever called this, the last one first; raises as ``of``."""
    marked = f"{agent_name}@"
    found = [row for row in of(state) if row.agent_name == agent_name or row.agent_name.startswith(marked)]
    return [dataclasses.replace(row, agent_name=agent_name) for row in found]


def find(state: State, id: str, agent_name: str | None = None) -> list[ContextRow]:
    """Return the contexts whose id is ``id`` or begins with it; raises as ``State.reading``.

    Args:
        state: The database.
        id: An id or its beginning.
        agent_name: Only of this agent or session.
    """
    with state.reading() as db:
        rows = db.execute(
            f"SELECT {_COLUMNS} FROM contexts"
            " WHERE substr(id, 1, ?1) = ?2 AND (?3 IS NULL OR agent_name = ?3) ORDER BY id",
            (len(id), id, agent_name),
        ).fetchall()
    found = [ContextRow(**dict(zip(_NAMES, row, strict=True))) for row in rows]
    return [row for row in found if row.id == id] or found
