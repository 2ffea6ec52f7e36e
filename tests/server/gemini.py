"""The Gemini API: the same scripted answers as another API has them, and what Google's reference refuses."""

import dataclasses
import json
import re
from collections.abc import Iterator
from typing import Any

from tests.server.http import Request

Json = dict[str, Any]

PATH = "gemini"  # what requests to it have as path, once read
MODELS = "/v1/models"
_ASKED = re.compile(rf"{MODELS}/([^/:]+):streamGenerateContent")
_STOPS = {"end_turn": "STOP", "tool_use": "STOP", "max_tokens": "MAX_TOKENS", "refusal": "SAFETY"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")


def read(request: Request) -> Request:
    """Return a request with ``PATH`` as its path, and the model in its body, if it is one to this API."""
    if request.method != "POST" or (found := _ASKED.fullmatch(request.path)) is None:
        return request
    return dataclasses.replace(request, path=PATH, body={**request.body, "model": found[1], "stream": True})


def event(chunk: Json) -> bytes:
    return f"data: {json.dumps(chunk)}\r\n\r\n".encode()


def chunks(blocks: Any, stop: str, usage: Json) -> Iterator[Json]:
    """Yield the chunks of an answer of ``blocks``; the last one says why it ends."""
    signature, counted, reason = None, _counted(usage), _STOPS.get(stop, stop)
    parts: list[Json] = []
    for block in blocks:
        match block.start["type"]:
            case "thinking":
                signature = block.whole["signature"]
                parts += [{"text": d["thinking"], "thought": True} for d in block.deltas if "thinking" in d]
            case "text":
                parts += [{"text": delta["text"]} for delta in block.deltas]
                if signature:
                    parts.append({"text": "", "thoughtSignature": signature})
                signature = None
            case "tool_use":
                try:
                    given = json.loads("".join(delta["partial_json"] for delta in block.deltas))
                except ValueError:
                    reason = reason if stop == "max_tokens" else "MALFORMED_FUNCTION_CALL"
                    continue
                call = {"id": block.start["id"], "name": block.start["name"], "args": given}
                parts.append({"functionCall": call} | ({"thoughtSignature": signature} if signature else {}))
                signature = None
    for part in parts:
        yield {"candidates": [{"content": {"role": "model", "parts": [part]}, "index": 0}]}
    yield {"candidates": [{"content": {"role": "model"}, "finishReason": reason}], "usageMetadata": counted}


def _counted(usage: Json) -> Json:
    read, written = usage.get("cache_read_input_tokens", 0), usage.get("cache_creation_input_tokens", 0)
    thought = (usage.get("output_tokens_details") or {}).get("thinking_tokens", 0)
    return {
        "promptTokenCount": usage["input_tokens"] + read + written,
        "cachedContentTokenCount": read,
        "candidatesTokenCount": usage["output_tokens"] - thought,
        "thoughtsTokenCount": thought,
    }


def refused(status: int, kind: str, message: str) -> Json:
    return {"error": {"code": status, "message": message, "status": kind.upper()}}


def listed(names: tuple[str, ...]) -> Json:
    models = [{"name": f"models/{name}", "supportedGenerationMethods": ["generateContent"]} for name in names]
    return {"models": [*models, {"name": "models/embed", "supportedGenerationMethods": ["embedContent"]}]}


def problems(request: Request) -> Iterator[str]:
    """Yield what is wrong with a request."""
    body = request.body
    known = {"model", "stream", "contents", "systemInstruction", "tools", "toolConfig", "generationConfig"}
    yield from (f'Unknown name "{key}": Cannot find field.' for key in body.keys() - known)
    for tool in body.get("tools") or ():
        for each in tool["functionDeclarations"]:
            yield from _of_name(each.get("name"))
            schema = each.get("parametersJsonSchema") or each.get("parameters_json_schema") or {}  # it reads both
            if schema.get("type") != "object":
                yield "function_declarations: parameters schema should be of type OBJECT"
    turns = body.get("contents") or []
    if not turns:
        yield "contents is not specified"
        return
    if turns[0].get("role") != "user":
        yield "Please ensure that multiturn requests alternate between user and model."
    begin = max(n for n, turn in enumerate(turns) if turn["role"] == "user" and not _of(turn, "functionResponse"))
    for number, (turn, after) in enumerate(zip(turns, [*turns[1:], {}], strict=True)):
        yield from (f"contents[{number}]: {problem}" for problem in _of_turn(turn))
        calls, results = _of(turn, "functionCall"), _of(after, "functionResponse")
        if [(each["id"], each["name"]) for each in calls] != [(each["id"], each["name"]) for each in results]:
            yield (
                "Please ensure that the number of function response parts is equal to the number of function call "
                "parts of the function call turn."
            )
        first = next((part for part in turn.get("parts", ()) if "functionCall" in part), None)
        if first is not None and number > begin and "thoughtSignature" not in first:
            yield f"Function call `{first['functionCall']['name']}` is missing a thought_signature."


def _of(turn: Json, kind: str) -> list[Json]:
    return [part[kind] for part in turn.get("parts", ()) if kind in part]


def _of_turn(turn: Json) -> Iterator[str]:
    if turn.get("role") not in ("user", "model"):
        yield "Please use a valid role: user, model."
    if not turn.get("parts"):
        yield "parts must not be empty"
    known = {"text", "thought", "thoughtSignature", "functionCall", "functionResponse", "inlineData"}
    for part in turn.get("parts", ()):
        yield from (f'Unknown name "{key}"' for key in part.keys() - known)
        if len(part.keys() & {"text", "functionCall", "functionResponse", "inlineData"}) != 1:
            yield "required oneof field 'data' must have one initialized field"
        for kind in ("functionCall", "functionResponse"):
            if kind in part:
                yield from _of_name(part[kind].get("name"))
        if "functionResponse" in part and not isinstance(part["functionResponse"].get("response"), dict):
            yield "function_response.response: Proto field is not repeating"


def _of_name(name: Any) -> Iterator[str]:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        yield "Invalid function name. Must start with a letter or an underscore, at most 64 characters."
