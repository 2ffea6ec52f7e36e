"""Cuts a document and the log into comparable pieces, and matches them.

A piece is a fragment of a user's text, an answer, a reasoning block, or a tool call with its result. Pieces are
matched only by their texts, with ``common_text``; ``reconcile`` interprets the differences.
"""

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Container, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import pairwise, repeat
from typing import Literal, NamedTuple

from pyagentd.store.conversation import COMPACTION, COMPACTION_OPEN, Conversation, Message, Part, compaction_block
from pyagentd.store.document.render import FENCE_CLOSE, REASONING_OPEN, RUN_OPEN, reasoning_block, tool_body, writable
from pyagentd.store.document.text import BLANK, PROMPT_PREFIX, Document, Region, regions

_LEVELS = (re.compile(r"[^\n]*\n|[^\n]+"), re.compile(r"\w+|\s|[^\w\s]"))  # lines, words
_WITHIN = re.compile(r"\w\w")
_LONGEST_WORD = 40  # what is longer has no spaces between its words
_SMALL = 300  # words, or lines, up to which all are compared with all
SURE = 24  # characters from which equal text is hardly chance
_FARTHEST = 400  # characters by which a change is moved at most to be whole lines


class TextMatch(NamedTuple):
    """``size`` equal characters, from ``old`` and from ``new`` on."""

    old: int
    new: int
    size: int


class _Window(NamedTuple):
    old: int
    old_end: int
    new: int
    new_end: int
    level: int = 0


def common_text(old: str, new: str, *, exact: bool = False) -> list[TextMatch]:
    """Return the matches of ``old`` and ``new``, in order and disjoint; the last one is empty and ends both texts.

    Matches that are likely by chance are left out; with ``exact`` every whole word in common is matched.
    """
    found: list[TextMatch] = []
    todo: list[TextMatch | _Window] = [_Window(0, len(old), 0, len(new))]
    while todo:
        item = todo.pop()
        if isinstance(item, TextMatch):
            found.append(item)
        else:
            todo += reversed(list(_split(old, new, item, exact)))
    kept = _join_matches(found)
    if not exact:
        kept = _join_matches(_without_chance(old, new, kept))
    return list(_align_to_lines(old, new, [*kept, TextMatch(len(old), len(new), 0)]))


def _split(old: str, new: str, window: _Window, exact: bool) -> Iterator[TextMatch | _Window]:
    """Yield the common beginning and end of a window, and the matches between them, in order."""
    a, a_end, b, b_end, level = window
    head = _greatest_agreeing(min(a_end - a, b_end - b), lambda n: old.startswith(new[b : b + n], a))
    if exact:
        head -= _chars_in_word(lambda n: _is_in_word(old, a + head - n) or _is_in_word(new, b + head - n), head)
    a, b = a + head, b + head
    tail = _greatest_agreeing(min(a_end - a, b_end - b), lambda n: old.endswith(new[b_end - n : b_end], 0, a_end))
    if exact:
        tail -= _chars_in_word(
            lambda n: _is_in_word(old, a_end - tail + n) or _is_in_word(new, b_end - tail + n), tail
        )
    if head:
        yield TextMatch(a - head, b - head, head)
    if a < a_end - tail and b < b_end - tail:
        yield from _split_by_tokens(old, new, _Window(a, a_end - tail, b, b_end - tail, level))
    if tail:
        yield TextMatch(a_end - tail, b_end - tail, tail)


def _chars_in_word(is_within: Callable[[int], bool], most: int) -> int:
    """Return the length of the word in which a match ends, as far as it is matched; 0 if it ends between words."""
    return next((n for n in range(min(most, _LONGEST_WORD) + 1) if not is_within(n)), 0)


def _is_in_word(text: str, offset: int) -> bool:
    return offset > 0 and _WITHIN.match(text, offset - 1) is not None


