"""What the model says in a mission, taken apart: the words around a program, and the program.

A text is kept back until it is whole, since where its program begins and ends is known only then; reasoning streams.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyagentd.llm.backend import PartDelta, PartFinished, PartStarted
from pyagentd.messages import Text
from pyagentd.mission.response import Response, parse

Item = PartStarted | PartDelta | PartFinished


class Said:
    """The answer to one request."""

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}  # by the provider's index
        self._next = 0

    @property
    def text(self) -> str:
        """Everything that was said, as the loop reads it."""
        return "\n\n".join(text for text in self._texts.values() if text)

    def take(self, item: Item) -> Item | None:
        """Keep an item that is text and return None, else return it: the run records it."""
        self._next = max(self._next, item.index + 1)
        match item:
            case PartStarted(kind="text", index=index):
                self._texts[index] = ""
            case PartDelta(index=index, text=text) if index in self._texts:
                self._texts[index] += text
            case PartFinished(index=index, part=Text(text=text)):
                self._texts[index] = text
            case _:
                return item
        return None

    def response(self) -> Response:
        """Return the program and what was said around it."""
        return parse(self.text)

    def words(self, text: str) -> Iterator[Item]:
        """Yield ``text`` as a part that follows what was streamed."""
        if text:
            self._next += 1
            yield from whole(self._next, text)

    def index(self) -> int:
        """Return an index that no part has yet."""
        self._next += 1
        return self._next


def whole(index: int, text: str) -> Iterator[Item]:
    """Yield a text that is there at once as the part that it is."""
    yield PartStarted(index, "text")
    yield PartDelta(index, text)
    yield PartFinished(index, Text(text=text))
