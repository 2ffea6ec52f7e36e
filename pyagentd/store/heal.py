"""Roles recovered from the log when the document's own are lost or shifted.

Stock Emacs loses all bounds of a long conversation (it reads only the last 3000 characters for them); editors that
know nothing of roles, formatters and merges shift them under the text. The text is then compared with what the record
would show today (``expected``), and what is left of that has the roles it has there. Where the bounds are sound
nothing is guessed: a text that the user moved or quoted is the user's.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

from pyagentd.store.carry import carried, kept_places
from pyagentd.store.conversation import Conversation
from pyagentd.store.difference import matches
from pyagentd.store.document import PROMPT_PREFIX, Document, Span, merged
from pyagentd.store.expected import Expected, error_blocks, expected
from pyagentd.store.matching import common
from pyagentd.store.moved import moved
from pyagentd.store.pieces import Found, Recorded, original_text, recorded_pieces
from pyagentd.store.render import RUN_OPEN

Loss = Literal["lost", "shifted", "missing", "resurfaced"]

_FENCES = re.compile(r"(\n```\n)?(``` (tool|reasoning|error|compaction)\b.*)?", re.DOTALL)  # what `ignore` spans hold
_SURE = 24  # characters from which equal text is hardly chance
_EDGE = 4  # texts at the ends of what is hidden: where roles are shifted, that shows there
_HEADING = f"\n{PROMPT_PREFIX}"
_KINDS = {"response": "response", "tool": "tool", "reasoning": "ignore", "compaction": "ignore"}


def loss(
    document: Document,
    conversation: Conversation,
    recorded: Sequence[Recorded],
    found: Sequence[Found],
    links: Sequence[int],
) -> Loss | None:
    """Return what is wrong with the roles of a document, or None.

    ``lost``: there are none, or they cannot all be right. ``shifted``: recorded texts have their length in the
    bounds and are not there. ``missing``: most answers are not where the bounds say, which a user may have wanted.
    ``resurfaced``: turns that were taken back have their text where it would be sent.
    """
    if document.stale:
        return "lost"
    if _resurfaced(document, conversation, found, links):
        return "resurfaced"
    linked = set(links)
    unlinked = [piece for number, piece in enumerate(recorded) if number not in linked and piece.key[0] != "user"]
    absent = sum(1 for piece in unlinked if not piece.is_hidden)
    if not document.spans:
        return "lost" if absent else None
    sizes = {size for piece in unlinked for size in _sizes(piece)}
    sizes |= {("ignore", "", len(block)) for _, block in error_blocks(conversation)}
    known = {piece.end for piece, number in zip(found, links, strict=True) if number >= 0}
    for start, end, kind, id in document.spans if sizes else ():
        is_sound = end in known or (kind == "ignore" and _FENCES.fullmatch(document.body, start, end))
        if (kind, id, end - start) in sizes and not is_sound:
            return "shifted"
    present = sum(1 for number in linked if number >= 0 and recorded[number].key[0] != "user")
    return "missing" if absent > present else None


def _resurfaced(document: Document, conversation: Conversation, found: Sequence[Found], links: Sequence[int]) -> bool:
    """Return whether text of hidden turns has another role than ``ignore``: theirs of before, or that around it.

    Where there are bounds, text of a hidden turn that stands all outside of them is a quotation, and the user's.
    """
    if not any(message.is_rewound for message in conversation.messages.values()):
        return False
    hidden = [piece.key for piece in recorded_pieces(conversation) if piece.message.is_rewound]
    known = set(hidden)
    if any(n < 0 and piece.key in known and piece.key[0] != "user" for piece, n in zip(found, links, strict=True)):
        return True
    if document.spans:
        sure = [text for _, _, text in hidden if len(text) >= _SURE]
        return any(_is_cut(document, text) for text in {*sure[:_EDGE], *sure[-_EDGE:]})
    there, low = 0, 0
    for _, _, text in hidden:
        start = document.body.find(text, low)
        if start >= 0:
            there, low = there + 1, start + len(text)
    return 2 * there > len(hidden)


def _is_cut(document: Document, text: str) -> bool:
    """Return whether the first place of ``text`` is partly inside a span that is ignored."""
    start = document.body.find(text)
    if start < 0:
        return False
    end = start + len(text)
    index = bisect_right(document.spans, start, key=lambda span: span.end)
    spans = document.spans[index : index + 1]
    return any(kind == "ignore" and a < end and not a <= start <= end <= b for a, b, kind, _ in spans)


def _sizes(piece: Recorded) -> Iterator[tuple[str, str, int]]:
    """Yield kind, id and length of the span of an answer, as it is in the record now and as it was at first."""
    kind, id, text = piece.key
    texts = (text, original_text(piece.part)) if piece.part is not None else (text,)
    return ((_KINDS[kind], id, len(each)) for each in texts)


def heal(document: Document, conversation: Conversation) -> Document:
    """Return ``document`` with the roles that the text has according to the record."""
    body, recorded = document.body, recorded_pieces(conversation)
    target = expected(conversation, recorded)
    kept = matches(target.body, body)
    spans = carried(target, body, kept)
    places = kept_places(target, kept)
    draft = _last_heading(body, spans, len(body))
    if _quotes(target, recorded, places, draft):
        spans = [span for span in spans if span.start < draft]
    absent = [
        piece.key
        for piece, place in zip(recorded, places, strict=True)
        if place is None and piece.key[0] != "user" and not piece.is_hidden
    ]
    if absent:
        spans = moved(body, spans, kept, absent, len(body) if draft < 0 else draft)
    if document.block is not None:
        spans = [span for piece in spans for span in _outside(piece, *document.block)]
        spans.append(Span(*document.block, "ignore"))
    ranges = kept_places(target._replace(places=_ranges(target)), kept)
    said = [place for piece, place in zip(recorded, places, strict=True) if place and piece.key[0] == "user"]
    spans += _unrecorded(document, target, recorded, spans, ranges, said)
    spans += unread_errors(body, conversation, spans)
    return replace(document, spans=tuple(merged(sorted(spans))), stale=False, block=None)


def unread_errors(body: str, conversation: Conversation, spans: Sequence[Span]) -> Iterator[Span]:
    """Yield where notes about failed runs stand without a role: a prompt that was asked again has several of them."""
    taken = sorted(spans)
    for block in dict.fromkeys(block for _, block in error_blocks(conversation)):
        start = body.find(block)
        while start >= 0:
            span = Span(start, start + len(block), "ignore")
            if (
                body.endswith("\n", 0, start)
                and body.startswith(RUN_OPEN, span.end)
                and _is_free(span, taken, len(body))
            ):
                yield span
            start = body.find(block, span.end)


def _quotes(
    target: Expected, recorded: Sequence[Recorded], places: Sequence[tuple[int, int] | None], draft: int
) -> bool:
    """Return whether the prompt at the end of the text, from ``draft`` on, quotes answers that stood before it."""
    for number, (piece, here) in enumerate(zip(recorded, places, strict=True)):
        if here is None or here[0] < draft or piece.key[0] == "user":
            continue
        before = places[number - 1] if number else None
        if before is None or before[1] > draft:
            return False
        return _last_heading(target.body, target.spans, target.places[number][0]) < target.places[number - 1][1]
    return False


def _last_heading(text: str, spans: Sequence[Span], end: int) -> int:
    """Return where the last prompt before ``end`` begins: a prefix that is no part of an answer; -1 for none."""
    ends = [span.end for span in spans]
    start = text.rfind(_HEADING, 0, end)
    while start >= 0:
        index = bisect_right(ends, start + 1)
        if index == len(spans) or spans[index].start > start + 1:
            break
        start = text.rfind(_HEADING, 0, start)
    return start


def _ranges(target: Expected) -> tuple[tuple[int, int], ...]:
    return tuple((span.start, span.end) for span in target.spans)


def _unrecorded(
    document: Document,
    target: Expected,
    recorded: Sequence[Recorded],
    spans: Sequence[Span],
    places: Sequence[tuple[int, int] | None],
    said: Sequence[tuple[int, int]],
) -> Iterator[Span]:
    """Yield the roles in the document's bounds that the record knows nothing of, shifted as their neighbours are.

    They are not shifted into text that the user ``said``: neighbours are known by their lengths, which may be equal.
    """
    known = {size for piece in recorded if piece.key[0] != "user" for size in _sizes(piece)}
    own = [span for span in document.spans if span[:2] != document.block]
    pairs = dict(common([_shape(span) for span in own], [_shape(span) for span in target.spans]))
    shifts: list[int | None] = []
    for index, span in enumerate(own):
        place = places[pairs[index]] if index in pairs else None
        shifts.append(place[0] - span.start if place else None)
    before, after = _filled(shifts), _filled(shifts[::-1])[::-1]
    taken = sorted(spans)
    for index, span in enumerate(own):
        if index in pairs or (span.kind, span.id, span.end - span.start) in known:
            continue
        left, right = before[index], after[index]
        for shift in {left if left is not None else right or 0, right if right is not None else left or 0}:
            moved = span._replace(start=span.start + shift, end=span.end + shift)
            sure = left in (right, None) or right is None or _is_block(document.body, moved)
            if shift and any(begin < moved.end and moved.start < end for begin, end in said):
                continue
            if sure and _is_free(moved, taken, len(document.body)):
                yield moved
                break


def _filled(shifts: Sequence[int | None]) -> list[int | None]:
    """Return for each place the last shift up to it that is known."""
    result: list[int | None] = []
    for shift in shifts:
        result.append(shift if shift is not None or not result else result[-1])
    return result


def _shape(span: Span) -> tuple[str, str, str]:
    return span.kind, span.id, str(span.end - span.start)


def _is_block(body: str, span: Span) -> bool:
    return (span.start == 0 or body[span.start - 1 : span.start] == "\n") and body[span.end : span.end + 1] in (
        "",
        "\n",
    )


def _is_free(span: Span, taken: Sequence[Span], size: int) -> bool:
    index = bisect_right(taken, span)
    before = taken[index - 1].end if index else 0
    after = taken[index].start if index < len(taken) else size
    return before <= span.start < span.end <= after


def _outside(span: Span, start: int, end: int) -> Iterator[Span]:
    for part in (span._replace(end=min(span.end, start)), span._replace(start=max(span.start, end))):
        if part.start < part.end:
            yield part
