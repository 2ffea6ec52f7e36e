"""How a queued message becomes the prompt of a turn: where it stands in the document, or is put (DESIGN §3 rule 3).

Text that the user typed and queued stays where it is, below the run's marker; nothing marks it in the file, so it is
found again by what it says. A message of another client goes right behind the last answer: whatever the user has
written below is a draft and stays below. Blocks, and runs in a thread; records nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from pyagentd.agent.turns.turn import Prompt, inserted_at, saved, standing_at
from pyagentd.errors import BadRequest
from pyagentd.store.conversation import Conversation, Message
from pyagentd.store.document import text as document
from pyagentd.store.document.pieces import fragments
from pyagentd.store.document.reconcile import align, placed
from pyagentd.store.document.render import RUN_CLOSE, RUN_OPEN
from pyagentd.store.document.text import PROMPT_PREFIX, Document

Marker = Callable[[str], int | None]
"""Returns where the last run ended in the text with this hash, None when that is not known."""


def text_to_queue(
    file: Path, conversation: Conversation, waiting: Sequence[Message], marker: Marker, *, sha256: str, end: int
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
    doc, start = saved(file, sha256), marker(sha256)
    typed_below = start is not None and start <= end
    text = doc.body[start:end] if typed_below else align(doc, conversation, end).new_prompt
    for message in waiting:
        if message.metadata.get("origin") == "document" and (at := text.find(message.text)) >= 0:
            text = text[at + len(message.text) :]
    places = list(fragments(text, 0, len(text)))
    if not places:
        raise BadRequest("There is nothing new before point", mend="Write something below what is queued")
    return text[places[0][0] : places[-1][1]]


def prompt_of_queued(
    file: Path, conversation: Conversation, message: Message, marker: Marker, *, is_agent: bool
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
        at = behind_last_run(doc, conversation, marker(sha256))
        prompt = inserted_at(doc, conversation, text, at=at, is_agent=is_agent)
    return replace(prompt, queued=message.id)


def waits_above(file: Path, waiting: Sequence[Message], *, sha256: str, end: int) -> bool:
    """Return whether text that waits stands above offset ``end`` of the saved document.

    Raises:
        BadRequest: The file is not what the client says it saved.
        StoreError: The file cannot be read.
    """
    doc = saved(file, sha256)
    typed = (message.text for message in waiting if message.metadata.get("origin") == "document")
    return any((place := place_of(doc, text)) is not None and place <= end for text in typed)


def above_drafts(conversation: Conversation, marker: Marker, doc: Document, sha256: str) -> int:
    """Return where a message goes that is answered before what the user has written below the last answer."""
    return behind_last_run(doc, conversation, marker(sha256))


def place_of(doc: Document, text: str) -> int | None:
    """Return where queued text ends in the document: its first place below all answers; None when it is not there."""
    start = doc.body.find(text, _answered(doc))
    return None if start < 0 else start + len(text)


def behind_last_run(doc: Document, conversation: Conversation, marker: int | None) -> int:
    """Return where a message of another client goes: behind the last run, which ended at ``marker`` if known."""
    body, answered = doc.body, _answered(doc)
    if marker is not None and answered <= marker <= len(body):
        at = marker
    else:  # a run that said nothing ended with its prompt
        at = max([answered, *(piece.found.end for piece in placed(doc, conversation)[1] if piece.message)])
    if not at:
        return len(body)
    if not body.endswith(PROMPT_PREFIX, 0, at):
        at += next((len(heading) for heading in (RUN_CLOSE, RUN_OPEN + RUN_CLOSE) if body.startswith(heading, at)), 0)
    return at if body.endswith(PROMPT_PREFIX, 0, at) else len(body)


def _answered(doc: Document) -> int:
    """Return where the last text ends that is not the user's."""
    return max((span.end for span in doc.spans), default=0)
