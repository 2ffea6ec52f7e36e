"""Edits of a document as people and programs make them, and what of the record an edit touches, for tests."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from hypothesis import strategies as st

from pyagentd.store.document.pieces import DocumentPiece, RecordedPiece
from pyagentd.store.document.text import Document, Region, Span, merge_spans, regions
from tests.store.talk import texts


class Splice(NamedTuple):
    """A range of the old body and the text that takes its place."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Edit:
    """One edit: splices of the old body, sorted and disjoint; ``name`` says what a person would call it."""

    name: str
    splices: tuple[Splice, ...]

    def applied(self, body: str) -> str:
        """The body after the edit."""
        for start, end, text in reversed(self.splices):
            body = body[:start] + text + body[end:]
        return body


def in_emacs(doc: Document, edit: Edit, *, sticky: bool = False) -> Document:
    """The document after the edit in Emacs: text inside a role has it; at the edge of one only if ``sticky``.

    Typed text has the role before it (Emacs inherits it), yanked text at an edge has none.
    """
    body, spans = doc.body, doc.spans
    for start, end, text in reversed(edit.splices):
        body = body[:start] + text + body[end:]
        spans = _spliced(spans, start, end, len(text), sticky=sticky)
    return replace(doc, body=body, spans=spans)


def elsewhere(doc: Document, edit: Edit) -> Document:
    """The document after the edit in an editor that knows no roles: the bounds stay those of the old text."""
    return replace(doc, body=edit.applied(doc.body))


def _spliced(spans: Sequence[Span], start: int, end: int, size: int, *, sticky: bool) -> tuple[Span, ...]:
    cut = [s for old in spans if (s := _without(old, start, end)).start < s.end]
    before = next((s for s in cut if s.start < start <= s.end), None)
    after = next((s for s in cut if s.start <= start < s.end), None)
    moved = []
    for span in cut:
        if span.start >= start:
            moved.append(span._replace(start=span.start + size, end=span.end + size))
        elif span.end > start:
            moved += [span._replace(end=start), span._replace(start=start + size, end=span.end + size)]
        else:
            moved.append(span)
    within = before is not None and after is not None and before[2:] == after[2:]
    if size and before is not None and (within or sticky):
        moved.append(before._replace(start=start, end=start + size))
    return tuple(merge_spans(sorted(moved)))


def _without(span: Span, start: int, end: int) -> Span:
    def moved(position: int) -> int:
        return position if position <= start else max(start, position - (end - start))

    return span._replace(start=moved(span.start), end=moved(span.end))


# -- what an edit touches ------------------------------------------------------------------------------------------


def reach(body: str, splice: Splice) -> tuple[int, int]:
    """Where a splice of ``body`` may have been, seen from the text after it: what repeats may begin elsewhere."""
    start, end, text = splice
    if start < end and text:
        return start, end
    moved = text or body[start:end]  # the same text may have come, or gone, a little earlier or later
    first, last, turned = start, end, moved
    while first > 0 and body[first - 1] == turned[-1]:
        first, turned = first - 1, turned[-1] + turned[:-1]
    turned = moved
    while last < len(body) and body[last] == turned[0]:
        last, turned = last + 1, turned[1:] + turned[0]
    return first, last


def touched(edit: Edit, found: Sequence[DocumentPiece], size: int, body: str | None = None) -> set[int]:
    """The numbers of the pieces an edit touches.

    A piece is touched when a splice reaches into its text or into the joints beside it: what stands between it and
    its neighbours (blank lines, prompt prefixes, fences), their ends included. So an edit of a joint touches both
    pieces there, and an edit inside a piece that one alone, or also a neighbour that it joins without a gap.

    With ``body`` nothing but the text tells where the edit was, so a splice is wherever it leads to the same text.
    """
    numbers = set()
    places = [each[:2] if body is None else reach(body, each) for each in edit.splices]
    for number in range(len(found)):
        left = found[number - 1].end if number else 0
        right = found[number + 1].start if number + 1 < len(found) else size
        if any(start <= right and left <= end for start, end in places):
            numbers.add(number)
    return numbers


def touched_units(numbers: Iterable[int], recorded: Sequence[RecordedPiece]) -> set[object]:
    """The messages of the user and the steps of the model that these pieces belong to."""
    return {unit_of(recorded[number]) for number in numbers}


