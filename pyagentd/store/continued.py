"""An alignment that goes on from the one before it, so that a turn costs what is new in it (DESIGN §3).

Turn after turn the document begins with the text and the roles that it had, and the record of that text is as it
was. Then what the model saw of it is what it sees of it now, and only the rest is aligned, with the messages that
came since. Whatever is not exactly so (an edit, a rewind, a compaction, a call that stands there twice, roles to
recover) is aligned as a whole, and the outcome is always that of aligning the whole.
"""

from __future__ import annotations

from collections.abc import Set
from copy import copy
from dataclasses import dataclass, replace

from pyagentd.messages import Message, Text, ToolCall
from pyagentd.store.align import Aligned, align
from pyagentd.store.compaction import COMPACTION
from pyagentd.store.conversation import Conversation
from pyagentd.store.document import Document, Span
from pyagentd.store.view import BEGINNING


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What was established: this text with these roles, made of these messages, is this view."""

    seq: int  # the last row of the record then
    body: str  # up to the end of an answer
    spans: tuple[Span, ...]
    messages: Set[str]  # ids
    view: tuple[Message, ...]  # ends with an answer
    calls: Set[str]  # ids in it


class Continued:
    """Aligns one branch's document again and again; one caller at a time.

    Attributes:
        continued: How often only the rest had to be aligned.
        whole: How often all of it.
    """

    def __init__(self) -> None:
        self.continued = 0
        self.whole = 0
        self._known: _Known | None = None

    def align(self, document: Document, conversation: Conversation, end: int | None = None) -> Aligned:
        """Return what ``align.align`` returns; ``conversation`` is a snapshot."""
        position = len(document.body) if end is None else end
        known = self._known
        aligned = None if known is None else _rest(known, document, conversation, position)
        if aligned is None:
            self.whole += 1
            known, aligned = None, align(document, conversation, end)
        else:
            self.continued += 1
        self._known = _settled(known, aligned, document, conversation, position) or known
        return aligned


def _rest(known: _Known, document: Document, conversation: Conversation, end: int) -> Aligned | None:
    """Return the alignment by way of what is known; None when that is no way."""
    cut, spans = len(known.body), len(known.spans)
    if end < cut or document.stale or document.damage or not document.body.startswith(known.body):
        return None
    if document.spans[:spans] != known.spans or (document.spans[spans:] and document.spans[spans].start < cut):
        return None
    if conversation.touched_since(known.seq, known.messages):
        return None
    since = _since(conversation, known.messages)
    if since is None:
        return None
    moved = tuple(span._replace(start=span.start - cut, end=span.end - cut) for span in document.spans[spans:])
    aligned = align(replace(document, body=document.body[cut:], spans=moved), since, end - cut)
    return _joined(known, aligned)


def _joined(known: _Known, rest: Aligned) -> Aligned | None:
    """Return the whole alignment; None where the whole must be seen to tell."""
    view = rest.view
    if rest.edits or rest.notes or rest.spans is not None or (rest.last_prompt and not rest.new_prompt):
        return None
    if view and (view[0].role != "user" or view[0].parts[0] == Text(text=BEGINNING)):
        return None
    if not known.calls.isdisjoint(_calls(view)):
        return None
    return replace(rest, view=known.view + view)


def _since(conversation: Conversation, before: Set[str]) -> Conversation | None:
    """Return what came after the messages ``before``; None when they are not its beginning, or are seen anew."""
    messages = []
    for message in reversed(conversation.messages.values()):
        if message.id in before:
            break
        if any(part.type == COMPACTION for part in message.parts):  # it says of what is before how it is seen
            return None
        messages.append(message)
    if len(messages) + len(before) != len(conversation.messages):
        return None
    since = copy(conversation)
    since.messages = {message.id: message for message in reversed(messages)}
    since.parts = {part.id: part for message in since.messages.values() for part in message.parts}
    return since


def _settled(
    known: _Known | None, aligned: Aligned, document: Document, conversation: Conversation, end: int
) -> _Known | None:
    """Return what is known from now on, all above the prompt that ends the view; None when that is not clear."""
    view = aligned.view
    if aligned.edits or aligned.notes or aligned.spans is not None or document.stale or not document.spans:
        return None
    if aligned.new_prompt:
        if not view or view[-1].parts != (Text(text=aligned.new_prompt),):
            return None
        view = view[:-1]
    elif aligned.last_prompt:
        return None
    if conversation.last_edit and _removed(conversation):  # it is found again where the user puts it back
        return None
    cut = max(span.end for span in document.spans[-2:])
    if cut > end or not view or view[-1].role != "assistant":
        return None
    calls = set(_calls(view if known is None else view[len(known.view) :]))
    return _Known(
        seq=conversation.last_seq,
        body=document.body[:cut],
        spans=document.spans,
        messages=frozenset(conversation.messages),
        view=view,
        calls=calls | (known.calls if known is not None else set()),
    )


def _removed(conversation: Conversation) -> bool:
    messages = conversation.messages.values()
    return any(message.hidden or any(part.hidden for part in message.parts) for message in messages)


def _calls(view: tuple[Message, ...]) -> set[str]:
    return {part.id for message in view for part in message.parts if isinstance(part, ToolCall)}
