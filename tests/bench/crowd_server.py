"""A model for crowds, a process of its own that costs as little as it can: it counts results and parses nothing.

=======================  =================================================================================
prompt                   answer
=======================  =================================================================================
``agents COUNT TURNS``   so many agents at once, each of so many turns, then a word
``turns COUNT``          so many calls of Read, one an answer, then a word
=======================  =================================================================================

``python -m tests.bench.crowd_server`` prints its port and serves until its standard input ends.
"""

from __future__ import annotations

import asyncio
import functools
import json
import re
import sys

from tests.server import answer, text, tool_use
from tests.server.answers import Block, sse
from tests.server.http import Request

FILE = "note.md"  # what a turn reads
NOTE = "".join(f"{line:2}. A line of an ordinary note, of forty letters.\n" for line in range(1, 21))  # about 1 kB
PRESET = "explorer"

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_ASKED = re.compile(rb"(agents|turns) (\d+)(?: (\d+))?")
_RESULT = b'"tool_result"'
_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
_NOBODY = Request(method="POST", path="/v1/messages", headers={}, body={"model": "crowd", "stream": True})


def reply(body: bytes) -> bytes:
    """Return the whole response to a request."""
    asked = _ASKED.search(body)
    if asked is None:
        return _whole("nothing to do", 0, 0)
    kind, count, turns = asked[1].decode(), int(asked[2]), int(asked[3] or 0)
    done = body.count(_RESULT)
    if kind == "turns":
        return _whole("turn" if done < count else "end", done, 0)
    return _whole("agents" if not done else "end", count, turns)


@functools.cache
def _whole(kind: str, number: int, turns: int) -> bytes:
    blocks: list[Block]
    match kind:
        case "turn":
            blocks = [tool_use("Read", id=f"toolu_{number}", file_path=FILE)]
        case "agents":
            blocks = [
                tool_use(
                    "PersistentAgent",
                    id=f"toolu_agent_{agent}",
                    preset=PRESET,
                    description=f"agent {agent}",
                    prompt=f"turns {turns}",
                )
                for agent in range(number)
            ]
        case _:
            blocks = [text(kind)]
    events = b"".join(sse(event) for event in answer(*blocks).events(_NOBODY))
    return _HEAD + b"%x\r\n%b\r\n0\r\n\r\n" % (len(events), events)


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self._data = bytearray()
        self._wanted = 0  # bytes of the request whose head has come

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        while self._complete():
            request, self._data = bytes(self._data[: self._wanted]), self._data[self._wanted :]
            self._wanted = 0
            self._transport.write(reply(request.partition(b"\r\n\r\n")[2]))

    def _complete(self) -> bool:
        if not self._wanted:
            end = self._data.find(b"\r\n\r\n")
            if end < 0:
                return False
            length = _LENGTH.search(self._data, 0, end)
            self._wanted = end + 4 + (int(length[1]) if length else 0)
        return len(self._data) >= self._wanted


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Connection, "127.0.0.1", 0, backlog=1024)
    print(json.dumps(server.sockets[0].getsockname()[1]), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(_serve())
