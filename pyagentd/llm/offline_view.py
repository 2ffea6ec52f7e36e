"""What a request of the Messages API says, as far as the offline stand-in cares; pure.

The stand-in is stateless, as a real model is: everything it knows is in the request. It answers the last user text
and looks only at the tool calls made since then.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

_SUMMARY = "<conversation_summary>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A tool call that was made for the prompt, with its result."""

    name: str
    input: Mapping[str, Any]
    text: str
    is_error: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The prompt, the tools on offer by name (their input schemas), and what was done so far."""

    prompt: str
    pictures: int = 0  # and documents, that the prompt shows
    tools: Mapping[str, Mapping[str, Any]]
    exchanges: tuple[Exchange, ...]


def view_of(body: Json) -> View:
    """Return what ``body``, the JSON of a request, says."""
    messages = body.get("messages") or []
    start = _last_prompt(messages)
    return View(
        prompt=_text(messages[start]) if start >= 0 else "",
        pictures=len(media_of(messages[start : start + 1])) if start >= 0 else 0,
        tools={tool["name"]: tool.get("input_schema") or {} for tool in body.get("tools") or []},
        exchanges=tuple(_exchanges(messages[start + 1 :])),
    )


def text_of(content: str | list[Json] | None) -> str:
    """Return the text blocks of ``content``, one after the other."""
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content or [] if block.get("type") == "text")


def media_of(messages: list[Json]) -> list[str]:
    """Return the pictures and documents of ``messages``, as base64."""
    blocks = [block for each in messages if isinstance(each["content"], list) for block in each["content"]]
    return [block["source"]["data"] for block in blocks if block.get("type") in ("image", "document")]


def _text(message: Json) -> str:
    """Return the text of a message without the summary of what came before."""
    content = message["content"]
    if isinstance(content, list):
        content = [block for block in content if not block.get("text", "").startswith(_SUMMARY)]
    return text_of(content).strip()


def _last_prompt(messages: list[Json]) -> int:
    prompts = (
        index for index, message in reversed([*enumerate(messages)]) if message["role"] == "user" and _text(message)
    )
    return next(prompts, -1)


def _exchanges(messages: list[Json]) -> list[Exchange]:
    blocks = [block for message in messages if isinstance(message["content"], list) for block in message["content"]]
    results = {block["tool_use_id"]: block for block in blocks if block["type"] == "tool_result"}
    return [
        Exchange(
            name=block["name"],
            input=block.get("input") or {},
            text=text_of(results[block["id"]].get("content")),
            is_error=bool(results[block["id"]].get("is_error")),
        )
        for block in blocks
        if block["type"] == "tool_use" and block["id"] in results
    ]


_NOT_A_PATH = re.compile(r"^(No |Found |\[|\()|[*\0]|: ")


def found_files(exchange: Exchange) -> list[str]:
    """Return the paths of files in the result of a Glob call, without directories and remarks."""
    lines = (line.strip() for line in exchange.text.splitlines())
    return [line for line in lines if line and not line.endswith("/") and not _NOT_A_PATH.search(line)]
