"""Starts a turn: records the user's message, read from the saved document or sent by a client.

A prompt is made from an alignment of the document (``reconcile``), which also holds the user's edits; both are
recorded when the run starts.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyagentd.errors import BadRequest
from pyagentd.events import Event
from pyagentd.messages import Message, Text
from pyagentd.runtime.document_sync import DocumentVersion, RunText
from pyagentd.store.conversation import Conversation
from pyagentd.store.conversation import Message as Message_
from pyagentd.store.document.files import document_cache
from pyagentd.store.document.pieces import fragments
from pyagentd.store.document.reconcile import Alignment, ModelView, align, align_turn, recognise
from pyagentd.store.document.render import RUN_CLOSE, RUN_OPEN, Insert, prompt_text, writable
from pyagentd.store.document.text import PROMPT_PREFIX, Document, Settings, Span
from pyagentd.store.journal import rows_of_message

if TYPE_CHECKING:
    from pyagentd.runtime.branch import LiveBranch

_ABOVE = 80  # characters that identify a place in the document
_SHORT = 2000  # characters of a document without messages in the log that are parsed without a thread


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """The prompt that a run answers."""

    text: str
    view: tuple[Message, ...]  # the messages that the model sees, the prompt last
    version: DocumentVersion  # the document before the run's first insert, which goes to its marker
    seen: ModelView | None = None  # the view above the prompt, if it holds all that the log shows
    insert: str = ""  # text to insert into the document; "" when the user wrote it there
    message_id: str = ""  # the recorded message that is asked again; "" for a new message
    edits: tuple[Mapping[str, Any], ...] = ()  # data of ``edit`` rows to record first
    roles: tuple[Span, ...] | None = None  # recovered roles of that document
    settings: Settings = field(default_factory=Settings)  # the document's Local Variables
    notes: tuple[str, ...] = ()  # for the user
    metadata: Mapping[str, Any] = field(default_factory=dict)  # of the message
    id: str = ""  # of the message, made by its client
    above: str = ""  # text right above the marker if it is not the prompt, but a hidden answer to it
    queued: str = ""  # id of the queued message that becomes this prompt
    is_above: bool = False  # whether ``insert`` goes above the user's drafts instead of to the document's end

    def seen_as(self, text: str) -> "Prompt | None":
        """Return the prompt with another text for the model; None if the view does not end with its own text."""
        if not self.view or self.view[-1].role != "user":
            return None
        last, old = self.view[-1], str(self.metadata.get("model_text") or self.text).strip()
        for begin in range(len(last.parts) - 1, -1, -1):
            texts = [part.text for part in last.parts[begin:] if isinstance(part, Text)]
            if len(texts) < len(last.parts) - begin:
                return None
            if "\n\n".join(texts).strip() == old:
                view = (*self.view[:-1], replace(last, parts=(*last.parts[:begin], Text(text=text))))
                return replace(self, view=view, metadata={**self.metadata, "model_text": text})
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentNow:
    """A branch's document, and offsets in it (code points from 0).

    Attributes:
        document: The document.
        revision: Its revision.
        marker: Where the run in flight inserts, or the last one ended; None if unknown.
        seen: The model's view above the last turn; see ``LiveDocument``.
        end: Where the prompt ends.
    """

    document: Document
    revision: int = 0
    marker: int | None = None
    seen: ModelView | None = None
    end: int = 0


async def _document_now(branch: "LiveBranch", at: DocumentVersion | None = None) -> DocumentNow:
    """Return the current document; ``end`` is the marker of ``at``, moved over the edits since.

    Raises:
        Stale: Too much changed since.
        StoreError: The file cannot be read.
    """
    live = await branch.document.look()
    end = 0 if at is None else live.place(at)
    return DocumentNow(document=live.document, revision=live.revision, marker=live.marker, seen=live.seen, end=end)


async def from_document(branch: "LiveBranch", at: DocumentVersion) -> Prompt:
    """Return the prompt that ends at the marker of a version of the document.

    Raises:
        BadRequest: There is no prompt.
    """
    return await _standing(branch, await _document_now(branch, at))


async def from_client(branch: "LiveBranch", text: str) -> Prompt:
    """Return the prompt that a client sent as text, to be inserted above text queued in the document.

    Raises:
        BadRequest: The text is empty.
    """
    text = writable(text.strip())
    if not text:
        raise BadRequest("The prompt is empty", hint="Write something")
    now = await _document_now(branch)
    if any(map(_is_typed, branch.queue.waiting)):
        return await _put_above_drafts(branch, now, text)
    return await _put(branch, replace(now, end=len(now.document.body)), text)


async def of_queued(branch: "LiveBranch", message: Message_) -> Prompt:
    """Return the prompt of a queued message: from its place in the document, or to be inserted."""
    now, text = await _document_now(branch), message.text
    end = _place_of(now.document, text) if _is_typed(message) else None
    if end is None:
        prompt = await _put_above_drafts(branch, now, text)
    else:
        prompt = replace(await _standing(branch, replace(now, end=end)), message_id="")
    return replace(prompt, queued=message.id)


def _is_typed(message: Message_) -> bool:
    return message.metadata.get("origin") == "document"


async def _align(branch: "LiveBranch", now: DocumentNow) -> Alignment:
    """Align the document up to ``now.end``; in a thread, because parsing megabytes would block."""
    conversation = branch.conversation
    if now.seen is not None and now.marker is not None:
        aligned = align_turn(now.seen, now.document, conversation, now.end, now.marker)
        if aligned is not None:
            return aligned
    if not conversation.messages and len(now.document.body) <= _SHORT:
        return align(now.document, conversation, now.end)
    return await asyncio.to_thread(align, now.document, conversation.snapshot(), now.end)


async def _standing(branch: "LiveBranch", now: DocumentNow) -> Prompt:
    """Return the prompt that ends at ``now.end`` in the document.

    A prompt that was answered before and has not changed is asked again under the same message.
    """
    aligned = await _align(branch, now)
    doc, end = now.document, now.end
    text = aligned.new_prompt or aligned.last_prompt
    if not text:
        raise BadRequest("There is no prompt before point", hint="Write something first")
    return Prompt(
        text=text,
        view=aligned.view,
        seen=aligned.seen,
        message_id="" if aligned.new_prompt else aligned.last_message,
        above=doc.body[max(0, end - _ABOVE) : end] if not aligned.new_prompt else "",
        **_common(now, aligned),
    )


async def _put_above_drafts(branch: "LiveBranch", now: DocumentNow, text: str) -> Prompt:
    end = await asyncio.to_thread(above_drafts, now, branch.conversation.snapshot())
    return await _put(branch, replace(now, end=end), text)


async def _put(branch: "LiveBranch", now: DocumentNow, text: str) -> Prompt:
    """Return the prompt ``text``, to be inserted into the document at ``now.end``."""
    aligned = await _align(branch, now)
    doc, at = now.document, now.end
    return Prompt(
        text=text,
        view=_with_prompt(aligned.view, text),
        seen=None if aligned.new_prompt else aligned.seen,
        insert=prompt_text(doc.body[:at], text, is_agent=branch.ref.is_agent),
        is_above=at < len(doc.body),
        **_common(now, aligned),
    )


def of_run(file: Path, conversation: Conversation, last: RunText) -> tuple[tuple[Message, ...], Settings]:
    """Return the view of a resumed run when it began, its prompt last, and the document's Local Variables.

    Raises:
        StoreError: The file cannot be read.
    """
    doc = document_cache.read(file).document
    view = align(doc, conversation, min(last.prompt_end(doc.body), len(doc.body))).view
    if not view or view[-1].role != "user":  # the user removed the prompt meanwhile
        view = _with_prompt(view, last.asked)
    return view, doc.settings


def _common(now: DocumentNow, aligned: Alignment) -> dict[str, Any]:
    return {
        "version": DocumentVersion(revision=now.revision, marker=now.end),
        "edits": aligned.edits,
        "roles": aligned.spans,
        "settings": now.document.settings,
        "notes": aligned.notes,
    }


def _with_prompt(view: tuple[Message, ...], text: str) -> tuple[Message, ...]:
    """Append ``text`` to ``view`` as a user message, or to the user message that ends it."""
    part = Text(text=text.strip())
    if view and view[-1].role == "user":
        return (*view[:-1], replace(view[-1], parts=(*view[-1].parts, part)))
    return (*view, Message(role="user", parts=(part,)))


# The rows that start a turn, and the events that show them to clients.
#
# All rows are one write, so a queued message leaves the queue exactly when its run begins: nothing is lost and
# nothing is answered twice, whenever the daemon ends.


def record_start(branch: "LiveBranch", prompt: Prompt, run: Mapping[str, Any]) -> None:
    """Record the user's edits and message and the start of its run, and show them.

    Args:
        branch: The branch.
        prompt: The prompt.
        run: Fields of the run's row: {id, interactive, …}.

    Raises:
        StoreError: The disk refused.
    """
    recorder, anchor = branch.recorder, branch.document.place(prompt.version)
    if prompt.roles is not None:
        branch.tell_roles(prompt.version, prompt.roles)
    branch.document.begin(
        prompt=prompt.above or prompt.text,
        inserted_prompt=bool(prompt.insert),
        anchor=anchor,
        seen=prompt.seen if run.get("tool_results") is not False else None,
        revision=prompt.version.revision,
    )

    def show() -> None:
        """Publish the position of the recorded turn; its run's inserts follow."""
        place = {"position": anchor + 1}
        if prompt.insert:
            branch.document.add(Insert(prompt.insert, None, part_id, seq))
            details = (prompt.text, {**place, "insert": prompt.insert})
            branch.publish(Event("prompt", branch.key, seq, details))
        else:
            branch.publish(Event("fired", branch.key, 0, ({"id": message_id, "text": prompt.text, **place},)))

    try:
        with recorder.together():
            for edit in prompt.edits:
                recorder.record("edit", edit)
            part_id, seq = "", recorder.last_seq
            if prompt.message_id and not prompt.queued:  # asked again, maybe with new metadata
                message_id, known = prompt.message_id, recorder.conversation.messages[prompt.message_id].row
                new = {key: value for key, value in prompt.metadata.items() if key != "payload"}
                metadata: Mapping[str, Any] = {**known["metadata_json"], **new}
                if metadata != known["metadata_json"]:
                    recorder.record("message", {**known, "metadata_json": metadata, "updated_at": recorder.now_ms()})
            else:
                if prompt.queued:
                    waiting = branch.queue.get(prompt.queued)
                    rows = list(branch.queue.fire(waiting, text=prompt.text, metadata=prompt.metadata))
                else:
                    rows = rows_of_message(
                        [{"type": "text", "text": prompt.text}],
                        role="user",
                        session_id=branch.ref.session_id,
                        metadata={"origin": "client" if prompt.insert else "document", **prompt.metadata},
                        now_ms=recorder.now_ms(),
                        id=prompt.id or None,
                    )
                for kind, data in rows:
                    seq = recorder.record(kind, data)
                message_id, part_id = str(rows[0][1]["id"]), str(rows[1][1]["id"])
            row = {**run, "state": "started", "message_id": message_id}
            row |= {"anchor": anchor, "prompt": prompt.insert}
            if prompt.above:  # the text above the marker is not the message
                row["above"] = prompt.above
            if prompt.id and prompt.id != message_id:  # asked again: the client's id is not a message
                row |= {"submission": prompt.id, "payload": prompt.metadata.get("payload")}
            recorder.record("run", row)
            branch.announce = show
    finally:
        branch.announce = None
    branch.paused = False
    for note in prompt.notes:
        branch.say(note)


