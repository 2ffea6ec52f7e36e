"""Starts a turn: records the user's message, read from the saved document or sent by a client.

Blocks, and runs in a thread; records nothing. What the user edited since is found here and recorded when the run
starts, wherever the message came from.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyagentd.errors import BadRequest, Stale
from pyagentd.events import Event
from pyagentd.messages import Message, Text
from pyagentd.runtime.document_sync import DocumentVersion, RecoveredRoles
from pyagentd.runtime.opening import LastRun
from pyagentd.store.conversation import Conversation
from pyagentd.store.conversation import Message as Message_
from pyagentd.store.document import text as document
from pyagentd.store.document.files import document_cache
from pyagentd.store.document.pieces import fragments
from pyagentd.store.document.reconcile import Alignment, align, recognise
from pyagentd.store.document.render import RUN_CLOSE, RUN_OPEN, Insert, prompt_text, writable
from pyagentd.store.document.text import PROMPT_PREFIX, Document, Settings
from pyagentd.store.journal import message_row, part_row

if TYPE_CHECKING:
    from pyagentd.runtime.branch import LiveBranch

_ABOVE = 80  # characters by which a place in the document is known again


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What a run is to answer."""

    text: str
    view: tuple[Message, ...]  # what the model sees, the prompt last
    version: DocumentVersion  # the document before the run's first insert, which goes to its marker
    insert: str = ""  # what is to be put into the document; "" when the user wrote it there
    message_id: str = ""  # of the recorded message that is asked again; "" when it is a new one
    edits: tuple[Mapping[str, Any], ...] = ()  # data of ``edit`` rows to record first
    roles: RecoveredRoles | None = None  # recovered ones
    settings: Settings = field(default_factory=Settings)  # what the document's Local Variables say
    notes: tuple[str, ...] = ()  # for the user
    metadata: Mapping[str, Any] = field(default_factory=dict)  # of the message
    id: str = ""  # of the message, made by its client
    above: str = ""  # what ends right above the marker where that is not the prompt: another, hidden answer to it
    queued: str = ""  # id of the queued message that fires with it
    is_above: bool = False  # whether what is to be put goes above text of the user's, and not to the document's end


Aligning = Callable[[Document, Conversation, int], Alignment]  # ``align``, or what does the same for less


def from_document(
    file: Path, conversation: Conversation, *, sha256: str, end: int, aligning: Aligning = align
) -> Prompt:
    """Return the prompt that ends at offset ``end`` (code points from 0) of the saved document.

    A prompt that was answered before and is as it was is asked again: no second message is made of it.

    Raises:
        BadRequest: The file is not what the client says it saved, or there is no prompt.
        StoreError: The file cannot be read.
    """
    return standing_at(as_saved(file, sha256), conversation, sha256=sha256, end=end, aligning=aligning)


def as_saved(file: Path, sha256: str) -> Document:
    """Return the document as its client saved it.

    Raises:
        Stale: The file is not what the client says it saved.
        StoreError: The file cannot be read.
    """
    read = document_cache.read(file)
    if read.sha256 != sha256:
        raise Stale(f"{file} changed since it was saved", hint="Revert or save the buffer, then send")
    return read.document


def standing_at(
    doc: Document, conversation: Conversation, *, sha256: str, end: int, aligning: Aligning = align
) -> Prompt:
    """Return the prompt that ends at offset ``end`` of a document whose body has hash ``sha256``.

    Raises:
        BadRequest: There is none.
    """
    aligned = aligning(doc, conversation, end)
    text = aligned.new_prompt or aligned.last_prompt
    if not text:
        raise BadRequest("There is no prompt before point", hint="Write something first")
    return Prompt(
        text=text,
        view=aligned.view,
        version=DocumentVersion(sha256=sha256, seq=0, marker=end),
        message_id="" if aligned.new_prompt else aligned.last_message,
        above=doc.body[max(0, end - _ABOVE) : end] if not aligned.new_prompt else "",
        **_common(doc, sha256, aligned),
    )


