"""Recovers the roles of a document from the log when its Local Variables are lost or shifted.

Stock Emacs loses all bounds of a long conversation (it looks for them only in the last 3000 characters); other
editors, formatters and merges shift the text under them. The text is then compared with the text that the log would
show today (``expected_text``), and the common parts get the roles of the log. If the bounds are sound, nothing is
guessed: a text that the user moved or quoted is the user's.
"""

import re
from bisect import bisect_left, bisect_right, insort
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import unified_diff
from itertools import groupby, pairwise
from typing import Literal, NamedTuple

from pyagentd.store.conversation import COMPACTION, Conversation, Message, Part
from pyagentd.store.document.pieces import (
    SURE,
    DocumentPiece,
    Key,
    PieceKind,
    RecordedPiece,
    TextMatch,
    common_text,
    fragments,
    laid_out,
    longest_common,
    original_text,
    recorded_pieces,
)
from pyagentd.store.document.render import (
    FENCE_CLOSE,
    RUN_CLOSE,
    RUN_OPEN,
    TOOL_OPEN,
    Block,
    error_block,
    separator,
    tool_head,
)
from pyagentd.store.document.text import PROMPT_PREFIX, Document, Kind, Region, Span, merge_spans, outside, regions

# Recorded answers that were moved, found as separate blocks in text without a role.

_KINDS: dict[PieceKind, Kind] = {
    "response": "response",
    "reasoning": "ignore",
    "compaction": "ignore",
    "tool": "tool",
}


class _FreshText:
    """The new ranges of a text.

    Args:
        body: The text.
        taken: The known ranges, sorted: those with roles, and the user's.
        lines: The beginnings of the lines in new ranges.
        end: The offset to stop at; the user's draft behind it may quote an answer.
    """

    def __init__(
        self, body: str, taken: Sequence[tuple[int, int]], lines: Mapping[str, Sequence[int]], end: int
    ) -> None:
        self.found: list[Span] = []  # sorted
        self._begins: set[int] = set()  # where texts that were found begin
        self._body = body
        self._lines = lines
        self._gaps = list(_gaps(taken, end))

    def take(self, key: Key) -> bool:
        """Give the text its role where it is first a block without a role; return whether it did."""
        kind, call_id, text = key
        for begin in self._places(text):
            end = begin + len(text)
            fits = self._body.startswith(FENCE_CLOSE, end) if kind == "tool" else _is_block(self._body, begin, end)
            if not fits:
                continue
            spans = (
                list(self._fenced_spans(begin, end, call_id)) if kind == "tool" else [Span(begin, end, _KINDS[kind])]
            )
            if self._is_free(spans[0].start, end):
                self._add(spans)
                self._begins.add(begin)
                return True
        return False

    def take_torn(self, call_id: str, call: str) -> None:
        """Give a block with this call, but another result, its role; a block without an end is not sent."""
        for begin in self._places(call):
            head, end = self._body.rfind("\n", 0, begin) + 1, begin + len(call)
            if not (self._body.startswith(TOOL_OPEN, head) and self._is_free(head, end)):
                continue
            close = self._body.find(FENCE_CLOSE, end)
            if self._body.startswith(FENCE_CLOSE + "\n", close) and self._is_free(head, close):
                self._add(self._fenced_spans(begin, close, call_id))
            else:
                self._add([Span(head, end, "ignore")])
            return

    def _add(self, spans: Iterable[Span]) -> None:
        """Add those of the spans that are free; a fence may be part of a known text."""
        for span in spans:
            if self._is_free(span.start, span.end):
                insort(self.found, span)

    def _places(self, text: str) -> Iterator[int]:
        """Yield the possible places of a text in the new ranges, in order."""
        return (begin for begin in _places(self._body, self._lines, text) if begin not in self._begins)

    def _fenced_spans(self, start: int, end: int, call_id: str) -> Iterator[Span]:
        head = self._body.rfind("\n", 0, start) + 1
        if head < start and self._body.startswith(TOOL_OPEN, head):
            yield Span(head, start, "ignore")
        yield Span(start, end, "tool", call_id)
        close = FENCE_CLOSE + "\n" if self._body.startswith(FENCE_CLOSE + "\n", end) else FENCE_CLOSE
        yield Span(end, end + len(close), "ignore")

    def _is_free(self, start: int, end: int) -> bool:
        index = bisect_right(self._gaps, start, key=lambda gap: gap[0]) - 1
        in_gap = index >= 0 and end <= self._gaps[index][1]
        return in_gap and _is_free(Span(start, end, "ignore"), self.found, len(self._body))


