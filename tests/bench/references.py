"""The least that does the same, each in a process of its own, so that it can be measured like the daemon.

``python -m tests.bench.references KIND URL PROMPT`` prints what it cost, as JSON. Each warms up first; the imports
and the warm-up are not counted.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tests.bench.measure import percentile

ROOT = Path(__file__).resolve().parents[2]
Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What reading one answer cost; the times count from the request."""

    total_s: float
    cpu_s: float
    first_s: float  # to the first text
    sha256: str  # of the whole text
    lag_ms: float = 0.0  # where the text is the times at which it was sent: 99 of 100 were read faster


class Tally:
    """Counts while an answer is read."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._first = 0.0
        self._cpu = time.process_time()
        self._start = time.perf_counter()

    def say(self, text: str) -> None:
        """Take in a piece of text."""
        if not self._texts:
            self._first = time.perf_counter() - self._start
        self._texts.append(text)

    def cost(self) -> Cost:
        """Return what it cost up to now."""
        return Cost(
            total_s=time.perf_counter() - self._start,
            cpu_s=time.process_time() - self._cpu,
            first_s=self._first,
            sha256=hashlib.sha256("".join(self._texts).encode()).hexdigest(),
        )


def body(messages: list[Json]) -> Json:
    return {"model": "bench", "max_tokens": 1000, "messages": messages}


async def sdk(url: str, messages: list[Json]) -> Cost:
    """The official SDK, streaming."""
    from anthropic import AsyncAnthropic

    async with AsyncAnthropic(api_key="test", base_url=url) as client:

        async def read(messages: list[Json]) -> Cost:
            tally = Tally()
            async for event in await client.messages.create(**body(messages), stream=True):  # type: ignore[call-overload]
                if event.type == "content_block_delta":
                    tally.say(event.delta.text)
            return tally.cost()

        await read(_WARM_UP)
        return await read(messages)


async def bodies(url: str, messages: list[Json]) -> Cost:
    """The official SDK, streaming, with the requests in the file that the prompt names."""
    from anthropic import AsyncAnthropic

    requests = json.loads(Path(messages[-1]["content"]).read_text())  # noqa: ASYNC240  # before anything is measured
    async with AsyncAnthropic(api_key="test", base_url=url) as client:

        async def read(request: Json, tally: Tally) -> None:
            async for event in await client.messages.create(**{**request, "stream": True}):
                if event.type == "content_block_delta":
                    tally.say(event.delta.text)

        await read(body(_WARM_UP), Tally())
        tally = Tally()
        for request in requests:
            await read(request, tally)
        return tally.cost()


async def bare(url: str, messages: list[Json]) -> Cost:
    """An HTTP client that splits the body and decodes each event."""
    import httpx2

    async with httpx2.AsyncClient(timeout=600) as client:

        async def read(messages: list[Json]) -> Cost:
            tally = Tally()
            async for event in _events(client, url, body(messages)):
                if event["type"] == "content_block_delta":
                    tally.say(event["delta"]["text"])
            return tally.cost()

        await read(_WARM_UP)
        return await read(messages)


async def turns(url: str, messages: list[Json]) -> Cost:
    """A loop as one would write it by hand: ask, read the file, answer, until the model is done.

    What is called and what came of it are lines of one file, which is brought to disk before the next request.
    """
    import httpx2

    recorded = os.open("loop.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    async with httpx2.AsyncClient(timeout=600) as client:

        async def converse(messages: list[Json]) -> Cost:
            tally = Tally()
            while call := await _step(client, url, messages, tally):
                given = Path(json.loads(call["json"])["file_path"]).read_text()  # noqa: ASYNC240  # small, as in such a loop
                block = {
                    "type": "tool_use",
                    "id": call["id"],
                    "name": call["name"],
                    "input": json.loads(call["json"]),
                }
                result = {"type": "tool_result", "tool_use_id": call["id"], "content": given}
                os.write(recorded, b"".join(json.dumps(part).encode() + b"\n" for part in (block, result)))
                os.fdatasync(recorded)
                messages = [
                    *messages,
                    {"role": "assistant", "content": [block]},
                    {"role": "user", "content": [result]},
                ]
            return tally.cost()

        await converse([{"role": "user", "content": "turns 2"}])
        return await converse(messages)


async def posts(url: str, messages: list[Json]) -> Cost:
    """An HTTP client that sends bytes which are there already: what a request of a size costs, whoever made it."""
    import aiohttp

    count, size = map(int, messages[-1]["content"].split())
    said = [{"role": "user", "content": "x" * size}, {"role": "assistant", "content": "y"}, *_WARM_UP]
    sent = json.dumps({**body(said), "stream": True}).encode()
    headers = {"x-api-key": "test", "anthropic-version": "2023-06-01", "content-type": "application/json"}
    async with aiohttp.ClientSession(headers=headers) as session:

        async def post() -> None:
            async with session.post(f"{url}/v1/messages", data=sent) as reply:
                await reply.read()

        await post()
        tally = Tally()
        for _ in range(count):
            await post()
        return tally.cost()


async def crowd(url: str, messages: list[Json]) -> Cost:
    """Twenty HTTP clients at once, of answers that say when they were sent."""
    import httpx2

    tally, lags = Tally(), []
    async with httpx2.AsyncClient(timeout=600) as client:

        async def read() -> None:
            async for event in _events(client, url, body(messages)):
                if event["type"] == "content_block_delta":
                    lags.append(time.time() - float(event["delta"]["text"]))

        await asyncio.gather(*(read() for _ in range(20)))
    return replace(tally.cost(), lag_ms=1000 * percentile(lags, 99))


async def abort(url: str, messages: list[Json]) -> Cost:
    """The SDK, closing a stream; the total is what closing takes."""
    from anthropic import AsyncAnthropic

    async with AsyncAnthropic(api_key="test", base_url=url) as client:
        stream = await client.messages.create(**body(messages), stream=True)  # type: ignore[call-overload]
        for _ in range(100):
            await anext(aiter(stream))
        tally = Tally()
        await stream.close()
        return tally.cost()


async def _step(client: Any, url: str, messages: list[Json], tally: Tally) -> Json | None:
    call: Json | None = None
    async for event in _events(client, url, {**body(messages), "tools": _TOOLS}):
        if event["type"] == "content_block_start" and event["content_block"]["type"] == "tool_use":
            call = {**event["content_block"], "json": ""}
        elif event["type"] == "content_block_delta":
            if call is None:
                tally.say(event["delta"]["text"])
            else:
                call["json"] += event["delta"]["partial_json"]
    return call


async def _events(client: Any, url: str, request: Json) -> AsyncIterator[Json]:
    headers = {"x-api-key": "test", "anthropic-version": "2023-06-01"}
    rest = b""
    async with client.stream(
        "POST", f"{url}/v1/messages", json={**request, "stream": True}, headers=headers
    ) as reply:
        async for chunk in reply.aiter_bytes():
            *events, rest = (rest + chunk).split(b"\n\n")
            for event in events:
                yield json.loads(event[event.index(b"data: ") + 6 :])


_WARM_UP = [{"role": "user", "content": "burst 200"}]
_TOOLS = [
    {
        "name": "Read",
        "description": "Read a file.",
        "input_schema": {"type": "object", "properties": {"file_path": {"type": "string"}}},
    }
]
_KINDS: dict[str, Callable[[str, list[Json]], Awaitable[Cost]]] = {
    "sdk": sdk,
    "bodies": bodies,
    "bare": bare,
    "turns": turns,
    "posts": posts,
    "crowd": crowd,
    "abort": abort,
}


def reference(kind: str, url: str, prompt: str, *, before: int = 0, cwd: Path | None = None) -> Cost:
    """Return what a reference costs.

    Args:
        kind: One of ``_KINDS``.
        url: The model's server.
        prompt: What the model is to do.
        before: How many bytes of conversation the request carries before the prompt.
        cwd: Where files are read.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.references", kind, url, prompt, str(before)],
        cwd=cwd or ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
        check=True,
        capture_output=True,
        text=True,
    )
    return Cost(**json.loads(done.stdout))


def first(url: str) -> None:
    """Ask the SDK for one answer and print what it says."""
    from anthropic import Anthropic

    messages = [{"role": "user", "content": "arrival"}]
    with Anthropic(api_key="test", base_url=url) as client:
        for event in client.messages.create(**body(messages), stream=True):  # type: ignore[call-overload]
            if event.type == "content_block_delta":
                print(event.delta.text)


def main() -> None:
    kind, url, prompt, before = sys.argv[1:]
    earlier = [{"role": "user", "content": "x" * int(before)}, {"role": "assistant", "content": "y"}]
    messages = [*(earlier if int(before) else []), {"role": "user", "content": prompt}]
    print(json.dumps(asdict(asyncio.run(_KINDS[kind](url, messages)))))


if __name__ == "__main__":
    main()