def unit_of(piece: RecordedPiece) -> object:
    """What is exact as a whole or not at all: a message of the user, or one step of the model."""
    return piece.message.id if piece.step is None else piece.step.parts[0].id


# -- edits at random -----------------------------------------------------------------------------------------------

_BLANK_LINES = re.compile(r"\n+")
_TRAILING = re.compile(r"[ \t]+$", re.MULTILINE)
_PARAGRAPH = re.compile(r"(?:[^\n]+\n?)+")
_HEADING = re.compile(r"^#* ?", re.MULTILINE)


def _range(draw: st.DrawFn, size: int, longest: int = 60) -> tuple[int, int]:
    start = draw(st.integers(0, size))
    return start, draw(st.integers(start, min(size, start + longest)))


def _insert(draw: st.DrawFn, doc: Document) -> list[Splice]:
    at = draw(st.integers(0, len(doc.body)))
    return [Splice(at, at, draw(texts))]


def _delete(draw: st.DrawFn, doc: Document) -> list[Splice]:
    return [Splice(*_range(draw, len(doc.body)), "")]


def _replace(draw: st.DrawFn, doc: Document) -> list[Splice]:
    return [Splice(*_range(draw, len(doc.body)), draw(texts))]


def _delete_line(draw: st.DrawFn, doc: Document) -> list[Splice]:
    at = draw(st.integers(0, len(doc.body)))
    end = doc.body.find("\n", at)
    return [Splice(doc.body.rfind("\n", 0, at) + 1, len(doc.body) if end < 0 else end + 1, "")]


def _region(draw: st.DrawFn, doc: Document) -> Region | None:
    found = regions(doc)
    return draw(st.sampled_from(found)) if found else None


def _delete_region(draw: st.DrawFn, doc: Document) -> list[Splice]:
    region = _region(draw, doc)
    return [Splice(region.start, region.end, "")] if region else []


def _delete_fence(draw: st.DrawFn, doc: Document) -> list[Splice]:
    """A whole block: what of the document is one with a tool's result, its fences included."""
    found = regions(doc)
    tools = [number for number, region in enumerate(found) if region.kind in ("tool", "ignore")]
    if not tools:
        return []
    first = last = draw(st.sampled_from(tools))
    while first and found[first - 1].kind in ("tool", "ignore"):
        first -= 1
    while last + 1 < len(found) and found[last + 1].kind in ("tool", "ignore"):
        last += 1
    return [Splice(found[first].start, found[last].end, "")]


def _paragraph(draw: st.DrawFn, doc: Document) -> tuple[int, int] | None:
    found = [match.span() for match in _PARAGRAPH.finditer(doc.body)]
    return draw(st.sampled_from(found)) if found else None


def _duplicate(draw: st.DrawFn, doc: Document) -> list[Splice]:
    paragraph = _paragraph(draw, doc)
    if paragraph is None:
        return []
    start, end = paragraph
    return [Splice(end, end, "\n" + doc.body[start:end])]


def _move(draw: st.DrawFn, doc: Document) -> list[Splice]:
    one, other = _paragraph(draw, doc), _paragraph(draw, doc)
    if one is None or other is None or one[0] <= other[0] <= one[1]:
        return []
    return sorted([Splice(*one, ""), Splice(other[0], other[0], doc.body[slice(*one)] + "\n")])


def _move_several(draw: st.DrawFn, doc: Document) -> list[Splice]:
    """Up to three paragraphs at once, with what stands between them."""
    found = [match.span() for match in _PARAGRAPH.finditer(doc.body)]
    if not found:
        return []
    first = draw(st.integers(0, len(found) - 1))
    start, end = found[first][0], found[min(len(found) - 1, first + draw(st.integers(0, 2)))][1]
    at = draw(st.sampled_from(found))[0]
    if start <= at <= end:
        return []
    return sorted([Splice(start, end, ""), Splice(at, at, doc.body[start:end] + draw(st.sampled_from(["\n", ""])))])


def _move_region(draw: st.DrawFn, doc: Document) -> list[Splice]:
    region, paragraph = _region(draw, doc), _paragraph(draw, doc)
    if region is None or paragraph is None or region.start <= paragraph[0] <= region.end:
        return []
    text = doc.body[region.start : region.end] + "\n\n"
    return sorted([Splice(region.start, region.end, ""), Splice(paragraph[0], paragraph[0], text)])


