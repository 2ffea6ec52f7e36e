"""What a model says, and how its server fails: values to script a server with.

``answer(thinking("hm"), text("Hello", chunks=3), tool_use("Read", file_path="a.md"))`` is one answer of three
blocks. The rest are faults.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.server import chat, gemini, responses
from tests.server.http import Cut, Hang, Pause, Reply, Request, Step, event_stream, json_reply

Json = dict[str, Any]
_serial = itertools.count(1)


class Scripted(Protocol):
    """Something that answers a request."""

    def reply(self, request: Request) -> Reply: ...


def sse(event: Json) -> bytes:
    """Return ``event`` as the API sends it."""
    data = json.dumps(event, ensure_ascii=False)
    if any("\ud800" <= char <= "\udfff" for char in data):  # half a surrogate pair travels as an escape
        data = json.dumps(event)
    return f"event: {event['type']}\ndata: {data}\n\n".encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A content block: how it starts, the deltas that follow, and its form in an answer that is not streamed."""

    start: Json
    deltas: Sequence[Json]
    whole: Json

    def events(self, index: int) -> Iterator[Json]:
        yield {"type": "content_block_start", "index": index, "content_block": self.start}
        for delta in self.deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}


def text(said: str, *, chunks: int = 1) -> Block:
    deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(said, chunks)]
    return Block(start={"type": "text", "text": ""}, deltas=deltas, whole={"type": "text", "text": said})


def thinking(thought: str, *, signature: str = "c2lnbmF0dXJl", chunks: int = 1) -> Block:
    deltas: list[Json] = [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(thought, chunks)]
    deltas.append({"type": "signature_delta", "signature": signature})
    return Block(
        start={"type": "thinking", "thinking": "", "signature": ""},
        deltas=deltas,
        whole={"type": "thinking", "thinking": thought, "signature": signature},
    )


def redacted_thinking(data: str) -> Block:
    whole = {"type": "redacted_thinking", "data": data}
    return Block(start=whole, deltas=(), whole=whole)


def tool_use(
    name: str, /, *, id: str | None = None, chunks: int = 3, json_text: str | None = None, **arguments: Any
) -> Block:
    """A tool call; ``json_text`` replaces the arguments with text that need not be JSON."""
    start = {"type": "tool_use", "id": id or f"toolu_test_{next(_serial):04d}", "name": name, "input": {}}
    written = json.dumps(arguments) if json_text is None else json_text
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ["", *_pieces(written, chunks)]]
    return Block(start=start, deltas=deltas, whole={**start, "input": arguments})


def _pieces(whole: str, chunks: int) -> list[str]:
    size = max(1, -(-len(whole) // chunks))
    return [whole[start : start + size] for start in range(0, len(whole), size)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer of blocks; the counts and the stop reason are what the API would say unless given."""

    blocks: Sequence[Block]
    stop_reason: str | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)
    pause_s: float = 0.0  # before each delta
    cut_after: int | None = None  # events, then the connection is dropped
    hang_after: int | None = None  # events, then silence
    end_after: int | None = None  # events, then a clean end of the body
    insert: Mapping[int, bytes] = field(default_factory=dict)  # raw bytes after so many events

    def reply(self, request: Request) -> Reply:
        if not request.body.get("stream"):
            return json_reply(200, self._message(request, [block.whole for block in self.blocks], self._stop()))
        return event_stream(self._steps(request))

    def events(self, request: Request) -> Iterator[Json]:
        if request.path == chat.PATH:
            yield from chat.chunks(request, self.blocks, self._stop(), self._usage())
            return
        if request.path == responses.PATH:
            yield from responses.events(request, self.blocks, self._stop(), self._usage())
            return
        if request.path == gemini.PATH:
            yield from gemini.chunks(self.blocks, self._stop(), self._usage())
            return
        yield {"type": "message_start", "message": self._message(request, [], None)}
        yield {"type": "ping"}
        for index, block in enumerate(self.blocks):
            yield from block.events(index)
        delta = {"stop_reason": self._stop(), "stop_sequence": None}
        yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": self._usage()["output_tokens"]}}
        yield {"type": "message_stop"}

    def _steps(self, request: Request) -> Iterator[Step]:
        for number, event in enumerate(self.events(request), 1):
            if self.pause_s and event.get("type", "content_block_delta") == "content_block_delta":
                yield Pause(self.pause_s)
            yield _written(request, event)
            if number in self.insert:
                yield self.insert[number]
            if number == self.end_after:
                return
            if number == self.cut_after:
                yield Cut()
            if number == self.hang_after:
                yield Hang()
        if request.path == chat.PATH:
            yield b"data: [DONE]\n\n"

    def _stop(self) -> str:
        calls = any(block.start["type"] == "tool_use" for block in self.blocks)
        return self.stop_reason or ("tool_use" if calls else "end_turn")

    def _usage(self) -> Json:
        return {"input_tokens": 10, "output_tokens": 5, **self.usage}

    def _message(self, request: Request, content: list[Json], stop: str | None) -> Json:
        return {
            "id": f"msg_test_{next(_serial):04d}",
            "type": "message",
            "role": "assistant",
            "model": request.body.get("model"),
            "content": content,
            "stop_reason": stop,
            "stop_sequence": None,
            "usage": self._usage(),
        }


def answer(*blocks: Block | str, **options: Any) -> Answer:
    """Return an answer of ``blocks``; a string is a text block. ``options`` are the fields of ``Answer``."""
    return Answer(blocks=[text(block) if isinstance(block, str) else block for block in blocks], **options)


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same reply to whatever is asked."""

    given: Reply

    def reply(self, request: Request) -> Reply:
        return self.given


def _written(request: Request, event: Json) -> bytes:
    written = {chat.PATH: chat.event, responses.PATH: responses.event, gemini.PATH: gemini.event}
    return written.get(request.path, sse)(event)


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error in the words of the API that was asked."""

    status: int
    kind: str
    message: str
    headers: Mapping[str, str]

    def reply(self, request: Request) -> Reply:
        if request.path in (chat.PATH, responses.PATH):
            return json_reply(self.status, chat.refused(self.status, self.kind, self.message), self.headers)
        if request.path == gemini.PATH:
            return json_reply(self.status, gemini.refused(self.status, self.kind, self.message), self.headers)
        error = {"type": "error", "error": {"type": self.kind, "message": self.message}}
        return json_reply(self.status, error, self.headers)


def refusal(
    status: int, kind: str = "api_error", message: str = "no", *, headers: Mapping[str, str] | None = None
) -> Scripted:
    """An error of the API: 401, 429 with ``retry-after``, 500, 529 …"""
    return Refusal(status, kind, message, headers or {})


def error_event(kind: str, message: str) -> bytes:
    """An error in the middle of a stream, for ``Answer.insert``."""
    return sse({"type": "error", "error": {"type": kind, "message": message}})


def silent() -> Fixed:
    """Headers, then nothing."""
    return Fixed(event_stream([Hang()]))


def malformed(data: bytes = b'event: content_block_delta\ndata: {"type": "content_b\n\n') -> Fixed:
    """A stream whose first event is ``data``."""
    return Fixed(event_stream([data]))


def raw(steps: Iterable[Step], *, content_type: str = "text/event-stream", status: int = 200) -> Fixed:
    """Exactly these bytes, one chunk each."""
    return Fixed(Reply(status=status, headers={"content-type": content_type}, steps=list(steps)))
