"""The offline stand-in: the Messages API answered in process, behind the real SDK.

It is a transport of the SDK's HTTP client, so a demo or a test without a key runs through every line a real key
would use. The rules are in ``offline_plan`` and ``offline_report``; this module only speaks the protocol. It imports
the SDK: only ``warm`` and what it loaded import this.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import os
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import httpx2

from pyagentd.errors import ConfigError
from pyagentd.llm import catalog
from pyagentd.llm.anthropic import AnthropicBackend, make_client
from pyagentd.llm.offline_mission import answer, wants_mission
from pyagentd.llm.offline_plan import Call, plan
from pyagentd.llm.offline_report import report
from pyagentd.llm.offline_summary import description_of, summary_of, wants_description, wants_summary
from pyagentd.llm.offline_title import first_words, wants_title
from pyagentd.llm.offline_view import media_of, view_of

PACE_VARIABLE = "PYAGENTD_OFFLINE_PACE"

_EPOCH = "1970-01-01T00:00:00Z"  # since when each of them is there, which it does not know
_WORD = re.compile(r"\s*\S+\s*|\s+")
_MEDIA_TOKENS = 1600
_JSON_PIECE = 24  # characters of a tool's arguments per event

Json = dict[str, Any]


def offline_backend(pace_s: float | None = None) -> AnthropicBackend:
    """Return a backend that needs neither key nor network.

    Args:
        pace_s: Seconds between two deltas; None takes them from the environment.
    """
    pace_s = pace_from_environment(os.environ) if pace_s is None else pace_s
    transport = OfflineTransport(pace_s)
    return AnthropicBackend(
        make_client(api_key="offline", base_url="http://offline.invalid", timeout_s=600.0, transport=transport)
    )


def pace_from_environment(environment: Mapping[str, str]) -> float:
    """Return the seconds between two deltas.

    Raises:
        ConfigError: The variable is no number of seconds.
    """
    given = environment.get(PACE_VARIABLE, "").strip() or "0"
    try:
        pace = float(given)
    except ValueError:
        pace = -1.0
    if not 0 <= pace <= 10:
        raise ConfigError(f"{PACE_VARIABLE} is {given!r}", mend="It is the number of seconds per word, 0 to 10")
    return pace


class OfflineTransport(httpx2.AsyncBaseTransport):
    """Answers ``POST /v1/messages`` by rule; everything else gets the API's own kind of error."""

    def __init__(self, pace_s: float = 0.0) -> None:
        self._pace_s = pace_s
        self._serial = itertools.count(1)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Return the streamed answer to ``request``."""
        if (request.method, request.url.path) == ("GET", "/v1/models"):
            return httpx2.Response(200, json=_models(), request=request)
        if (request.method, request.url.path) != ("POST", "/v1/messages"):
            return _refusal(404, "not_found_error", f"no such endpoint: {request.method} {request.url.path}")
        data = await request.aread()
        body = json.loads(data)
        if not body.get("stream"):
            return _refusal(400, "invalid_request_error", "the offline stand-in only streams")
        # The same requests in the same order get the same ids, and no two calls of a process share one.
        key = f"{hashlib.sha256(data).hexdigest()[:10]}{next(self._serial):05d}"
        events = _answer(body, key)
        return httpx2.Response(
            200, headers={"content-type": "text/event-stream"}, stream=_Paced(events, self._pace_s), request=request
        )


class _Paced(httpx2.AsyncByteStream):
    """The events of an answer, one chunk each; only deltas take time."""

    def __init__(self, events: Iterator[Json], pace_s: float) -> None:
        self._events = events
        self._pace_s = pace_s

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for event in self._events:
            if self._pace_s and event["type"] == "content_block_delta":
                await asyncio.sleep(self._pace_s)
            yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def _models() -> Json:
    """Return the list of models: it stands in for all that are known."""
    data = [{"type": "model", "id": name, "display_name": name, "created_at": _EPOCH} for name in catalog.shipped()]
    return {"data": data, "has_more": False, "first_id": data[0]["id"], "last_id": data[-1]["id"]}


def _refusal(status: int, kind: str, message: str) -> httpx2.Response:
    return httpx2.Response(status, json={"type": "error", "error": {"type": kind, "message": message}})


def _tokens(body: Json) -> int:
    """Return about how many tokens a request has; of a picture what a large one costs."""
    media = media_of(body.get("messages") or [])
    return (len(json.dumps(body)) - sum(map(len, media))) // 4 + _MEDIA_TOKENS * len(media)


def _answer(body: Json, key: str) -> Iterator[Json]:
    view = view_of(body)
    special = wants_title(body) or wants_summary(body) or wants_description(body) or wants_mission(body)
    calls = () if special else plan(view)
    if wants_title(body):
        text = first_words(view.prompt)
    elif wants_summary(body):
        text = summary_of(view.prompt)
    elif wants_description(body):
        text = description_of(view.prompt)
    elif wants_mission(body):
        text = answer(body)
    elif calls:
        text = _announcement(calls)
    else:
        text = report(view)
    usage = {"input_tokens": _tokens(body), "output_tokens": 1}
    message = {"id": f"msg_offline_{key}", "type": "message", "role": "assistant", "model": body.get("model", "")}
    yield {"type": "message_start", "message": {**message, "content": [], "stop_reason": None, "usage": usage}}
    yield from _text_block(text)
    for index, call in enumerate(calls, 1):
        yield from _call_block(index, f"toolu_offline_{key}_{index}", call)
    delta = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    said = len(text) + sum(len(json.dumps(call.input)) for call in calls)
    yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 1 + said // 4}}
    yield {"type": "message_stop"}


def _announcement(calls: tuple[Call, ...]) -> str:
    names = dict.fromkeys(call.name for call in calls)
    return f"I use {' and '.join(names)} for this."


def _text_block(text: str) -> Iterator[Json]:
    yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    for word in _WORD.findall(text):
        yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}}
    yield {"type": "content_block_stop", "index": 0}


def _call_block(index: int, call_id: str, call: Call) -> Iterator[Json]:
    block = {"type": "tool_use", "id": call_id, "name": call.name, "input": {}}
    yield {"type": "content_block_start", "index": index, "content_block": block}
    arguments = json.dumps(call.input)
    for start in range(0, len(arguments), _JSON_PIECE):
        piece = {"type": "input_json_delta", "partial_json": arguments[start : start + _JSON_PIECE]}
        yield {"type": "content_block_delta", "index": index, "delta": piece}
    yield {"type": "content_block_stop", "index": index}
