"""Agents as a loop on the official SDK would run them: ask, read the file, answer, until the model is done.

Nothing is recorded, shown, asked or bounded. ``python -m tests.bench.crowd_loop URL COUNT TURNS`` runs so many at
once and prints what they cost, as JSON; imports and a warm-up are not counted.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from anthropic import AsyncAnthropic

from tests.bench.measure import memory_mb

Json = dict[str, Any]

TOOLS = [
    {
        "name": "Read",
        "description": "Read a file.",
        "input_schema": {"type": "object", "properties": {"file_path": {"type": "string"}}},
    }
]


async def agent(client: AsyncAnthropic, turns: int) -> None:
    """Run one agent to its end."""
    messages: list[Json] = [{"role": "user", "content": f"turns {turns}"}]
    while blocks := await _calls(client, messages):
        messages.append({"role": "assistant", "content": blocks})
        messages.append({"role": "user", "content": [_result(block) for block in blocks]})


async def _calls(client: AsyncAnthropic, messages: list[Json]) -> list[Json]:
    """Return the tool calls of the next answer."""
    blocks: list[Json] = []
    pieces = ""
    stream = await client.messages.create(  # type: ignore[call-overload]
        model="crowd", max_tokens=1000, messages=messages, tools=TOOLS, stream=True
    )
    async for event in stream:
        if event.type == "content_block_start" and event.content_block.type == "tool_use":
            blocks.append({"type": "tool_use", "id": event.content_block.id, "name": event.content_block.name})
            pieces = ""
        elif event.type == "content_block_delta" and event.delta.type == "input_json_delta":
            pieces += event.delta.partial_json
        elif event.type == "content_block_stop" and blocks:
            blocks[-1]["input"] = json.loads(pieces)
    return blocks


def _result(block: Json) -> Json:
    text = Path(block["input"]["file_path"]).read_text()
    return {"type": "tool_result", "tool_use_id": block["id"], "content": text}


async def measure(url: str, count: int, turns: int) -> Json:
    """Return what so many agents at once cost."""
    async with AsyncAnthropic(api_key="test", base_url=url, max_retries=0) as client:
        await agent(client, 2)
        before = memory_mb(os.getpid())
        cpu, start = time.process_time(), time.perf_counter()
        await asyncio.gather(*(agent(client, turns) for _ in range(count)))
        return {
            "cpu_s": time.process_time() - cpu,
            "wall_s": time.perf_counter() - start,
            "memory_mb": memory_mb(os.getpid()) - before,
        }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))))