# How a queued message becomes the prompt of a turn.
#
# Text that the user typed and queued stays in place, below the run's marker; nothing marks it in the file, so it is
# found by its text. A message of another client is inserted right after the last answer: text of the user below that
# is a draft and stays below.


async def text_to_queue(branch: "LiveBranch", at: DocumentVersion) -> str:
    """Return the user's new text that ends at the marker of ``at``, without queued text and the run's text.

    Raises:
        BadRequest: There is no new text.
    """
    now = await _document_now(branch, at)
    return await asyncio.to_thread(_new_text, now, branch.conversation.snapshot(), branch.queue.waiting)


def _new_text(now: DocumentNow, conversation: Conversation, waiting: Sequence[Message_]) -> str:
    # Text above the marker of the run in flight is not new, even before the run's first text.
    doc, start, end = now.document, now.marker, now.end
    typed_below = start is not None and start <= end
    text = doc.body[start:end] if typed_below else align(doc, conversation, end).new_prompt
    for message in waiting:
        if _is_typed(message) and (at := text.find(message.text)) >= 0:
            text = text[at + len(message.text) :]
    places = list(fragments(text, 0, len(text)))
    if not places:
        raise BadRequest("There is nothing new before point", hint="Write something below what is queued")
    return text[places[0][0] : places[-1][1]]