def _split_by_tokens(old: str, new: str, window: _Window) -> Iterator[TextMatch | _Window]:
    a, a_end, b, b_end, level = window
    if level >= len(_LEVELS):
        return
    left = list(_LEVELS[level].finditer(old, a, a_end))
    right = list(_LEVELS[level].finditer(new, b, b_end))
    anchors = list(_anchors([m[0] for m in left], [m[0] for m in right]))
    if not anchors and level == len(_LEVELS) - 1:
        if max(len(left), len(right)) > _SMALL:  # so many words, and none of them occurs once
            left = list(_LEVELS[0].finditer(old, a, a_end))
            right = list(_LEVELS[0].finditer(new, b, b_end))
        else:
            level += 1
        if max(len(left), len(right)) <= _SMALL:
            same = SequenceMatcher(None, [m[0] for m in left], [m[0] for m in right], autojunk=False)
            anchors = [(i + n, j + n) for i, j, size in same.get_matching_blocks() for n in range(size)]
    if not anchors:
        yield _Window(a, a_end, b, b_end, level + 1)
        return
    for i, j in anchors:
        x, y, size = left[i].start(), right[j].start(), len(left[i][0])
        if x > a and y > b:
            yield _Window(a, x, b, y, level)
        yield TextMatch(x, y, size)
        a, b = x + size, y + size
    if a < a_end and b < b_end:
        yield _Window(a, a_end, b, b_end, level)


def _greatest_agreeing(limit: int, agrees: Callable[[int], bool]) -> int:
    """Return the greatest number up to ``limit`` for which ``agrees`` is true, by bisection."""
    low, step = 0, 64
    while low + step <= limit and agrees(low + step):
        low, step = low + step, step * 2
    high = min(limit, low + step)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if agrees(middle) else (low, middle - 1)
    return low


