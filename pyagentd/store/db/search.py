"""Full-text search: a query to hits, best first.

A hit is a message, a title, or a text that only a document has; of a message with several parts its best one. The
same message in several branches, or in a copy of a session, is one hit: in the active branch if that has it.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyagentd.store import paths
from pyagentd.store.db.projection import PART_COLUMNS, Finder, Projection, Query, stored_text
from pyagentd.store.db.state import State

_FIRST = 256  # rows of the index looked at first; eight times as many whenever they were too few
_TEXT_LIMIT = 1_000_000  # characters of a text that are searched for a preview


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Where to search.

    Attributes:
        archived: Also in archived sessions.
        hidden: Also what the user removed from the conversation.
        within: Only branches and agents whose key is this or begins with it and a slash; "" is everywhere.
    """

    archived: bool = False
    hidden: bool = False
    within: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """Something found; ``matches`` are offsets into ``preview``."""

    session_id: str
    branch_name: str
    branch_dir: Path
    is_agent: bool
    title: str
    message_id: str | None
    part_id: str | None
    role: str  # user, assistant, system; session for a title
    kind: str  # text, reasoning, tool, compaction, file; title
    created_at: int  # epoch ms
    hidden: bool
    preview: str
    matches: list[tuple[int, int]]
    copies: int  # how many other branches have it too


def search(state: State, projection: Projection, query: Query, *, limit: int, scope: Scope) -> tuple[list[Hit], bool]:
    """Return up to ``limit`` hits, and whether there are more.

    Raises:
        StoreError: The database cannot be used.
    """
    with state.reading() as db:
        groups, more = _groups(db, query, limit, scope)
        finder = query.finder()
        return [_hit(db, projection, rows, finder, scope) for rows in groups], more


def _groups(
    db: sqlite3.Connection, query: Query, limit: int, scope: Scope
) -> tuple[list[list[dict[str, Any]]], bool]:
    """Return the rows that were found, those of one origin together, best origin first."""
    archived = frozenset() if scope.archived else _archived(db)
    count = _FIRST
    while True:
        groups: dict[str, list[dict[str, Any]]] = {}
        rows = list(_rows(db, query, count))
        for row in rows:
            if _is_within(row, scope, archived):
                groups.setdefault(row["origin"], []).append(row)
        if len(groups) > limit or len(rows) < count:
            return list(groups.values())[:limit], len(groups) > limit
        count *= 8


def _rows(db: sqlite3.Connection, query: Query, count: int) -> Iterator[dict[str, Any]]:
    cursor = db.execute(_FOUND, (query.expression, count))
    names = [column[0] for column in cursor.description]
    return (dict(zip(names, row, strict=True)) for row in cursor)


def _is_within(row: Mapping[str, Any], scope: Scope, archived: Set[str]) -> bool:
    return (
        (scope.hidden or not row["hidden"])
        and (not scope.within or f"{row['key']}/".startswith(f"{scope.within}/"))
        and (not archived or archived.isdisjoint(_lineage(row["key"])))
    )


def _archived(db: sqlite3.Connection) -> Set[str]:
    return {key for (key,) in db.execute("SELECT id FROM chat_sessions WHERE archived_at IS NOT NULL")}


def _lineage(key: str) -> Iterator[str]:
    """Yield the key of a branch or agent, and of whom it descends from: they are archived together."""
    while True:
        yield key
        key, agents, _ = key.rpartition(f"/{paths.AGENTS_DIR}/")
        if not agents:
            return


def _hit(
    db: sqlite3.Connection, projection: Projection, rows: list[dict[str, Any]], finder: Finder, scope: Scope
) -> Hit:
    row = _shown(projection, rows)
    preview, matches = finder.preview(_text(db, row)[:_TEXT_LIMIT])
    return Hit(
        session_id=row["session_id"],
        branch_name=row["branch_name"],
        branch_dir=projection.directory(row["key"]),
        is_agent=bool(row["is_agent"]),
        title=row["title"],
        message_id=row["message_id"],
        part_id=row["part_id"],
        role=row["role"],
        kind=row["kind"],
        created_at=row["created_at"],
        hidden=bool(row["hidden"]),
        preview=preview,
        matches=matches,
        copies=_copies(db, row, scope),
    )


def _shown(projection: Projection, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return of the copies of one text, best part first, the one in the active branch, or the first."""
    same = [row for row in rows if row["part_id"] == rows[0]["part_id"]]
    return next((row for row in same if len(same) > 1 and _is_active(projection, row)), rows[0])


def _is_active(projection: Projection, row: Mapping[str, Any]) -> bool:
    place = projection.directory(row["key"])
    while place.parent.name == paths.AGENTS_DIR:
        place = place.parent.parent
    return paths.current_link(place.parent.parent).resolve() == place


def _text(db: sqlite3.Connection, row: Mapping[str, Any]) -> str:
    if row["text"] is not None:
        return str(row["text"])
    query = f"SELECT {PART_COLUMNS} FROM chat_parts WHERE session_id = ? AND id = ?"
    part = db.execute(query, (row["key"], row["part_id"])).fetchone()
    return "" if part is None else stored_text(part)


def _copies(db: sqlite3.Connection, row: Mapping[str, Any], scope: Scope) -> int:
    query = "SELECT count(DISTINCT session_id) - 1 FROM texts WHERE origin = ? AND hidden <= ?"
    (copies,) = db.execute(query, (row["origin"], int(scope.hidden))).fetchone()
    return max(0, int(copies))


# The best rows first, by the index alone; then what they are.
_FOUND = """
    SELECT texts.session_id AS key, message_id, part_id, origin, role, kind, hidden, texts.created_at, text,
           chat_sessions.session_id, branch_name, is_agent, title
    FROM (SELECT rowid AS number, rank AS score FROM texts_index WHERE texts_index MATCH ?
          ORDER BY rank, rowid DESC LIMIT ?)
    JOIN texts ON texts.id = number
    JOIN chat_sessions ON chat_sessions.id = texts.session_id
    ORDER BY round(score, 3), texts.created_at DESC, number DESC
"""