def _gaps(taken: Sequence[tuple[int, int]], end: int) -> Iterator[tuple[int, int]]:
    position = 0
    for start, stop in taken:
        if position < min(start, end):
            yield position, min(start, end)
        position = max(position, stop)
    if position < end:
        yield position, end


def _new_lines(body: str, kept: Sequence[TextMatch]) -> Mapping[str, Sequence[int]]:
    """Return the beginnings of the lines that are not completely in ``kept``."""
    lines: dict[str, list[int]] = defaultdict(list)
    line = 0
    for before, after in pairwise([TextMatch(0, 0, 0), *kept]):
        line = max(line, body.rfind("\n", 0, before.new + before.size) + 1)
        while before.new + before.size < after.new and line < after.new:
            line_end = body.find("\n", line)
            line_end = len(body) if line_end < 0 else line_end
            lines[body[line:line_end]].append(line)
            line = line_end + 1
    return lines


def _places(body: str, lines: Mapping[str, Sequence[int]], text: str) -> Iterator[int]:
    """Yield the places of ``text`` in order, with its first distinctive line among ``lines``."""
    line, offset = _first_telling_line(text)
    for start in lines.get(line, ()) if line else ():
        if start >= offset and body.startswith(text, start - offset):
            yield start - offset


def _first_telling_line(text: str) -> tuple[str, int]:
    """Return the first whole line with content, which a fence has not, and its offset in the text."""
    offset = 0
    for line in text.split("\n"):
        if line.strip() and not line.startswith("``` reasoning"):
            return line, offset
        offset += len(line) + 1
    return "", 0


# The document as it would be rendered from the log today.
#
# Changes of a document are found by comparing it with this text. It is close to the real one except for drafts of the
# user and the user's blank lines. Hidden messages are included: if their text has come back, it gets its role again.


class ExpectedText(NamedTuple):
    """A text with its roles; ``places`` are the ranges of the recorded pieces, in their order."""

    body: str
    spans: tuple[Span, ...]
    places: tuple[tuple[int, int], ...]


def expected_text(
    conversation: Conversation, recorded: Sequence[RecordedPiece], *, removed: bool = True
) -> ExpectedText:
    """Return the document with ``recorded``, the pieces of ``conversation``; also those that the user ``removed``."""
    layout = _Layout([piece for piece in recorded if removed or not piece.is_removed])
    errors: dict[str, list[str]] = defaultdict(list)
    runs = Counter(run.data.get("message_id", "") for run in conversation.runs.values())
    for message_id, block in error_blocks(conversation):
        if runs[message_id] == 1:  # else nobody knows between which answers it stands
            errors[message_id].append(block)
    due: list[str] = []
    for message, parts in laid_out(conversation):
        if message.hidden and not removed:
            continue
        if message.role == "user":
            steers = bool(message.metadata.get("steered"))  # its run goes on, and what it failed of stands at its end
            layout.end_turn([] if steers else due)
            layout.add_prompt(message)
            due = due if steers else errors[message.id]
        else:
            if any(part.type == COMPACTION and not part.data.get("auto") for part in parts):
                layout.add_errors(due)  # somebody asked for it when the run had ended
                due = []
            layout.add_step(message, [part for part in parts if removed or not part.hidden])
    layout.end_turn(due)
    layout.end()
    return ExpectedText("".join(layout.texts), merge_spans(layout.spans), tuple(layout.places))


