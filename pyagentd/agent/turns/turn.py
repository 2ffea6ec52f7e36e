"""How a turn begins: the user's message, read from the saved document or sent by a client as text.

Blocks, and runs in a thread; records nothing. What the user edited since is found here and recorded when the run
starts, wherever the message came from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyagentd.agent.branches.opening import LastRun
from pyagentd.agent.branches.persist import Roles, Version
from pyagentd.errors import BadRequest, Stale
from pyagentd.messages import Message, Text
from pyagentd.store.conversation import Conversation
from pyagentd.store.document import text as document
from pyagentd.store.document.files import memory
from pyagentd.store.document.reconcile import Aligned, align
from pyagentd.store.document.render import prompt_text, writable
from pyagentd.store.document.text import Document, Settings

_ABOVE = 80  # characters by which a place in the document is known again


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What a run is to answer."""

    text: str
    view: tuple[Message, ...]  # what the model sees, the prompt last
    version: Version  # the document before the run's first insert, which goes to its marker
    insert: str = ""  # what is to be put into the document; "" when the user wrote it there
    message_id: str = ""  # of the recorded message that is asked again; "" when it is a new one
    edits: tuple[Mapping[str, Any], ...] = ()  # data of ``edit`` rows to record first
    roles: Roles | None = None  # recovered ones
    settings: Settings = field(default_factory=Settings)  # what the document's Local Variables say
    notes: tuple[str, ...] = ()  # for the user
    metadata: Mapping[str, Any] = field(default_factory=dict)  # of the message
    id: str = ""  # of the message, made by its client
    above: str = ""  # what ends right above the marker where that is not the prompt: another, hidden answer to it
    queued: str = ""  # id of the queued message that fires with it
    is_above: bool = False  # whether what is to be put goes above text of the user's, and not to the document's end


Aligning = Callable[[Document, Conversation, int], Aligned]  # ``align``, or what does the same for less


def from_document(
    file: Path, conversation: Conversation, *, sha256: str, end: int, aligning: Aligning = align
) -> Prompt:
    """Return the prompt that ends at offset ``end`` (code points from 0) of the saved document.

    A prompt that was answered before and is as it was is asked again: no second message is made of it.

    Raises:
        BadRequest: The file is not what the client says it saved, or there is no prompt.
        StoreError: The file cannot be read.
    """
    return standing_at(saved(file, sha256), conversation, sha256=sha256, end=end, aligning=aligning)


def saved(file: Path, sha256: str) -> Document:
    """Return the document as its client saved it.

    Raises:
        Stale: The file is not what the client says it saved.
        StoreError: The file cannot be read.
    """
    read = memory.read(file)
    if read.sha256 != sha256:
        raise Stale(f"{file} changed since it was saved", mend="Revert or save the buffer, then send")
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
        raise BadRequest("There is no prompt before point", mend="Write something first")
    return Prompt(
        text=text,
        view=aligned.view,
        version=Version(sha256=sha256, seq=0, marker=end),
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
        raise BadRequest("The prompt is empty", mend="Write something")
    read = memory.read(file)
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
        version=Version(sha256=sha256, seq=0, marker=at),
        insert=prompt_text(doc.body[:at], text, is_agent=is_agent),
        is_above=at < len(doc.body),
        **_common(doc, sha256, aligned),
    )


def of_run(file: Path, conversation: Conversation, last: LastRun) -> tuple[tuple[Message, ...], Settings]:
    """Return what a run that goes on saw when it began, its prompt last, and the document's Local Variables.

    Raises:
        StoreError: The file cannot be read.
    """
    doc = memory.read(file).document
    view = align(doc, conversation, min(last.prompt_end(doc.body), len(doc.body))).view
    if not view or view[-1].role != "user":  # the user removed the prompt meanwhile
        view = _with_prompt(view, last.prompt)
    return view, doc.settings


def _common(doc: Document, sha256: str, aligned: Aligned) -> dict[str, Any]:
    return {
        "edits": aligned.edits,
        "roles": None if aligned.spans is None else Roles(sha256=sha256, spans=aligned.spans),
        "settings": doc.settings,
        "notes": aligned.notes,
    }


def _with_prompt(view: tuple[Message, ...], text: str) -> tuple[Message, ...]:
    """Return ``view`` with ``text`` as the user's last word, joined to a user message that already ends it."""
    part = Text(text=text.strip())
    if view and view[-1].role == "user":
        return (*view[:-1], replace(view[-1], parts=(*view[-1].parts, part)))
    return (*view, Message(role="user", parts=(part,)))
