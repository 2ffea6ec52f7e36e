"""A backend that shows the model what the user's messages link of the branch's ``files/`` (DESIGN §3).

The link stays in the text, before which a picture or a PDF stands as such; of any other file the model is told where
it is, and may read it there. This is done at the last moment and changes nothing else: what is recorded, counted and
summarised is the text. A file that is gone is not shown, and deleting its link takes it out of what is sent.
"""

from __future__ import annotations

import asyncio
import base64
import weakref
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

from pyagentd import regularfile
from pyagentd.llm.backend import Backend, ModelRequest, StreamItem
from pyagentd.messages import Media, Message, Part, Text
from pyagentd.store import paths
from pyagentd.store.attachments import Linked, linked, type_of

LARGEST = 3_750_000  # bytes of a picture or a document: providers take 5 MB of base64
LARGEST_TOGETHER = 15_000_000  # of all in a request, the first ones first: what is shown once stays shown


class AttachedBackend:
    """Another backend, shown what is attached.

    Args:
        backend: Who answers.
        branch_dir: Where ``files/`` is.
    """

    def __init__(self, backend: Backend, branch_dir: Path) -> None:
        self._backend = backend
        self._branch_dir = branch_dir
        # By the identity of a living message, with what it holds in bytes: a writer of requests knows it again.
        self._shown: dict[int, tuple[weakref.ref[Message], Message, int]] = {}

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[StreamItem], None]:
        """Send ``request`` with what its messages link, and yield the answer, see ``Backend``."""
        if any(_may_link(message) for message in request.messages):
            request = replace(request, messages=await asyncio.to_thread(self._messages, request.messages))
        async with aclosing(self._backend.stream(request)) as batches:
            async for batch in batches:
                yield batch

    async def close(self) -> None:
        """Close the other backend."""
        await self._backend.close()

    def _messages(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        room, made = LARGEST_TOGETHER, []
        for message in messages:
            shown, size = self._message(message, room) if _may_link(message) else (message, 0)
            room -= size
            made.append(shown)
        return tuple(made)

    def _message(self, message: Message, room: int) -> tuple[Message, int]:
        known = self._shown.get(id(message))
        if known is not None and known[0]() is message:
            return known[1], known[2]
        parts: list[Part] = []
        size = 0
        for part in message.parts:
            if isinstance(part, Text):
                for shown, taken in _of_text(part.text, self._branch_dir, room - size):
                    parts.append(shown)
                    size += taken
            parts.append(part)
        shown_message = replace(message, parts=tuple(parts))
        key = id(message)
        self._shown[key] = (weakref.ref(message, lambda _: self._shown.pop(key, None)), shown_message, size)
        return shown_message, size


def _may_link(message: Message) -> bool:
    return message.role == "user" and any(
        isinstance(part, Text) and f"{paths.FILES_DIR}/" in part.text for part in message.parts
    )


def _of_text(text: str, branch_dir: Path, room: int) -> Iterator[tuple[Part, int]]:
    """Yield what a text links as parts, each with its size in bytes; at most ``room`` of them together."""
    for each in {found.file: found for found in linked(text, branch_dir)}.values():
        try:
            kind = type_of(each.file)
            if kind and each.size <= min(LARGEST, room):
                data = regularfile.read_bytes(each.file, limit=LARGEST)
                yield Media(type=kind, data=base64.b64encode(data).decode()), each.size
                room -= each.size
            else:
                yield Text(text=_described(each, too_large=bool(kind))), 0
        except OSError:
            continue


def _described(each: Linked, *, too_large: bool) -> str:
    why = " It is too large to be shown." if too_large else ""
    return f"<attachment>\n{each.link} is the file {each.file} ({each.size} bytes).{why}\n</attachment>"