def from_client(
    file: Path,
    conversation: Conversation,
    text: str,
    *,
    is_agent: bool,
    aligning: Aligning = align,
    at: Callable[[Document, str], int] | None = None,
) -> Prompt:
    """Return the prompt that a client sent as text; the model sees the document, then ``text``.

    Args:
        file: The document.
        conversation: The record.
        text: What was sent.
        is_agent: Whether it is an agent's document.
        aligning: How the two are compared.
        at: Returns where it goes in a document with that hash; without, it goes to the end.

    Raises:
        BadRequest: It is empty.
        StoreError: The file cannot be read.
    """
    text = writable(text.strip())
    if not text:
        raise BadRequest("The prompt is empty", hint="Write something")
    read = document_cache.read(file)
    doc, sha256 = read.document, read.sha256
    place = at(doc, sha256) if at is not None else len(doc.body)
    return inserted_at(doc, conversation, text, at=place, is_agent=is_agent, aligning=aligning, sha256=sha256)


def inserted_at(
    doc: Document,
    conversation: Conversation,
    text: str,
    *,
    at: int,
    is_agent: bool,
    aligning: Aligning = align,
    sha256: str = "",
) -> Prompt:
    """Return the prompt ``text`` that is to be put into a document at offset ``at``; the model sees what is above.

    ``sha256`` is the hash of the body, if it is known.
    """
    sha256 = sha256 or document.body_sha256(doc.body)
    aligned = aligning(doc, conversation, at)
    return Prompt(
        text=text,
        view=_with_prompt(aligned.view, text),
        version=DocumentVersion(sha256=sha256, seq=0, marker=at),
        insert=prompt_text(doc.body[:at], text, is_agent=is_agent),
        is_above=at < len(doc.body),
        **_common(doc, sha256, aligned),
    )


def of_run(file: Path, conversation: Conversation, last: LastRun) -> tuple[tuple[Message, ...], Settings]:
    """Return what a run that goes on saw when it began, its prompt last, and the document's Local Variables.

    Raises:
        StoreError: The file cannot be read.
    """
    doc = document_cache.read(file).document
    view = align(doc, conversation, min(last.prompt_end(doc.body), len(doc.body))).view
    if not view or view[-1].role != "user":  # the user removed the prompt meanwhile
        view = _with_prompt(view, last.prompt)
    return view, doc.settings


def _common(doc: Document, sha256: str, aligned: Alignment) -> dict[str, Any]:
    return {
        "edits": aligned.edits,
        "roles": None if aligned.spans is None else RecoveredRoles(sha256=sha256, spans=aligned.spans),
        "settings": doc.settings,
        "notes": aligned.notes,
    }


def _with_prompt(view: tuple[Message, ...], text: str) -> tuple[Message, ...]:
    """Return ``view`` with ``text`` as the user's last word, joined to a user message that already ends it."""
    part = Text(text=text.strip())
    if view and view[-1].role == "user":
        return (*view[:-1], replace(view[-1], parts=(*view[-1].parts, part)))
    return (*view, Message(role="user", parts=(part,)))


# The rows with which a turn begins, and what everybody who watches is told of them.
#
# All of it is one write: a queued message has fired and its run has begun, or neither; so nothing is lost and
# nothing answered twice, whenever the daemon ends.


class _Recorded(NamedTuple):
    """The user's message: its id, and id and number of the row with its text."""

    message_id: str
    part_id: str
    seq: int


