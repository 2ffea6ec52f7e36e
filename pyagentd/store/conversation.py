"""The conversation of one branch: the fold of its log.

Knows sessions, messages, parts, runs, asks and edits as the rows tell them; the last row of an id wins (``recorded``
says what is known of one). Nothing here knows the document: what the user sees and edits is aligned with this record
elsewhere (``align``). Text of a part that was still streaming when the log ended is there, from its deltas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from copy import copy
from typing import Any

from pyagentd.store.journal import Row
from pyagentd.store.recorded import Message, Part, RunState


class Conversation:
    """What the rows applied so far add up to."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.session: dict[str, Any] = {}
        self.messages: dict[str, Message] = {}  # in the order in which they belong in the document
        self.queued: dict[str, Message] = {}  # those that wait for their turn, and those taken back before it
        self.parts: dict[str, Part] = {}
        self.runs: dict[str, RunState] = {}
        self.asks: dict[str, dict[str, Any]] = {}
        self.begun: set[str] = set()  # ids of the calls that began to do what cannot be done twice
        self.agents: dict[str, dict[str, Any]] = {}  # those in the background: whether their result is still owed
        self.missions: dict[str, dict[str, dict[str, Any]]] = {}  # by run, then by phase: its last row of that
        self.last_seq = 0
        self.as_sent = True  # whether the model sees what hooks made of messages; a log from elsewhere may lie
        self.open_parts: dict[str, None] = {}  # ids of texts that stream, and of calls without a result
        self.naming: set[str] = set()  # ids of the user's messages that ever named an agent or a model
        self.last_edit = 0  # the number of the last row that says what the user made of the text
        self._fired: set[str] = set()
        self._touched: dict[str, int] = {}  # by message, the one touched last behind: the row that did
        for row in rows:
            self.apply(row)

    def apply(self, row: Row) -> None:
        """Take one more row; types that are not known are for later versions and change nothing here."""
        self.last_seq = row.seq
        match row.type:
            case "delta":
                if (part := self.parts.get(row.data["part_id"])) is not None:
                    part.deltas.append(row.data["text"])
            case "part":
                self._apply_part(row.data)
                self._touch(row.data["message_id"])
                self._note_open(row.data)
            case "message":
                self._apply_message(row.data)
                self._touch(row.data["id"])
            case "run":
                self._apply_run(row)
            case "session":
                self.session = row.data
            case "ask":
                self.asks[row.data["id"]] = row.data
            case "call":
                self.begun.add(row.data["id"])
            case "agent":
                self.agents[row.data["id"]] = row.data
            case "mission":
                self.missions[row.data["id"]] = known = dict(self.missions.get(row.data["id"], {}))
                known[row.data["phase"]] = row.data
            case "edit":
                self._apply_edit(row.data)
                self.last_edit = row.seq

    def touched_since(self, seq: int, messages: Set[str]) -> bool:
        """Return whether any row after number ``seq`` is about one of these messages, or may be."""
        if self.last_edit > seq:
            return True
        for message_id, last in reversed(self._touched.items()):
            if last <= seq:
                break
            if message_id in messages:
                return True
        return False

    def snapshot(self) -> Conversation:
        """Return the conversation for a thread that reads it while further rows are applied here."""
        copied = copy(self)
        copied.messages, copied.parts, copied.runs = dict(self.messages), dict(self.parts), dict(self.runs)
        copied.queued = dict(self.queued)
        copied._touched = dict(self._touched)
        copied.open_parts, copied.naming = dict(self.open_parts), set(self.naming)
        return copied

    def changed(self, rows: Iterable[Mapping[str, Any]]) -> Conversation:
        """Return the conversation with other rows of some of its messages; this one stays as it is."""
        copied = self.snapshot()
        for row in rows:
            message = copied.messages[row["id"]] = copy(copied.messages[row["id"]])
            message.row = dict(row)
        return copied

    def shown(self) -> Conversation:
        """Return the conversation without what was taken back; itself when that is nothing."""
        if not any(message.is_rewound for message in self.messages.values()):
            return self
        copied = self.snapshot()
        copied.messages = {id: message for id, message in self.messages.items() if not message.is_rewound}
        return copied

    @property
    def last_run(self) -> RunState | None:
        """The run that began last, if any."""
        return next(reversed(self.runs.values()), None)

    def canonical(self) -> dict[str, Any]:
        """Return the whole record as plain rows: ``{"session", "messages": [{"message", "parts"}]}``."""
        return {
            "session": self.session,
            "messages": [
                {"message": _canonical_message(message), "parts": [_canonical_part(part) for part in message.parts]}
                for message in (*self.messages.values(), *self.queued.values())
            ],
        }

    def _apply_message(self, data: dict[str, Any]) -> None:
        metadata = data.get("metadata_json") or {}
        if data["role"] == "user" and (metadata.get("agent") or metadata.get("model")):
            self.naming.add(data["id"])
        message = self.messages.get(data["id"])
        if message is not None:
            message.row = data
            return
        message = self.queued.get(data["id"]) or Message(data)
        message.row = data
        if message.is_waiting:
            self.queued[message.id] = message
        else:  # it fires: behind the answers it waited for, whatever came in between
            self.queued.pop(message.id, None)
            self.messages[message.id] = message

    def _note_open(self, data: Mapping[str, Any]) -> None:
        if data["id"] in self.parts and data["data_json"].get("state") in ("streaming", "input-available"):
            self.open_parts.setdefault(data["id"])
        else:
            self.open_parts.pop(data["id"], None)

    def _touch(self, message_id: str) -> None:
        self._touched.pop(message_id, None)
        self._touched[message_id] = self.last_seq

    def _apply_part(self, data: dict[str, Any]) -> None:
        if (known := self.parts.get(data["id"])) is not None:
            known.row, known.deltas = data, []
            return
        message = self.messages.get(data["message_id"]) or self.queued.get(data["message_id"])
        if message is None:
            return  # a log that was cut by hand; a part without its message cannot be shown anywhere
        self.parts[data["id"]] = Part(data)
        message.parts.append(self.parts[data["id"]])
        if len(message.parts) > 1 and message.parts[-2].row["index"] > data["index"]:
            message.parts.sort(key=lambda other: other.row["index"])

    def _apply_run(self, row: Row) -> None:
        known = self.runs.get(row.data["id"])
        if known is None:
            self._fire(row.data["message_id"])
        first, last = (known.first_seq, known.last_seq) if known else (row.seq, 0)
        if not last and row.data["state"] != "started":
            last = row.seq
        self.runs[row.data["id"]] = RunState(row.data, first, last)

    def _fire(self, message_id: str) -> None:
        """Put a message that was queued behind the answers it waited for; answering it again moves nothing."""
        if message_id in self.messages and message_id not in self._fired:
            self._fired.add(message_id)
            self._touch(message_id)
            self.messages[message_id] = self.messages.pop(message_id)

    def _apply_edit(self, data: Mapping[str, Any]) -> None:
        """Note a text of the user's, that something was removed, or (neither) that it is back as recorded."""
        hidden, text = bool(data.get("hidden")), data.get("text")
        message = self.messages.get(data.get("message_id", ""))
        part = self.parts.get(data.get("part_id", ""))
        if message is not None:
            message.hidden = hidden
            for number, own in enumerate(message.texts()):
                own.edited = "" if number and text is not None else text
        elif part is not None:
            part.hidden, part.edited = hidden, text


def _canonical_message(message: Message) -> dict[str, Any]:
    if not message.hidden:
        return message.row
    return {**message.row, "metadata_json": {**message.row.get("metadata_json", {}), "hidden": True}}


def _canonical_part(part: Part) -> dict[str, Any]:
    data = dict(part.data)
    notes: dict[str, Any] = {}
    if part.deltas:
        data["text"] = part.text
    if part.edited is not None and part.is_tool:
        notes["edited"] = part.edited
    elif part.edited is not None:
        data["text"] = part.edited
    if part.hidden:
        notes["hidden"] = True
    if notes:
        data["metadata"] = {**data.get("metadata", {}), **notes}
    return {**part.row, "data_json": data}
