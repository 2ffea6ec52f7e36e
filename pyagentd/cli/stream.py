"""A run as it is seen on a terminal: what the model says, a line for each tool it uses, dim reasoning.

Pure: inserts go in (text and role as in ``pyagentd.events``), pieces to print come out. The layout of the document
(fences, the next prompt's ``###``) belongs to the file; here it is reduced to what a reader follows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

Style = Literal["plain", "dim"]

_FENCE = re.compile(r"``` (?P<kind>tool|reasoning|error)\b ?(?:\((?P<call>.*)\))?\n?")


class Piece(NamedTuple):
    """Text to print as it is."""

    text: str
    style: Style = "plain"


class Transcript:
    """Turns the inserts of one run into pieces, one blank line between blocks."""

    def __init__(self) -> None:
        self._block: str | None = None  # kind of the block that is being printed
        self._column_zero = True
        self._anything = False

    @property
    def at_line_start(self) -> bool:
        """Whether what was printed so far ends with a newline."""
        return self._column_zero

    def insert(self, text: str, role: Any) -> Iterator[Piece]:
        """Yield what to print for one insert."""
        match role:
            case "response":
                yield from self._say("answer", text)
            case "ignore":
                yield from self._ignored(text)
            case None:
                # Separators and the prompt that follows: the document's, not the reader's.
                self._end_block(text)
            case _:
                return  # a tool's call and result: its fence has announced it

    def end(self) -> Iterator[Piece]:
        """Yield what ends the output: a newline if the last line has none."""
        if not self._column_zero:
            self._column_zero = True
            yield Piece("\n")

    def _ignored(self, text: str) -> Iterator[Piece]:
        fence = _FENCE.match(text)
        if fence is None:
            if text.strip() == "```":
                self._block = None
            elif self._block == "reasoning":
                yield from self._say("reasoning", text.removesuffix("\n```"), "dim")
            return
        rest = text[fence.end() :]
        closed = rest.endswith("\n```")
        match fence["kind"]:
            case "tool":
                yield from self.end()
                yield Piece(f"• {fence['call'] or ''}\n", "dim")
                self._anything, self._block = True, "tool"
            case "reasoning":
                yield from self._say("reasoning", rest.removesuffix("\n```"), "dim")
            case _:
                return  # an error ends the run and is reported with it
        if closed:
            self._block = None

    def _say(self, block: str, text: str, style: Style = "plain") -> Iterator[Piece]:
        if block != self._block:
            text = text.lstrip("\n")
            if not text:
                return
            yield from self.end()
            if self._anything:
                yield Piece("\n")
            self._block = block
        if text:
            self._anything = True
            self._column_zero = text.endswith("\n")
            yield Piece(text, style)

    def _end_block(self, text: str) -> None:
        if text.strip("\n") in ("", "###", "### "):
            self._block = None
