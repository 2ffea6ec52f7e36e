"""The Responses API: scripted answers in its form, and what OpenAI's published schema refuses."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

from tests.server.chat import of_name
from tests.server.http import Request

Json = dict[str, Any]

PATH = "/v1/responses"
_serial = itertools.count(1)
_WHY = {"max_tokens": "max_output_tokens", "refusal": "content_filter"}


def event(body: Json) -> bytes:
    return f"event: {body['type']}\ndata: {json.dumps(body)}\n\n".encode()


def events(request: Request, blocks: Any, stop: str, usage: Json) -> Iterator[Json]:
    """Yield the events of an answer of ``blocks``."""
    yield {"type": "response.created", "response": {"id": "resp_test", "status": "in_progress", "output": []}}
    cut = stop in _WHY
    for index, block in enumerate(blocks):
        place = {"output_index": index}
        kind = block.start["type"]
        item, whole = _item(block, cut and kind == "tool_use")
        if kind == "text" and request.body["model"] == "gpt-5.4":  # older models have no phases
            calls = any(each.start["type"] == "tool_use" for each in blocks)
            whole["phase"] = item["phase"] = "commentary" if calls else "final_answer"
        yield {"type": "response.output_item.added", "item": item, **place}
        if kind == "thinking":
            yield {"type": "response.reasoning_summary_part.added", "summary_index": 0, **place}
        for delta in block.deltas:
            match delta["type"]:
                case "text_delta":
                    yield {"type": "response.output_text.delta", "content_index": 0, "delta": delta["text"], **place}
                case "thinking_delta":
                    said = {"summary_index": 0, "delta": delta["thinking"]}
                    yield {"type": "response.reasoning_summary_text.delta", **said, **place}
                case "input_json_delta":
                    said = {"delta": delta["partial_json"]}
                    yield {"type": "response.function_call_arguments.delta", **said, **place}
        yield {"type": "response.output_item.done", "item": whole, **place}
    status = "incomplete" if cut else "completed"
    response = {"id": "resp_test", "status": status, "usage": counted(usage), "incomplete_details": None}
    if cut:
        response["incomplete_details"] = {"reason": _WHY[stop]}
    yield {"type": f"response.{status}", "response": response}


def _item(block: Any, cut: bool) -> tuple[Json, Json]:
    """Return the item of a block as it begins, and as it is when it is done."""
    status = "incomplete" if cut else "completed"
    match block.start["type"]:
        case "tool_use":
            call = {"type": "function_call", "id": f"fc_{next(_serial)}", "call_id": block.start["id"]}
            call |= {"name": block.start["name"], "arguments": "", "status": "in_progress"}
            written = "".join(delta["partial_json"] for delta in block.deltas)
            return call, call | {"arguments": written, "status": status}
        case "thinking":
            item = {"type": "reasoning", "id": f"rs_{next(_serial)}", "summary": [], "encrypted_content": ""}
            summary = [{"type": "summary_text", "text": block.whole["thinking"]}]
            return item, item | {"summary": summary, "encrypted_content": block.whole["signature"]}
        case _:
            item = {"type": "message", "id": f"msg_{next(_serial)}", "role": "assistant", "content": []}
            said = {"type": "output_text", "text": block.whole.get("text", ""), "annotations": []}
            return item, item | {"content": [said], "status": status}


def counted(usage: Json) -> Json:
    """Return tokens as this API counts them: cached ones are part of the input, reasoning of the output."""
    read, written = usage.get("cache_read_input_tokens", 0), usage.get("cache_creation_input_tokens", 0)
    prompt, answer = usage["input_tokens"] + read + written, usage["output_tokens"]
    thought = (usage.get("output_tokens_details") or {}).get("thinking_tokens", 0)
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": read, "cache_write_tokens": written},
        "output_tokens": answer,
        "output_tokens_details": {"reasoning_tokens": thought},
        "total_tokens": prompt + answer,
    }


def problems(request: Request) -> Iterator[str]:
    """Yield what is wrong with a request."""
    body = request.body
    known = {"model", "input", "instructions", "tools", "max_output_tokens", "temperature", "reasoning", "include"}
    yield from (f"Unknown parameter: {key!r}" for key in body.keys() - known - {"stream", "store"})
    if not isinstance(body.get("model"), str) or not body.get("input"):
        yield "model and input are required"
    if body.get("max_output_tokens", 16) < 16:
        yield "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16"
    for number, tool in enumerate(body.get("tools") or ()):
        if tool.get("type") != "function" or (tool.get("parameters") or {}).get("type") != "object":
            yield f"tools[{number}]: a function with parameters of type object is expected"
        yield from (f"tools[{number}]: {problem}" for problem in of_name(tool.get("name")))
    calls, results = [], []
    items = request.messages
    for number, (item, after) in enumerate(zip(items, [*items[1:], {}], strict=True)):
        kind = item.get("type", "message")
        yield from (f"input[{number}]: {problem}" for problem in _of_item(kind, item))
        if kind == "function_call":
            calls.append(item["call_id"])
        elif kind == "function_call_output":
            if item["call_id"] not in calls:
                yield f"No tool call found for function call output with call_id {item['call_id']}"
            results.append(item["call_id"])
        follows = after.get("type", "message") in ("function_call", "reasoning") or after.get("role") == "assistant"
        if kind == "reasoning" and not follows:
            yield f"Item {item.get('id')!r} of type 'reasoning' was provided without its required following item"
    yield from (f"No tool output found for function call {id}" for id in calls if id not in results)
    if len(set(calls)) != len(calls):
        yield "call_id must be unique"


def _of_item(kind: str, item: Json) -> Iterator[str]:
    match kind:
        case "message":
            role, content = item.get("role"), item.get("content")
            if role not in ("user", "assistant", "system", "developer"):
                yield f"invalid role {role!r}"
            if not content:
                yield "content is required"
            taken = ("output_text", "refusal") if role == "assistant" else ("input_text", "input_image", "input_file")
            for block in content if isinstance(content, list) else ():
                if block.get("type") not in taken:
                    yield f"content type {block.get('type')!r} of role {role!r}"
        case "function_call":
            yield from of_name(item.get("name"))
            if not 0 < len(item.get("call_id") or "") <= 64:
                yield "call_id: string of at most 64 characters expected"
            if not isinstance(json.loads(item["arguments"]), dict):
                yield "arguments must be the text of a JSON object"
        case "function_call_output":
            if not item.get("call_id") or not isinstance(item.get("output"), str):
                yield "call_id and output are required"
        case "reasoning":
            if not str(item.get("id")).startswith("rs_") or not item.get("encrypted_content"):
                yield "Item not found. Items are not persisted when `store` is set to false"
            if not isinstance(item.get("summary"), list):
                yield "summary is required"
        case _:
            yield f"unknown type {kind!r}"
