"""One branch on its way from its files into the tables; ``projection`` says when, ``tables`` how it is kept.

The log tells messages, the document what the user made of them and what the log does not have: a draft, a session
of stock gptel, the text of a log that was lost. Only what differs from what the tables have is written, so a turn
costs what is new in it: the log is read from where it was last read to, and of the document only hashes of its
pieces are compared. When these say that an edit was not recorded, everything is read and aligned.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from pyagentd.store import document, metadata, paths
from pyagentd.store.align import align
from pyagentd.store.conversation import Conversation
from pyagentd.store.index.tables import BranchTables, LoneText, session_facts
from pyagentd.store.index.tail import Bookmark, read_from
from pyagentd.store.index.texts import title_text
from pyagentd.store.journal import Row
from pyagentd.store.paths import BranchRef
from pyagentd.store.pieces import Found, PieceKind, found_pieces, recorded_pieces
from pyagentd.store.recorded import RunState
from pyagentd.store.render import writable

_ROLES: Mapping[PieceKind, tuple[str, str]] = {  # role and kind of text that only the document has
    "user": ("user", "text"),
    "response": ("assistant", "text"),
    "reasoning": ("assistant", "reasoning"),
    "tool": ("assistant", "tool"),
    "compaction": ("assistant", "compaction"),
}
_NEVER = float("inf")


class Stamps(NamedTuple):
    """What tells whether the files of a branch are as they were: mtime in ns, size and inode, "" when missing."""

    plan: str
    journal: str
    document: str


def stamps_of(branch_dir: str) -> Stamps:
    """Return the stamps of a branch's files now."""
    names = (paths.SCOPE_PLAN_FILE, paths.JOURNAL_FILE, paths.SESSION_FILE)
    return Stamps(*(_stamp(f"{branch_dir}/{name}") for name in names))


def mtime_ns(stamp: str) -> int:
    """Return when a file with this stamp was written, 0 for a missing one."""
    return int(stamp.partition(":")[0] or 0)


def index_branch(
    db: sqlite3.Connection, key: str, ref: BranchRef, known: Mapping[str, Any] | None, stamps: Stamps
) -> int:
    """Bring the rows of a branch up to date, inside a transaction of the caller's.

    Args:
        db: The database.
        key: The branch's ``id`` there.
        ref: The branch.
        known: Its row of ``chat_sessions``, None for a new branch.
        stamps: Those of its files, taken before.

    Returns:
        How many messages were looked at.

    Raises:
        StoreError: A file cannot be read.
        sqlite3.Error: The database refused.
    """
    return _Indexing(BranchTables(db, key), ref, known, stamps).run(key)


@dataclass(slots=True)
class _Log:
    """What is to be written of the record: all of it, or only the messages that something new was said of."""

    conversation: Conversation
    mark: Bookmark
    is_whole: bool


