"""A model that answers by chance: text, thoughts, calls, several at once, nothing, errors of every kind, slowly."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from random import Random

from pyagentd.errors import ProviderError, TransientProviderError
from pyagentd.llm.backend import (
    ModelRequest,
    PartDelta,
    PartFinished,
    PartStarted,
    StepFinished,
    StopReason,
    StreamItem,
)
from pyagentd.messages import Reasoning, Text, ToolCall, ToolResult, Usage

Batch = Sequence[StreamItem]
Batches = AsyncGenerator[Batch, None]

_WORDS = ("the", "file", "says", "that", "nothing", "was", "lost", "and", "it", "was", "read", "twice")
_CALLS_AT_MOST = 3  # in one answer
_STEPS_AT_MOST = 4  # with calls, after one prompt


class ScriptedModel:
    """One backend.

    Args:
        random: What chance is.
        project: Where the files are that it reads and writes.
        seen: Told of every request of a conversation, before it is answered.
    """

    def __init__(self, random: Random, project: Path, seen: Callable[[ModelRequest], None]) -> None:
        self._random = random
        self._project = project
        self._seen = seen
        self._made = 0

    async def close(self) -> None:
        """There is nothing to close."""

    async def stream(self, request: ModelRequest) -> Batches:
        """Answer ``request`` somehow."""
        if request.tools:
            self._seen(request)
        kind = self._random.choices(
            ("say", "think", "call", "nothing", "overloaded", "refused", "cut", "limit", "slow"),
            (30, 8, 25, 2, 8, 3, 3, 3, 18),
        )[0]
        await asyncio.sleep(self._random.random() * 0.3)
        if kind == "overloaded":
            raise TransientProviderError("Overloaded")
        if kind == "refused":
            raise ProviderError("The server refused")
        if kind == "call" and not (request.tools and _steps(request) < _STEPS_AT_MOST):
            kind = "say"
        async for batch in self._answer(request, kind):
            yield batch

    async def _answer(self, request: ModelRequest, kind: str) -> Batches:
        index, stop = 0, "end_turn"
        if kind == "think":
            yield [PartStarted(index, "reasoning"), PartDelta(index, "Let me see")]
            yield [PartFinished(index, Reasoning(text="Let me see", signature=f"signature-{self._number()}"))]
            index += 1
        if kind in ("say", "think", "cut", "limit", "slow") or (kind == "call" and self._random.random() < 0.5):
            pause = 3.0 if kind == "slow" else 0.1
            async for batch in self._say(index, pause, cut=kind == "cut"):
                yield batch
            index += 1
        if kind == "call":
            stop = "tool_use"
            for offset in range(self._random.randint(1, _CALLS_AT_MOST)):
                call = self._call()
                yield [
                    PartStarted(index + offset, "tool", call.id, call.name),
                    PartFinished(index + offset, call),
                ]
        elif kind == "limit":
            stop = "max_tokens"
        yield [StepFinished(_stop(stop), _usage(request))]

    async def _say(self, index: int, pause_s: float, *, cut: bool) -> Batches:
        words = [f"Answer {self._number()}:", *self._random.choices(_WORDS, k=self._random.randint(1, 12))]
        yield [PartStarted(index, "text")]
        for number, word in enumerate(words):
            await asyncio.sleep(self._random.random() * pause_s)
            if cut and number > len(words) // 2:
                raise TransientProviderError("The connection was cut")
            yield [PartDelta(index, f" {word}" if number else word)]
        yield [PartFinished(index, Text(text=" ".join(words)))]

    def _call(self) -> ToolCall:
        number = self._number()
        file = self._project / f"file-{self._random.randint(1, 5)}.txt"
        if self._random.random() < 0.6:
            return ToolCall(id=f"call_{number}", name="Read", input={"file_path": str(file)})
        return ToolCall(
            id=f"call_{number}", name="Write", input={"file_path": str(file), "content": f"written by {number}\n"}
        )

    def _number(self) -> int:
        self._made += 1
        return self._made


def _stop(name: str) -> StopReason:
    stops: dict[str, StopReason] = {"end_turn": "end_turn", "tool_use": "tool_use", "max_tokens": "max_tokens"}
    return stops[name]


def _steps(request: ModelRequest) -> int:
    """Return how many answers with calls follow the last words of a person."""
    count = 0
    for message in reversed(request.messages):
        if message.role == "user" and not any(isinstance(part, ToolResult) for part in message.parts):
            break
        count += message.role == "assistant"
    return count


def _usage(request: ModelRequest) -> Usage:
    size = sum(len(json.dumps(str(message.parts))) for message in request.messages)
    return Usage(input=size // 4, output=10)
