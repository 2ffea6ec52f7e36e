"""What clients are told of a branch's history: which regions of the text are hidden turns, what has variants.

Blocks where it reads the document; offsets are those of Emacs, from 1.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyagentd.store.conversation import Conversation, Message
from pyagentd.store.document import hidden
from pyagentd.store.document import text as document
from pyagentd.store.document.hidden import hidden_ranges
from pyagentd.store.document.reconcile import placed
from pyagentd.store.document.render import RUN_CLOSE, RUN_OPEN
from pyagentd.store.document.text import Document

_ERROR = re.compile(r"\n+``` error\n.*?\n```(?=\n|\Z)", re.DOTALL)
_LISTED = 8
_SHOWN = 50  # characters of a prompt


def history(file: Path, conversation: Conversation) -> dict[str, Any]:
    """Return hidden regions and variants in the document: ``{sha256, hidden, variants}``.

    ``hidden``: first position, position behind the last, number of turns, what hid them. ``variants``: positions of
    the message, its id, its number among its variants, how many there are; where none is shown the number is 0 and
    the positions are those of the message before.

    Raises:
        StoreError: The document cannot be read.
    """
    if not any(message.is_rewound for message in conversation.messages.values()):
        return {"sha256": None, "hidden": [], "variants": []}
    doc, pieces = placed(document.read(file), conversation)
    places: dict[str, tuple[int, int]] = {}
    for piece in pieces:
        if piece.message is not None:
            start, _ = places.get(piece.message.id, (piece.found.start, 0))
            places[piece.message.id] = start, piece.found.end
    return {
        "sha256": document.body_sha256(doc.body),
        "hidden": [
            (
                _from_heading(doc, start, conversation.messages[ids[0]]) + 1,
                _with_heading(doc, _with_error(doc, end)) + 1,
                _turns(conversation, ids),
                conversation.messages[ids[-1]].metadata.get("hidden_by"),
            )
            for start, end, ids in hidden_ranges(doc, conversation)
        ],
        "variants": list(_placed_variants(conversation, places)),
    }


def _placed_variants(
    conversation: Conversation, places: Mapping[str, tuple[int, int]]
) -> Iterator[tuple[int, int, str, int, int]]:
    for id, number, of in shown_variants(conversation):
        where = id if number else str(conversation.messages[id].metadata["hidden_after"])
        if where in places:
            start, end = places[where]
            yield start + 1, end + 1, id, number, of


def shown_variants(conversation: Conversation) -> list[tuple[str, int, int]]:
    """Return the visible messages that have variants: id, number among them from 1, how many there are.

    Where none of the variants is shown the number is 0 and the message the last of them.
    """
    found = []
    for after in dict.fromkeys(group.after for group in hidden.groups_since(conversation)):
        if not hidden.is_shown(conversation, after):
            continue
        all_of = hidden.variants(conversation, after)
        number = next((number for number, variant in enumerate(all_of, 1) if variant.group is None), 0)
        found.append((all_of[number - 1].first.id, number, len(all_of)))
    return found


def prompts(conversation: Conversation) -> list[dict[str, Any]]:
    """Return the prompts to which one can rewind, oldest first."""
    return [
        {"message_id": message.id, "text": message.text[:200], "created_at": message.row.get("created_at")}
        for message in hidden.prompts(conversation)
    ]


def candidates(of: Conversation | Sequence[Message]) -> str:
    """Say which prompts there are, the last ones, for who named another."""
    found = hidden.prompts(of) if isinstance(of, Conversation) else of
    if not found:
        return "There is no prompt yet"
    listed = ", ".join(f"{message.id} “{_line(message.text)}”" for message in reversed(found[-_LISTED:]))
    left = len(found) - _LISTED
    return f"The prompts are {listed}" + (f" and {left} earlier ones" if left > 0 else "")


def _from_heading(doc: Document, start: int, first: Message) -> int:
    """Return where a region of hidden turns begins for people: at a heading below which no prompt stands."""
    above = next((each for each in (RUN_CLOSE + RUN_OPEN, RUN_CLOSE) if doc.body.endswith(each, 0, start)), "")
    return start - len(above) if first.role != "user" else start


def _with_error(doc: Document, end: int) -> int:
    """Return where a region of hidden turns ends for people: behind what is said of how its run ended."""
    error = _ERROR.match(doc.body, end)
    index = bisect_right(doc.spans, end, key=lambda span: span.start)
    is_recorded = error is not None and index < len(doc.spans) and doc.spans[index].kind == "ignore"
    return error.end() if error is not None and is_recorded else end


def _with_heading(doc: Document, end: int) -> int:
    """Return where a region of hidden turns ends for people: behind a heading below which no prompt stands."""
    answer = end + len(RUN_CLOSE + RUN_OPEN)
    index = bisect_right(doc.spans, end, key=lambda span: span.start)
    is_left = doc.body.startswith(RUN_CLOSE + RUN_OPEN, end) and index < len(doc.spans)
    return end + len(RUN_CLOSE) if is_left and answer <= doc.spans[index].start <= answer + 1 else end


def _turns(conversation: Conversation, ids: Sequence[str]) -> int:
    """Return how many turns hidden messages are; an answer whose prompt is shown is one as well."""
    known = [conversation.messages[id] for id in ids]
    return sum(message.role == "user" for message in known) + (known[0].role != "user")


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else line[: _SHOWN - 1] + "…"
