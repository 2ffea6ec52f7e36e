"""What taking turns back, and bringing them back, does to a document: its text stays, roles change.

The text of a hidden turn has the role ``ignore``, together with the blank lines and the heading before it: a region
of hidden text begins with an empty line, or with the document, which tells it from the fences of a visible answer.
What comes back has the roles that the record gives it, wherever its text stands still. Pure.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from pyagentd.store.align import Placed, placed
from pyagentd.store.carry import carried, kept_places
from pyagentd.store.conversation import Conversation
from pyagentd.store.difference import matches
from pyagentd.store.document import PROMPT_PREFIX, Document, Span, merged
from pyagentd.store.expected import expected
from pyagentd.store.heal import unread_errors
from pyagentd.store.hidden import is_command
from pyagentd.store.pieces import recorded_pieces
from pyagentd.store.render import FENCE_CLOSE, RUN_CLOSE, RUN_OPEN

Range = tuple[int, int]

_MISSES = 20  # texts of hidden turns that the user removed or changed, beyond which a region shows none
_FOLDED = "… turns that were taken back"
_TOOL_END = FENCE_CLOSE + "\n"


class Turned(NamedTuple):
    """A document with other roles, and where in it the answer to a prompt goes; offsets are code points from 0."""

    document: Document
    marker: int


def turned(document: Document, before: Conversation, after: Conversation) -> Document:
    """Return ``document`` with its roles when ``before`` has become ``after``, which differ in what is hidden."""
    gone = {id for id in after.messages if after.messages[id].is_rewound and not before.messages[id].is_rewound}
    back = {id for id in after.messages if before.messages[id].is_rewound and not after.messages[id].is_rewound}
    document, pieces = placed(document, before)
    if gone:
        document = _ignored(document, _ranges(document, pieces, gone))
    return _shown(document, after, back) if back else document


def answer_place(document: Document, conversation: Conversation, message_id: str) -> Turned:
    """Return where another answer to a visible prompt goes: behind the answers to it that are hidden.

    The heading below them goes with them, since the answer brings its own.
    """
    document, pieces = placed(document, conversation)
    own = [index for index, piece in enumerate(pieces) if piece.message and piece.message.id == message_id]
    if not own:
        return Turned(document, len(document.body))
    low = pieces[own[-1]].found.end
    high = pieces[own[-1] + 1].found.start if own[-1] + 1 < len(pieces) else len(document.body)
    hidden = [span for span in document.spans if span.kind == "ignore" and low <= span.start and span.end <= high]
    if not hidden:
        return Turned(document, low)
    start, end = hidden[0].start, hidden[-1].end
    if document.body.startswith(RUN_CLOSE, end):
        end += len(RUN_CLOSE)
    return Turned(_ignored(document, [(start, end)]), end)


def hidden_ranges(document: Document, conversation: Conversation) -> list[tuple[int, int, tuple[str, ...]]]:
    """Return the regions of the document that show hidden turns, each with the ids of its messages, in order.

    Commands are no turns: what they say stays readable, and parts the turns around it.
    """
    texts = [piece for piece in recorded_pieces(conversation) if piece.message.is_rewound]
    found: list[tuple[int, int, tuple[str, ...]]] = []
    number = 0
    for start, end, kind, _ in document.spans:
        ids: dict[str, None] = {}
        low, index, misses = start, number, 0
        begin, is_turn = start, True
        while kind == "ignore" and index < len(texts) and low < end and misses < _MISSES:
            place = document.body.find(texts[index].key[2], low, end)
            misses = misses + 1 if place < 0 else 0
            if place >= 0:
                message = texts[index].message
                if is_command(message) is is_turn:
                    if ids and is_turn:
                        found.append((begin, low, tuple(ids)))
                    begin, is_turn, ids = low, not is_turn, {}
                ids[message.id] = None
                low, number = place + len(texts[index].key[2]), index + 1
            index += 1
        if ids and is_turn:
            found.append((begin, end, tuple(ids)))
    return found


def folded(document: Document) -> str:
    """Return the text with each region of hidden turns as one line, as people read it."""
    shown, position = [], 0
    for start, end, kind, _ in document.spans:
        if kind == "ignore" and document.body.startswith((RUN_OPEN, PROMPT_PREFIX), start):
            shown += [document.body[position:start], RUN_OPEN if start else "", _FOLDED]
            position = end
    return "".join([*shown, document.body[position:]])


def _ranges(document: Document, pieces: Sequence[Placed], gone: set[str]) -> Iterator[Range]:
    """Yield where the text of the messages ``gone`` stands, with what stands between them."""
    starts = [span.start for span in document.spans]
    first = -1
    for index in range(len(pieces) + 1):
        message = pieces[index].message if index < len(pieces) else None
        if message is not None and message.id in gone:
            first = index if first < 0 else first
        elif first >= 0:
            start = _end(document, pieces[first - 1]) if first else 0
            end = _end(document, pieces[index - 1])
            limit = pieces[index].found.start if index < len(pieces) else len(document.body)
            for span in document.spans[bisect_left(starts, end) :]:  # a note that the run failed
                if span.kind != "ignore" or span.end > limit:
                    break
                end = span.end
            yield start, end
            first = -1


def _end(document: Document, piece: Placed) -> int:
    """Return where a piece ends, with the fence that closes it."""
    end = piece.found.end
    is_fenced = piece.found.key[0] == "tool" and document.body.startswith(_TOOL_END, end)
    return end + len(_TOOL_END) if is_fenced else end


def _shown(document: Document, after: Conversation, back: set[str]) -> Document:
    """Give the text of the messages ``back`` the roles that the record says."""
    recorded = recorded_pieces(after)
    target = expected(after, recorded)
    kept = matches(target.body, document.body)
    places = [
        place
        for piece, place in zip(recorded, kept_places(target, kept), strict=True)
        if place is not None and piece.message.id in back
    ]
    ranges = [
        (span.start, span.end)
        for span in document.spans
        if span.kind == "ignore" and any(start < span.end and span.start < end for start, end in places)
    ]
    spans = carried(target, document.body, kept)
    shown = _with(document, ranges, [part for start, end in ranges for part in _clipped(spans, start, end)])
    return _with(shown, (), unread_errors(shown.body, after, shown.spans))


def _clipped(spans: Iterable[Span], start: int, end: int) -> Iterator[Span]:
    for span in spans:
        if span.start < end and start < span.end:
            yield span._replace(start=max(span.start, start), end=min(span.end, end))


def _with(document: Document, ranges: Sequence[Range], spans: Iterable[Span]) -> Document:
    """Return the document with no roles in ``ranges`` but those of ``spans``."""
    kept = list(document.spans)
    for start, end in ranges:
        kept = [part for span in kept for part in _outside(span, start, end)]
    return replace(document, spans=tuple(merged(sorted([*kept, *spans]))))


def _ignored(document: Document, ranges: Iterable[Range]) -> Document:
    chosen = list(ranges)
    return _with(document, chosen, (Span(start, end, "ignore") for start, end in chosen))


def _outside(span: Span, start: int, end: int) -> Iterator[Span]:
    for part in (span._replace(end=min(span.end, start)), span._replace(start=max(span.start, end))):
        if part.start < part.end:
            yield part
