"""Answers for benchmarks: many deltas as fast as possible, at a rate, or many turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.server.answers import Answer, answer, sse, text, tool_use
from tests.server.http import Pause, Reply, Request, Step, event_stream

_NOBODY = Request(method="POST", path="/v1/messages", headers={}, body={"model": "bench", "stream": True})


def _encoded(said: list[str]) -> tuple[bytes, list[bytes], bytes]:
    """Return the bytes before the deltas, one event per delta, and the bytes after."""
    head, deltas, tail = [], [], []
    block = text("")
    deltas_of = [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": s}} for s in said
    ]
    for event in answer(block, usage={"output_tokens": len(said)}).events(_NOBODY):
        (tail if event["type"] in ("content_block_stop", "message_delta", "message_stop") else head).append(
            sse(event)
        )
    deltas = [sse(event) for event in deltas_of]
    return b"".join(head), deltas, b"".join(tail)


@dataclass(frozen=True, slots=True)
class Burst:
    """Deltas encoded beforehand, ``per_write`` of them in one chunk."""

    chunks: tuple[bytes, ...]

    def reply(self, request: Request) -> Reply:
        return event_stream(self.chunks)


def burst(deltas: int, *, per_write: int = 50, word: str = "token ") -> Burst:
    """Return an answer of ``deltas`` deltas as fast as the socket takes them."""
    head, events, tail = _encoded([word] * deltas)
    groups = (b"".join(events[start : start + per_write]) for start in range(0, deltas, per_write))
    return Burst((head, *groups, tail))


@dataclass(frozen=True, slots=True)
class Paced:
    """Deltas at a rate; what is late is sent at once, so that the rate holds on average."""

    rate: float
    events: tuple[bytes, ...] = field(repr=False)
    head: bytes = field(repr=False)
    tail: bytes = field(repr=False)

    def reply(self, request: Request) -> Reply:
        return event_stream(self._steps())

    def _steps(self) -> Iterator[Step]:
        start = time.monotonic()
        yield self.head
        for number, event in enumerate(self.events):
            if (wait := start + number / self.rate - time.monotonic()) > 0:
                yield Pause(wait)
            yield event
        yield self.tail


def paced(rate: float, *, seconds: float = 1.0, word: str = "token ") -> Paced:
    """Return an answer of ``rate`` deltas a second for ``seconds``."""
    head, events, tail = _encoded([word] * int(rate * seconds))
    return Paced(rate, tuple(events), head, tail)


def tool_turns(
    turns: int, *, name: str = "Glob", done: str = "done", **arguments: Any
) -> Callable[[Request], Answer]:
    """Return a rule: call the tool ``turns`` times for each prompt, one call an answer, then say ``done``."""
    given = arguments or {"pattern": "*.md"}

    def rule(request: Request) -> Answer:
        return answer(tool_use(name, **given) if _results_since_prompt(request) < turns else done)

    return rule


def _results_since_prompt(request: Request) -> int:
    count = 0
    for message in reversed(request.messages):
        if message["role"] != "user":
            continue
        kinds = ["text"] if isinstance(message["content"], str) else [block["type"] for block in message["content"]]
        count += kinds.count("tool_result")
        if "text" in kinds:
            break
    return count
