"""Roles carried from one text over to another that was made from it.

Text that both have keeps its role. New text belongs to what it stands in; where it replaces text it has that text's
role; between two roles it is the user's, unless it goes on a line of an answer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from pyagentd.store.difference import Match
from pyagentd.store.document import Document, Kind, Region, Span, merged, regions
from pyagentd.store.expected import Expected

_PARAGRAPH = "\n\n"
_FENCES = ("```", "~~~")
_LONGEST_JOINT = len("\n\n\n\n### ")  # text between two answers that is none of the user's words


def carried(target: Expected, body: str, kept: Sequence[Match]) -> list[Span]:
    """Return the roles of ``body``, of which ``kept`` says what it has from ``target``."""
    carrier = _Carrier(target, body)
    old = new = 0
    spans: list[Span] = []
    for match in kept:
        if new < match.new:
            spans += carrier.between(old, match.old, new, match.new)
        spans += carrier.unchanged(match)
        old, new = match.old + match.size, match.new + match.size
    return list(merged(spans))


def kept_places(target: Expected, kept: Sequence[Match]) -> list[tuple[int, int] | None]:
    """Return where each of the target's places is now; None for those that are not there in one piece."""
    starts = [match.old for match in kept]
    result: list[tuple[int, int] | None] = []
    for start, end in target.places:
        match = kept[max(0, bisect_right(starts, start) - 1)]
        whole = match.old <= start and end <= match.old + match.size
        result.append((start - match.old + match.new, end - match.old + match.new) if whole else None)
    return result


class _Carrier:
    def __init__(self, target: Expected, body: str) -> None:
        self._body = body
        self._regions = regions(Document(body=target.body, spans=target.spans))
        self._starts = [region.start for region in self._regions]

    def unchanged(self, match: Match) -> Iterator[Span]:
        shift, end = match.new - match.old, match.old + match.size
        for region in self._among(match.old, end):
            yield from _span(max(region.start, match.old) + shift, min(region.end, end) + shift, region)

    def between(self, old: int, old_end: int, new: int, new_end: int) -> Iterator[Span]:
        """Yield the roles of new text from ``new`` on, in place of the old text from ``old`` on."""
        left = self._region_at(old - 1)
        right = self._region_at(old_end)
        if left is not None and left is right:
            yield from _span(new, new_end, left)
        elif old < old_end:
            yield from _span(new, new_end, self._replaced(old, old_end, self._body[new:new_end]))
        else:
            yield from self._inserted(left, right, new, new_end)

    def _replaced(self, old: int, old_end: int, text: str) -> Region | None:
        """Return the region whose text was replaced; None when the user's own words were among it."""
        among = list(self._among(old, old_end))
        regions = [region for region in among if region.kind is not None]
        blank = all(
            min(region.end, old_end) - max(region.start, old) <= _LONGEST_JOINT
            for region in among
            if region.kind is None
        )
        if not regions or (len(among) > 1 and not blank):
            return None
        kind = "ignore" if text.lstrip().startswith(_FENCES) else "response"
        return next((region for region in regions if region.kind == kind), regions[0])

    def _inserted(self, left: Region | None, right: Region | None, new: int, new_end: int) -> Iterator[Span]:
        if left is not None and right is not None and left.kind and right.kind and "tool" in (left.kind, right.kind):
            yield from _span(new, new_end, left if left.kind == "tool" else right)
            return
        text = self._body[new:new_end]
        if left is not None and left.kind == "response" and not text.startswith("\n"):
            end = text.find(_PARAGRAPH)
            yield from _span(new, new_end if end < 0 else new + end, left)
        elif right is not None and right.kind == "response" and not text.endswith("\n"):
            begin = text.rfind(_PARAGRAPH)
            yield from _span(new if begin < 0 else new + begin + len(_PARAGRAPH), new_end, right)

    def _among(self, start: int, end: int) -> Iterator[Region]:
        index = max(0, bisect_right(self._starts, start) - 1)
        while index < len(self._regions) and self._regions[index].start < end:
            yield self._regions[index]
            index += 1

    def _region_at(self, position: int) -> Region | None:
        index = bisect_right(self._starts, position) - 1
        return self._regions[index] if index >= 0 and position < self._regions[index].end else None


def _span(start: int, end: int, region: Region | None) -> Iterator[Span]:
    kind: Kind | None = region.kind if region is not None else None
    if region is not None and kind is not None and start < end:
        yield Span(start, end, kind, region.id)
