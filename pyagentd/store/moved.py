"""Recorded answers that stand somewhere else than before, as blocks of their own, in text that has no role yet."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from pyagentd.store.difference import Match
from pyagentd.store.document import Kind, Span
from pyagentd.store.pieces import Key
from pyagentd.store.render import FENCE_CLOSE, TOOL_OPEN

_KINDS: dict[str, Kind] = {"response": "response", "reasoning": "ignore", "compaction": "ignore", "tool": "tool"}


def moved(body: str, spans: Sequence[Span], kept: Sequence[Match], keys: Iterable[Key], end: int) -> list[Span]:
    """Return ``spans`` with the roles of those of ``keys`` that are found in what is new in the text.

    Args:
        body: The text.
        spans: The roles that are known, sorted.
        kept: What of the text is not new.
        keys: What to look for, no text of the user's among it.
        end: Where to stop; what the user is writing there may quote an answer.
    """
    searched = _Searched(body, spans, kept, end)
    for key in keys:
        searched.take(key)
    return sorted([*spans, *searched.found])


class _Searched:
    def __init__(self, body: str, spans: Sequence[Span], kept: Sequence[Match], end: int) -> None:
        self.found: list[Span] = []
        self._body = body
        self._lines: dict[str, list[int]] = defaultdict(list)
        self._gaps = list(_gaps(spans, end))
        line = 0
        for before, after in pairwise([Match(0, 0, 0), *kept]):
            line = max(line, body.rfind("\n", 0, before.new + before.size) + 1)
            while before.new + before.size < after.new and line < min(after.new, end):
                line_end = body.find("\n", line)
                line_end = len(body) if line_end < 0 else line_end
                self._lines[body[line:line_end]].append(line)
                line = line_end + 1

    def take(self, key: Key) -> None:
        """Give the text its role where it stands first as a block and has none yet."""
        kind, call_id, text = key
        line, offset = _telling_line(text)
        for start in self._lines.get(line, ()) if line else ():
            begin, end = start - offset, start - offset + len(text)
            if not (self._body.startswith(text, begin) and self._is_block(kind, begin, end)):
                continue
            spans = list(self._fenced(begin, end, call_id)) if kind == "tool" else [Span(begin, end, _KINDS[kind])]
            if self._is_free(spans[0].start, end):
                self.found += [span for span in spans if self._is_free(span.start, span.end)]
                return

    def _is_block(self, kind: str, start: int, end: int) -> bool:
        if start < 0:
            return False
        if kind == "tool":
            return self._body.startswith(FENCE_CLOSE, end)
        return (start == 0 or self._body[start - 1] == "\n") and self._body[end : end + 1] in ("", "\n")

    def _fenced(self, start: int, end: int, call_id: str) -> Iterator[Span]:
        head = self._body.rfind("\n", 0, start) + 1
        if head < start and self._body.startswith(TOOL_OPEN, head):
            yield Span(head, start, "ignore")
        yield Span(start, end, "tool", call_id)
        close = FENCE_CLOSE + "\n" if self._body.startswith(FENCE_CLOSE + "\n", end) else FENCE_CLOSE
        yield Span(end, end + len(close), "ignore")

    def _is_free(self, start: int, end: int) -> bool:
        index = bisect_right(self._gaps, start, key=lambda gap: gap[0]) - 1
        in_gap = index >= 0 and end <= self._gaps[index][1]
        return in_gap and not any(start < span.end and span.start < end for span in self.found)


def _gaps(spans: Sequence[Span], end: int) -> Iterator[tuple[int, int]]:
    position = 0
    for span in spans:
        if position < min(span.start, end):
            yield position, min(span.start, end)
        position = span.end
    if position < end:
        yield position, end


def _telling_line(text: str) -> tuple[str, int]:
    """Return the first whole line that says something, not a fence alone, and its offset in the text."""
    offset = 0
    for line in text.split("\n"):
        if line.strip() and not line.startswith("``` reasoning"):
            return line, offset
        offset += len(line) + 1
    return "", 0
