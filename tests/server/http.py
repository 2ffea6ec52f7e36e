"""As much of HTTP/1.1 as a model's server needs: requests with a length, answers whole or chunked, keep-alive."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request as it came; header names are lowercase."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]

    @property
    def messages(self) -> list[dict[str, Any]]:
        return self.body.get("messages") or self.body.get("input") or self.body.get("contents") or []


@dataclass(frozen=True, slots=True)
class Pause:
    """Write nothing for some seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Cut:
    """Drop the connection here."""


@dataclass(frozen=True, slots=True)
class Hang:
    """Say nothing more, until the client goes away."""


Step = bytes | Pause | Cut | Hang


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer: ``body`` whole, or ``steps`` one chunk each."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    steps: Iterable[Step] = ()


def json_reply(status: int, value: object, headers: Mapping[str, str] | None = None) -> Reply:
    return Reply(
        status=status,
        headers={"content-type": "application/json", **(headers or {})},
        body=json.dumps(value).encode(),
    )


def event_stream(steps: Iterable[Step]) -> Reply:
    return Reply(
        headers={"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}, steps=steps
    )


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    """Return the next request of a connection, None at its end."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *lines = head.rstrip().split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    data = await reader.readexactly(int(headers.get("content-length", 0)))
    body = json.loads(data) if data else {}
    return Request(method=method, path=path.partition("?")[0], headers=headers, body=body)


class Gone(Exception):
    """The connection is of no more use; ``by_client`` says who ended it."""

    def __init__(self, *, by_client: bool) -> None:
        self.by_client = by_client


async def write_reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, reply: Reply) -> None:
    """Send ``reply``; raises ``Gone`` when it ends the connection."""
    framing = "transfer-encoding: chunked" if reply.body is None else f"content-length: {len(reply.body)}"
    fields = "".join(f"{name}: {value}\r\n" for name, value in reply.headers.items())
    writer.write(f"HTTP/1.1 {reply.status} {_phrase(reply.status)}\r\n{fields}{framing}\r\n\r\n".encode())
    try:
        if reply.body is not None:
            writer.write(reply.body)
        else:
            await _write_steps(reader, writer, reply.steps)
        await writer.drain()
    except ConnectionError:
        raise Gone(by_client=True) from None


async def _write_steps(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, steps: Iterable[Step]) -> None:
    for step in steps:
        match step:
            case bytes():
                writer.write(b"%x\r\n%b\r\n" % (len(step), step))
                await writer.drain()
            case Pause(seconds=seconds):
                await asyncio.sleep(seconds)
            case Cut():
                await writer.drain()
                raise Gone(by_client=False)
            case Hang():
                await writer.drain()
                await reader.read()
                raise Gone(by_client=True)
    writer.write(b"0\r\n\r\n")


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Overloaded"
