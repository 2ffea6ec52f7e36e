"""JSON-RPC messages as lines of JSON; a line that is not a message is answered with an error."""

import asyncio
import json
from typing import Any, Final

from acp import RequestError

LONGEST_READ: Final = 50 * 1024 * 1024  # bytes to buffer before a line is read


class Lines:
    """A transport for the protocol's SDK, whose own transport stops at the first line that is not a JSON object."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._sending = asyncio.Lock()

    async def send(self, message: dict[str, Any]) -> None:
        """Write a message."""
        async with self._sending:
            self._writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
            await self._writer.drain()

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message; None at the end."""
        while line := await self._line():
            try:
                message = json.loads(line) if line.strip() else {}
            except (ValueError, RecursionError) as error:
                await self._refuse(RequestError.parse_error({"details": f"This is not JSON: {error}"}))
                continue
            # A reply needs a valid id.
            if isinstance(message, dict) and isinstance(message.get("id"), str | int | float | None):
                return message
            wanted = "A message is a JSON object whose id is a number or a text"
            await self._refuse(RequestError.invalid_request({"details": wanted}))
        return None

    async def close(self) -> None:
        """Do nothing: the process closes its output when it ends."""

    async def _refuse(self, error: RequestError) -> None:
        await self.send({"jsonrpc": "2.0", "id": None, "error": error.to_error_obj()})

    async def _line(self) -> bytes:
        """Return the next line, however long; b"" at the end."""
        read: list[bytes] = []
        while True:
            try:
                return b"".join((*read, await self._reader.readuntil(b"\n")))
            except asyncio.LimitOverrunError as more:
                read.append(await self._reader.readexactly(more.consumed))
            except asyncio.IncompleteReadError as end:
                return b"".join((*read, end.partial))
