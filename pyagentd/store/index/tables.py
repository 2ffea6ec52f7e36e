"""The rows of one branch in ``state.db``: put, recalled, taken out; what they are made from is told by ``indexed``.

The index keeps no text of its own: whatever goes in or out passes ``_index`` and ``_unindex``, and nothing is taken
out but with the very text it was put in with.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from pyagentd.store.index.query import segmented
from pyagentd.store.index.requests import put_requests, spent_json
from pyagentd.store.index.texts import part_text
from pyagentd.store.recorded import Message, Part
from pyagentd.store.render import writable
from pyagentd.store.rows import served_by

PART_COLUMNS = (
    'id, message_id, "index", type, data_json, tool_call_id, tool_state, created_at, updated_at,'
    " streamed, edited, removed"
)
PartRow = tuple[Any, ...]


class LoneText(NamedTuple):
    """A text that belongs to no message: a title, or what only the document has.

    ``origin`` is the same in every copy of it; ``created_at`` is in epoch ms.
    """

    origin: str
    role: str
    kind: str
    created_at: int
    text: str


class BranchTables:
    """The rows of the branch with this key, inside a transaction of the caller's."""

    def __init__(self, db: sqlite3.Connection, key: str) -> None:
        self._db = db
        self._key = key

    # -- what is there -----------------------------------------------------------------------------------------

    def message_of(self, part_id: str) -> str | None:
        """Return the id of the message that has a part."""
        query = "SELECT message_id FROM chat_parts WHERE session_id = ? AND id = ?"
        found = self._db.execute(query, (self._key, part_id)).fetchone()
        return found and str(found[0])

    def message(self, message_id: str) -> Message | None:
        """Return a message with its parts, as it was written."""
        query = "SELECT role, metadata_json, created_at, updated_at, removed FROM chat_messages"
        row = self._db.execute(f"{query} WHERE session_id = ? AND id = ?", (self._key, message_id)).fetchone()
        if row is None:
            return None
        role, data, created_at, updated_at, removed = row
        stamps = {"created_at": created_at, "updated_at": updated_at}
        message = Message({"id": message_id, "role": role, "metadata_json": json.loads(data), **stamps})
        message.hidden = bool(removed)
        message.parts = [_part(values) for values in self._parts(message_id).values()]
        return message

    def messages(self) -> list[tuple[str, str, int]]:
        """Return of every message its id, the hashes of its pieces, and when it was created in epoch ms."""
        query = "SELECT id, pieces, created_at FROM chat_messages WHERE session_id = ?"
        return self._db.execute(query, (self._key,)).fetchall()

    # -- messages ----------------------------------------------------------------------------------------------

    def put_message(self, message: Message, pieces: str, *, is_new: bool) -> None:
        """Write a message with its parts, of what is there already only what changed.

        Args:
            message: As it is now.
            pieces: The hashes of what the document should show of it.
            is_new: Whether nothing of it can be there yet.
        """
        data = _json(message.row.get("metadata_json", {}))
        values = (message.role, data, *_times(message.row), int(message.hidden), pieces)
        self._db.execute(_PUT_MESSAGE, (self._key, message.id, *values))
        parts = {} if is_new else self._parts(message.id)
        indexed = {} if is_new else self._indexed(message.id, parts)
        for part in message.parts:
            row = _row(part)
            if parts.pop(part.id, None) != row:
                self._db.execute(_PUT_PART, (self._key, *row))
            self._put_part_text(message, part, row, indexed.pop(part.id, None))
        for part_id in parts:
            self._db.execute("DELETE FROM chat_parts WHERE session_id = ? AND id = ?", (self._key, part_id))
        for number, text in indexed.values():
            self._unindex(number, text)
        put_requests(self._db, self._key, message, is_new=is_new)

    def remove_message(self, message_id: str) -> None:
        """Take a message and its parts out."""
        for number, text in self._indexed(message_id, self._parts(message_id)).values():
            self._unindex(number, text)
        self._db.execute("DELETE FROM chat_messages WHERE session_id = ? AND id = ?", (self._key, message_id))

    def _put_part_text(self, message: Message, part: Part, row: PartRow, old: tuple[int, str] | None) -> None:
        kind, text = part_text(part.type, part.data, *row[9:11])
        text = writable(text)
        hidden = int(part.hidden or message.is_hidden)
        created_at = part.row.get("created_at") or message.row.get("created_at") or 0
        if old is not None and old[1] == text:
            query = "UPDATE texts SET role = ?, kind = ?, hidden = ?, created_at = ? WHERE id = ?"
            self._db.execute(query, (message.role, kind, hidden, created_at, old[0]))
            return
        if old is not None:
            self._unindex(*old)
        if text:
            self._index((message.id, part.id, message.id, message.role, kind, hidden, created_at, None), text)

    def _parts(self, message_id: str) -> dict[str, PartRow]:
        query = f'SELECT {PART_COLUMNS} FROM chat_parts WHERE session_id = ? AND message_id = ? ORDER BY "index", id'
        return {row[0]: row for row in self._db.execute(query, (self._key, message_id))}

    def _indexed(self, message_id: str, parts: Mapping[str, PartRow]) -> dict[str, tuple[int, str]]:
        """Return of the parts that can be found the number in the index, and the text there."""
        query = "SELECT part_id, id FROM texts WHERE session_id = ? AND message_id = ?"
        numbers = self._db.execute(query, (self._key, message_id))
        return {id: (number, stored_text(parts[id])) for id, number in numbers if id in parts}

    # -- texts of no message -----------------------------------------------------------------------------------

    def put_lone(self, wanted: Counter[LoneText], *, is_new: bool) -> None:
        """Make these the only texts that belong to no message; ``is_new``: none can be there yet."""
        # Times change with every save; the texts, which cost, hardly ever.
        dated = {text._replace(created_at=0): text for text in wanted}
        missing = Counter({text._replace(created_at=0): count for text, count in wanted.items()})
        for number, *values in [] if is_new else self._lone():
            known = LoneText(*values)
            entry = known._replace(created_at=0)
            if not missing[entry]:
                self._unindex(number, known.text)
                continue
            missing[entry] -= 1
            if known != dated[entry]:
                query = "UPDATE texts SET created_at = ? WHERE id = ?"
                self._db.execute(query, (dated[entry].created_at, number))
        for entry in missing.elements():
            origin, role, kind, created_at, text = dated[entry]
            self._index((None, None, origin, role, kind, 0, created_at, text), text)

    def _lone(self) -> list[tuple[Any, ...]]:
        query = "SELECT id, origin, role, kind, created_at, text FROM texts WHERE session_id = ?"
        return self._db.execute(f"{query} AND message_id IS NULL", (self._key,)).fetchall()

    # -- the branch --------------------------------------------------------------------------------------------

    def put_session(self, facts: Mapping[str, Any]) -> None:
        """Write the branch's row: ``facts`` by column, and what is summed up from its messages."""
        tokens = self._rollup()
        model = self._db.execute(_MODEL, (self._key,)).fetchone()
        served = served_by({"metadata_json": json.loads(model[0])} if model else {})
        query = "SELECT coalesce(max(updated_at), 0) FROM chat_messages WHERE session_id = ?"
        (changed,) = self._db.execute(query, (self._key,)).fetchone()
        row = dict(facts) | tokens
        row |= {
            "updated_at": max(facts["updated_at"], changed),
            "total_tokens": sum(tokens.values()),
            "spent_json": spent_json(self._db, self._key),
            "model_json": _json({"provider_id": served.provider or None, "model_id": served.model} if model else {}),
        }
        names, places = ", ".join(row), ", ".join(f":{name}" for name in row)
        changes = ", ".join(f"{name} = excluded.{name}" for name in row)
        query = f"INSERT INTO chat_sessions ({names}) VALUES ({places}) ON CONFLICT (id) DO UPDATE SET {changes}"
        self._db.execute(query, row)

    def _rollup(self) -> dict[str, int]:
        """Return the tokens that count towards the model's context: of the visible answers, or since a compaction."""
        start, summary = (0, ""), 0
        if (found := self._db.execute(_MARKER, (self._key,)).fetchone()) is not None:
            *after, tail, tokens = found
            query = "SELECT created_at, id FROM chat_messages WHERE session_id = ? AND id = ?"
            start = self._db.execute(query, (self._key, tail)).fetchone() or tuple(after)
            summary = tokens if isinstance(tokens, int) else 0
        usage = self._db.execute(_USAGE, (self._key, *start)).fetchone()
        tokens_by_bucket = dict(zip(_TOKENS, usage, strict=True))
        return tokens_by_bucket | {"prompt_tokens": tokens_by_bucket["prompt_tokens"] + summary}

    def remove(self) -> None:
        """Take the whole branch out."""
        for message_id, _, _ in self.messages():
            self.remove_message(message_id)
        for number, *_, text in self._lone():
            self._unindex(number, text)
        self._db.execute("DELETE FROM chat_sessions WHERE id = ?", (self._key,))

    # -- the index ---------------------------------------------------------------------------------------------

    def _index(self, entry: tuple[Any, ...], text: str) -> None:
        number = self._db.execute(_PUT_TEXT, (self._key, *entry)).lastrowid
        self._db.execute("INSERT INTO texts_index (rowid, text) VALUES (?, ?)", (number, segmented(text)))

    def _unindex(self, number: int, text: str) -> None:
        command = "INSERT INTO texts_index (texts_index, rowid, text) VALUES ('delete', ?, ?)"
        self._db.execute(command, (number, segmented(text)))
        self._db.execute("DELETE FROM texts WHERE id = ?", (number,))


