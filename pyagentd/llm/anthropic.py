"""The Anthropic Messages API: headers, bodies, the decoding of its stream.

A request goes out over aiohttp, and not through the official SDK, whose import alone takes a second and 50 MB and
whose typed layers cost more than the rest of the daemon: copies of the whole conversation for each step, a model
object for each token. Only ``clouds`` (Bedrock, Vertex) uses the SDK.
"""

import logging
from collections.abc import Set
from dataclasses import dataclass
from typing import Any, Literal, get_args

from pyagentd.llm.backend import (
    BodyWriter,
    IdentityCache,
    ModelRequest,
    PartFinished,
    PartKind,
    PartStarted,
    StopReason,
    StreamItem,
    ToolSchema,
    encode,
)
from pyagentd.llm.http import (
    Decoder,
    GrowingPart,
    HttpBackend,
    HttpServer,
    Json,
    SseEvent,
    api_name,
    broke_off,
    effort_of,
    given_arguments,
    load_event,
    says_unsupported,
    stop_reason,
    tokens,
)
from pyagentd.messages import Mark, Media, Message, Part, Reasoning, Text, ToolCall, ToolResult, Usage

_log = logging.getLogger(__name__)

# From our values to the JSON of the Anthropic Messages API; pure.
#
# Breakpoints for the provider's prompt cache are set where a conversation stays stable: on the system prompt and the
# tools here, on the last messages by ``body_writer``. The API allows four.

_CACHE: Json = {"type": "ephemeral"}
_UNCACHEABLE = ("thinking", "redacted_thinking")


# Parameters that some models refuse, learned from the first refusal: newer Claude models refuse any temperature and a
# fixed thinking budget.
Quirk = Literal["temperature", "thinking budget", "thinking", "effort"]


def settings_body(request: ModelRequest, quirks: Set[Quirk] = frozenset()) -> Json:
    """Return the body of ``request`` without ``messages``, for a model with these quirks."""
    budget = request.thinking_budget
    # The budget counts against max_tokens, and the API refuses a temperature with it.
    body: Json = {"model": request.model, "max_tokens": request.max_tokens + (budget or 0), "stream": True}
    if request.system.strip():
        body["system"] = _system(request.system)
    if request.tools:
        body["tools"] = _tools(request.tools)
    if budget is None:
        if request.temperature is not None and "temperature" not in quirks:
            body["temperature"] = request.temperature
    elif "thinking budget" in quirks and "thinking" not in quirks:
        # The model decides how much to think; without `display` newer models do not send their thoughts.
        body["thinking"] = {"type": "adaptive", "display": "summarized"}
        if "effort" not in quirks:
            body["output_config"] = {"effort": effort_of(budget)}
    elif "thinking" not in quirks:
        body["thinking"] = {"type": "enabled", "budget_tokens": budget}
    return body


def message_items(message: Message) -> list[Json]:
    """Return the item of ``messages`` for ``message``; an empty list when nothing in it can be sent."""
    results: list[Json] = []
    others: list[Json] = []
    for part in message.parts:
        if (block := _block(part)) is not None:
            (results if isinstance(part, ToolResult) else others).append(block)
    # The API wants results before any text of the same message.
    return [{"role": message.role, "content": results + others}] if results or others else []


def _written_system(text: str) -> list[Json]:
    return [{"type": "text", "text": text, "cache_control": _CACHE}]


def _written_tools(tools: tuple[ToolSchema, ...]) -> list[Json]:
    listed: list[Json] = [
        {"name": tool.name, "description": tool.description, "input_schema": dict(tool.input_schema)}
        for tool in tools
    ]
    listed[-1]["cache_control"] = _CACHE
    return listed


_system, _tools = IdentityCache(_written_system), IdentityCache(_written_tools)


