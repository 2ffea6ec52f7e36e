"""Chat Completions: the same scripted answers as another API has them, and what servers of it refuse.

The rules are those of OpenAI's published schema and of the servers' own messages.
"""

import json
from collections.abc import Iterator
from typing import Any

from tests.server.http import Request

Json = dict[str, Any]

PATH = "/v1/chat/completions"
_STOPS = {"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length", "refusal": "content_filter"}
_ROLES = ("system", "developer", "user", "assistant", "tool")
_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


def event(chunk: Json) -> bytes:
    return f"data: {json.dumps(chunk)}\n\n".encode()


def chunk(request: Request, delta: Json, stop: str | None = None, **fields: Any) -> Json:
    return {
        "id": "chatcmpl-test",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": request.body.get("model"),
        "choices": [{"index": 0, "delta": delta, "finish_reason": stop, "logprobs": None}],
        **fields,
    }


def chunks(request: Request, blocks: Any, stop: str, usage: Json) -> Iterator[Json]:
    """Yield the chunks of an answer of ``blocks``."""
    yield chunk(request, {"role": "assistant", "content": ""})
    calls = 0
    for block in blocks:
        if block.start["type"] == "tool_use":
            function = {"name": block.start["name"], "arguments": ""}
            call = {"index": calls, "id": block.start["id"], "type": "function", "function": function}
            yield chunk(request, {"tool_calls": [call]})
        for delta in block.deltas:
            match delta["type"]:
                case "text_delta":
                    yield chunk(request, {"content": delta["text"]})
                case "thinking_delta":
                    yield chunk(request, {"reasoning_content": delta["thinking"]})
                case "input_json_delta":
                    function = {"arguments": delta["partial_json"]}
                    yield chunk(request, {"tool_calls": [{"index": calls, "function": function}]})
        calls += block.start["type"] == "tool_use"
    yield chunk(request, {}, _STOPS.get(stop, stop))
    if (request.body.get("stream_options") or {}).get("include_usage"):
        yield {**chunk(request, {}), "choices": [], "usage": counted(usage)}


def counted(usage: Json) -> Json:
    """Return tokens as this API counts them: cached ones are part of the prompt, reasoning of the answer."""
    read, written = usage.get("cache_read_input_tokens", 0), usage.get("cache_creation_input_tokens", 0)
    prompt, answer = usage["input_tokens"] + read + written, usage["output_tokens"]
    thought = (usage.get("output_tokens_details") or {}).get("thinking_tokens", 0)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": answer,
        "total_tokens": prompt + answer,
        "prompt_tokens_details": {"cached_tokens": read, "cache_write_tokens": written},
        "completion_tokens_details": {"reasoning_tokens": thought},
    }


def refused(status: int, kind: str, message: str) -> Json:
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


def problems(request: Request) -> Iterator[str]:
    """Yield what is wrong with a request."""
    body = request.body
    yield from (f"missing required parameter: {key!r}" for key in ("model", "messages") if key not in body)
    if not request.messages:
        yield "messages: array too short"
    if body.get("stream_options") and not body.get("stream"):
        yield "stream_options: only allowed when stream is enabled"
    if body.get("reasoning_effort", "low") not in ("none", "minimal", "low", "medium", "high", "xhigh"):
        yield "reasoning_effort: invalid value"
    for number, tool in enumerate(body.get("tools") or ()):
        yield from (f"tools[{number}]: {problem}" for problem in _of_tool(tool))
    waiting: list[str] = []
    for number, message in enumerate(request.messages):
        role = message.get("role")
        if role != "tool" and waiting:
            yield (
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                f"'tool_call_id'. The following did not have response messages: {', '.join(waiting)}"
            )
            waiting = []
        if role == "tool":
            if message.get("tool_call_id") in waiting:
                waiting.remove(message["tool_call_id"])
            else:
                yield f"messages[{number}]: role 'tool' must be a response to a preceding message with 'tool_calls'"
        if role == "assistant":
            waiting = [call.get("id") for call in message.get("tool_calls") or ()]
        yield from (f"messages[{number}]: {problem}" for problem in _of_message(message))
    if waiting:
        yield f"'tool_calls' without response messages: {', '.join(waiting)}"


def _of_tool(tool: Json) -> Iterator[str]:
    function = tool.get("function")
    if tool.get("type") != "function" or not isinstance(function, dict):
        yield "type must be 'function', with a function"
        return
    yield from of_name(function.get("name"))
    if function.get("parameters", {}).get("type") != "object":
        yield "schema must be a JSON Schema of 'type: \"object\"'"


def of_name(name: Any) -> Iterator[str]:
    if not isinstance(name, str) or not 0 < len(name) <= 64 or not set(name) <= _NAME:
        yield f"name {name!r} does not match '^[a-zA-Z0-9_-]{{1,64}}$'"


def _of_message(message: Json) -> Iterator[str]:
    role, content = message.get("role"), message.get("content")
    if role not in _ROLES:
        yield f"invalid role {role!r}"
    known = {"role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content"}
    yield from (f"unrecognized field {key!r}" for key in message.keys() - known)
    if content is None and not (role == "assistant" and message.get("tool_calls")):
        yield "content is required"
    if isinstance(content, list):
        if not content:
            yield "content: array too short"
        kinds = {"user": ("text", "image_url", "file", "input_audio")}.get(str(role), ("text",))
        yield from (f"content type {each['type']!r}" for each in content if each.get("type") not in kinds)
        for each in content:
            if each.get("type") == "image_url" and not each["image_url"]["url"].startswith(
                ("data:image/", "https://")
            ):
                yield "image_url is not an address of an image"
    elif content is not None and not isinstance(content, str):
        yield "content must be a text or an array"
    if role == "tool" and not isinstance(message.get("tool_call_id"), str):
        yield "tool_call_id is required"
    ids = [call.get("id") for call in message.get("tool_calls") or ()]
    if len(set(ids)) != len(ids):
        yield "tool_call ids must be unique"
    for call in message.get("tool_calls") or ():
        if not isinstance(call.get("id"), str) or not 0 < len(call["id"]) <= 40:
            yield "tool_calls id: string of at most 40 characters expected"
        if call.get("type") != "function":
            yield "tool_calls type must be 'function'"
        yield from of_name(call.get("function", {}).get("name"))
        try:
            given = json.loads(call["function"]["arguments"])
        except (KeyError, ValueError, TypeError):
            given = None
        if not isinstance(given, dict):
            yield "arguments must be the text of a JSON object"