def _anchors(left: Sequence[str], right: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the places of tokens that occur once on both sides, as far as they are in the same order.

    Of two in different order the one with the longer equal surroundings is kept: the other was moved.
    """
    counts, places = Counter(left), {token: index for index, token in enumerate(right)}
    once = Counter(right)
    pairs = [
        (index, places[token])
        for index, token in enumerate(left)
        if counts[token] == 1 and once[token] == 1 and not token.isspace()
    ]
    yield from _heaviest_rising(pairs, list(_weights(left, right, pairs)))


def _weights(left: Sequence[str], right: Sequence[str], pairs: Sequence[tuple[int, int]]) -> Iterator[float]:
    """Yield a weight for each of ``pairs``: the length of the equal text around it, divided by the pairs in it."""
    number = 0
    while number < len(pairs):
        begin, other = end, other_end = pairs[number]
        while begin and other and left[begin - 1] == right[other - 1]:
            begin, other = begin - 1, other - 1
        while end < len(left) and other_end < len(right) and left[end] == right[other_end]:
            end, other_end = end + 1, other_end + 1
        count = bisect_left(pairs, (end, 0)) - number
        yield from repeat(sum(map(len, left[begin:end])) / count, count)
        number += count


def _heaviest_rising(pairs: Sequence[tuple[int, int]], weights: Sequence[float]) -> list[tuple[int, int]]:
    """Return the heaviest subsequence of ``pairs`` with increasing second numbers."""
    tops: list[int] = []  # the pairs that end sequences, of which each is heavier than those that end before it
    ends: list[int] = []  # their second numbers, rising
    totals: list[float] = []
    before: list[int] = []
    for index, ((_, place), weight) in enumerate(zip(pairs, weights, strict=True)):
        at = bisect_left(ends, place)
        before.append(tops[at - 1] if at else -1)
        total = weight + (totals[at - 1] if at else 0)
        over = at
        while over < len(totals) and totals[over] <= total:
            over += 1
        tops[at:over], ends[at:over], totals[at:over] = [index], [place], [total]
    result: list[tuple[int, int]] = []
    index = tops[-1] if tops else -1
    while index >= 0:
        result.append(pairs[index])
        index = before[index]
    return result[::-1]


def _join_matches(found: Iterable[TextMatch]) -> list[TextMatch]:
    joined: list[TextMatch] = []
    for match in found:
        last = joined[-1] if joined else None
        if last is not None and (last.old + last.size, last.new + last.size) == (match.old, match.new):
            joined[-1] = last._replace(size=last.size + match.size)
        else:
            joined.append(match)
    return joined


def _without_chance(old: str, new: str, found: Sequence[TextMatch]) -> Iterator[TextMatch]:
    """Leave out matches that are likely by chance: shorter than the changes on both sides, and not distinctive."""
    end = TextMatch(len(old), len(new), 0)
    kept = last = TextMatch(0, 0, 0)
    for match, after in pairwise([*found, end]):
        change = min(_change(kept, match), _change(match, after))
        if match.size > change or _is_telling(old, new, last, match, after):
            yield match
            kept = match
        last = match


def _change(before: TextMatch, after: TextMatch) -> int:
    return max(after.old - before.old - before.size, after.new - before.new - before.size)


def _is_telling(old: str, new: str, before: TextMatch, match: TextMatch, after: TextMatch) -> bool:
    """Return whether the text of a match is long, and occurs only once between its neighbours on both sides."""
    text = old[match.old : match.old + match.size]
    return len(text) >= SURE and all(
        body.find(text, body.find(text, start, stop) + 1, stop) < 0
        for body, start, stop in (
            (old, before.old + before.size, after.old),
            (new, before.new + before.size, after.new),
        )
    )


def _align_to_lines(old: str, new: str, found: list[TextMatch]) -> Iterator[TextMatch]:
    """Yield the matches with each pure insertion or deletion shifted to whole lines, if possible."""
    before = found[0]
    for after in found[1:]:
        text, start, end = new, before.new + before.size, after.new
        if start == end:
            text, start, end = old, before.old + before.size, after.old
        elif before.old + before.size < after.old:
            start = end
        shift = _shift(text, start, end, min(before.size, _FARTHEST)) if start < end else 0
        if shift:
            after = TextMatch(after.old - shift, after.new - shift, after.size + shift)
            before = before._replace(size=before.size - shift)
        if before.size:
            yield before
        before = after
    yield before


def _shift(text: str, start: int, end: int, limit: int) -> int:
    """Return how far back the range can be shifted, with the same text around it, to consist of whole lines."""
    for shift in range(limit + 1):
        if (start == shift or text[start - shift - 1] == "\n") and text[end - shift - 1] == "\n":
            return shift
        if start == shift or text[start - shift - 1] != text[end - shift - 1]:
            return 0
    return 0


# Cutting document and log into the same pieces.

PieceKind = Literal["user", "response", "tool", "reasoning", "compaction"]
Key = tuple[PieceKind, str, str]  # kind, call id, text

_HEADING = re.compile(rf"\n{PROMPT_PREFIX}")
_OPENING = re.compile(rf"^(?:{re.escape(REASONING_OPEN)}|{re.escape(COMPACTION_OPEN)} \()", re.MULTILINE)
_TOOL_END = f"{FENCE_CLOSE}\n"
_BARE_PREFIX = PROMPT_PREFIX.rstrip()  # what deleting trailing spaces leaves of an empty prompt


@dataclass(slots=True, eq=False)
class Step:
    """One request to the model: its recorded parts, and the numbers of their pieces."""

    parts: list[Part]
    pieces: list[int] = field(default_factory=list)


class RecordedPiece(NamedTuple):
    """A piece as recorded, with the user's recorded edits; user text has no part, answers have a step.

    ``joint`` is the text between a fragment and the one before it in the same message. ``restored`` means that the
    document no longer shows a recorded edit, but the original text.
    """

    key: Key
    message: Message
    part: Part | None = None
    step: Step | None = None
    joint: str = ""
    restored: bool = False

    @property
    def id(self) -> str:
        """The id under which an edit of it is recorded: of its part, or of its message."""
        return self.message.id if self.part is None else self.part.id

    @property
    def unit(self) -> object:
        """The unit that is sent exactly or not at all: a message of the user, or one step of the model."""
        return self.message.id if self.step is None else id(self.step)

    @property
    def is_removed(self) -> bool:
        """Whether the user removed it from the document."""
        return self.message.hidden or (self.part is not None and self.part.hidden)

    @property
    def is_hidden(self) -> bool:
        """Whether the log already says that the document does not show it."""
        return self.is_removed or self.message.is_rewound


class DocumentPiece(NamedTuple):
    """A piece of the document: the offsets of its trimmed text in the body, and the number of its region."""

    key: Key
    start: int
    end: int
    region: int


def recorded_pieces(conversation: Conversation, restored: Container[str] = ()) -> list[RecordedPiece]:
    """Return the pieces that the document should show, in its order.

    Messages and parts with ids in ``restored`` are taken without their edits.
    """
    pieces: list[RecordedPiece] = []
    for message, parts in laid_out(conversation):
        if message.role == "user":
            pieces += _user_pieces(message, restored=message.id in restored)
        else:
            step = Step(parts)
            # In the order in which a step is rendered: texts in order, then calls with results.
            texts = [part for part in parts if part.type in ("text", "reasoning", COMPACTION)]
            for part in (*texts, *(part for part in parts if part.is_tool and part.result is not None)):
                if (piece := _part_piece(message, part, step, restored=part.id in restored)) is not None:
                    step.pieces.append(len(pieces))
                    pieces.append(piece)
    return pieces


def laid_out(conversation: Conversation) -> Iterator[tuple[Message, list[Part]]]:
    """Yield messages in the order of the document, answers step by step, with the parts of each step.

    A compaction that was made during a run comes after the step it followed, although its message is newer.
    """
    within = markers_within(conversation)
    markers = {message.id for each in within.values() for message in each}
    for message in conversation.messages.values():
        if message.role == "user":
            yield message, []
        elif message.id not in markers:
            for parts in message.steps():
                yield message, parts
                for part in parts if within else ():
                    yield from ((marker, marker.parts) for marker in within.get(part.id, ()))


def markers_within(conversation: Conversation) -> dict[str, list[Message]]:
    """Return the compactions that were made within answers, by the id of the part that each follows.

    One whose answer is not in the conversation keeps its place in the log.
    """
    within: dict[str, list[Message]] = {}
    for message in conversation.messages.values():
        if not message.parts or message.parts[0].type != COMPACTION:
            continue
        part = conversation.parts.get(message.metadata.get("after") or "")
        if part is not None and part.row["message_id"] in conversation.messages:
            within.setdefault(part.id, []).append(message)
    return within


def _user_pieces(message: Message, *, restored: bool) -> Iterator[RecordedPiece]:
    text, end = message.recorded_text if restored else message.text, 0
    for number, (a, b) in enumerate(fragments(text)):
        joint = text[end:a] if number else ""
        yield RecordedPiece(("user", "", text[a:b]), message, joint=joint, restored=restored)
        end = b


def _part_piece(message: Message, part: Part, step: Step, *, restored: bool) -> RecordedPiece | None:
    is_edited = part.edited is not None and part.type != "reasoning"
    text = part.edited if is_edited and not restored else original_text(part)
    if not text or (part.type == "text" and text.isspace()):
        return None
    return RecordedPiece(key_of(part, text), message, part, step, restored=restored)


def key_of(part: Part, text: str) -> Key:
    """Return the key of the piece of a part of an answer with the text ``text``."""
    if part.is_tool:
        return "tool", str(part.data["toolCallId"]), text
    kinds: dict[str, PieceKind] = {"reasoning": "reasoning", COMPACTION: "compaction"}
    return kinds.get(part.type, "response"), "", text


def original_text(part: Part) -> str:
    """Return the text of the piece of a part of an answer, before any edit."""
    if part.is_tool:
        return tool_body(part.data)
    if part.type == "reasoning":
        return reasoning_block(part.text) if part.text else ""
    if part.type == COMPACTION:
        return writable(compaction_block(part.data))
    return writable(part.text)


def found_pieces(document: Document, end: int | None = None, first: int | None = None) -> list[DocumentPiece]:
    """Return the pieces of the body; a region that contains ``end`` is cut there.

    Pieces before the span with the number ``first`` are left out.
    """
    pieces: list[DocumentPiece] = []
    body = document.body
    for number, region in enumerate(_cut_regions(regions(document, first=first), end)):
        start, stop, kind, call_id = region
        if kind is None:
            pieces += [DocumentPiece(("user", "", body[a:b]), a, b, number) for a, b in fragments(body, start, stop)]
            continue
        text = body[start:stop]
        if kind == "ignore":
            opening = _OPENING.search(text)  # the closing fence of a tool block may stand before it
            if opening and text[: opening.start()] in ("", _TOOL_END):  # else it is text of a hidden turn
                block = text[opening.start() :]
                called: PieceKind = "compaction" if block.startswith(COMPACTION_OPEN) else "reasoning"
                pieces.append(DocumentPiece((called, "", block), start + opening.start(), stop, number))
        elif not text.isspace():
            pieces.append(DocumentPiece((kind, call_id, text), start, stop, number))
    return pieces


def fragments(text: str, start: int = 0, end: int | None = None) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a user's text between prompt prefixes, trimmed as gptel trims.

    A heading inside a prompt looks like a prompt prefix; that does not matter if both sides are cut alike. A prefix
    of which an editor removed the trailing blank is an empty prompt, unless it is all of a recorded text.
    """
    stop = len(text) if end is None else end
    behind = start
    for cut in (*_HEADING.finditer(text, start, stop), None):
        begin = behind
        right, behind = cut.span() if cut else (stop, stop)
        piece = text[begin:right].rstrip(BLANK)
        right = begin + len(piece)
        piece = piece.lstrip(BLANK)
        may_be_bare = begin > start or end is None
        while piece.startswith(PROMPT_PREFIX):
            piece = piece.removeprefix(PROMPT_PREFIX).lstrip(BLANK)
            may_be_bare = True
        if piece and (may_be_bare or piece != _BARE_PREFIX):
            yield right - len(piece), right


def _cut_regions(found: list[Region], end: int | None) -> Iterator[Region]:
    for region in found:
        if end is not None and region.start < end < region.end:
            yield region._replace(end=end)
            yield region._replace(start=end)
        else:
            yield region


# Matching the pieces of a document with those of the log.
#
# First in order (longest common subsequence, so a repeated "OK" keeps its place), then moved pieces, then edited
# ones, by similarity.

_MANY = 50  # equal pieces beyond which only the nearest are compared
_BLOCKS = ("compaction", "reasoning")  # what is shown with the role ``ignore``
_NEAR = 50  # recorded pieces that are compared with one that was edited


def restored_ids(
    body: str,
    conversation: Conversation,
    recorded: Sequence[RecordedPiece],
    found: Sequence[DocumentPiece],
    links: Sequence[int],
) -> set[str]:
    """Return the ids of messages and parts whose edit the user reverted: the original text is there again."""
    edited = [message for message in conversation.messages.values() if message.role == "user" and message.is_edited]
    ids = {message.id for message in edited}
    ids |= {piece.part.id for piece in recorded if piece.part is not None and piece.part.edited is not None}
    if not ids or -1 not in links:
        return set()
    first, there = joined_keys(body, recorded_pieces(conversation, ids), found)
    if first == there[: len(first)] and all(piece.key[0] == "user" for piece in found[len(first) :]):
        return ids  # the document is as it was before any of the edits

    linked = set(links)
    own: dict[str, list[int]] = defaultdict(list)
    for number, piece in enumerate(recorded):
        if piece.part is None and piece.message.is_edited:
            own[piece.message.id].append(number)
    ids = set()
    places: dict[Key, list[int]] = defaultdict(list)
    for index, each in enumerate(found):
        places[each.key].append(index)
    for message in edited:
        text, ranges = message.recorded_text, list(fragments(message.recorded_text))
        numbers = own[message.id]
        if not ranges or (len(ranges) <= len(numbers) and all(number in linked for number in numbers)):
            continue
        for start in places["user", "", text[slice(*ranges[0])]]:
            row = range(start, min(start + len(ranges), len(found)))
            as_before = body[found[row[0]].start : found[row[-1]].end] == text[ranges[0][0] : ranges[-1][1]]
            if as_before and all(
                found[index].region == found[start].region
                and (links[index] < 0 or recorded[links[index]].message is message)
                for index in row
            ):
                ids.add(message.id)
    free = Counter(each.key for each, number in zip(found, links, strict=True) if number < 0)
    for number, (_, _, part, *_) in enumerate(recorded):
        if part is not None and part.edited is not None and number not in linked:
            key = key_of(part, original_text(part))
            if free[key]:
                free[key] -= 1
                ids.add(part.id)
    return ids


def with_known_ids(found: list[DocumentPiece], recorded: Sequence[RecordedPiece]) -> list[DocumentPiece]:
    """Return ``found`` with recorded ids for tool pieces that differ from the log only by their id.

    Stock gptel gives the same id to parallel calls of a tool.
    """
    known = [piece.key for piece in recorded if piece.key[0] == "tool"]
    exact = set(known).intersection(piece.key for piece in found)
    if all(piece.key in exact for piece in found if piece.key[0] == "tool"):
        return found
    free: dict[str, list[Key]] = defaultdict(list)
    for key in known:
        if key not in exact:
            free[key[2]].append(key)
    return [
        piece._replace(key=free[piece.key[2]].pop(0))
        if piece.key[0] == "tool" and piece.key not in exact and free.get(piece.key[2])
        else piece
        for piece in found
    ]


def with_known_blocks(found: list[DocumentPiece], recorded: Sequence[RecordedPiece]) -> list[DocumentPiece]:
    """Return ``found`` with blocks cut at the ends of recorded ones: hidden turns behind them have the same role."""
    known = {piece.key for piece in recorded if piece.key[0] in _BLOCKS}
    return [
        _with_ending(piece, known) if piece.key[0] in _BLOCKS and piece.key not in known else piece for piece in found
    ]


def _with_ending(piece: DocumentPiece, known: Collection[Key]) -> DocumentPiece:
    kind, id, text = piece.key
    starts = [key for key in known if key[0] == kind and text.startswith(key[2] + RUN_OPEN)]
    if not starts:
        return piece
    longest = max(len(key[2]) for key in starts)
    return piece._replace(key=(kind, id, text[:longest]), end=piece.start + longest)


def joined_keys(
    body: str, recorded: Sequence[RecordedPiece], found: Sequence[DocumentPiece]
) -> tuple[list[Key], list[Key]]:
    """Return keys for ``match`` that distinguish a fragment within a message from the first of a message.

    Both are equal where the text between fragments is that of the recorded message.
    """
    left = [piece.key if not piece.joint else ("user", piece.joint, piece.key[2]) for piece in recorded]
    joints = {key for key, piece in zip(left, recorded, strict=True) if piece.joint}
    right = [piece.key for piece in found]
    if joints:
        for index in range(1, len(found)):
            before, piece = found[index - 1], found[index]
            key: Key = ("user", body[before.end : piece.start], piece.key[2])
            if piece.key[0] == "user" and before.region == piece.region and key in joints:
                right[index] = key
    return left, right


def match(recorded: Sequence[Key], found: Sequence[Key]) -> list[int]:
    """Return for every found piece the number of the matching recorded piece, or -1."""
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
    between, there = recorded[head : len(recorded) - tail], found[head : len(found) - tail]
    middle = longest_common(between, there)
    if len(between) == len(there):  # of as many pairs those in the same places: what lies between was only edited
        same = [(n, n) for n, (left, right) in enumerate(zip(between, there, strict=True)) if left == right]
        middle = same if len(same) == len(middle) else middle
    for left, right in middle:
        links[head + right] = head + left
    return links


def match_whole(
    body: str, recorded: Sequence[RecordedPiece], found: Sequence[DocumentPiece], numbers: Sequence[int]
) -> list[int]:
    """Match the recorded pieces ``numbers``, of each user message either all pieces or none."""
    units: list[list[int]] = []
    for number in numbers:
        if recorded[number].joint and units:
            units[-1].append(number)
        else:
            units.append([number])
    keys = [(*recorded[unit[0]].key[:2], _whole_text(recorded, unit)) for unit in units]
    sizes: dict[Key, set[int]] = defaultdict(set)  # how many pieces messages have, by the first of them
    for unit in units:
        sizes[recorded[unit[0]].key].add(len(unit))
    starts: list[int] = []
    there: list[Key] = []
    known, index = set(keys), 0
    while index < len(found):
        (kind, id, text), start, _, region = found[index]
        size = 1
        for longer in sorted(sizes.get(found[index].key, ()), reverse=True):
            last = index + longer - 1
            if longer > 1 and last < len(found) and found[last].region == region:
                whole = body[start : found[last].end]
                if (kind, id, whole) in known:
                    text, size = whole, longer
                    break
        starts.append(index)
        there.append((kind, id, text))
        index += size
    links = [-1] * len(found)
    for start, number in zip(starts, _match_beside_calls(keys, there), strict=True):
        if number >= 0:
            links[start : start + len(units[number])] = units[number]
    return links


def _match_beside_calls(recorded: Sequence[Key], found: Sequence[Key]) -> list[int]:
    """Match as ``match`` does; of as many pairs those that are in order with calls that were edited, too.

    Text that was put into the middle of a call is above the call's end.
    """
    links = match(recorded, found)
    calls = {key[1]: key for key in recorded if key[0] == "tool" and key[1]}
    ends = {key[1]: index for index, key in enumerate(found) if key[0] == "tool" and key[1] in calls}
    ends = {id: index for id, index in ends.items() if found[index] != calls[id]}
    if not ends:
        return links
    # Each call is matched at its end, and then linked where it is as it was recorded.
    exact = {calls[id]: index for id, index in ends.items()}
    beside: list[Key] = [("tool", "", "") if key in exact else key for key in found]
    for key, index in exact.items():
        beside[index] = key
    others = match(recorded, beside)
    for key, index in exact.items():
        number, others[index] = others[index], -1
        if number >= 0 and key in found:
            others[found.index(key)] = number
    return others if others.count(-1) <= links.count(-1) else links


def _whole_text(recorded: Sequence[RecordedPiece], numbers: Iterable[int]) -> str:
    return "".join(text for number in numbers for text in (recorded[number].joint, recorded[number].key[2]))


def fill(links: list[int], numbers: Sequence[int], recorded: Sequence[Key], found: Sequence[Key]) -> None:
    """Match the recorded pieces ``numbers`` with the found ones in each gap between those that are linked."""
    low, start = 0, 0  # in ``numbers`` and in ``found``
    for index in range(len(links) + 1):
        if index < len(links) and links[index] < 0:
            continue
        high = bisect_left(numbers, links[index]) if index < len(links) else len(numbers)
        if start < index and low < high:
            gap = match([recorded[number] for number in numbers[low:high]], found[start:index])
            links[start:index] = [numbers[low + n] if n >= 0 else -1 for n in gap]
        if index < len(links):
            low, start = bisect_right(numbers, links[index]), index + 1


def keep_together(
    links: list[int], recorded: Sequence[RecordedPiece], keys: Sequence[Key], found: Sequence[Key]
) -> None:
    """Of equal texts link the one right above its successor in the message of the user or the step of the model.

    If there is none, link the one right below its predecessor in the message of the user or the whole answer.
    """
    units = [piece.unit for piece in recorded]
    places = {number: index for index, number in enumerate(links) if number >= 0}
    there = Counter(units[number] for number in places)
    for number in range(len(recorded) - 2, -1, -1):
        if units[number] != units[number + 1] or number + 1 not in places or recorded[number].is_hidden:
            continue
        above = places[number + 1] - 1
        if above < 0 or links[above] == number or found[above] != keys[number]:
            continue
        other = links[above]  # gives way if less is there of what it is of
        if other < 0 or (other < number and there[units[other]] <= there[units[number]]):
            if other >= 0:
                del places[other]
                there[units[other]] -= 1
            if number in places:
                links[places[number]] = -1
            else:
                there[units[number]] += 1
            links[above], places[number] = number, above
    for number in range(1, len(recorded)):
        if (
            recorded[number].message is not recorded[number - 1].message
            or number - 1 not in places
            or number in places
        ):
            continue
        below = places[number - 1] + 1
        if below == len(found) or found[below] != keys[number] or recorded[number].is_hidden:
            continue
        other = links[below]  # gives way if it is not right above what follows it either
        if other > number and not (
            other + 1 < len(recorded) and units[other] == units[other + 1] and places.get(other + 1) == below + 1
        ):
            del places[other]
            links[below], places[number] = number, below


def longest_common(left: Sequence[Hashable], right: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Return the pairs of a longest common subsequence (Hunt and Szymanski's algorithm: few pieces are equal)."""
    places: dict[Hashable, list[int]] = defaultdict(list)
    for index, key in enumerate(right):
        places[key].append(index)
    pairs = [(index, place) for index, key in enumerate(left) for place in _nearest(places.get(key, []), index)]
    return _heaviest_rising(pairs, [1.0] * len(pairs))


def link_moved(
    recorded: Sequence[RecordedPiece], found: Sequence[DocumentPiece], links: list[int], last: int
) -> set[int]:
    """Link equal pieces that the first match left over on both sides; user text only before piece ``last``.

    Returns the numbers of the found pieces it linked.

    A prompt sent from the middle of a document is newer than the text below it, so order alone misses it.
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


def _nearest(places: list[int], index: int) -> list[int]:
    """Return ``places`` from last to first; of very many only those around ``index``."""
    if len(places) > _MANY:
        middle = bisect_left(places, index)
        places = places[max(0, middle - _MANY // 2) : middle + _MANY // 2]
    return places[::-1]


def pair_in_gap(
    gap: Iterable[int],
    free: Sequence[int],
    found: Sequence[DocumentPiece],
    recorded: Sequence[RecordedPiece],
    sources: list[int],
) -> None:
    """Pair every piece in a gap with the most similar free recorded piece of its kind, in order."""
    kinds: dict[str, list[int]] = defaultdict(list)
    for number in free:
        kinds[recorded[number].key[0]].append(number)
    low = 0
    for index in gap:
        key = found[index].key
        same = kinds[key[0]]
        first = bisect_left(same, low)
        if first < len(same):
            near = same[first : first + _NEAR]
            sources[index] = max(near, key=lambda number: _likeness(recorded[number].key, key))
            low = sources[index] + 1


def _likeness(one: tuple[str, str, str], other: tuple[str, str, str]) -> tuple[bool, int]:
    """Return a key for the similarity: equal call ids, then the lengths of the common beginning and end."""
    left, right = one[2], other[2]
    length = min(len(left), len(right), 2000)
    head = next((i for i in range(length) if left[i] != right[i]), length)
    tail = next((i for i in range(1, length - head + 1) if left[-i] != right[-i]), length - head + 1)
    return bool(one[1]) and one[1] == other[1], head + tail