class TurnStart:
    """One turn that begins.

    Args:
        branch: Where.
        prompt: What is asked.
    """

    def __init__(self, branch: "LiveBranch", prompt: Prompt) -> None:
        self._branch = branch
        self._recorder = branch.recorder
        self._prompt = prompt

    def record(self, run: Mapping[str, Any]) -> int:
        """Record the user's edits and message and the start of its run, show them, and return the last row's number.

        Args:
            run: Of the run's row: {id, state, interactive, …}.

        Raises:
            StoreError: The disk refused.
        """
        branch, prompt = self._branch, self._prompt
        anchor = prompt.version.marker or 0
        version = replace(prompt.version, seq=self._recorder.last_seq + len(prompt.edits))
        above = prompt.above or prompt.text
        branch.document.begin(prompt=above, inserted_prompt=bool(prompt.insert), anchor=anchor, version=version)
        if prompt.roles is not None:
            branch.heal(prompt.roles)
        try:
            with self._recorder.together():
                for edit in prompt.edits:
                    self._recorder.record("edit", edit)
                message = self._record_message()
                row = {**run, "message_id": message.message_id, "anchor": anchor, "prompt": prompt.insert}
                last = self._recorder.record("run", {**row, **self._notes(message.message_id)})
                branch.announce = lambda: self._show(message)
        finally:
            branch.announce = None
        branch.paused = False
        for note in prompt.notes:
            branch.tell_others(None, "notice", text=note)
        return last

    def _notes(self, message_id: str) -> dict[str, Any]:
        """Return what else the run notes: the text that stands above its marker where that is not the message's.

        A submission that asks a recorded message again has an id that is of no message.
        """
        prompt = self._prompt
        notes: dict[str, Any] = {"above": prompt.above} if prompt.above else {}
        if prompt.id and prompt.id != message_id:
            notes |= {"submission": prompt.id, "payload": prompt.metadata.get("payload")}
        return notes

    def _record_message(self) -> _Recorded:
        queue, prompt = self._branch.queue, self._prompt
        if prompt.queued:
            rows = list(queue.fire(queue.get(prompt.queued), text=prompt.text, metadata=prompt.metadata))
        elif prompt.message_id:
            return self._record_again()
        else:
            rows = self._rows()
        seq = [self._recorder.record(kind, data) for kind, data in rows][-1]
        return _Recorded(str(rows[0][1]["id"]), str(rows[1][1]["id"]), seq)

    def _rows(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the rows, type and data, of a new message."""
        prompt, now, session_id = self._prompt, self._recorder.now_ms(), self._branch.ref.session_id
        metadata = {"origin": "client" if prompt.insert else "document", **prompt.metadata}
        message = message_row(role="user", session_id=session_id, metadata=metadata, now_ms=now, id=prompt.id or None)
        part = part_row(
            message_id=message["id"],
            session_id=session_id,
            index=0,
            kind="text",
            data={"type": "text", "text": prompt.text},
            now_ms=now,
        )
        return [("message", message), ("part", part)]

    def _record_again(self) -> _Recorded:
        """Record what is new about a message that is asked again."""
        recorder, prompt = self._recorder, self._prompt
        row = recorder.conversation.messages[prompt.message_id].row
        new = {key: value for key, value in prompt.metadata.items() if key != "payload"}
        metadata: Mapping[str, Any] = {**row["metadata_json"], **new}
        if metadata != row["metadata_json"]:
            recorder.record("message", {**row, "metadata_json": metadata, "updated_at": recorder.now_ms()})
        return _Recorded(prompt.message_id, "", recorder.last_seq)

    def _show(self, message: _Recorded) -> None:
        """Tell where the turn stands whose rows are recorded; its run's inserts follow."""
        branch, prompt = self._branch, self._prompt
        place = {"position": (prompt.version.marker or 0) + 1, "sha256": prompt.version.sha256}
        if prompt.insert:
            branch.document.add(Insert(prompt.insert, None, message.part_id, message.seq))
            told = (prompt.text, place if prompt.queued or prompt.is_above else None)
            branch.publish(Event("prompt", branch.key, message.seq, told))
        else:
            branch.publish(Event("fired", branch.key, 0, ({"id": message.message_id, **place},)))


# How a queued message becomes the prompt of a turn: where it stands in the document, or is put.
#
# Text that the user typed and queued stays where it is, below the run's marker; nothing marks it in the file, so it
# is found again by what it says. A message of another client goes right behind the last answer: whatever the user
# has written below is a draft and stays below. Blocks, and runs in a thread; records nothing.

Marker = Callable[[str], int | None]
"""Returns where the last run ended in the text with this hash, None when that is not known."""


def text_to_queue(
    file: Path, conversation: Conversation, waiting: Sequence[Message_], marker: Marker, *, sha256: str, end: int
) -> str:
    """Return the new text of the user that ends at offset ``end`` of the saved document.

    Args:
        file: The document.
        conversation: The record.
        waiting: The queued messages; those that stand in the document are not new.
        marker: Where the run in flight is; what stands above it is not new, also before its first word.
        sha256: Hash of the saved body.
        end: Where the text ends.

    Raises:
        BadRequest: The file is not what the client says it saved, or there is no new text.
        StoreError: The file cannot be read.
    """
    doc, start = as_saved(file, sha256), marker(sha256)
    typed_below = start is not None and start <= end
    text = doc.body[start:end] if typed_below else align(doc, conversation, end).new_prompt
    for message in waiting:
        if message.metadata.get("origin") == "document" and (at := text.find(message.text)) >= 0:
            text = text[at + len(message.text) :]
    places = list(fragments(text, 0, len(text)))
    if not places:
        raise BadRequest("There is nothing new before point", hint="Write something below what is queued")
    return text[places[0][0] : places[-1][1]]


def prompt_of_queued(
    file: Path, conversation: Conversation, message: Message_, marker: Marker, *, is_agent: bool
) -> Prompt:
    """Return the prompt that a queued message is when it fires.

    Raises:
        StoreError: The file cannot be read.
    """
    doc, text = document.read(file), message.text
    sha256 = document.body_sha256(doc.body)
    end = place_of(doc, text) if message.metadata.get("origin") == "document" else None
    if end is not None:
        prompt = replace(standing_at(doc, conversation, sha256=sha256, end=end), message_id="")
    else:
        at = above_drafts(conversation, marker, doc, sha256)
        prompt = inserted_at(doc, conversation, text, at=at, is_agent=is_agent)
    return replace(prompt, queued=message.id)


def waits_above(file: Path, waiting: Sequence[Message_], *, sha256: str, end: int) -> bool:
    """Return whether text that waits stands above offset ``end`` of the saved document.

    Raises:
        BadRequest: The file is not what the client says it saved.
        StoreError: The file cannot be read.
    """
    doc = as_saved(file, sha256)
    typed = (message.text for message in waiting if message.metadata.get("origin") == "document")
    return any((place := place_of(doc, text)) is not None and place <= end for text in typed)


def place_of(doc: Document, text: str) -> int | None:
    """Return where queued text ends in the document: its first place below all answers; None when it is not there."""
    start = doc.body.find(text, _answered(doc))
    return None if start < 0 else start + len(text)


def above_drafts(conversation: Conversation, marker: Marker, doc: Document, sha256: str) -> int:
    """Return where a message of another client goes: behind the last run, above what the user has written below."""
    body, at = doc.body, marker(sha256)
    if at is None or not _answered(doc) <= at <= len(body):
        at = recognise(doc, conversation).record_end  # a run that said nothing ended with its prompt
    if not at:
        return len(body)
    if not body.endswith(PROMPT_PREFIX, 0, at):
        at += next((len(heading) for heading in (RUN_CLOSE, RUN_OPEN + RUN_CLOSE) if body.startswith(heading, at)), 0)
    return at if body.endswith(PROMPT_PREFIX, 0, at) else len(body)


def _answered(doc: Document) -> int:
    """Return where the last text ends that is not the user's."""
    return max((span.end for span in doc.spans), default=0)