async def waits_above(branch: "LiveBranch", at: DocumentVersion) -> bool:
    """Return whether queued text stands above the marker of ``at`` in the document."""
    if not (typed := list(filter(_is_typed, branch.queue.waiting))):
        return False
    now = await _document_now(branch, at)
    places = (_place_of(now.document, message.text) for message in typed)
    return any(place is not None and place <= now.end for place in places)


def _place_of(doc: Document, text: str) -> int | None:
    """Return where queued text first ends below all answers in the document; None if it is not there."""
    start = doc.body.find(text, _answers_end(doc))
    return None if start < 0 else start + len(text)


def above_drafts(now: DocumentNow, conversation: Conversation) -> int:
    """Return where to insert another client's message: after the last run, above the user's drafts; blocks."""
    doc, body, at = now.document, now.document.body, now.marker
    if at is None or not _answers_end(doc) <= at <= len(body):
        at = recognise(doc, conversation).record_end  # a run without text ended with its prompt
    if not at:
        return len(body)
    if not body.endswith(PROMPT_PREFIX, 0, at):
        at += next((len(heading) for heading in (RUN_CLOSE, RUN_OPEN + RUN_CLOSE) if body.startswith(heading, at)), 0)
    return at if body.endswith(PROMPT_PREFIX, 0, at) else len(body)


def _answers_end(doc: Document) -> int:
    """Return the end of the last text with a role other than the user's."""
    return max((span.end for span in doc.spans), default=0)