def error_blocks(conversation: Conversation) -> Iterator[tuple[str, str]]:
    """Yield for each failed run the id of its prompt and the note in the document."""
    for run in conversation.runs.values():
        if (error := run.data.get("error")) and run.data.get("kind") != "compaction":
            yield run.data.get("message_id", ""), error_block(str(error.get("message", "")))


class _Layout:
    def __init__(self, recorded: Sequence[RecordedPiece]) -> None:
        self.texts: list[str] = []
        self.spans: list[Span] = []
        self.places: list[tuple[int, int]] = []
        self._recorded = deque(recorded)
        self._size = 0
        self._joint = ""  # what comes before the next text, and is hidden if that is
        self._last: Block = "start"
        self._hidden = False  # whether all that is put has the role `ignore`: turns that were taken back

    def add_prompt(self, message: Message) -> None:
        self._hidden = message.is_rewound
        if not self._size:
            self._put(PROMPT_PREFIX)
        self._join()
        text, start = message.text, self._size
        self.places += [(start + a, start + b) for a, b in fragments(text)]
        while self._recorded and self._recorded[0].message is message:
            self._recorded.popleft()
        self._put(text)
        self._joint = RUN_OPEN
        self._last = "start"

    def add_step(self, message: Message, parts: Sequence[Part]) -> None:
        self._hidden = message.is_rewound
        for part in parts:
            if part.type == COMPACTION:
                self._add_compaction(part)
            elif not part.is_tool:
                self._add_text(part)
        for part in parts:
            if part.is_tool and part.result is not None:
                self._add_tool(part)

    def end_turn(self, errors: Sequence[str]) -> None:
        """Add the end of the previous turn, if there was one."""
        if self._size:
            self.add_errors(errors)
            self._joint += RUN_CLOSE

    def add_errors(self, errors: Sequence[str]) -> None:
        """Add the note on a failed run."""
        for error in errors:
            self._separate("error")
            self._put(error, "ignore")

    def end(self) -> None:
        """Add the end of the document, where the next prompt goes."""
        self._hidden = False
        self._join()

    def _add_text(self, part: Part) -> None:
        piece = self._next_of(part)
        text = piece.key[2] if piece else part.text
        if text:
            self._separate("reasoning" if part.type == "reasoning" else "text")
            self._put_piece(text, "ignore" if part.type == "reasoning" else "response", piece)

    def _add_compaction(self, part: Part) -> None:
        piece = self._next_of(part)
        self._separate("compaction")
        self._put_piece(piece.key[2] if piece else original_text(part), "ignore", piece)

    def _add_tool(self, part: Part) -> None:
        self._separate("tool")
        piece = self._next_of(part)
        self._put(tool_head(part.data), "ignore")
        if piece is not None:
            self._put_piece(piece.key[2], "tool", piece)
        self._put(FENCE_CLOSE + "\n", "ignore")

    def _next_of(self, part: Part) -> RecordedPiece | None:
        """Return the recorded piece of a part, if it shows as one; pieces come in the order in which they show."""
        return self._recorded.popleft() if self._recorded and self._recorded[0].part is part else None

    def _put_piece(self, text: str, kind: Kind, piece: RecordedPiece | None) -> None:
        self._join()
        if piece is not None:
            self.places.append((self._size, self._size + len(text)))
        self._put(text, kind, piece.key[1] if piece is not None else "")

    def _separate(self, next: Block) -> None:
        self._joint += separator(self._last, next)
        self._last = next

    def _join(self) -> None:
        joint, self._joint = self._joint, ""
        if joint:
            self._put(joint)

    def _put(self, text: str, kind: Kind | None = None, id: str = "") -> None:
        self._join()
        kind = "ignore" if self._hidden else kind
        if kind is not None:
            self.spans.append(Span(self._size, self._size + len(text), kind, id if kind == "tool" else ""))
        self.texts.append(text)
        self._size += len(text)