def stored_text(part: PartRow) -> str:
    """Return what the index has of a part, from its columns (``PART_COLUMNS``)."""
    return writable(part_text(part[3], json.loads(part[4]), part[9], part[10])[1])


def session_facts(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the log's ``session`` row (``{}``: there is none) tells, by column of ``chat_sessions``."""
    root = row.get("workspace_root")
    return {
        "agent": str(row.get("agent") or ""),
        "workspace_root": str(root) if root else None,
        "parent_id": row.get("parent_id"),
        "permissions_json": _json(row.get("permissions_json", [])),
        "metadata_json": _json(row.get("metadata_json", {})),
        "created_at": row.get("created_at") or 0,
        "updated_at": row.get("updated_at") or 0,
        "archived_at": row.get("archived_at"),
        "title": writable(str(row.get("title") or "")),
    }


def _part(values: PartRow) -> Part:
    id, message_id, index, type, data, call_id, state, created_at, updated_at, streamed, edited, removed = values
    row = {"id": id, "message_id": message_id, "index": index, "type": type, "data_json": json.loads(data)}
    row |= {"tool_call_id": call_id, "tool_state": state} if call_id is not None else {}
    part = Part(row | {"created_at": created_at, "updated_at": updated_at})
    part.deltas = [streamed] if streamed else []
    part.edited, part.hidden = edited, bool(removed)
    return part


def _row(part: Part) -> PartRow:
    row = part.row
    return (
        part.id,
        row["message_id"],
        row.get("index", 0),
        writable(part.type),
        _json(part.data),
        writable(row.get("tool_call_id") or "") or None,
        row.get("tool_state"),
        *_times(row),
        writable("".join(part.deltas)),
        None if part.edited is None else writable(part.edited),
        int(part.hidden),
    )


def _times(row: Mapping[str, Any]) -> tuple[int, int]:
    return row.get("created_at") or 0, row.get("updated_at") or 0


def _json(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:  # what Python takes for JSON and SQLite does not
        return _json(json.loads(json.dumps(value), parse_constant=lambda _: None))
    return text if writable(text) == text else json.dumps(value, separators=(",", ":"))


_PUT_MESSAGE = (  # not REPLACE, which would take the parts along
    "INSERT INTO chat_messages VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (session_id, id) DO UPDATE SET"
    " role = excluded.role, metadata_json = excluded.metadata_json, created_at = excluded.created_at,"
    " updated_at = excluded.updated_at, removed = excluded.removed, pieces = excluded.pieces"
)
_PUT_PART = "INSERT OR REPLACE INTO chat_parts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_PUT_TEXT = (
    "INSERT INTO texts (session_id, message_id, part_id, origin, role, kind, hidden, created_at, text)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_TOKENS = ("prompt_tokens", "completion_tokens", "reasoning_tokens", "cache_read", "cache_write")
_USAGE = (  # of what the model still sees
    "SELECT "
    + ", ".join(
        f"CAST(total(json_extract(metadata_json, '$.usage.{name}')) AS INTEGER)"
        for name in ("input", "output", "reasoning", "cache_read", "cache_write")
    )
    + " FROM chat_messages WHERE session_id = ? AND role = 'assistant' AND NOT removed"
    + " AND json_extract(metadata_json, '$.hidden_at') IS NULL AND (created_at, id) >= (?, ?)"
    + " AND NOT EXISTS (SELECT 1 FROM chat_parts WHERE chat_parts.session_id = chat_messages.session_id"
    + " AND chat_parts.message_id = chat_messages.id AND chat_parts.type = 'data-compaction')"
)
_MARKER = (  # the compaction that holds; one without a summary only prunes
    "SELECT m.created_at, m.id, json_extract(p.data_json, '$.tail_start_id'),"
    " json_extract(p.data_json, '$.summary_tokens') FROM chat_parts p"
    " JOIN chat_messages m ON m.session_id = p.session_id AND m.id = p.message_id"
    " WHERE p.session_id = ? AND p.type = 'data-compaction' AND NOT p.removed AND NOT m.removed"
    " AND json_extract(m.metadata_json, '$.hidden_at') IS NULL"
    " AND coalesce(json_extract(p.data_json, '$.summary'), '') <> '' ORDER BY m.created_at DESC, m.id DESC LIMIT 1"
)
_MODEL = (
    "SELECT metadata_json FROM chat_messages"
    " WHERE session_id = ? AND json_extract(metadata_json, '$.model') IS NOT NULL"
    " ORDER BY created_at DESC, id DESC LIMIT 1"
)
