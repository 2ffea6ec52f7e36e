"""What a provider's prompt cache needs: a request begins with exactly what the request before it was."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tests.server import Request

BREAKPOINTS = 4  # the API allows no more
_LOOKBACK = 20  # blocks before a breakpoint in which the API looks for what it knows

Body = Mapping[str, Any]


def assert_prefix(bodies: Iterable[Body | Request]) -> None:
    """Assert that each request begins with the one before it, and is marked so that the provider finds that.

    Tools and system prompt are the same; the blocks of the messages are those of the request before, then new ones
    (a message that the user adds to an unanswered one is the same message to the API, so blocks are compared).
    """
    listed = [body.body if isinstance(body, Request) else body for body in bodies]
    for number, body in enumerate(listed):
        assert_marked(body)
        if number:
            _assert_continues(listed[number - 1], body, f"request {number + 1}")


def assert_marked(body: Body) -> None:
    """Assert where a request is marked: tools, system prompt and the last message."""
    marks = list(_marks(body))
    assert len(marks) <= BREAKPOINTS, marks
    if body.get("tools"):
        assert "cache_control" in body["tools"][-1]
    if body.get("system"):
        assert "cache_control" in body["system"][-1]
    assert "cache_control" in body["messages"][-1]["content"][-1], "the end is written to the cache"


def blocks(body: Body) -> list[tuple[str, Any]]:
    """Return the blocks of all messages, each with its role, without breakpoints."""
    return [(message["role"], _plain(block)) for message in body["messages"] for block in _content(message)]


def _assert_continues(before: Body, after: Body, name: str) -> None:
    for part in ("model", "tools", "system"):
        assert _plain(after.get(part)) == _plain(before.get(part)), f"{name}: another {part}"
    old, new = blocks(before), blocks(after)
    for position, block in enumerate(old):
        assert position < len(new), f"{name} lacks {block}"
        assert new[position] == block, f"{name}, block {position}: {new[position]} instead of {block}"
    written = len(old) - 1
    assert any(written <= mark < written + _LOOKBACK for mark in _message_marks(after)), f"{name} reads nothing"


def _content(message: Mapping[str, Any]) -> list[Any]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _marks(body: Body) -> Iterator[Any]:
    for part in (body.get("tools") or [], body.get("system") or []):
        yield from (item for item in part if "cache_control" in item)
    yield from _message_marks(body)


def _message_marks(body: Body) -> list[int]:
    every = [block for message in body["messages"] for block in _content(message)]
    return [number for number, block in enumerate(every) if "cache_control" in block]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items() if key != "cache_control"}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value