# Carrying roles over from one text to a changed version of it.
#
# Common text keeps its role. New text inside a region has the region's role; a replacement has the role of the
# replaced text; between two regions it is the user's, unless it continues a line of an answer.

_PARAGRAPH = "\n\n"
_CARRY_FENCES = ("```", "~~~")
_LONGEST_JOINT = len("\n\n\n\n### ")  # text between two answers that is none of the user's words


class Comparison(NamedTuple):
    """A text compared with the expected document.

    Attributes:
        target: The expected document.
        kept: The common parts.
        lines: The beginnings of new lines.
        spans: The resulting roles of the text.
        places: The range of each recorded piece in the text; None if it is not there in one piece.
    """

    target: ExpectedText
    kept: Sequence[TextMatch]
    lines: Mapping[str, Sequence[int]]
    spans: list[Span]
    places: list[tuple[int, int] | None]


def compare(conversation: Conversation, recorded: Sequence[RecordedPiece], body: str) -> Comparison:
    """Compare ``body`` with the expected document of ``recorded``, the pieces of ``conversation``."""
    target = expected_text(conversation, recorded)
    hidden = [place for piece, place in zip(recorded, target.places, strict=True) if piece.is_hidden]
    shown = [place for piece, place in zip(recorded, target.places, strict=True) if not piece.is_hidden]
    units: list[tuple[int, int]] = []
    for _, unit in groupby(zip(recorded, target.places, strict=True), key=lambda each: each[0].unit):
        own = [place for _, place in unit]
        units.append((own[0][0], own[-1][1]))
    kept = _at_pieces(common_text(target.body, body), target.body, body, hidden, shown, units)
    places = _find_places(target.places, kept)
    lines = _new_lines(body, kept)
    moved: list[int] = []  # where texts that were moved begin
    for piece, place in zip(recorded, places, strict=True):
        if place is None and not piece.is_hidden:
            text = PROMPT_PREFIX + piece.key[2] if piece.key[0] == "user" else piece.key[2]
            begins = _places(body, lines, text)
            moved += (begin for begin in begins if body[begin + len(text) : begin + len(text) + 1] in ("", "\n"))
    moved.sort()
    carrier = _Carrier(target, body)
    old = new = 0
    spans: list[Span] = []
    for match in kept:
        if new < match.new and (between := list(carrier.carry_between(old, match.old, new, match.new))):
            end = _first_moved(body, new, match.new, moved)
            spans += (span._replace(end=min(span.end, end)) for span in between if span.start < end)
        spans += carrier.carry_unchanged(match)
        old, new = match.old + match.size, match.new + match.size
    return Comparison(target, kept, lines, list(merge_spans(spans)), places)


def _first_moved(body: str, start: int, end: int, moved: Sequence[int]) -> int:
    """Return the beginning of the first of the ``moved`` texts between ``start`` and ``end``; else ``end``.

    New text within an answer or a block has its role, but only up to another recorded text in it.
    """
    index = bisect_left(moved, start)
    if index == len(moved) or moved[index] >= end:
        return end
    head = body.rfind("\n", 0, moved[index]) + 1  # of a tool's block, whose text begins behind its fence
    return head if start <= head and body.startswith(TOOL_OPEN, head) else moved[index]


