"""Finds a passage in a text whatever its line endings are, in time proportional to the text.

No regular expressions: a passage and a file that do not suit each other could hold up the whole daemon.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice

Span = tuple[int, int]  # start and end in the text, end exclusive

_LOOSE_CHARS = 1_000_000
_WORD = re.compile(r"\S+")


def occurrences(wanted: str, text: str, *, overlapping: bool = True) -> Iterator[Span]:
    """Yield where ``wanted``, whose lines end with LF, stands in ``text``, whose lines end anyhow.

    Occurrences that overlap count too by default: they make a passage as ambiguous as others do.
    """
    plain = text.replace("\r\n", "\n")
    # Where LF in ``plain`` is CR LF in ``text``; each such place before a position moves it by one.
    pairs = [match.start() - number for number, match in enumerate(re.finditer("\r\n", text))]
    position = plain.find(wanted)
    while position >= 0:
        end = position + len(wanted)
        yield position + bisect_left(pairs, position), end + bisect_left(pairs, end)
        position = plain.find(wanted, position + 1 if overlapping else end)


def replaced(wanted: str, new: str, text: str) -> tuple[str, int]:
    """Return ``text`` with every occurrence of ``wanted`` replaced, and how many there were."""
    pieces, kept = [], 0
    for start, end in occurrences(wanted, text, overlapping=False):
        pieces += [text[kept:start], new]
        kept = end
    return "".join([*pieces, text[kept:]]), len(pieces) // 2


def line_number(text: str, position: int) -> int:
    """Return the line, counted from 1, of a position in ``text``."""
    return text.count("\n", 0, position) + 1


def loose_line(wanted: str, text: str) -> int | None:
    """Return the line where the words of ``wanted`` stand with other white space between them, if they do."""
    words = " ".join(wanted.split())
    if not words or len(text) > _LOOSE_CHARS:
        return None
    loose = " ".join(text.split())
    found = loose.find(words)
    if found < 0:
        return None
    word = next(islice(_WORD.finditer(text), loose.count(" ", 0, found), None))
    return line_number(text, word.start())
