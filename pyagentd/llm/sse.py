"""Server-sent events, decoded from whatever pieces the network delivers.

Knows the framing of the HTML standard (fields, comments, LF, CRLF or CR line ends, several ``data`` lines) and
nothing about JSON or providers. A stream costs one ``split`` per chunk and one cheap pass per event, because this
runs for every token of every agent.
"""

from __future__ import annotations

from typing import NamedTuple

_BOM = b"\xef\xbb\xbf"


class SseEvent(NamedTuple):
    """One event; ``name`` is empty when the server gave none."""

    name: str
    data: bytes


class SseDecoder:
    """Turns chunks of bytes into events; holds at most one incomplete event.

    Attributes:
        held: How many bytes of that there are.
    """

    def __init__(self) -> None:
        self._held: list[bytes] = []  # pieces of the event that is not complete yet
        self._cr = False  # the last piece ended in CR: an LF that follows belongs to it
        self._first = True
        self.held = 0

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Return the events that ``chunk`` completes, in order."""
        chunk = self._normalise(chunk)
        if not chunk:
            return []
        # The end of an event may be split between two chunks, so the last byte held decides as well.
        if b"\n\n" not in chunk and not (chunk[0] == 10 and self._held and self._held[-1][-1] == 10):
            self._held.append(chunk)
            self.held += len(chunk)
            return []
        if self._held:
            self._held.append(chunk)
            chunk = b"".join(self._held)
        *blocks, rest = chunk.split(b"\n\n")
        self._held, self.held = [rest] if rest else [], len(rest)
        return [event for block in blocks if (event := _parse(block)) is not None]

    def _normalise(self, chunk: bytes) -> bytes:
        """Return ``chunk`` with LF as its only line end and without a byte order mark."""
        if self._first and chunk:
            self._first = False
            chunk = chunk.removeprefix(_BOM)
        if self._cr and chunk:
            self._cr = False
            chunk = chunk.removeprefix(b"\n")
        if b"\r" in chunk:
            self._cr = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return chunk


def _parse(block: bytes) -> SseEvent | None:
    """Return the event of one block of lines, or None when it has no data (comments, ids)."""
    name = b""
    data: list[bytes] = []
    for line in block.split(b"\n"):
        if line.startswith(b"data:"):
            data.append(line[6:] if line[5:6] == b" " else line[5:])
        elif line.startswith(b"event:"):
            name = line[7:] if line[6:7] == b" " else line[6:]
    if not data:
        return None
    return SseEvent(name.decode("utf-8", "replace"), data[0] if len(data) == 1 else b"\n".join(data))
