"""Text wins, structure enriches: the model's view from the document and the record (DESIGN §3).

Where a piece of the document equals what was recorded, the exact recorded parts are used; where the user edited it,
the edited text; what the user removed is hidden. Pure: it says which edits to record and records nothing. Roles
that something outside destroyed are recovered first (``heal``), and said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyagentd.messages import Message
from pyagentd.store.alignment import Alignment
from pyagentd.store.alignment import Placed as Placed
from pyagentd.store.conversation import Conversation
from pyagentd.store.document import Document, Span
from pyagentd.store.heal import Loss, heal, loss
from pyagentd.store.locate import locate as locate

RECOVERED = "The roles in this document were lost or shifted; they were recovered from the log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Aligned:
    """What the document up to a position means.

    Attributes:
        view: What the model sees, the new prompt included.
        new_prompt: The user's text after the last recorded prompt or answer, "" when there is none.
        last_prompt: All text of the user with which the view ends, new or not: what a repeated send asks again.
        last_message: Id of the recorded message that the view ends with, "" when something new follows it.
        edits: Data of ``edit`` rows to record, over the whole document and not only up to the position.
        notes: What could not be read or was recovered, for the user.
        spans: Recovered roles of the whole body, None when the document's own were right.
    """

    view: tuple[Message, ...]
    new_prompt: str
    last_prompt: str
    edits: tuple[dict[str, Any], ...]
    notes: tuple[str, ...] = ()
    spans: tuple[Span, ...] | None = None
    last_message: str = ""


def align(document: Document, conversation: Conversation, end: int | None = None) -> Aligned:
    """Return what ``document`` up to offset ``end`` (code points from 0; None: all of it) means."""
    alignment, healed, kind = _matched(document, conversation, end)
    view, new_prompt, last_prompt = alignment.read()
    edits = tuple(alignment.edits())
    notes = [*document.damage, *_recovery(alignment, healed, kind), *_ending(conversation, edits)]
    return Aligned(
        view=view.finished(),
        new_prompt=new_prompt,
        last_prompt=last_prompt,
        edits=edits,
        notes=(*view.notes, *notes),
        spans=healed.spans if healed is not None else None,
        last_message=alignment.last_message(),
    )


def placed(document: Document, conversation: Conversation) -> tuple[Document, list[Placed]]:
    """Return the document, its roles recovered if need be, and its pieces with what each is in the record."""
    alignment, healed, _ = _matched(document, conversation, None)
    return healed or document, list(alignment.placed())


def _matched(
    document: Document, conversation: Conversation, end: int | None
) -> tuple[Alignment, Document | None, Loss | None]:
    """Match, after recovering the roles if they were lost: then with the document that has them, and the loss."""
    shown = conversation.shown()
    alignment = Alignment(document, shown, end)
    kind = loss(document, conversation, alignment.recorded, alignment.found, alignment.links)
    if kind is None:
        return alignment, None, None
    healed = heal(document, conversation)
    if healed.spans == document.spans and not (document.stale and document.spans):
        return alignment, None, None
    better = Alignment(healed, shown, end)
    match kind:
        case "lost" | "resurfaced":
            return better, healed, kind
        case "shifted" if better.known >= alignment.known:
            return better, healed, kind
        case "missing" if better.known_answers > 2 * alignment.known_answers:
            return better, healed, kind
    return alignment, None, None


def _recovery(alignment: Alignment, healed: Document | None, kind: Loss | None) -> Iterator[str]:
    """Say that roles were recovered; not those of turns just taken back, which whoever edits is yet to write."""
    if healed is None or not alignment.recorded:
        return
    if kind != "resurfaced":
        yield RECOVERED
    if changed := alignment.changed_answers:
        number = "one was" if changed == 1 else f"{changed} were"
        yield f"Of the recorded answers and results {number} changed meanwhile; what stands there now is read"


def _ending(conversation: Conversation, edits: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Say that the document ends before the log: it was taken from an earlier time, or its end was removed."""
    if not edits:
        return
    hidden = {edit.get("message_id") or edit.get("part_id") for edit in edits if edit.get("hidden")}
    count = 0
    for message in reversed(conversation.shown().messages.values()):
        shown = [part.id for part in message.parts if part.type != "step-start" and not part.hidden]
        if message.id not in hidden and not (shown and hidden.issuperset(shown)):
            break
        count += 1
    if count > 1:
        yield f"The last {count} messages of the log are not in this document: they are hidden, not deleted"