def _at_pieces(
    kept: Sequence[TextMatch],
    text: str,
    body: str,
    hidden: Sequence[tuple[int, int]],
    shown: Sequence[tuple[int, int]],
    units: Sequence[tuple[int, int]],
) -> list[TextMatch]:
    """Return ``kept`` with differences shifted back to the beginnings of pieces, where the texts allow both.

    Otherwise the beginning of a ``hidden`` piece that begins like the next one would be matched and its rest be
    missing; a ``shown`` piece that begins like a missing one before it would lack its beginning; and new text above
    one of the ``units`` that begins like it would come inside it. It may do so where the unit differs further down,
    too, since then the text above stays as it was.
    """
    moved = list(kept)
    for number, (_, after) in enumerate(pairwise(kept)):
        before = moved[number]
        end = before.old + before.size
        if before.new + before.size != after.new:
            unit = _range_around(units, end)
            size = end - unit[0] if unit is not None and end == after.old and unit[1] <= end + after.size else 0
            if 0 < size <= before.size and body.endswith("\n" + text[end - size : end], 0, after.new):
                moved[number] = before._replace(size=before.size - size)
                moved[number + 1] = TextMatch(after.old - size, after.new - size, after.size + size)
            continue
        first = _range_around(hidden, end)
        size = end - first[0] if first is not None and first[1] <= after.old - (end - first[0]) else 0
        if not size and (torn := _range_around(shown, after.old)) is not None and end <= torn[0]:
            size = after.old - torn[0]
            index = bisect_left(shown, (end,)) - 1
            if index >= 0 and shown[index][1] > end - size:  # it would tear the piece before
                size = 0
        if size and size <= before.size and text[end - size : end] == text[after.old - size : after.old]:
            moved[number] = before._replace(size=before.size - size)
            moved[number + 1] = TextMatch(after.old - size, after.new - size, after.size + size)
    return moved


def _range_around(ranges: Sequence[tuple[int, int]], position: int) -> tuple[int, int] | None:
    """Return the one of the sorted ``ranges`` that contains ``position`` strictly."""
    index = bisect_left(ranges, (position,)) - 1
    return ranges[index] if index >= 0 and position < ranges[index][1] else None


def _find_places(places: Iterable[tuple[int, int]], kept: Sequence[TextMatch]) -> list[tuple[int, int] | None]:
    """Return the present range of each of the target's ranges; None if it is not there in one piece."""
    starts = [match.old for match in kept]
    result: list[tuple[int, int] | None] = []
    for start, end in places:
        match = kept[max(0, bisect_right(starts, start) - 1)]
        whole = match.old <= start and end <= match.old + match.size
        result.append((start - match.old + match.new, end - match.old + match.new) if whole else None)
    return result


class _Carrier:
    def __init__(self, target: ExpectedText, body: str) -> None:
        self._body = body
        self._regions = regions(Document(body=target.body, spans=target.spans))
        self._starts = [region.start for region in self._regions]

    def carry_unchanged(self, match: TextMatch) -> Iterator[Span]:
        shift, end = match.new - match.old, match.old + match.size
        for region in self._regions_between(match.old, end):
            yield from _span(max(region.start, match.old) + shift, min(region.end, end) + shift, region)

    def carry_between(self, old: int, old_end: int, new: int, new_end: int) -> Iterator[Span]:
        """Yield the roles of new text from ``new`` on, which replaces the old text from ``old`` on."""
        left = self._region_at(old - 1)
        right = self._region_at(old_end)
        if left is not None and left is right:
            yield from _span(new, new_end, left)
        elif old < old_end:
            yield from _span(new, new_end, self._replaced_region(old, old_end, self._body[new:new_end]))
        else:
            yield from self._inserted_spans(left, right, new, new_end)

    def _replaced_region(self, old: int, old_end: int, text: str) -> Region | None:
        """Return the region whose text was replaced; None if it included text of the user."""
        among = list(self._regions_between(old, old_end))
        regions = [region for region in among if region.kind is not None]
        blank = all(
            min(region.end, old_end) - max(region.start, old) <= _LONGEST_JOINT
            for region in among
            if region.kind is None
        )
        if not regions or (len(among) > 1 and not blank):
            return None
        kind = "ignore" if text.lstrip().startswith(_CARRY_FENCES) else "response"
        return next((region for region in regions if region.kind == kind), regions[0])

    def _inserted_spans(self, left: Region | None, right: Region | None, new: int, new_end: int) -> Iterator[Span]:
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

    def _regions_between(self, start: int, end: int) -> Iterator[Region]:
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


