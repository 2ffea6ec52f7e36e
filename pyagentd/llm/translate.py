"""From our values to the JSON of the Anthropic Messages API; pure.

Breakpoints for the provider's prompt cache are set where a conversation stays stable: the system prompt and the tools
here, the last messages by ``body``. The API allows four.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

from pyagentd.llm.backend import ModelRequest, ToolSchema
from pyagentd.messages import Media, Message, Part, Reasoning, Text, ToolCall, ToolResult

Json = dict[str, Any]

_CACHE: Json = {"type": "ephemeral"}
_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")  # what the API takes as a tool's name, and as a call's id
_UNCACHEABLE = ("thinking", "redacted_thinking")


def settings_body(request: ModelRequest) -> Json:
    """Return the arguments of ``messages.create`` for ``request``, without ``messages`` and ``stream``."""
    body: Json = {"model": request.model, "max_tokens": request.max_tokens}
    if request.system.strip():
        body["system"] = [{"type": "text", "text": request.system, "cache_control": _CACHE}]
    if request.tools:
        body["tools"] = _tools(request.tools)
    if request.thinking_budget is not None:
        # The budget counts against max_tokens, and the API refuses a temperature beside it.
        body["max_tokens"] = request.max_tokens + request.thinking_budget
        body["thinking"] = {"type": "enabled", "budget_tokens": request.thinking_budget}
    elif request.temperature is not None:
        body["temperature"] = request.temperature
    return body


def message_body(message: Message) -> Json | None:
    """Return ``message`` as an item of ``messages``; None when nothing in it can be sent."""
    content = _content(message.parts)
    return {"role": message.role, "content": content} if content else None


def mark(message: Json) -> None:
    """Set a breakpoint of the provider's prompt cache after ``message``."""
    last = message["content"][-1]
    if last["type"] not in _UNCACHEABLE:
        last["cache_control"] = _CACHE


def _tools(tools: tuple[ToolSchema, ...]) -> list[Json]:
    listed: list[Json] = [
        {"name": tool.name, "description": tool.description, "input_schema": dict(tool.input_schema)}
        for tool in tools
    ]
    listed[-1]["cache_control"] = _CACHE
    return listed


def _content(parts: tuple[Part, ...]) -> list[Json]:
    blocks = [block for part in parts if (block := _block(part)) is not None]
    # The API wants results before any text of the same message.
    return sorted(blocks, key=lambda block: block["type"] != "tool_result") if _has_result(blocks) else blocks


def _has_result(blocks: list[Json]) -> bool:
    return any(block["type"] == "tool_result" for block in blocks)


def _block(part: Part) -> Json | None:
    """Return the content block of ``part``, or None where the API would refuse an empty one."""
    match part:
        case Text(text=text):
            return {"type": "text", "text": text} if text.strip() else None
        case Reasoning(redacted=str(data)):
            return {"type": "redacted_thinking", "data": data}
        case Reasoning(text=text, signature=str(signature)):
            return {"type": "thinking", "thinking": text, "signature": signature}
        case Reasoning():
            return None  # without its signature the provider refuses it
        case ToolCall(id=call_id, name=name, input=arguments):
            return {"type": "tool_use", "id": _taken(call_id), "name": _taken(name), "input": dict(arguments)}
        case ToolResult():
            return _tool_result(part)
        case Media(type=media_type, data=data):
            kind = "image" if media_type.startswith("image/") else "document"
            return {"type": kind, "source": {"type": "base64", "media_type": media_type, "data": data}}


def _taken(name: str) -> str:
    """Return a name or an id that a model made up as the API takes it: other characters would end every request."""
    if _NAME.fullmatch(name):
        return name
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:80]
    return f"{plain}_{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def _tool_result(part: ToolResult) -> Json:
    block: Json = {"type": "tool_result", "tool_use_id": _taken(part.id)}
    if part.text.strip():
        block["content"] = [{"type": "text", "text": part.text}]
    if part.is_error:
        block["is_error"] = True
        block.setdefault("content", [{"type": "text", "text": "The tool failed without a message."}])
    return block