def _block(part: Part) -> Json | None:
    """Return the content block of ``part``, or None where the API would refuse an empty one."""
    match part:
        case Text(text=text):
            return {"type": "text", "text": text} if text.strip() else None
        case Reasoning(provider=provider) if provider != "anthropic":
            return None  # this API cannot read another provider's
        case Reasoning(redacted=str(data)):
            return {"type": "redacted_thinking", "data": data}
        case Reasoning(text=text, signature=str(signature)):
            return {"type": "thinking", "thinking": text, "signature": signature}
        case Reasoning():
            return None  # without its signature the provider refuses it
        case ToolCall(id=call_id, name=name, input=arguments):
            return {"type": "tool_use", "id": api_name(call_id), "name": api_name(name), "input": dict(arguments)}
        case ToolResult():
            return _tool_result(part)
        case Media(type=media_type, data=data):
            kind = "image" if media_type.startswith("image/") else "document"
            return {"type": kind, "source": {"type": "base64", "media_type": media_type, "data": data}}


def _tool_result(part: ToolResult) -> Json:
    block: Json = {"type": "tool_result", "tool_use_id": api_name(part.id)}
    if part.text.strip():
        block["content"] = [{"type": "text", "text": part.text}]
    if part.is_error:
        block["is_error"] = True
        block.setdefault("content", [{"type": "text", "text": "The tool failed without a message."}])
    return block


# A request for one client: only the last two messages of the user carry the breakpoints of the provider's prompt
# cache (the second one is what the previous step wrote).

_CACHED_USER_MESSAGES = 2


def body_writer() -> BodyWriter:
    """Return a writer of request bodies for the Messages API."""
    return BodyWriter(message_items, _cache_mark, _CACHED_USER_MESSAGES)


def _cache_mark(message: Message) -> Mark:
    (body,) = message_items(message)
    content = body["content"]
    if content[-1]["type"] in _UNCACHEABLE:
        return Mark(b"", 0, -1, {})
    # The last block ends the JSON, so the breakpoint is inserted there.
    return Mark(b',"cache_control":%s' % encode(_CACHE), len(b"}]}"), len(content) - 1, _CACHE)


# From the events of one streamed Anthropic answer to stream items; pure, one decoder per answer.
#
# Unknown events, blocks and deltas are skipped, because the API adds new ones without notice; a known but malformed
# one raises ``ProviderError``. This runs for every token, so the most common event is tested first.

_KINDS: dict[str, PartKind] = {
    "text": "text",
    "thinking": "reasoning",
    "redacted_thinking": "reasoning",
    "tool_use": "tool",
}
_STOPS: dict[str, StopReason] = {
    **{reason: reason for reason in get_args(StopReason)},
    "model_context_window_exceeded": "max_tokens",
}


@dataclass(slots=True)
class _Block(GrowingPart):
    """A content block while it grows."""

    given: Any = None  # a tool's input in the start event
    redacted: str | None = None
    signature: str = ""


