"""Document and record cut into the same pieces, and which piece of the one is which of the other.

A piece is what can be compared: a fragment of a user's text, an answer, a reasoning block, a tool call with its
result. Matching is monotone first (longest common subsequence, so a repeated "OK" stays where it was) and then
looks for pieces that moved. It compares texts alone; what a difference means is decided in ``align``.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pyagentd.store.conversation import Conversation, Message, Part
from pyagentd.store.document import BLANK, PROMPT_PREFIX, Document, Region, regions
from pyagentd.store.render import REASONING_OPEN, reasoning_block, tool_body, writable

PieceKind = Literal["user", "response", "tool", "reasoning"]
Key = tuple[PieceKind, str, str]  # kind, call id, text

_HEADING = re.compile(rf"\n{PROMPT_PREFIX}")
_BARE_PREFIX = PROMPT_PREFIX.rstrip()  # what deleting trailing spaces leaves of an empty prompt
_MANY = 50  # equal pieces beyond which only the nearest are compared


@dataclass(slots=True, eq=False)
class Step:
    """One request to the model: its recorded parts, and the numbers of the pieces they show as."""

    parts: list[Part]
    pieces: list[int] = field(default_factory=list)


class Recorded(NamedTuple):
    """A piece as recorded, with the user's recorded edits; user text has no part, answers have a step."""

    key: Key
    message: Message
    part: Part | None = None
    step: Step | None = None

    @property
    def is_hidden(self) -> bool:
        """Whether the record already says that the document does not show it."""
        return self.message.is_hidden or (self.part is not None and self.part.hidden)


class Found(NamedTuple):
    """A piece as the document has it; offsets of the trimmed text in the body, ``region`` its region's number."""

    key: Key
    start: int
    end: int
    region: int


def recorded_pieces(conversation: Conversation) -> list[Recorded]:
    """Return what the document should show of the record, in its order."""
    pieces: list[Recorded] = []
    for message in conversation.messages.values():
        if message.role == "user":
            text = message.text
            pieces += [Recorded(("user", "", text[a:b]), message) for a, b in fragments(text)]
        else:
            for parts in message.steps():
                step = Step(parts)
                for key, part in _step_keys(parts):
                    step.pieces.append(len(pieces))
                    pieces.append(Recorded(key, message, part, step))
    return pieces


def found_pieces(document: Document, end: int | None = None) -> list[Found]:
    """Return the pieces of the whole body; a region that contains ``end`` is cut there."""
    pieces: list[Found] = []
    body = document.body
    for number, region in enumerate(_cut(regions(document), end)):
        start, stop, kind, call_id = region
        if kind is None:
            pieces += [Found(("user", "", body[a:b]), a, b, number) for a, b in fragments(body, start, stop)]
            continue
        text = body[start:stop]
        if kind == "ignore":
            opening = text.find(REASONING_OPEN)  # the closing fence of a tool block may stand before it
            if opening >= 0:
                pieces.append(Found(("reasoning", "", text[opening:]), start + opening, stop, number))
        elif not text.isspace():
            pieces.append(Found((kind, call_id, text), start, stop, number))
    return pieces


