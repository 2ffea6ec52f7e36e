"""What two texts have in common, in order.

A few changes in long texts are found exactly; texts that were reformatted throughout are matched word by word.
Works on ever smaller windows: what begins and ends alike, then lines that occur once on both sides, then words,
and only a small rest is compared each with each, so a long text costs no more than in proportion to its length.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import pairwise
from typing import NamedTuple

_LEVELS = (re.compile(r"[^\n]*\n|[^\n]+"), re.compile(r"\w+|\s|[^\w\s]"))  # lines, words
_SMALL = 300  # words up to which all are compared with all
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


def common_text(old: str, new: str) -> list[TextMatch]:
    """Return what ``new`` has kept of ``old``: in order, disjoint; the last match is empty and ends both texts."""
    found: list[TextMatch] = []
    todo: list[TextMatch | _Window] = [_Window(0, len(old), 0, len(new))]
    while todo:
        item = todo.pop()
        if isinstance(item, TextMatch):
            found.append(item)
        else:
            todo += reversed(list(_split(old, new, item)))
    joined = list(_joined(found))
    kept = list(_joined(_without_chance(old, new, joined)))
    return list(_at_lines(old, new, [*kept, TextMatch(len(old), len(new), 0)]))


def _split(old: str, new: str, window: _Window) -> Iterator[TextMatch | _Window]:
    """Yield the matches that a window begins and ends with, and what is found between them, in order."""
    a, a_end, b, b_end, level = window
    head = _common(min(a_end - a, b_end - b), lambda n: old.startswith(new[b : b + n], a))
    a, b = a + head, b + head
    tail = _common(min(a_end - a, b_end - b), lambda n: old.endswith(new[b_end - n : b_end], 0, a_end))
    if head:
        yield TextMatch(a - head, b - head, head)
    if a < a_end - tail and b < b_end - tail:
        yield from _split_by_tokens(old, new, _Window(a, a_end - tail, b, b_end - tail, level))
    if tail:
        yield TextMatch(a_end - tail, b_end - tail, tail)


def _split_by_tokens(old: str, new: str, window: _Window) -> Iterator[TextMatch | _Window]:
    a, a_end, b, b_end, level = window
    if level >= len(_LEVELS):
        return
    left = list(_LEVELS[level].finditer(old, a, a_end))
    right = list(_LEVELS[level].finditer(new, b, b_end))
    anchors = list(_anchors([m[0] for m in left], [m[0] for m in right]))
    small = level == len(_LEVELS) - 1 and len(left) <= _SMALL and len(right) <= _SMALL
    if not anchors and small:
        anchors = list(_compared([m[0] for m in left], [m[0] for m in right]))
        level += 1
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


def _common(limit: int, agrees: Callable[[int], bool]) -> int:
    """Return the greatest number up to ``limit`` of which ``agrees`` is true; it is for all smaller ones then."""
    low, step = 0, 64
    while low + step <= limit and agrees(low + step):
        low, step = low + step, step * 2
    high = min(limit, low + step)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if agrees(middle) else (low, middle - 1)
    return low


def _anchors(left: Sequence[str], right: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the places of tokens that occur once on both sides, as far as they are in one order."""
    counts, places = Counter(left), {token: index for index, token in enumerate(right)}
    once = Counter(right)
    pairs = [
        (index, places[token])
        for index, token in enumerate(left)
        if counts[token] == 1 and once[token] == 1 and not token.isspace()
    ]
    yield from _rising(pairs)


def _rising(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return a longest subsequence of ``pairs`` whose second numbers rise."""
    tops: list[int] = []  # tops[k]: the pair that ends a sequence of length k + 1 with the smallest number
    ends: list[int] = []
    before: list[int] = []
    for index, (_, place) in enumerate(pairs):
        length = bisect_left(ends, place)
        before.append(tops[length - 1] if length else -1)
        ends[length : length + 1] = [place]
        tops[length : length + 1] = [index]
    result: list[tuple[int, int]] = []
    index = tops[-1] if tops else -1
    while index >= 0:
        result.append(pairs[index])
        index = before[index]
    return result[::-1]


def _compared(left: Sequence[str], right: Sequence[str]) -> Iterator[tuple[int, int]]:
    for i, j, size in SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks():
        yield from ((i + n, j + n) for n in range(size))


def _joined(found: Iterable[TextMatch]) -> Iterator[TextMatch]:
    last: TextMatch | None = None
    for match in found:
        if last is not None and last.old + last.size == match.old and last.new + last.size == match.new:
            last = last._replace(size=last.size + match.size)
            continue
        if last is not None:
            yield last
        last = match
    if last is not None:
        yield last


def _without_chance(old: str, new: str, found: Sequence[TextMatch]) -> Iterator[TextMatch]:
    """Leave out what is likely equal by chance: shorter than the changes on either side of it, and not telling."""
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
    """Return whether the text of a match is long, and stands only once between its neighbours on both sides."""
    text = old[match.old : match.old + match.size]
    return len(text) >= SURE and all(
        body.find(text, body.find(text, start, stop) + 1, stop) < 0
        for body, start, stop in (
            (old, before.old + before.size, after.old),
            (new, before.new + before.size, after.new),
        )
    )


def _at_lines(old: str, new: str, found: list[TextMatch]) -> Iterator[TextMatch]:
    """Yield the matches with each pure insertion or deletion moved so that it is whole lines, if it can be."""
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
    """Return how far back the range can be moved without changing the text around it, to be whole lines."""
    for shift in range(limit + 1):
        if (start == shift or text[start - shift - 1] == "\n") and text[end - shift - 1] == "\n":
            return shift
        if start == shift or text[start - shift - 1] != text[end - shift - 1]:
            return 0
    return 0
