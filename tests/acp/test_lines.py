"""What an editor says that is no message of JSON-RPC."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import acp
import pytest

from pyagentd.acp.agent import Lines, PyagentdAgent

INITIALIZE = {"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": {"protocolVersion": 1}}


class Written:
    """What the editor is told."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data

    async def drain(self) -> None:
        pass

    async def until(self, number: int) -> list[dict[str, Any]]:
        """Return the messages when there are ``number``."""
        async with asyncio.timeout(10):
            while self.data.count(b"\n") < number:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return [json.loads(line) for line in self.data.splitlines()]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        *((line, -32600) for line in ("[]", "1", "null", '"x"', '{"id": [1]}', '{"id": {}, "method": "x"}')),
        *((line, -32700) for line in ("{", "\xff", "[" * 100_000)),
    ],
)
async def test_a_line_that_is_no_message_is_answered_with_an_error_and_the_next_one_is_read(
    line: str, code: int
) -> None:
    reader, written = asyncio.StreamReader(limit=1000), Written()
    reader.feed_data(f"{line}\n\n".encode("latin-1") + json.dumps(INITIALIZE).encode() + b"\n")
    lines = Lines(reader, cast(asyncio.StreamWriter, written))
    serving = asyncio.create_task(acp.run_agent(cast(acp.Agent, PyagentdAgent("")), lines))
    refused, answered = await written.until(2)
    assert (refused["id"], refused["error"]["code"]) == (None, code)
    assert answered["id"] == 7 and "result" in answered
    reader.feed_eof()
    await serving
