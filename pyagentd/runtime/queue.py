"""Submitted messages and the queue of a branch."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pyagentd.errors import BadRequest, NotFound
from pyagentd.runtime.document_sync import DocumentVersion
from pyagentd.runtime.recorder import Recorder
from pyagentd.runtime.settings import SendOptions
from pyagentd.store.conversation import Message
from pyagentd.store.journal import part_row, rows_of_message

CommandRule = Literal["human", "never", "always"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A message for the model.

    Attributes:
        text: The text; None for the prompt that ends at the marker of ``at``, a version of the document.
        options: The client's options for the run that answers it.
        id: The id of the message, made by the client, so that a repeated submission is recognised.
        metadata: Of the message's row: ``agent``, ``model`` {provider_id, model_id}, ``trigger``, ``origin``, …
        steer: Whether the run in flight reads it at its next step, if it has another one.
        command: Whether the text may be a slash command: ``human`` if so, but commands that change something need a
            human; ``never``; or ``always``, whatever the command changes.
    """

    text: str | None
    at: DocumentVersion = field(default_factory=DocumentVersion)
    options: SendOptions
    id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    steer: bool = False
    command: CommandRule = "human"

    @property
    def payload(self) -> str:
        """A hash that distinguishes it from another submission with the same id."""
        content = [self.text, None if self.text is not None else "document", self.steer]
        named = {key: self.metadata.get(key) for key in ("agent", "model")}
        return hashlib.sha256(json.dumps([content, named], sort_keys=True).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The result of a submission.

    Attributes:
        message_id: The message's id.
        run_id: The run that answers it; None while it is queued.
        queued: Whether it is queued.
        seq: The number of the log's last row.
        ended: How a repeated submission ended before: the reason of its run's end, or ``canceled``; else "".
    """

    message_id: str
    run_id: str | None
    queued: bool
    seq: int
    ended: str = ""


def is_persons(metadata: Mapping[str, Any]) -> bool:
    """Return whether a message with this metadata is from a person, not from a trigger or an agent.

    Only a person's message continues a queue after an error.
    """
    return not metadata.get("trigger") and metadata.get("origin") != "agent"


# The queued messages of one branch, which are stored as rows of its log only.
#
# A message is queued while its ``metadata_json`` has ``queued_at``; it fires when a row without that key is
# recorded, and then its ``created_at`` is the time of firing. A cancelled message leaves a hidden tombstone
# (``queue_canceled_at``, ``hidden_at``). First come, first served: by ``queued_at``, which never decreases in a log,
# and among equals by position in the log.

_OWN = ("queued_at", "steer", "interactive", "allow")  # metadata that only a queued message has
_TOLD = ("agent", "model", "trigger", "agents")  # ... that is sent to clients unchanged


class Waitlist:
    """The queue of one branch.

    Args:
        recorder: The branch's log.
        session_id: The session of the messages.
    """

    def __init__(self, recorder: Recorder, session_id: str) -> None:
        self._recorder = recorder
        self._session_id = session_id

    @property
    def waiting(self) -> list[Message]:
        """The queued messages, next one first."""
        if not (queued := self._recorder.conversation.queued):
            return []
        known = queued.values()
        return sorted((message for message in known if "queued_at" in message.metadata), key=_queued_at)

    def to_wire(self) -> list[dict[str, Any]]:
        """Return the queue in wire format: {id, text, queued_at, steer, origin, …}, next one first."""
        rows = []
        for message in self.waiting:
            metadata = message.metadata
            row = {
                "id": message.id,
                "text": message.text,
                "queued_at": metadata["queued_at"],
                "steer": bool(metadata.get("steer")),
                "origin": metadata.get("origin", ""),
            }
            rows.append(row | {key: metadata[key] for key in _TOLD if key in metadata})
        return rows

    def get(self, message_id: str) -> Message:
        """Return a queued message.

        Raises:
            NotFound: The message is not in the queue; the error says whether it was sent or cancelled.
        """
        conversation = self._recorder.conversation
        message = conversation.queued.get(message_id)
        if message is not None and "queued_at" in message.metadata:
            return message
        if message is not None:
            raise NotFound(f"The message {message_id} was taken back already")
        if message_id in conversation.messages:
            raise NotFound(f"The message {message_id} was sent already", hint="Abort its run, or rewind")
        raise NotFound(f"The queue has no message {message_id}", hint="`pyagentd queue SESSION` lists it")

    def add(self, text: str, submission: Submission) -> str:
        """Record a queued message, and return its id.

        Raises:
            StoreError: The disk refused.
        """
        now = self._recorder.now_ms()
        queued_at = max([now, *map(_queued_at, self.waiting)])
        metadata = {
            "origin": "client" if submission.text is not None else "document",
            **submission.metadata,
            "queued_at": queued_at,
            "queue_enqueued_at": queued_at,
            "interactive": submission.options.interactive,
        }
        if submission.options.grants:
            metadata["allow"] = [grant.pattern for grant in submission.options.grants]
        if submission.id is not None:
            metadata["payload"] = submission.payload
        if submission.steer:
            metadata["steer"] = True
        fields = {"session_id": self._session_id, "metadata": metadata, "now_ms": now, "id": submission.id}
        rows = rows_of_message([{"type": "text", "text": text}], role="user", **fields)
        with self._recorder.together():
            for kind, data in rows:
                self._recorder.record(kind, data)
        return str(rows[0][1]["id"])

    def cancel(self, message_id: str) -> str:
        """Cancel a message and return its text; a tombstone stays.

        Raises:
            NotFound: It is not in the queue.
            StoreError: The disk refused.
        """
        message, now = self.get(message_id), self._recorder.now_ms()
        metadata = {key: value for key, value in message.metadata.items() if key not in _OWN}
        metadata |= {"queue_canceled_at": now, "hidden_at": now, "hidden_by": "cancel"}
        self._recorder.record("message", {**message.row, "metadata_json": metadata, "updated_at": now})
        return message.text

    def edit(self, message_id: str, text: str, metadata: Mapping[str, Any] | None = None) -> None:
        """Replace a message's text, and change its metadata; its place stays.

        Raises:
            BadRequest: The text is empty.
            NotFound: It is not in the queue.
            StoreError: The disk refused.
        """
        message, now = self.get(message_id), self._recorder.now_ms()
        if not text.strip():
            raise BadRequest("The text is empty", hint="Take the message back instead")
        with self._recorder.together():
            changed = {**message.row, "metadata_json": {**message.metadata, **(metadata or {})}, "updated_at": now}
            self._recorder.record("message", changed)
            self._recorder.record("part", self._part(message, text, now))

    def fire(
        self, message: Message, *, text: str, metadata: Mapping[str, Any] | None = None
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the rows, type and data, that turn a queued message into the user message of a turn."""
        now = self._recorder.now_ms()
        merged = {**message.metadata, **(metadata or {})}
        kept = {key: value for key, value in merged.items() if key not in _OWN}
        changed = {"metadata_json": kept, "created_at": now, "updated_at": now}
        yield "message", {**message.row, **changed}
        yield "part", self._part(message, text, now)

    def _part(self, message: Message, text: str, now: int) -> dict[str, Any]:
        """Return the row of a message's text part with a new text."""
        data = {"type": "text", "text": text}
        part = part_row(message_id=message.id, session_id=self._session_id, index=0, data=data, now_ms=now)
        known = message.parts[0].row if message.parts else part
        return {**part, "id": known["id"], "created_at": known["created_at"]}


def _queued_at(message: Message) -> int:
    return int(message.metadata["queued_at"])