def fragments(text: str, start: int = 0, end: int | None = None) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a user's text between prompt prefixes, trimmed as gptel trims.

    A heading inside a prompt looks like a prompt prefix; that does not matter as long as both sides are cut alike.
    """
    stop = len(text) if end is None else end
    cuts = list(_HEADING.finditer(text, start, stop))
    begins = [start, *(cut.end() for cut in cuts)]
    ends = [*(cut.start() for cut in cuts), stop]
    for begin, right in zip(begins, ends, strict=True):
        piece = text[begin:right].rstrip(BLANK)
        right = begin + len(piece)
        piece = piece.lstrip(BLANK)
        while piece.startswith(PROMPT_PREFIX):
            piece = piece.removeprefix(PROMPT_PREFIX).lstrip(BLANK)
        if piece and (begin > start or piece != _BARE_PREFIX):
            yield right - len(piece), right


def with_known_ids(found: list[Found], recorded: Sequence[Recorded]) -> list[Found]:
    """Return ``found`` with recorded ids for the tool pieces whose own id means nothing here."""
    ids = {piece.key[1] for piece in recorded}
    if all(piece.key[1] in ids for piece in found if piece.key[0] == "tool"):
        return found
    by_text = {piece.key[2]: piece.key for piece in recorded if piece.key[0] == "tool"}
    return [
        piece._replace(key=by_text.get(piece.key[2], piece.key))
        if piece.key[0] == "tool" and piece.key[1] not in ids
        else piece
        for piece in found
    ]


def match(recorded: Sequence[Key], found: Sequence[Key]) -> list[int]:
    """Return for every found piece the number of the recorded piece it is, or -1."""
    links = [-1] * len(found)
    shorter = min(len(recorded), len(found))
    head = 0
    while head < shorter and recorded[head] == found[head]:
        links[head] = head
        head += 1
    tail = 0
    while tail < shorter - head and recorded[-1 - tail] == found[-1 - tail]:
        links[-1 - tail] = len(recorded) - 1 - tail
        tail += 1
    middle = _common(recorded[head : len(recorded) - tail], found[head : len(found) - tail])
    for left, right in middle:
        links[head + right] = head + left
    return links


def link_moved(recorded: Sequence[Recorded], found: Sequence[Found], links: list[int], last: int) -> set[int]:
    """Link what the first match left over on both sides and is equal; user text only before piece ``last``.

    Returns the numbers of the found pieces it linked.

    A prompt sent from the middle of a document is younger than what stands below it, so order alone misses it.
    """
    taken, moved = set(links), set[int]()
    left: dict[Key, list[int]] = defaultdict(list)
    for number, piece in enumerate(recorded):
        if number not in taken and not piece.is_hidden:
            left[piece.key].append(number)
    for index, (key, *_) in enumerate(found if left else ()):
        if links[index] < 0 and left.get(key) and (key[0] != "user" or index < last):
            links[index] = left[key].pop(0)
            moved.add(index)
    return moved


def _step_keys(parts: Sequence[Part]) -> Iterator[tuple[Key, Part]]:
    """Yield keys in the order in which a step is rendered: texts as they came, then calls with results."""
    for part in parts:
        if part.type == "reasoning":
            if text := part.text:
                yield ("reasoning", "", reasoning_block(text)), part
        elif part.type == "text":
            text = writable(part.text) if part.edited is None else part.edited
            if text and not text.isspace():
                yield ("response", "", text), part
    for part in parts:
        if part.is_tool and part.result is not None:
            body = tool_body(part.data) if part.edited is None else part.edited
            yield ("tool", str(part.data["toolCallId"]), body), part


def _cut(found: list[Region], end: int | None) -> Iterator[Region]:
    for region in found:
        if end is not None and region.start < end < region.end:
            yield region._replace(end=end)
            yield region._replace(start=end)
        else:
            yield region


def _common(left: Sequence[Key], right: Sequence[Key]) -> list[tuple[int, int]]:
    """Return the pairs of a longest common subsequence (Hunt and Szymanski's way: few pieces are equal)."""
    if not left or not right:
        return []
    places: dict[Key, list[int]] = defaultdict(list)
    for index, key in enumerate(right):
        places[key].append(index)
    ends: list[int] = []  # ends[k]: smallest place that ends a common subsequence of length k + 1
    chains: list[tuple[int, int, int]] = []  # left, right, the link before
    tops: list[int] = []  # the link that ends ends[k]
    for index, key in enumerate(left):
        for place in _nearest(places.get(key, []), index):
            length = bisect_left(ends, place)
            chains.append((index, place, tops[length - 1] if length else -1))
            ends[length : length + 1] = [place]
            tops[length : length + 1] = [len(chains) - 1]
    pairs: list[tuple[int, int]] = []
    link = tops[-1] if tops else -1
    while link >= 0:
        index, place, link = chains[link]
        pairs.append((index, place))
    return pairs[::-1]


def _nearest(places: list[int], index: int) -> list[int]:
    """Return ``places`` from last to first, of very many only those around ``index``."""
    if len(places) > _MANY:
        middle = bisect_left(places, index)
        places = places[max(0, middle - _MANY // 2) : middle + _MANY // 2]
    return places[::-1]
