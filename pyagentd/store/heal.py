"""Roles recovered from the log when the document's own are lost or shifted.

Stock Emacs loses all bounds of a long conversation (it reads only the last 3000 characters for them); formatters and
merges shift them under the text. The recorded texts are looked for in the document, in order, between the pieces
that are still where they should be. Nothing is guessed where the bounds are right: a text the user moved or removed
is not looked for outside its neighbours.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from pyagentd.store.document import BLANK, PROMPT_PREFIX, Document, Kind, Span, merged
from pyagentd.store.pieces import Found, Key, Recorded
from pyagentd.store.render import FENCE_CLOSE, REASONING_OPEN, TOOL_OPEN

_LONG = 24  # characters from which a text is hardly there by chance
_FENCE_END = FENCE_CLOSE + "\n"
_ERROR = re.compile(r"^``` error\n.*?\n```$", re.MULTILINE | re.DOTALL)


class _Place(NamedTuple):
    """Where recorded piece ``number`` is; ``start`` and ``end`` include the fences of a tool block."""

    number: int
    start: int
    end: int
    spans: tuple[Span, ...]


def heal(
    document: Document, recorded: Sequence[Recorded], found: Sequence[Found], links: Sequence[int]
) -> Document | None:
    """Return ``document`` with recovered roles, or None when looking for lost pieces finds none."""
    body = document.body
    spans = list(document.spans)
    lost = document.stale or not spans
    healed = False
    for before, after in _gaps(body, recorded, found, links):
        missing = [n for n in range(before.number + 1, after.number) if not recorded[n].is_hidden]
        places = _find_all(body, recorded, missing, before.end, after.start)
        new = [span for place in places for span in place.spans]
        inside = {span for span in spans if before.start <= span.start and span.end <= after.end}
        if not new or not (lost or any(_overlap(old, span) for old in inside for span in new)):
            continue  # sound bounds say that this is the user's text now, a quotation for example
        healed = True
        spans = [span for span in spans if span not in inside]
        spans += [*new, *_leftovers(body, recorded, missing, [before, *places, after])]
    if not healed:
        return None
    return replace(document, spans=tuple(merged(_disjoint(sorted(set(spans))))), stale=False)


def _gaps(
    body: str, recorded: Sequence[Recorded], found: Sequence[Found], links: Sequence[int]
) -> Iterator[tuple[_Place, _Place]]:
    """Yield the pairs of neighbours that are where they should be, with the ends of the body as the outermost."""
    before = _Place(-1, 0, 0, ())
    for piece, number in zip(found, links, strict=True):
        if number > before.number and piece.start >= before.end:
            here = _placed(body, number, recorded[number].key, piece.start, piece.end)
            if number > before.number + 1:
                yield before, here
            before = here
    yield before, _Place(len(recorded), len(body), len(body), ())


def _find_all(body: str, recorded: Sequence[Recorded], missing: Sequence[int], low: int, high: int) -> list[_Place]:
    """Return where the missing pieces are between two offsets: long texts first, short ones between those."""
    long = [number for number in missing if len(recorded[number].key[2]) >= _LONG]
    anchors = _find_in_order(body, recorded, long, low, high)
    short = [number for number in missing if len(recorded[number].key[2]) < _LONG]
    places: list[_Place] = []
    for after in [*anchors, _Place(len(recorded), high, high, ())]:
        between = short[: bisect_left(short, after.number)]
        short = short[len(between) :]
        places += [*_find_in_order(body, recorded, between, low, after.start), after]
        low = after.end
    return places[:-1]


def _find_in_order(
    body: str, recorded: Sequence[Recorded], numbers: Sequence[int], low: int, high: int
) -> list[_Place]:
    places: list[_Place] = []
    for number in numbers:
        key = recorded[number].key
        start = _find(body, key, low, high)
        if start >= 0:
            places.append(_placed(body, number, key, start, start + len(key[2])))
            low = places[-1].end
    return places


def _find(body: str, key: Key, low: int, high: int) -> int:
    """Return where the text stands as a block of its own, or -1."""
    kind, _, text = key
    start = body.find(text, low, high)
    while start >= 0:
        end = start + len(text)
        if kind == "tool":
            if body.startswith(FENCE_CLOSE, end):
                return start
        elif (end == len(body) or body[end] == "\n") and (
            start == 0 or body[start - 1] == "\n" or (kind == "user" and body.endswith(PROMPT_PREFIX, 0, start))
        ):
            return start
        start = body.find(text, start + 1, high)
    return -1


def _placed(body: str, number: int, key: Key, start: int, end: int) -> _Place:
    kind, call_id, _ = key
    if kind == "user":
        return _Place(number, start, end, ())
    if kind == "tool":
        spans = _tool_spans(body, start, end, call_id)
        return _Place(number, spans[0].start, spans[-1].end, spans)
    role: Kind = "response" if kind == "response" else "ignore"
    return _Place(number, start, end, (Span(start, end, role),))


def _tool_spans(body: str, start: int, end: int, call_id: str) -> tuple[Span, ...]:
    """Return the spans of a tool block whose call and result stand between two offsets."""
    head = body.rfind("\n", 0, start) + 1
    spans = [Span(start, end, "tool", call_id)]
    if body.startswith(TOOL_OPEN, head) and head < start:
        spans.insert(0, Span(head, start, "ignore"))
    if body.startswith(FENCE_CLOSE, end):
        tail = _FENCE_END if body.startswith(_FENCE_END, end) else FENCE_CLOSE
        spans.append(Span(end, end + len(tail), "ignore"))
    return tuple(spans)


def _leftovers(
    body: str, recorded: Sequence[Recorded], missing: Sequence[int], places: Sequence[_Place]
) -> Iterator[Span]:
    """Yield roles for text between found pieces where the log has an answer that was edited."""
    for before, after in pairwise(places):
        yield from before.spans
        for match in _ERROR.finditer(body, before.end, after.start):
            yield Span(match.start(), match.end(), "ignore")
        lost = [recorded[n].key for n in missing if before.number < n < after.number]
        answers = [key for key in lost if key[0] in ("response", "tool")]
        start, end = _first_chunk(body, before.end, after.start)
        if not answers or start >= end:
            continue
        if not body.startswith(TOOL_OPEN, start):
            ignored = body.startswith(("``` error\n", REASONING_OPEN), start)
            yield Span(start, end, "ignore" if ignored else "response")
        elif (opening := body.find("\n", start, end)) >= 0:
            closing = body.rfind(FENCE_CLOSE, opening, end)
            call_id = next((key[1] for key in answers if key[0] == "tool"), "unknown")
            yield from _tool_spans(body, opening, closing if closing > opening else end, call_id)
    yield from places[-1].spans


def _first_chunk(body: str, start: int, end: int) -> tuple[int, int]:
    """Return the trimmed range from ``start`` to the next prompt prefix."""
    heading = body.find(f"\n{PROMPT_PREFIX}", start, end)
    text = body[start : end if heading < 0 else heading]
    begin = start + len(text) - len(text.lstrip(BLANK))
    return begin, max(begin, start + len(text.rstrip(BLANK)))


def _overlap(one: Span, other: Span) -> bool:
    return one.start < other.end and other.start < one.end


def _disjoint(spans: Sequence[Span]) -> Iterator[Span]:
    position = 0
    for span in spans:
        if span.start >= position:
            yield span
            position = span.end
