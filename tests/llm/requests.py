"""Requests and answers in the words of the tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from pyagentd.llm.backend import Backend, ModelRequest, PartDelta, PartFinished, StepFinished, StreamItem, ToolSchema
from pyagentd.messages import Message, Part, Text, ToolCall


def user(*parts: Part | str) -> Message:
    return Message(role="user", parts=_parts(parts))


def assistant(*parts: Part | str) -> Message:
    return Message(role="assistant", parts=_parts(parts))


def request(*messages: Message | str, **fields: Any) -> ModelRequest:
    given = tuple(user(message) if isinstance(message, str) else message for message in messages)
    return ModelRequest(**{"model": "claude-test", "messages": given or (user("hello"),), **fields})


def tool(name: str, properties: Mapping[str, Any] | None = None) -> ToolSchema:
    schema = {"type": "object", "properties": dict(properties or {})}
    return ToolSchema(name=name, description=f"The tool {name}.", input_schema=schema)


async def collect(backend: Backend, asked: ModelRequest) -> list[StreamItem]:
    return [item async for batch in backend.stream(asked) for item in batch]


async def flatten(batches: AsyncIterator[Sequence[StreamItem]], into: list[StreamItem]) -> None:
    """Collect so that what came before an error is kept."""
    async for batch in batches:
        into.extend(batch)


def said(items: Sequence[StreamItem]) -> str:
    return "".join(item.text for item in items if isinstance(item, PartDelta))


def parts(items: Sequence[StreamItem]) -> list[Part]:
    return [item.part for item in items if isinstance(item, PartFinished)]


def calls(items: Sequence[StreamItem]) -> list[ToolCall]:
    return [part for part in parts(items) if isinstance(part, ToolCall)]


def end(items: Sequence[StreamItem]) -> StepFinished:
    ends = [item for item in items if isinstance(item, StepFinished)]
    assert len(ends) == 1 and items[-1] is ends[0], "an answer ends with exactly one StepFinished"
    return ends[0]


def _parts(given: Sequence[Part | str]) -> tuple[Part, ...]:
    return tuple(Text(text=part) if isinstance(part, str) else part for part in given)