class _Indexing:
    def __init__(self, tables: BranchTables, ref: BranchRef, known: Mapping[str, Any] | None, stamps: Stamps) -> None:
        self._tables = tables
        self._ref = ref
        self._known = known
        self._stamps = stamps
        self._journal = paths.journal_file(ref.branch_dir)
        self._document = document.read(paths.session_file(ref.branch_dir))
        self._edited = False  # the document has edits that the log does not

    def run(self, key: str) -> int:
        log = self._appended() or self._everything()
        lone, lacks = self._compare(log)
        if lacks and not log.is_whole:
            log = self._everything()
            lone, lacks = self._compare(log)
        if lacks:
            self._reconcile(log)
            lone, _ = self._compare(log)
        facts = self._facts(log)
        self._write_messages(log)
        self._write_lone(lone, facts)
        self._tables.put_session({"id": key, **facts})
        return len(log.conversation.messages)

    # -- the log -----------------------------------------------------------------------------------------------

    def _appended(self) -> _Log | None:
        """Return what was appended to the log; None when it must be read from its beginning."""
        if self._known is None or self._known["reread"]:
            return None
        read = read_from(self._journal, Bookmark(*json.loads(self._known["bookmark_json"])))
        if read is None:
            return None
        rows, mark = read
        conversation = self._recalled(rows)
        for row in rows:
            conversation.apply(row)
        return _Log(conversation, mark, is_whole=False)

    def _everything(self) -> _Log:
        rows, mark = read_from(self._journal, Bookmark()) or ([], Bookmark())
        return _Log(Conversation(rows), mark, is_whole=True)

    def _recalled(self, rows: Iterable[Row]) -> Conversation:
        """Return a conversation of those messages that ``rows`` say something of, as the tables have them."""
        conversation = Conversation()
        if (run := json.loads((self._known or {}).get("run_json", "null"))) is not None:
            conversation.runs[run["id"]] = RunState(run, 0, 0)
        for message_id in dict.fromkeys(filter(None, map(self._message_of, rows))):
            if (message := self._tables.message(message_id)) is not None:
                conversation.messages[message_id] = message
                conversation.parts.update((part.id, part) for part in message.parts)
        return conversation

    def _message_of(self, row: Row) -> str | None:
        match row.type:
            case "message":
                return str(row.data["id"])
            case "part":
                return str(row.data["message_id"])
            case "edit" | "delta":
                return row.data.get("message_id") or self._tables.message_of(row.data.get("part_id", ""))
        return None

    # -- the document ------------------------------------------------------------------------------------------

    def _compare(self, log: _Log) -> tuple[list[Found], bool]:
        """Return what only the document has, and whether it lacks something that it should have."""
        due, allowed = self._pieces(log)
        is_growing = bool(allowed)
        lone = []
        for piece in found_pieces(self._document):
            mark = _hash(piece.key[0], piece.key[2])
            if due[mark] > 0:
                due[mark] -= 1
            elif allowed[mark] > 0:
                allowed[mark] -= 1
            elif piece.key[0] == "user" or not is_growing:  # else it may be the beginning of an answer we have
                lone.append(piece)
        return lone, any(due.values())

    def _pieces(self, log: _Log) -> tuple[Counter[str], Counter[str]]:
        """Return what the document must show, and what it may: the text of a run that is still on its way there."""
        due, allowed = Counter[str](), Counter[str]()
        since = self._awaited_since(log)
        own = _pieces_by_message(log.conversation)
        for id, pieces, created_at in () if log.is_whole else self._tables.messages():
            if id not in own:
                (allowed if created_at >= since else due).update(pieces.split())
        for id, hashes in own.items():
            (allowed if _created(log, id) >= since else due).update(hashes)
        return due, allowed

    def _awaited_since(self, log: _Log) -> float:
        """Return from which creation time on messages may not be in the document yet."""
        run = log.conversation.last_run
        if run is None or run.is_kept:
            return _NEVER
        prompt = str(run.data.get("message_id"))
        if prompt in log.conversation.messages:
            return _created(log, prompt)
        message = None if log.is_whole else self._tables.message(prompt)
        return _NEVER if message is None else float(message.row["created_at"])

    def _reconcile(self, log: _Log) -> None:
        """Make of the conversation what the document shows of it."""
        conversation, since = log.conversation, self._awaited_since(log)
        aligned = align(self._document, conversation)
        for edit in aligned.edits:
            part = conversation.parts.get(edit.get("part_id", ""))
            owner = part.row["message_id"] if part else edit.get("message_id", "")
            if _created(log, owner) < since:
                self._edited = True
                conversation.apply(Row(conversation.last_seq, "edit", edit))
        if aligned.spans is not None:
            self._document = replace(self._document, spans=aligned.spans)

    # -- writing -----------------------------------------------------------------------------------------------

    def _write_messages(self, log: _Log) -> None:
        messages = log.conversation.messages
        if log.is_whole and self._known is not None:
            for id, _, _ in self._tables.messages():
                if id not in messages:
                    self._tables.remove_message(id)
        pieces = _pieces_by_message(log.conversation)
        for message in messages.values():
            self._tables.put_message(message, " ".join(pieces[message.id]), is_new=self._known is None)

    def _write_lone(self, lone: Iterable[Found], facts: Mapping[str, Any]) -> None:
        """Write the title, and what only the document has."""
        id, written = self._ref.session_id, mtime_ns(self._stamps.document) // 1_000_000
        title = writable(title_text(facts["title"], id))
        wanted = Counter([LoneText(f"title {id}", "session", "title", facts["created_at"], title)])
        for piece in lone:
            role, kind = _ROLES[piece.key[0]]
            if text := writable(piece.key[2].strip()):
                wanted[LoneText(f"{id} {_hash(role, text)}", role, kind, written, text)] += 1
        self._tables.put_lone(wanted, is_new=self._known is None)

    def _facts(self, log: _Log) -> dict[str, Any]:
        """Return the branch's row of ``chat_sessions`` but for what is summed up from its messages."""
        facts = dict(self._known or {})
        row, run = log.conversation.session, log.conversation.last_run
        if row or log.is_whole:
            facts |= session_facts(row)
        if self._known is None or self._known["plan_stamp"] != self._stamps.plan:
            plan = metadata.read_session_metadata(self._ref.branch_dir) or {}
            facts |= {"preset": plan.get("preset"), "created": plan.get("created")}
        written = mtime_ns(self._stamps.document) // 1_000_000
        return facts | {
            "session_id": self._ref.session_id,
            "branch_name": self._ref.branch_name,
            "is_agent": int(self._ref.is_agent),
            "agent": facts["agent"] or facts["preset"] or "",
            "created_at": facts["created_at"] or written,
            "updated_at": facts["updated_at"] or written,
            "plan_stamp": self._stamps.plan,
            "journal_stamp": self._stamps.journal,
            "document_stamp": self._stamps.document,
            "bookmark_json": json.dumps(log.mark),
            "run_json": json.dumps(run.data if run else None),
            # Without a session row the times above are the document's, which change.
            "reread": int(self._edited or (log.is_whole and not row)),
        }


def _created(log: _Log, message_id: str) -> float:
    message = log.conversation.messages.get(message_id)
    return float(message.row.get("created_at") or 0) if message else 0.0


def _pieces_by_message(conversation: Conversation) -> dict[str, list[str]]:
    """Return for every message the hashes of what the document should show of it."""
    pieces: dict[str, list[str]] = {id: [] for id in conversation.messages}
    for piece in recorded_pieces(conversation):
        if not piece.is_hidden:
            pieces[piece.message.id].append(_hash(piece.key[0], piece.key[2]))
    return pieces


def _hash(kind: str, text: str) -> str:
    return hashlib.blake2b(f"{kind}\0{text}".encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _stamp(path: str) -> str:
    try:
        found = os.stat(path)  # noqa: PTH116 - three for every branch there is
    except OSError:
        return ""
    return f"{found.st_mtime_ns}:{found.st_size}:{found.st_ino}"
