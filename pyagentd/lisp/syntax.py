"""What the reader makes of a text: forms with their place, before anything is known about meaning."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any


class Form:
    """One form; ``start`` is the offset of its first character in the text."""

    __slots__ = ("start",)

    def __init__(self, start: int) -> None:
        self.start = start


class Literal(Form):
    """nil, a boolean, number, string, keyword or pattern."""

    __slots__ = ("value",)

    def __init__(self, value: Any, start: int) -> None:
        self.value = value
        self.start = start


class Symbol(Form):
    """A name."""

    __slots__ = ("name",)

    def __init__(self, name: str, start: int) -> None:
        self.name = name
        self.start = start


class Sequence(Form):
    """Forms between two brackets."""

    __slots__ = ("items",)

    def __init__(self, items: list[Form], start: int) -> None:
        self.items = items
        self.start = start


class List(Sequence):
    """``(f x)``."""

    __slots__ = ()


class Vector(Sequence):
    """``[x y]``."""

    __slots__ = ()


class Map(Sequence):
    """``{k v}``; keys and values alternate in ``items``."""

    __slots__ = ()


class Set(Sequence):
    """``#{x y}``."""

    __slots__ = ()


class Lambda(Sequence):
    """``#(f %)``."""

    __slots__ = ()


class Quote(Sequence):
    """``'x``; one item."""

    __slots__ = ()


class Places:
    """Turns offsets in a text into lines and columns, both from 1."""

    __slots__ = ("_starts", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts: list[int] | None = None

    def of(self, offset: int) -> tuple[int, int]:
        """Return line and column of an offset."""
        if self._starts is None:
            self._starts = [0]
            found = self.text.find("\n")
            while found >= 0:
                self._starts.append(found + 1)
                found = self.text.find("\n", found + 1)
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1