def _swap(draw: st.DrawFn, doc: Document) -> list[Splice]:
    one, other = _paragraph(draw, doc), _paragraph(draw, doc)
    if one is None or other is None or one == other:
        return []
    one, other = sorted([one, other])
    return [Splice(*one, doc.body[slice(*other)]), Splice(*other, doc.body[slice(*one)])]


def _copy(draw: st.DrawFn, doc: Document) -> list[Splice]:
    """A paragraph once more, somewhere else."""
    one, other = _paragraph(draw, doc), _paragraph(draw, doc)
    if one is None or other is None:
        return []
    around = st.sampled_from(["", "\n"])
    return [Splice(other[0], other[0], draw(around) + doc.body[slice(*one)] + draw(around))]


def _across(draw: st.DrawFn, doc: Document) -> list[Splice]:
    """What stands around the beginning of a role is joined."""
    region = _region(draw, doc)
    if region is None:
        return []
    start = max(0, region.start - draw(st.integers(0, 6)))
    end = min(len(doc.body), region.start + draw(st.integers(1, 12)))
    return [Splice(start, end, draw(st.sampled_from(["", "x", "\n\n"])))]


def _join(draw: st.DrawFn, doc: Document) -> list[Splice]:
    found = [match.span() for match in _BLANK_LINES.finditer(doc.body)]
    return [Splice(*draw(st.sampled_from(found)), draw(st.sampled_from(["", " ", "\n"])))] if found else []


def _typo(draw: st.DrawFn, doc: Document) -> list[Splice]:
    answers = [region for region in regions(doc) if region.kind == "response"]
    if not answers:
        return []
    region = draw(st.sampled_from(answers))
    at = draw(st.integers(region.start, region.end - 1))
    return [Splice(at, at + 1, draw(st.sampled_from(["x", "é", "😀", "", "\u0301", "two"])))]


def _clean(draw: st.DrawFn, doc: Document) -> list[Splice]:
    start, end = _range(draw, len(doc.body), 400)
    return [Splice(*match.span(), "") for match in _TRAILING.finditer(doc.body, start, end)]


def _heading(draw: st.DrawFn, doc: Document) -> list[Splice]:
    found = [match.span() for match in _HEADING.finditer(doc.body)]
    return [Splice(*draw(st.sampled_from(found)), draw(st.sampled_from(["### ", "## ", "#### ", "", "###"])))]


def _beside(draw: st.DrawFn, doc: Document) -> list[Splice]:
    region = _region(draw, doc)
    if region is None:
        return []
    at = draw(st.sampled_from([region.start, region.end]))
    typed = st.sampled_from(["x", " Thanks.", "\n\nStop.", "No.\n\n", "\n", " ", "### ", "```"])
    return [Splice(at, at, draw(typed | texts))]


_Editor = Callable[[st.DrawFn, Document], list[Splice]]
_KINDS: list[_Editor] = [
    _insert,
    _delete,
    _replace,
    _delete_line,
    _delete_region,
    _delete_fence,
    _duplicate,
    _move,
    _join,
    _typo,
    _clean,
    _heading,
    _beside,
]


_MOVING = [
    _move,
    _move,
    _move_several,
    _move_several,
    _move_region,
    _swap,
    _copy,
    _across,
    _duplicate,
    _join,
    _heading,
]


@st.composite
def edits(draw: st.DrawFn, doc: Document, kinds: Sequence[_Editor] = _KINDS) -> Edit:
    """One edit that changes the body, or none at all where there is nothing of that kind to edit."""
    kind = draw(st.sampled_from(kinds))
    splices = [splice for splice in kind(draw, doc) if doc.body[splice.start : splice.end] != splice.text]
    return Edit(name=kind.__name__.strip("_"), splices=tuple(splices))


@st.composite
def moves(draw: st.DrawFn, doc: Document) -> Edit:
    """One edit, or two at once, of those that move, repeat and join what stands there."""
    one, other = draw(edits(doc, _MOVING)), draw(st.none() | edits(doc, _MOVING))
    both = sorted((*one.splices, *(other.splices if other else ())))
    is_apart = all(before.end <= after.start for before, after in itertools.pairwise(both))
    return Edit(name=one.name, splices=tuple(both)) if is_apart else one
