"""A run as it is seen on a terminal: what the model says, a line for each tool it uses, dim reasoning.

Pure: inserts go in (text and role as in ``pyagentd.events``), pieces to print come out. The layout of the document
(fences, the next prompt's ``###``) belongs to the file; here it is reduced to what a reader follows. Neighbouring
inserts of one role may arrive merged, so one can end a block and begin the next.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

Style = Literal["plain", "dim"]

_FENCE = re.compile(r"(?:\A|\n)```(?: (?P<kind>tool|reasoning|error|compaction)\b ?(?P<rest>[^\n]*))?(?=\n|\Z)")


class Piece(NamedTuple):
    """Text to print as it is."""

    text: str
    style: Style = "plain"


class Transcript:
    """Turns the inserts of one run into pieces, one blank line between blocks.

    Args:
        apart: The dim pieces, whole lines, go elsewhere than the answer; reasoning is left out.
    """

    def __init__(self, *, apart: bool = False) -> None:
        self._apart = apart
        self._printed: str | None = None  # kind of the block printed last, while it can go on
        self._inside: str | None = None  # kind of the fence that is open
        self._closer = ""  # what may have closed it: reasoning can contain fences of its own
        self._told = 0  # calls that were shown, and whose text in the document is still to come
        self._anything = False
        self._at_line_start = True

    @property
    def at_line_start(self) -> bool:
        """Whether what was printed so far ends with a newline."""
        return self._at_line_start

    def insert(self, text: str, role: Any) -> Iterator[Piece]:
        """Yield what to print for one insert."""
        if role == "ignore":
            yield from self._ignored(text)
            return
        self._inside = None
        if role == "response":
            yield from self._say("answer", text)
        elif role is None:
            # Separators and the prompt that follows: the document's, not the reader's.
            self._printed = None

    def tool(self, summary: str) -> Iterator[Piece]:
        """Yield the line of a call that has its result; its text in the document is left out when it comes."""
        self._told += 1
        yield from self._line(summary)

    def end(self) -> Iterator[Piece]:
        """Yield what ends the output: a newline if the last line has none."""
        if not self._at_line_start:
            self._at_line_start = True
            yield Piece("\n")

    def _ignored(self, text: str) -> Iterator[Piece]:
        at = 0
        for fence in _FENCE.finditer(text):
            yield from self._content(text[at : fence.start()])
            at = fence.end()
            if fence["kind"]:
                self._inside, self._closer = fence["kind"], ""
                if self._inside == "tool":
                    yield from self._announce(fence["rest"])
                elif self._inside == "compaction":
                    yield from self._divide(fence["rest"])
            elif self._inside == "reasoning":
                self._closer = fence[0]
            else:
                self._inside = None
        yield from self._content(text[at:])

    def _content(self, text: str) -> Iterator[Piece]:
        # Of what is fenced only reasoning is shown: tools are announced, an error is reported as the run's end.
        if self._inside != "reasoning" or self._apart or (self._closer and not text.strip()):
            return
        yield from self._say("reasoning", self._closer + text, "dim")
        self._closer = ""

    def _announce(self, call: str) -> Iterator[Piece]:
        if self._told:
            self._told -= 1
        else:  # nobody said how it came out: it was caught up with
            yield from self._line(call.removeprefix("(").removesuffix(")"))

    def _line(self, call: str) -> Iterator[Piece]:
        yield from self.end()
        self._printed = "tool"
        self._anything |= not self._apart
        yield Piece(f"• {call}\n", "dim")

    def _divide(self, what: str) -> Iterator[Piece]:
        yield from self.end()
        if self._anything and not self._apart:
            yield Piece("\n")
        self._printed = "compaction"
        self._anything |= not self._apart
        yield Piece(f"── compacted {what} ──\n", "dim")

    def _say(self, block: str, text: str, style: Style = "plain") -> Iterator[Piece]:
        if block != self._printed:
            text = text.lstrip("\n")
            if not text:
                return
            yield from self.end()
            if self._anything:
                yield Piece("\n")
            self._printed = block
        if text:
            self._anything = True
            self._at_line_start = text.endswith("\n")
            yield Piece(text, style)
