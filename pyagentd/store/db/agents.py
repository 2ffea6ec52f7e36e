"""The named agents in ``state.db``, destroyed ones too.

``agent.json`` of an agent is its definition; a row has its directory and state, and a copy of the last known values
of the file. A destroyed agent keeps its row until its name is used again. An operation of several steps first records
its ``intent``; after a crash the next daemon completes the operation or undoes it.
"""

import dataclasses
import sqlite3
from dataclasses import dataclass
from typing import Literal

from pyagentd.errors import Conflict
from pyagentd.store.contexts import Trigger
from pyagentd.store.db.state import State, Table

Status = Literal["created", "idle", "active", "destroyed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRow:
    """One named agent; the fields are the columns of ``agents``."""

    name: str
    dir: str  # absolute
    session_id: str
    channel_id: str | None = None
    model: str | None = None
    permissions: str  # a profile's name, or a profile as JSON
    created_at: str  # ISO 8601
    status: Status
    changed_at: int  # epoch ms, of the status
    intent: str | None = None  # create, adopt, remove or leave and an identity, rename(d) and a name; None: nothing


_AGENTS = Table("agents", AgentRow)


def register(state: State, row: AgentRow) -> None:
    """Write the row of a new agent, over that of a destroyed one; raises as ``State.writing``.

    An agent without earlier files gets no earlier records: see ``_number_earlier_agents``.

    Raises:
        Conflict: An agent has that name; nothing is written.
    """
    with state.writing() as db:
        _claim_name(db, row.name)
        _AGENTS.insert(db, [row])
        if row.intent == "create":
            _number_earlier_agents(db, row.name)


def forget(state: State, name: str) -> None:
    """Remove the row of an agent whose creation failed; raises as ``State.writing``."""
    with state.writing() as db:
        db.execute("DELETE FROM agents WHERE name = ?", (name,))


def put(state: State, row: AgentRow) -> None:
    """Replace the row of an agent; raises as ``State.writing``."""
    with state.writing() as db:
        _AGENTS.insert(db, [row], replace=True)


def set_status(state: State, name: str, status: Status, *, now_ms: int, intent: str | None = None) -> None:
    """Set the state of an agent, and its intent; a destroyed agent, or one without a row, is left alone.

    Raises as ``State.writing``.
    """
    with state.writing() as db:
        db.execute(
            "UPDATE agents SET status = ?, changed_at = ?, intent = ? WHERE name = ? AND status != 'destroyed'",
            (status, now_ms, intent, name),
        )


def intend(state: State, name: str, intent: str | None) -> None:
    """Set the intent of an agent, None when it is done; raises as ``State.writing``."""
    with state.writing() as db:
        db.execute("UPDATE agents SET intent = ? WHERE name = ?", (intent, name))


def rename(state: State, name: str, row: AgentRow, *, old_dir: str) -> None:
    """Replace the row of ``name`` by ``row``, and move its contexts and tasks from ``old_dir`` along.

    Raises:
        Conflict: An agent has the new name; nothing is written. Otherwise as ``State.writing``.
    """
    with state.writing() as db:
        _claim_name(db, row.name)
        _number_earlier_agents(db, row.name)
        db.execute("DELETE FROM agents WHERE name = ?", (name,))
        _AGENTS.insert(db, [row])
        length, inside = len(old_dir) + 1, f"{old_dir}/"
        for table, column in (("contexts", "file_path"), ("tasks", "output_path"), ("tasks", "branch_dir")):
            db.execute(
                f"UPDATE {table} SET {column} = ? || substr({column}, ?) "
                f"WHERE agent_name = ? AND substr({column}, 1, ?) = ?",
                (row.dir, length, name, length, inside),
            )
        for table in ("contexts", "tasks"):
            db.execute(f"UPDATE {table} SET agent_name = ? WHERE agent_name = ?", (row.name, name))


def _claim_name(db: sqlite3.Connection, name: str) -> None:
    db.execute("DELETE FROM agents WHERE name = ? AND status = 'destroyed'", (name,))
    if db.execute("SELECT 1 FROM agents WHERE name = ?", (name,)).fetchone():
        raise Conflict(f"There is an agent called {name!r} already")


def _number_earlier_agents(db: sqlite3.Connection, name: str) -> None:
    """Rename the records of earlier agents called ``name`` to ``name@1``, ``name@2``, …: the next one has its own.

    Running tasks keep the name, by which their watchers know them.
    """
    earlier = db.execute(
        "SELECT count(DISTINCT agent_name) FROM (SELECT agent_name FROM tasks UNION SELECT agent_name FROM contexts) "
        "WHERE substr(agent_name, 1, ?) = ?",
        (len(name) + 1, f"{name}@"),
    ).fetchone()[0]
    mark = f"{name}@{earlier + 1}"
    db.execute("UPDATE contexts SET agent_name = ? WHERE agent_name = ?", (mark, name))
    db.execute("UPDATE tasks SET agent_name = ? WHERE agent_name = ? AND status <> 'running'", (mark, name))


def find(state: State, name: str) -> AgentRow | None:
    """Return the row of an agent; raises as ``State.reading``."""
    return next(iter(_AGENTS.select(state, "WHERE name = ?", (name,))), None)


def known(state: State, *, destroyed: bool = False) -> list[AgentRow]:
    """Return all agents by name, with ``destroyed`` also destroyed ones; raises as ``State.reading``."""
    return _AGENTS.select(state, "WHERE ? OR status != 'destroyed' ORDER BY name", (destroyed,))


# The saved conversations in ``state.db``: where each one's file is.
#
# The records stay when their agent is destroyed and its files are gone.


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
    last_seq: int | None = None  # of messages.jsonl, the last row that it holds


_CONTEXTS = Table("contexts", ContextRow)


def put_context(state: State, row: ContextRow) -> None:
    """Write or replace the row of a context; raises as ``State.writing``."""
    with state.writing() as db:
        _CONTEXTS.insert(db, [row], replace=True)


def of(state: State, agent_name: str | None = None) -> list[ContextRow]:
    """Return the contexts of an agent or a session, or all, newest first; raises as ``State.reading``."""
    rest = "WHERE ?1 IS NULL OR agent_name = ?1 ORDER BY saved_at DESC, last_seq DESC, id"
    return _CONTEXTS.select(state, rest, (agent_name,))


def ever(state: State, agent_name: str) -> list[ContextRow]:
    """Return the contexts of all agents that ever had this name, newest first; raises as ``of``."""
    marked = f"{agent_name}@"
    found = [row for row in of(state) if row.agent_name == agent_name or row.agent_name.startswith(marked)]
    return [dataclasses.replace(row, agent_name=agent_name) for row in found]


def find_context(state: State, id: str, agent_name: str | None = None) -> list[ContextRow]:
    """Return the contexts whose id begins with ``id``, only of ``agent_name`` if given; raises as ``of``."""
    rest = "WHERE substr(id, 1, ?1) = ?2 AND (?3 IS NULL OR agent_name = ?3) ORDER BY id"
    found = _CONTEXTS.select(state, rest, (len(id), id, agent_name))
    return [row for row in found if row.id == id] or found
