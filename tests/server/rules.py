"""What the real API refuses: a request that breaks one of these rules gets status 400 or 401."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.server.http import Request

_CACHE_BREAKPOINTS = 4
_SMALLEST_BUDGET = 1024


def missing_key(request: Request) -> bool:
    return not any(map(request.headers.get, ("x-api-key", "authorization", "x-goog-api-key")))


def problems(request: Request) -> list[str]:
    """Return what is wrong with ``request``, in the API's order of looking."""
    return [*_of_fields(request), *_of_thinking(request.body), *_of_messages(request.messages)]


def _of_fields(request: Request) -> Iterator[str]:
    if "anthropic-version" not in request.headers:
        yield "anthropic-version: header is required"
    yield from (f"{key}: field required" for key in ("model", "max_tokens", "messages") if key not in request.body)
    if _breakpoints(request.body) > _CACHE_BREAKPOINTS:
        yield f"a maximum of {_CACHE_BREAKPOINTS} blocks with cache_control may be provided"


def _breakpoints(value: Any) -> int:
    if isinstance(value, dict):
        return ("cache_control" in value) + sum(_breakpoints(item) for item in value.values())
    return sum(_breakpoints(item) for item in value) if isinstance(value, list) else 0


def _of_thinking(body: dict[str, Any]) -> Iterator[str]:
    if (body.get("thinking") or {}).get("type") != "enabled":
        return
    budget = body["thinking"].get("budget_tokens", 0)
    if budget < _SMALLEST_BUDGET:
        yield f"thinking.budget_tokens: should be at least {_SMALLEST_BUDGET}"
    if budget >= body.get("max_tokens", 0):
        yield "max_tokens must be greater than thinking.budget_tokens"
    if body.get("temperature", 1) != 1:
        yield "temperature may only be set to 1 when thinking is enabled"


def _of_messages(messages: list[dict[str, Any]]) -> Iterator[str]:
    if not messages:
        yield "messages: at least one message is required"
        return
    if messages[0]["role"] != "user":
        yield "messages: first message must use the user role"
    for index, message in enumerate(messages):
        yield from (f"messages.{index}: {problem}" for problem in _of_content(message))
    for index, (before, after) in enumerate(zip([{}, *messages], [*messages, {}], strict=True)):
        yield from (f"messages.{index}: {problem}" for problem in _of_pairs(before, after))


def _of_content(message: dict[str, Any]) -> Iterator[str]:
    if not message["content"]:
        yield "content must not be empty"
    blocks = _blocks(message)
    kinds = [block["type"] for block in blocks]
    if "tool_result" in kinds and kinds.index("tool_result") != 0:
        yield "tool_result blocks must come first"
    if any(block["type"] == "text" and not block["text"].strip() for block in blocks):
        yield "text content blocks must contain non-whitespace text"


def _of_pairs(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    calls = [block["id"] for block in _blocks(before) if block["type"] == "tool_use"]
    results = [block["tool_use_id"] for block in _blocks(after) if block["type"] == "tool_result"]
    if len(set(calls)) != len(calls):
        yield "tool_use ids must be unique"
    if missing := set(calls) - set(results):
        yield f"tool_use ids were found without tool_result blocks immediately after: {', '.join(sorted(missing))}"
    if stray := set(results) - set(calls):
        yield f"unexpected tool_use_id found in tool_result blocks: {', '.join(sorted(stray))}"


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content", [])
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