Loss = Literal["lost", "shifted", "missing", "resurfaced"]

# The texts of spans with role `ignore`: the end or the beginning of a tool block, or a whole block of another kind.
_FENCES = re.compile(r"(\n```\n)?(``` tool\b[^\n]*|``` (reasoning|error|compaction)\b.*\n```)?", re.DOTALL)
_EDGE = 4  # texts at the ends of what is hidden: where roles are shifted, that shows there
_HEADING = f"\n{PROMPT_PREFIX}"


def loss(
    document: Document,
    conversation: Conversation,
    recorded: Sequence[RecordedPiece],
    found: Sequence[DocumentPiece],
    links: Sequence[int],
) -> Loss | None:
    """Return the kind of damage to the roles of a document, or None.

    ``lost``: there are none, or some cannot be right, such as an answer of blank lines. ``shifted``: the bounds have
    spans with the lengths of recorded texts, but not at these texts. ``missing``: most answers are not where the
    bounds say, which may be the user's intention. ``resurfaced``: text of rewound turns would be sent.
    """
    if document.stale:
        return "lost"
    if _is_hidden_text_exposed(document, conversation, found, links):
        return "resurfaced"
    linked = set(links)
    absent = [
        piece
        for number, piece in enumerate(recorded)
        if number not in linked and piece.key[0] != "user" and not piece.is_hidden
    ]
    if not document.spans:
        return "lost" if absent else None
    gone = [piece for number, piece in enumerate(recorded) if number not in linked and piece.key[0] != "user"]
    sizes = {size for piece in gone for size in _sizes(piece)}
    sizes |= {("ignore", "", len(block)) for block in _missing_error_notes(document, error_blocks(conversation))}
    known = {piece.end for piece, number in zip(found, links, strict=True) if number >= 0}
    if any(span.kind == "response" and document.body.endswith(_HEADING, 0, span.start) for span in document.spans):
        return "shifted"  # no answer begins right behind the heading of a prompt
    sound = [
        span.end in known or (span.kind == "ignore" and _FENCES.fullmatch(document.body, span.start, span.end))
        for span in (document.spans if sizes else ())
    ]
    for (start, end, kind, id), is_sound in zip(document.spans, sound, strict=False):
        if (kind, id, end - start) in sizes and not is_sound:
            blank = kind == "response" and document.body[start:end].isspace()
            return "lost" if blank or not any(sound) else "shifted"
    present = sum(1 for number in linked if number >= 0 and recorded[number].key[0] != "user")
    return "missing" if len(absent) > present else None


def _missing_error_notes(document: Document, blocks: Iterable[tuple[str, str]]) -> Counter[str]:
    """Return the notes on failed runs that are in fewer spans of the document than there are such runs."""
    notes = Counter(block for _, block in blocks)
    return notes and notes - Counter(document.body[a:b] for a, b, kind, _ in document.spans if kind == "ignore")


def _is_hidden_text_exposed(
    document: Document, conversation: Conversation, found: Sequence[DocumentPiece], links: Sequence[int]
) -> bool:
    """Return whether text of hidden turns has another role than ``ignore``: its earlier role, or that around it.

    If there are bounds, text of a hidden turn that is completely outside of them is a quotation by the user.
    """
    if not any(message.is_rewound for message in conversation.messages.values()):
        return False
    hidden = [piece.key for piece in recorded_pieces(conversation) if piece.message.is_rewound]
    known = set(hidden)
    if any(n < 0 and piece.key in known and piece.key[0] != "user" for piece, n in zip(found, links, strict=True)):
        return True
    if document.spans:
        sure = [text for _, _, text in hidden if len(text) >= SURE]
        return any(_is_cut(document, text) for text in {*sure[:_EDGE], *sure[-_EDGE:]})
    there, low = 0, 0
    for _, _, text in hidden:
        start = document.body.find(text, low)
        if start >= 0:
            there, low = there + 1, start + len(text)
    return 2 * there > len(hidden)


