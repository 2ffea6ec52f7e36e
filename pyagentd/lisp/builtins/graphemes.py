"""Strings are indexed by what a reader sees as one character, the grapheme."""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def _cluster() -> Any:
    import regex  # it takes a while to load, and most programs have only ASCII text

    return regex.compile(r"\X")


def graphemes(text: str) -> list[str]:
    """Return the characters of a text."""
    return list(text) if _simple(text) else _cluster().findall(text)


def length(text: str) -> int:
    """How many characters a text has."""
    return len(text) if _simple(text) else sum(1 for _ in _cluster().finditer(text))


def cut(text: str, start: int, end: int) -> str:
    """Return the characters from start to before end."""
    return text[start:end] if _simple(text) else "".join(_cluster().findall(text)[start:end])


def backwards(text: str) -> str:
    """Return the text with its characters in reverse order."""
    return text[::-1] if _simple(text) else "".join(reversed(_cluster().findall(text)))


def _simple(text: str) -> bool:
    """Whether every code point is a grapheme of its own; only CR LF is not in ASCII."""
    return text.isascii() and "\r\n" not in text