class StepDecoder(Decoder):
    """Folds the events of one answer."""

    def __init__(self, request: ModelRequest) -> None:
        super().__init__(request)
        self._blocks: dict[int, _Block | None] = {}  # None: a block of a kind we do not know
        self._usage: Json = {}
        self._stop_reason: str | None = None

    def _read_event(self, event: SseEvent, items: list[StreamItem]) -> None:
        body = load_event(event)
        match body.get("type") or event.name:
            case "content_block_delta":
                self._delta(body, items)
            case "message_start":
                self._note_usage(body["message"].get("usage"))
            case "content_block_start":
                self._block_start(body, items)
            case "content_block_stop":
                self._block_stop(body, items)
            case "message_delta":
                self._note_usage(body.get("usage"))
                self._stop_reason = body["delta"].get("stop_reason") or self._stop_reason
            case "message_stop":
                self._finish(stop_reason(self._stop_reason, _STOPS), self._total(), items)
            case "error":
                raise broke_off(body)

    def _delta(self, body: Json, items: list[StreamItem]) -> None:
        index = body["index"]
        block = self._blocks[index]
        if block is None:
            return
        delta = body["delta"]
        match delta["type"]:
            case "text_delta":
                self._grow_part(index, block, delta["text"], items)
            case "thinking_delta":
                self._grow_part(index, block, delta["thinking"], items)
            case "input_json_delta":
                block.pieces.append(delta["partial_json"])
                self._count(len(delta["partial_json"]))
            case "signature_delta":
                block.signature = delta["signature"]

    def _block_start(self, body: Json, items: list[StreamItem]) -> None:
        index, start = body["index"], body["content_block"]
        kind = _KINDS.get(start["type"])
        if kind is None:
            _log.debug("skipping a content block of unknown type %r", start["type"])
            self._blocks[index] = None
            return
        block = _Block(kind=kind)
        if kind == "tool":
            block.call_id, block.name = self._begin_call(start["id"], start["name"])
            block.given = start.get("input")
        elif start["type"] == "redacted_thinking":
            block.redacted = start["data"]
        self._blocks[index] = block
        items.append(PartStarted(index, kind, block.call_id, block.name))
        if first := start.get("text") or start.get("thinking"):
            self._grow_part(index, block, first, items)
        block.signature = start.get("signature") or ""

    def _block_stop(self, body: Json, items: list[StreamItem]) -> None:
        index = body["index"]
        block = self._blocks[index]
        if block is None:
            return
        text = "".join(block.pieces)
        match block.kind:
            case "text":
                items.append(PartFinished(index, Text(text=text)))
            case "reasoning":
                part = Reasoning(text=text, signature=block.signature or None, redacted=block.redacted)
                items.append(PartFinished(index, part))
            case "tool":
                text = text if text.strip() else given_arguments(block.given)
                self._finish_call(index, block.call_id, block.name, text, items)

    def _note_usage(self, usage: Json | None) -> None:
        # Counts are cumulative: a later one replaces an earlier one, a missing one does not.
        self._usage.update({key: value for key, value in (usage or {}).items() if value is not None})

    def _total(self) -> Usage:
        usage = self._usage
        reasoning = tokens((usage.get("output_tokens_details") or {}).get("thinking_tokens"))
        return Usage(
            input=tokens(usage.get("input_tokens")),
            output=max(0, tokens(usage.get("output_tokens")) - reasoning),
            reasoning=reasoning,
            cache_read=tokens(usage.get("cache_read_input_tokens")),
            cache_write=tokens(usage.get("cache_creation_input_tokens")),
        )


BASE_URL = "https://api.anthropic.com"
_VERSION = "2023-06-01"  # of the API


def server(*, api_key: str, base_url: str, timeout_s: float) -> HttpServer:
    """Return the server at ``base_url``.

    Args:
        api_key: The key itself; it is not looked up in the environment or in files.
        base_url: The URL before ``/v1/messages``.
        timeout_s: The longest silence within an answer.
    """
    headers = {"anthropic-version": _VERSION, "Authorization": f"Bearer {api_key}"}
    if base_url != BASE_URL:  # the API accepts a bearer token; servers for its earlier clients expect this header
        headers["x-api-key"] = api_key
    return HttpServer(base_url, headers, timeout_s)


class AnthropicBackend(HttpBackend[Quirk]):
    """The Messages API."""

    path = "/v1/messages"
    list_path = "/v1/models?limit=1000"
    api = "Messages API"
    decoder = StepDecoder
    settings = staticmethod(settings_body)

    def writer(self, quirks: Set[Quirk]) -> BodyWriter:
        """Return a new writer of bodies."""
        return body_writer()

    def quirk(self, body: Json, refusal: str) -> Quirk | None:
        """Return the quirk that a refusal reveals, or None."""
        if "temperature" in body and "temperature" in refusal:
            return "temperature"
        if "output_config" in body and ("effort" in refusal or "output_config" in refusal):
            return "effort"
        if body.get("thinking", {}).get("type") == "enabled" and "thinking" in refusal and "adaptive" in refusal:
            return "thinking budget"
        if "thinking" in body and "thinking" in refusal and says_unsupported(refusal):
            return "thinking"
        return None