def _is_cut(document: Document, text: str) -> bool:
    """Return whether the first occurrence of ``text`` overlaps a span with role ``ignore``."""
    start = document.body.find(text)
    if start < 0:
        return False
    end = start + len(text)
    index = bisect_right(document.spans, start, key=lambda span: span.end)
    spans = document.spans[index : index + 1]
    return any(kind == "ignore" and a < end and not a <= start <= end <= b for a, b, kind, _ in spans)


def _sizes(piece: RecordedPiece) -> Iterator[tuple[str, str, int]]:
    """Yield kind, id and length of an answer's span, with the user's edits and without."""
    kind, id, text = piece.key
    texts = (text, original_text(piece.part)) if piece.part is not None else (text,)
    return ((_KINDS[kind], id, len(each)) for each in texts)


def heal(document: Document, conversation: Conversation) -> Document:
    """Return ``document`` with the roles of its text according to the log."""
    body, recorded = document.body, recorded_pieces(conversation)
    target, kept, lines, spans, places = compare(conversation, recorded, body)
    draft = _last_heading(body, spans, len(body))
    if any(
        body.startswith(f"{_HEADING}{piece.key[2]}\n", draft)
        for piece, place in zip(recorded, places, strict=True)
        if place is None and piece.key[0] == "user" and not piece.is_hidden
    ):
        draft = -1  # a prompt that was moved is no draft
    if _is_quoting(body, target, recorded, places, draft):
        spans = [span for span in spans if span.start < draft]
    absent = [
        piece.key
        for piece, place in zip(recorded, places, strict=True)
        if place is None and piece.key[0] != "user" and not piece.is_hidden
    ]
    said = [place for piece, place in zip(recorded, places, strict=True) if place and piece.key[0] == "user"]
    torn = [
        piece.key
        for piece, place in zip(recorded, places, strict=True)
        if place is None and piece.key[0] == "tool" and not piece.message.is_hidden
    ]
    if absent or torn:
        taken = sorted([*(span[:2] for span in spans), *said])
        fresh = _FreshText(body, taken, lines, len(body) if draft < 0 else draft)
        whole = {key for key in absent if fresh.take(key)}
        for key in torn:
            if key not in whole:
                fresh.take_torn(key[1], key[2].partition("\n\n")[0])
        spans = sorted([*spans, *fresh.found])
    if document.block is not None:
        spans = [span for piece in spans for span in outside(piece, *document.block)]
        spans.append(Span(*document.block, "ignore"))
    ranges = _find_places([span[:2] for span in target.spans], kept)
    spans += _shifted_unrecorded_spans(document, target, recorded, spans, ranges, said)
    spans += error_note_spans(body, conversation, spans)
    return replace(document, spans=merge_spans(sorted(spans)), stale=False, block=None)


def error_note_spans(body: str, conversation: Conversation, spans: Sequence[Span]) -> Iterator[Span]:
    """Yield the ranges of notes on failed runs without a role; a prompt that was sent again may have several."""
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


def _is_quoting(
    body: str,
    target: ExpectedText,
    recorded: Sequence[RecordedPiece],
    places: Sequence[tuple[int, int] | None],
    draft: int,
) -> bool:
    """Return whether the prompt at the end of the text, from ``draft`` on, quotes answers from before it.

    If a heading on a separate line was moved there, the answers below it stay answers.
    """
    for number, (piece, here) in enumerate(zip(recorded, places, strict=True)):
        if here is None or here[0] < draft or piece.key[0] == "user":
            continue
        before = places[number - 1] if number else None
        if before is None or before[1] > draft or body.startswith(_HEADING + "\n", draft):
            return False
        return _last_heading(target.body, target.spans, target.places[number][0]) < target.places[number - 1][1]
    return False


