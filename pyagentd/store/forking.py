"""A session made of the beginning of another one (neighbours B.3, Fork).

The fork has every visible message up to the one that was chosen, with new ids, parts verbatim and the user's edits,
and the configuration and files byte for byte. It has no agents, runs, questions or grants: what was done in the
parent was not done here. Its row names the parent and the message, so both find each other.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyagentd import clock as ids
from pyagentd import regularfile
from pyagentd.clock import Clock, epoch_ms, iso8601, stamp
from pyagentd.errors import NotFound
from pyagentd.log import of_session
from pyagentd.store import atomic, document, hidden, metadata, paths
from pyagentd.store.compaction import COMPACTION
from pyagentd.store.conversation import Conversation
from pyagentd.store.document import Document
from pyagentd.store.expected import expected
from pyagentd.store.journal import Journal, Row
from pyagentd.store.paths import BranchRef
from pyagentd.store.pieces import recorded_pieces
from pyagentd.store.recorded import Message, Part
from pyagentd.store.render import RUN_CLOSE, RUN_OPEN
from pyagentd.store.sessions import built

Fact = tuple[str, Mapping[str, Any]]

_STAMP = re.compile(r"-\d{8,14}(-\d+)?$")
_OWN = ("settings", "noted")  # metadata of a session that is about its own document
_LONGEST_ROW = 64 * 1024  # of a session

_log = logging.getLogger(__name__)


def fork_session(
    source: BranchRef, conversation: Conversation, anchor: str, *, root: Path, title: str | None, clock: Clock
) -> BranchRef:
    """Make a session of the visible messages of ``source`` up to ``anchor``.

    Args:
        source: A branch of a session.
        conversation: Its record.
        anchor: The id of the last message that is copied.
        root: The sessions root, where the fork will live.
        title: Its title; None makes one of the parent's.
        clock: For the id and the rows.

    Raises:
        NotFound: There is no such message, or it is hidden.
        StoreError: The disk refused; nothing is left behind.
    """
    messages = copied_messages(conversation, anchor)
    now = clock.now()
    called = title if title is not None else _title_of_copy(conversation)
    wanted = ids.session_id(called or f"{_STAMP.sub('', source.session_id)} copy", stamp(now))
    with built(root, wanted) as (draft, place):
        ref = paths.branch_dir(draft, paths.MAIN_BRANCH)
        session = _session(conversation, source, place.name, anchor, called, epoch_ms(now))
        facts = [("session", session), *_Copy(place.name, messages).facts()]
        atomic.make_dirs(ref)
        for name in (paths.SCOPE_PLAN_FILE, paths.PRESET_FILE):
            _copy_file(source.branch_dir / name, ref / name)
        times = {"created": iso8601(now), "updated": iso8601(now)}
        metadata.set_scope_plan_values(ref, {"session_id": place.name, **times})
        files = paths.files_dir(source.branch_dir)
        if files.is_dir() and not files.is_symlink():
            atomic.copy_tree(files, paths.files_dir(ref))
        _write_log(paths.journal_file(ref), facts)
        atomic.replace_link(paths.current_link(draft), f"{paths.BRANCHES_DIR}/{paths.MAIN_BRANCH}")
        settings = document.read(paths.session_file(source.branch_dir)).settings
        made = replace(shown(facts), settings=settings)
        atomic.write_bytes(paths.session_file(ref), document.format_file(made).encode("utf-8", "surrogateescape"))
    _log.info("Forked session %s at %s: %s", source.session_id, anchor, place.name, extra=of_session(place))
    main = paths.branch_dir(place, paths.MAIN_BRANCH)
    return BranchRef(session_id=place.name, session_dir=place, branch_name=paths.MAIN_BRANCH, branch_dir=main)


def copied_messages(conversation: Conversation, anchor: str) -> list[Message]:
    """Return the visible messages up to ``anchor``.

    Raises:
        NotFound: It is not among them.
    """
    shown = hidden.visible(conversation)
    number = next((number for number, message in enumerate(shown) if message.id == anchor), None)
    if number is None:
        known = conversation.messages.get(anchor)
        what = "is hidden or was never sent" if known else "is not in this branch, or waits in its queue"
        raise NotFound(f"Message {anchor} {what}", mend="Fork at a message that is shown")
    return shown[: number + 1]


def shown(facts: Sequence[Fact]) -> Document:
    """Return the document that shows a log; one that ends with a prompt ends right behind it."""
    conversation = Conversation(Row(number, kind, dict(data)) for number, (kind, data) in enumerate(facts, 1))
    body, spans, _ = expected(conversation, recorded_pieces(conversation))
    last = next(reversed(conversation.messages.values()), None)
    if last is not None and last.role == "user":
        body = body.removesuffix(RUN_CLOSE).removesuffix(RUN_OPEN)
    return Document(body=body, spans=spans)


def forked_from(branch_dir: Path, session_id: str) -> dict[str, Any] | None:
    """Return the first row of a session that was forked from ``session_id``; None for any other."""
    try:
        with regularfile.opened(paths.journal_file(branch_dir), limit=regularfile.LOG) as file:
            row = json.loads(file.readline(_LONGEST_ROW))
    except (OSError, ValueError):
        return None
    data = row.get("data") if isinstance(row, dict) and row.get("type") == "session" else None
    if not isinstance(data, dict) or data.get("parent_id") != session_id or not data.get("parent_message_id"):
        return None
    return data


class _Copy:
    """Rows of copied messages, with ids of their own."""

    def __init__(self, session_id: str, messages: Sequence[Message]) -> None:
        self._session_id = session_id
        self._messages = messages
        self._ids = {message.id: ids.new_id("msg") for message in messages}
        self._ids |= {part.id: ids.new_id("prt") for message in messages for part in message.parts}

    def facts(self) -> Iterator[Fact]:
        for message in self._messages:
            yield "message", self._message(message)
            for part in message.parts:
                yield "part", self._part(part)
            yield from self._edits(message)

    def _message(self, message: Message) -> dict[str, Any]:
        known = {
            key: self._ids.get(value, value) if key == "after" else value for key, value in message.metadata.items()
        }
        known = {"copied_from": message.id, **known}  # the first one, of a copy of a copy
        own = {"id": self._ids[message.id], "session_id": self._session_id, "metadata_json": known}
        return {**message.row, **own}

    def _part(self, part: Part) -> dict[str, Any]:
        data = dict(part.data)
        if part.deltas:
            data["text"] = part.text
        if part.type == COMPACTION:
            data = self._renamed(data)
        own = {"id": self._ids[part.id], "message_id": self._ids[part.row["message_id"]]}
        return {**part.row, **own, "session_id": self._session_id, "data_json": data}

    def _renamed(self, value: Any) -> Any:
        """Return what a compaction says with the ids of the copies: where its tail begins, which calls it pruned."""
        match value:
            case str():
                return self._ids.get(value, value)
            case list():
                return [self._renamed(each) for each in value]
            case dict():
                return {key: self._renamed(each) for key, each in value.items()}
        return value

    def _edits(self, message: Message) -> Iterator[Fact]:
        if message.role == "user" and message.is_edited:
            yield "edit", {"message_id": self._ids[message.id], "text": message.text}
        for part in message.parts if message.role != "user" else ():
            if part.hidden or part.edited is not None:
                text = {} if part.edited is None else {"text": part.edited}
                gone = {"hidden": True} if part.hidden else {}
                yield "edit", {"part_id": self._ids[part.id], **text, **gone}


def _session(
    conversation: Conversation, source: BranchRef, session_id: str, anchor: str, title: str, now_ms: int
) -> dict[str, Any]:
    known = conversation.session
    about = {key: value for key, value in known.get("metadata_json", {}).items() if key not in _OWN}
    return {
        "agent": known.get("agent", ""),
        "workspace_root": known.get("workspace_root"),
        **({"model_json": known["model_json"]} if "model_json" in known else {}),
        "id": session_id,
        "parent_id": source.session_id,
        "parent_branch": source.branch_name,
        "parent_message_id": anchor,
        "title": title,
        "archived_at": None,
        "permissions_json": [],
        "metadata_json": about,
        "created_at": now_ms,
        "updated_at": now_ms,
    }


def _title_of_copy(conversation: Conversation) -> str:
    title = conversation.session.get("title")
    return f"{title} (copy)" if title else ""


def _copy_file(source: Path, target: Path) -> None:
    try:
        content = regularfile.read_bytes(source)
    except FileNotFoundError:
        raise NotFound(f"{source.parent} has no {source.name}", mend="Copy it there, then go on") from None
    atomic.write_bytes(target, content)


def _write_log(file: Path, facts: Iterable[Fact]) -> None:
    journal = Journal.open(file)
    try:
        journal.append_many(list(facts))
        journal.sync()
    finally:
        journal.close()