def _last_heading(text: str, spans: Sequence[Span], end: int) -> int:
    """Return the beginning of the last prompt before ``end``: a prefix outside of answers; -1 for none."""
    ends = [span.end for span in spans]
    start = text.rfind(_HEADING, 0, end)
    while start >= 0:
        index = bisect_right(ends, start + 1)
        if index == len(spans) or spans[index].start > start + 1:
            break
        start = text.rfind(_HEADING, 0, start)
    return start


def _shifted_unrecorded_spans(
    document: Document,
    target: ExpectedText,
    recorded: Sequence[RecordedPiece],
    spans: Sequence[Span],
    places: Sequence[tuple[int, int] | None],
    said: Sequence[tuple[int, int]],
) -> Iterator[Span]:
    """Yield the unrecorded roles in the document's bounds, shifted like their neighbours.

    They are not shifted into text that the user ``said``: neighbours are matched by their lengths, which may be equal
    by chance.
    """
    known = {size for piece in recorded if piece.key[0] != "user" for size in _sizes(piece)}
    own = [span for span in document.spans if span[:2] != document.block]
    pairs = dict(longest_common([_shape(span) for span in own], [_shape(span) for span in target.spans]))
    shifts: list[int | None] = []
    for index, span in enumerate(own):
        place = places[pairs[index]] if index in pairs else None
        shifts.append(place[0] - span.start if place else None)
    before, after = _fill_forward(shifts), _fill_forward(shifts[::-1])[::-1]
    taken = sorted(spans)
    for index, span in enumerate(own):
        if index in pairs or (span.kind, span.id, span.end - span.start) in known:
            continue
        left, right = before[index], after[index]
        for shift in {left if left is not None else right or 0, right if right is not None else left or 0}:
            there = span._replace(start=span.start + shift, end=span.end + shift)
            sure = left in (right, None) or right is None or _is_block(document.body, there.start, there.end)
            if shift and any(begin < there.end and there.start < end for begin, end in said):
                continue
            if sure and _is_free(there, taken, len(document.body)):
                yield there
                break


def _fill_forward(shifts: Sequence[int | None]) -> list[int | None]:
    """Return for each place the last known shift before it."""
    result: list[int | None] = []
    for shift in shifts:
        result.append(shift if shift is not None or not result else result[-1])
    return result


def _shape(span: Span) -> tuple[str, str, str]:
    return span.kind, span.id, str(span.end - span.start)


def _is_block(body: str, start: int, end: int) -> bool:
    return (start == 0 or body[start - 1] == "\n") and body[end : end + 1] in ("", "\n")


def _is_free(span: Span, taken: Sequence[Span], size: int) -> bool:
    index = bisect_right(taken, span)
    before = taken[index - 1].end if index else 0
    after = taken[index].start if index < len(taken) else size
    return before <= span.start < span.end <= after


# The changes of a recovery of roles, for people: a unified diff of the regions with their roles.

_SHOWN = 70  # characters of each end of a region
_NAMES = {None: "you", "response": "model", "ignore": "not sent", "tool": "tool"}


def role_diff(before: Document, spans: tuple[Span, ...]) -> str:
    """Return the difference between the roles of ``before`` and ``spans``, "" if there is none.

    Every region is one line: its role, its first and last Emacs position, and the beginning and end of its text.
    """
    old, new = list(_lines(before)), list(_lines(replace(before, spans=spans)))
    return "\n".join(unified_diff(old, new, "roles as found", "roles as recovered", lineterm="", n=1))


def _lines(doc: Document) -> Iterator[str]:
    for region in regions(doc):
        text = " ".join(doc.body[region.start : region.end].split())
        if not text:
            continue
        name = _NAMES[region.kind] + (f" {region.id}" if region.id else "")
        if len(text) > 2 * _SHOWN:
            text = f"{text[:_SHOWN]} … {text[-_SHOWN:]}"
        yield f"{name} ({region.start + 1}-{region.end}): {text}"
