"""The Anthropic Messages API, through the official SDK.

The SDK authenticates, sends, and raises its typed errors. The body's JSON is written and the stream's bytes are
decoded here, because its typed layers cost more than the rest of the daemon: copies of the whole conversation for
each step, a model object for each token. Importing this module imports the SDK, about a second: only ``warm`` and
what it loaded do.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import re
import uuid
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, Literal, NamedTuple, cast, get_args

import aiohttp
import anthropic
import httpx2
from aiohttp import ClientError
from anthropic import (
    AnthropicError,
    AsyncAnthropic,
    AsyncStream,
    AuthenticationError,
    BadRequestError,
    DefaultAioHttpClient,
    DefaultAsyncHttpxClient,
    PermissionDeniedError,
)

from pyagentd import jsontext
from pyagentd.clock import Clock, SystemClock
from pyagentd.errors import ContextOverflow, NoKey, ProviderError, TransientProviderError
from pyagentd.llm.backend import (
    MAX_ARGUMENTS,
    Body,
    ModelRequest,
    PartDelta,
    PartFinished,
    PartKind,
    PartStarted,
    StepFinished,
    StopReason,
    StreamItem,
    ToolSchema,
    dumps,
)
from pyagentd.messages import Media, Message, Part, Reasoning, Text, ToolCall, ToolResult, Usage

# From our values to the JSON of the Anthropic Messages API; pure.
#
# Breakpoints for the provider's prompt cache are set where a conversation stays stable: the system prompt and the
# tools here, the last messages by ``body``. The API allows four.

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


# The JSON of a request, written so that a step pays for what is new in it and not for the whole conversation.
#
# A run sends the same messages again with every step, as the same objects; their JSON and its digest are kept as
# long as they live. Only the last two messages of the user are written anew: they carry the breakpoints of the
# provider's prompt cache (the second one is what the previous step wrote).

_CACHED_USER_MESSAGES = 2


class _Text(NamedTuple):
    """The JSON of a message without a breakpoint, "" when nothing in it can be sent."""

    json: str
    digest: bytes


class BodyWriter:
    """Writes the requests of one client."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Message], _Text]] = {}  # by the identity of a living message

    def write(self, settings: dict[str, Any], messages: Sequence[Message]) -> Body:
        """Return the body of a streamed request: ``settings`` (see ``translate``) and ``messages``."""
        sent = [(message, text) for message in messages if (text := self._text(message)).json]
        users = [number for number, (message, _) in enumerate(sent) if message.role == "user"]
        marked: dict[int, str] = {}
        for number in users[-_CACHED_USER_MESSAGES:]:
            if (body := message_body(sent[number][0])) is not None:
                mark(body)
                marked[number] = dumps(body)
        return Body(
            head={**settings, "stream": True},
            messages=tuple(text.json for _, text in sent),
            digests=tuple(text.digest for _, text in sent),
            marked=marked,
        )

    def _text(self, message: Message) -> _Text:
        key = id(message)
        known = self._known.get(key)
        if known is not None and known[0]() is message:
            return known[1]
        body = message_body(message)
        json = "" if body is None else dumps(body)
        text = _Text(json, hashlib.sha256(json.encode("utf-8", "replace")).digest())
        self._known[key] = (weakref.ref(message, lambda _: self._known.pop(key, None)), text)
        return text


# Server-sent events, decoded from whatever pieces the network delivers.
#
# Knows the framing of the HTML standard (fields, comments, LF, CRLF or CR line ends, several ``data`` lines) and
# nothing about JSON or providers. A stream costs one ``split`` per chunk and one cheap pass per event, because this
# runs for every token of every agent.

_BOM = b"\xef\xbb\xbf"


class SseEvent(NamedTuple):
    """One event; ``name`` is empty when the server gave none."""

    name: str
    data: bytes


class SseDecoder:
    """Turns chunks of bytes into events; holds at most one incomplete event.

    Attributes:
        held: How many bytes of that there are.
    """

    def __init__(self) -> None:
        self._held: list[bytes] = []  # pieces of the event that is not complete yet
        self._cr = False  # the last piece ended in CR: an LF that follows belongs to it
        self._first = True
        self.held = 0

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Return the events that ``chunk`` completes, in order."""
        chunk = self._normalise(chunk)
        if not chunk:
            return []
        # The end of an event may be split between two chunks, so the last byte held decides as well.
        if b"\n\n" not in chunk and not (chunk[0] == 10 and self._held and self._held[-1][-1] == 10):
            self._held.append(chunk)
            self.held += len(chunk)
            return []
        if self._held:
            self._held.append(chunk)
            chunk = b"".join(self._held)
        *blocks, rest = chunk.split(b"\n\n")
        self._held, self.held = [rest] if rest else [], len(rest)
        return [event for block in blocks if (event := _parse(block)) is not None]

    def _normalise(self, chunk: bytes) -> bytes:
        """Return ``chunk`` with LF as its only line end and without a byte order mark."""
        if self._first and chunk:
            self._first = False
            chunk = chunk.removeprefix(_BOM)
        if self._cr and chunk:
            self._cr = False
            chunk = chunk.removeprefix(b"\n")
        if b"\r" in chunk:
            self._cr = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return chunk


def _parse(block: bytes) -> SseEvent | None:
    """Return the event of one block of lines, or None when it has no data (comments, ids)."""
    name = b""
    data: list[bytes] = []
    for line in block.split(b"\n"):
        if line.startswith(b"data:"):
            data.append(line[6:] if line[5:6] == b" " else line[5:])
        elif line.startswith(b"event:"):
            name = line[7:] if line[6:7] == b" " else line[6:]
    if not data:
        return None
    return SseEvent(name.decode("utf-8", "replace"), data[0] if len(data) == 1 else b"\n".join(data))


# From the events of one streamed Anthropic answer to stream items; pure, one decoder per answer.
#
# Unknown events, blocks and deltas are skipped, because the API adds new ones without notice; what is known but
# broken is a ``ProviderError`` that says so. Runs for every token, so the common event takes the shortest way.

_AGAIN = "What was said before stands: send again"
MAX_TEXT = 4_000_000  # characters of text and reasoning in one answer
MAX_ANSWER = 32_000_000  # characters of one answer, arguments included; of one event that is not complete, bytes
MAX_CALLS = 128  # in one answer
_MAX_NAME = 200  # characters of a tool's name, and of a call's id
_KINDS: dict[str, PartKind] = {
    "text": "text",
    "thinking": "reasoning",
    "redacted_thinking": "reasoning",
    "tool_use": "tool",
}
_STOP_REASONS: frozenset[str] = frozenset(get_args(StopReason))
_SAME_AS: dict[str, StopReason] = {"model_context_window_exceeded": "max_tokens"}
_TRANSIENT = frozenset({"overloaded_error", "api_error", "rate_limit_error", "timeout_error"})


@dataclass(slots=True)
class _Block:
    """A content block while it grows."""

    kind: PartKind
    call_id: str = ""
    name: str = ""
    given: Any = None  # a tool's input as the start event had it
    redacted: str | None = None
    signature: str = ""
    pieces: list[str] = field(default_factory=list)


class StepDecoder:
    """Folds the events of one answer.

    Attributes:
        finished: The provider said that it stopped.
        failure: What the server reported, or how it broke the protocol; transient when it may pass.
    """

    def __init__(self) -> None:
        self.finished = False
        self.failure: ProviderError | None = None
        self._blocks: dict[int, _Block | None] = {}  # None: a block of a kind we do not know
        self._usage: Json = {}
        self._stop_reason: str | None = None
        self._growing = -1  # the block whose deltas are being joined
        self._grown: list[str] = []
        self._broken: list[PartFinished] = []  # calls whose input was no JSON object
        self._said = self._received = self._calls = 0  # characters of text, of everything; calls

    def decode(self, events: Iterable[SseEvent]) -> list[StreamItem]:
        """Return the items that ``events`` mean, up to the one that fails; that one sets ``failure``.

        Deltas that follow each other are one item: a chunk of many tokens costs its reader as much as one token.
        """
        items: list[StreamItem] = []
        try:
            for event in events:
                self._take(event, items)
        except ProviderError as error:
            self.failure = error
        self._flush(items)
        return items

    def _take(self, event: SseEvent, items: list[StreamItem]) -> None:
        body = _load(event)
        try:
            kind = body.get("type") or event.name
            if kind == "content_block_delta":
                self._delta(body, items)
            elif (handle := _HANDLERS.get(kind)) is not None:
                self._flush(items)
                handle(self, body, items)
        except (KeyError, TypeError, AttributeError) as error:
            raise _malformed(event) from error

    def _delta(self, body: Json, items: list[StreamItem]) -> None:
        index = body["index"]
        block = self._blocks[index]
        if block is None:
            return
        delta = body["delta"]
        match delta["type"]:
            case "text_delta":
                text = delta["text"]
            case "thinking_delta":
                text = delta["thinking"]
            case "input_json_delta":
                block.pieces.append(delta["partial_json"])
                self._grow(arguments=len(delta["partial_json"]))
                return
            case "signature_delta":
                block.signature = delta["signature"]
                return
            case _:
                return
        if not isinstance(text, str):
            raise TypeError("text of a delta")
        self._grow(text=len(text))
        block.pieces.append(text)
        if index != self._growing:
            self._flush(items)
            self._growing = index
        self._grown.append(text)

    def _grow(self, *, text: int = 0, arguments: int = 0) -> None:
        """Count what was received; raise ``ProviderError`` when it is more than an answer may have."""
        self._said += text
        self._received += text + arguments
        if self._said > MAX_TEXT:
            raise too_much(f"{MAX_TEXT // 1_000_000} million characters of text")
        if self._received > MAX_ANSWER:
            raise too_much(f"{MAX_ANSWER // 1_000_000} million characters")

    def _flush(self, items: list[StreamItem]) -> None:
        if text := "".join(self._grown):
            items.append(PartDelta(self._growing, text))
        self._grown.clear()

    def _message_start(self, body: Json, items: list[StreamItem]) -> None:
        self._count(body["message"].get("usage"))

    def _block_start(self, body: Json, items: list[StreamItem]) -> None:
        index, start = body["index"], body["content_block"]
        kind = _KINDS.get(start["type"])
        if kind is None:
            _log.debug("skipping a content block of unknown type %r", start["type"])
            self._blocks[index] = None
            return
        block = _Block(kind=kind)
        if kind == "tool":
            self._calls += 1
            if self._calls > MAX_CALLS:
                raise too_much(f"{MAX_CALLS} calls of tools")
            block.call_id, block.name = self._unique(start["id"]), _whole(start["name"])[:_MAX_NAME]
            block.given = start.get("input")
        elif start["type"] == "redacted_thinking":
            block.redacted = start["data"]
        self._blocks[index] = block
        items.append(PartStarted(index, kind, block.call_id, block.name))
        if first := start.get("text") or start.get("thinking"):
            self._grow(text=len(first))
            block.pieces.append(first)
            items.append(PartDelta(index, first))
        block.signature = start.get("signature") or ""

    def _unique(self, id: str) -> str:
        """Return the id of a call, another one where it has none or another call of this answer has the same."""
        id = _whole(id)[:_MAX_NAME]
        taken = [block.call_id for block in self._blocks.values() if block is not None and block.kind == "tool"]
        if not id or id in taken:
            id = f"{id or 'call'}_{uuid.uuid4().hex[:12]}"
        return id

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
                text = text if text.strip() else _given(block.given)
                if len(text) > MAX_ARGUMENTS:
                    call = ToolCall(id=block.call_id, name=block.name, input={}, unreadable=text)
                    items.append(PartFinished(index, call))
                    return
                if (arguments := _arguments(text)) is None:
                    broken = ToolCall(id=block.call_id, name=block.name, input={}, unreadable=text)
                    self._broken.append(PartFinished(index, broken))
                    return
                items.append(PartFinished(index, ToolCall(id=block.call_id, name=block.name, input=arguments)))

    def _message_delta(self, body: Json, items: list[StreamItem]) -> None:
        self._count(body.get("usage"))
        self._stop_reason = body["delta"].get("stop_reason") or self._stop_reason

    def _message_stop(self, body: Json, items: list[StreamItem]) -> None:
        if self._stop_reason is None:
            raise ProviderError("The model's server ended its answer without saying why it stopped", mend=_AGAIN)
        reason = _stop_reason(self._stop_reason)
        # A call cut off by the token limit is void; any other half a call is the model's fault, and it is told.
        if reason != "max_tokens":
            items.extend(self._broken)
        self.finished = True
        items.append(StepFinished(reason, self._total()))

    def _error(self, body: Json, items: list[StreamItem]) -> None:
        error = body.get("error") or {}
        kind, message = error.get("type", "error"), error.get("message") or "no message"
        text = f"The model's server broke off: {message} ({kind})"
        raise TransientProviderError(text, mend=_AGAIN) if kind in _TRANSIENT else ProviderError(text, mend=_AGAIN)

    def _count(self, usage: Json | None) -> None:
        # Counts are cumulative: a later one replaces an earlier one, a missing one does not.
        self._usage.update({key: value for key, value in (usage or {}).items() if value is not None})

    def _total(self) -> Usage:
        usage = self._usage
        reasoning = (usage.get("output_tokens_details") or {}).get("thinking_tokens") or 0
        counts = {
            "input": usage.get("input_tokens", 0),
            "output": usage.get("output_tokens", 0),
            "reasoning": reasoning,
            "cache_read": usage.get("cache_read_input_tokens", 0),
            "cache_write": usage.get("cache_creation_input_tokens", 0),
        }
        for name, count in counts.items():
            if isinstance(count, float) and count.is_integer():
                counts[name] = int(count)
            elif type(count) is not int:
                raise TypeError("number of tokens")
        return Usage(**{**counts, "output": max(0, counts["output"] - counts["reasoning"])})


_HANDLERS: dict[str, Callable[[StepDecoder, Json, list[StreamItem]], None]] = {
    "message_start": StepDecoder._message_start,
    "content_block_start": StepDecoder._block_start,
    "content_block_stop": StepDecoder._block_stop,
    "message_delta": StepDecoder._message_delta,
    "message_stop": StepDecoder._message_stop,
    "error": StepDecoder._error,
}


def too_much(what: str) -> ProviderError:
    """Return the error that ends an answer which has more than ``what``."""
    return ProviderError(
        f"The model's answer was cut off: it has more than {what}",
        mend="What was said before stands: send again, and ask for less at a time",
    )


def _load(event: SseEvent) -> Json:
    try:
        body = json.loads(event.data)
    except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, or a thousand brackets deep
        raise _malformed(event) from error
    if not isinstance(body, dict):
        raise _malformed(event)
    return body


def _malformed(event: SseEvent) -> ProviderError:
    name = f" {event.name}" if event.name else ""
    return ProviderError(
        f"The model's server sent a malformed{name} event", mend="Check that the base URL is a Messages API"
    )


def _whole(name: str) -> str:
    """Return a name without halves of surrogate pairs, which neither a file nor a request can hold."""
    return name.encode("utf-8", "replace").decode()


def _given(value: Any) -> str:
    """Return the input that came with the start of a call as text, as if it had come in deltas."""
    try:
        return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else "{}"
    except RecursionError:
        return str(value)


def _arguments(text: str) -> Json | None:
    try:
        value = jsontext.parse(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _stop_reason(given: str) -> StopReason:
    if given in _STOP_REASONS:
        return cast(StopReason, given)
    if given not in _SAME_AS:
        _log.warning("unknown stop reason %r is taken as the end of the turn", given)
    return _SAME_AS.get(given, "end_turn")


# What some models take and others refuse, learned from the first refusal; pure.
#
# Newer Claude models answer 400 to any ``temperature`` and to a fixed thinking budget, and their names do not tell.
# A preset written for one model must work with the next, so the request is sent once more without what was refused.

Concession = Literal["temperature", "thinking budget", "thinking", "effort"]

_EFFORT = ((4_000, "low"), (12_000, "medium"))  # by the largest budget of thinking, in tokens, that means it
_UNSUPPORTED = ("not support", "unsupported", "not available")


def concession(body: Json, refusal: str) -> Concession | None:
    """Return what to give up after the server refused ``body`` with the message ``refusal``, None for nothing."""
    said = refusal.lower()
    if "temperature" in body and "temperature" in said:
        return "temperature"
    if "output_config" in body and ("effort" in said or "output_config" in said):
        return "effort"
    if body.get("thinking", {}).get("type") == "enabled" and "thinking" in said and "adaptive" in said:
        return "thinking budget"
    if "thinking" in body and "thinking" in said and any(word in said for word in _UNSUPPORTED):
        return "thinking"
    return None


def concede(body: Json, concessions: Set[Concession]) -> Json:
    """Return ``body`` without what its model is known to refuse."""
    if "temperature" in concessions:
        body = {key: value for key, value in body.items() if key != "temperature"}
    if "thinking" not in body:
        return body
    if "thinking" in concessions:
        return {key: value for key, value in body.items() if key != "thinking"}
    if "thinking budget" in concessions:
        # The model decides how much to think; without `display` newer models think in silence.
        effort = next((name for most, name in _EFFORT if body["thinking"]["budget_tokens"] <= most), "high")
        body = {
            **body,
            "thinking": {"type": "adaptive", "display": "summarized"},
            "output_config": {"effort": effort},
        }
    if "effort" in concessions:
        body = {key: value for key, value in body.items() if key != "output_config"}
    return body


# What the SDK and the network raise, as errors of ours.
#
# Transient is what another try may mend: timeouts, conflicts, rate limits, everything the server calls its own
# fault, and the network. The provider's wording is kept; a request's headers never are, since one of them is the
# key.

_TRANSIENT_STATUS = frozenset({408, 409, 429})
_RETRY_HEADER = {"true": True, "false": False}
_NO_CREDIT = "Add credit at the provider's console, or use another key or backend"
_MENDS = {
    401: "Check the API key: the environment variable ANTHROPIC_API_KEY, or the entry in auth-source",
    402: _NO_CREDIT,
    403: "The API key may not use this model or endpoint: choose another model, or use another key",
    404: "Check the preset's model and the base URL",
    429: "It was tried several times: wait a little and send again, or use another model or key",
    400: "If it names a message, edit or rewind that; otherwise check the preset's model and settings",
}
_OVERLOADED = "It was tried several times and nothing is lost: send again in a while"
_OFFLINE = "Nothing is lost: check the network and the base URL, then send again"
_CREDIT = re.compile(r"credit balance|insufficient (funds|credit|quota)|billing", re.IGNORECASE)
# What servers say of a prompt that does not fit, in the API's own words and in those of others that speak it.
_TOO_LONG = re.compile(
    r"prompt is too long|exceeds? (the )?(context|model'?s? (maximum )?context)"
    r"|context[ _](length|window) (is )?exceeded|maximum context length|input is too long|too many (input )?tokens",
    re.IGNORECASE,
)
# Raised before or beside the network: sending the same request again gives the same error.
_OUR_FAULT = (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError, httpx2.DecodingError, httpx2.TooManyRedirects)


def provider_error(error: Exception, now: datetime) -> ProviderError:
    """Return the error of ours that ``error``, raised by the SDK or by httpx2, means.

    Args:
        error: An ``anthropic.AnthropicError`` or an ``httpx2.HTTPError``.
        now: The time a ``retry-after`` date is measured from, aware.
    """
    if isinstance(error, anthropic.APIStatusError):
        return _of_status(error, now)
    cause = error.__cause__ if isinstance(error, anthropic.APIConnectionError) else error
    if isinstance(cause, httpx2.TransportError) and not isinstance(cause, _OUR_FAULT):
        return TransientProviderError(_of_network(cause, _address(error)), mend=_OFFLINE)
    if isinstance(cause, httpx2.HTTPError) or isinstance(error, anthropic.APIConnectionError):
        # Its text may quote a header.
        kind = type(cause or error).__name__
        return ProviderError(f"The request could not be sent or its answer read ({kind})", mend="Check the base URL")
    return ProviderError(f"The request was refused before it was sent: {error}")


def _of_status(error: anthropic.APIStatusError, now: datetime) -> ProviderError:
    status = error.status_code
    headers = error.response.headers
    text = f"The model's server says {status} {_reason(error)}"
    transient = status in _TRANSIENT_STATUS or status >= 500
    if _RETRY_HEADER.get(headers.get("x-should-retry", ""), transient):
        mend = _MENDS[status] if status == HTTPStatus.TOO_MANY_REQUESTS else _OVERLOADED
        return TransientProviderError(text, retry_after=retry_after(headers, now), mend=mend)
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE or (status == HTTPStatus.BAD_REQUEST and _TOO_LONG.search(text)):
        return ContextOverflow(text)
    if status == HTTPStatus.BAD_REQUEST and _CREDIT.search(text):
        return ProviderError(text, mend=_NO_CREDIT)
    return ProviderError(text, mend=_MENDS.get(status, "The run ended; what was said before stands. Send again"))


def _reason(error: anthropic.APIStatusError) -> str:
    """Return the server's own words, or the status' name when its body is not the API's."""
    if error.api_message:
        return f"({error.type or 'error'}): {str(error.api_message).rstrip('.')}"
    try:
        return HTTPStatus(error.status_code).phrase
    except ValueError:
        return "Overloaded" if error.status_code == 529 else "(no reason given)"


def _address(error: Exception) -> str:
    """Return which server was asked, as `` at host:port``; "" when the error does not say."""
    try:
        request = error.request  # type: ignore[attr-defined]  # a property of the SDK's and of httpx2's errors
        return f" at {request.url.netloc.decode('ascii')}"
    except (AttributeError, RuntimeError):
        return ""


def _of_network(cause: httpx2.TransportError, address: str) -> str:
    beneath = cause.__cause__  # what aiohttp raised: httpx2 has one name for no connection and a lost one
    if isinstance(cause, httpx2.ConnectTimeout | httpx2.PoolTimeout):
        return f"The model's server{address} could not be reached in time"
    if isinstance(cause, httpx2.TimeoutException):
        return f"The model's server{address} went silent"
    connecting = not isinstance(beneath, aiohttp.ClientError) or isinstance(beneath, aiohttp.ClientConnectorError)
    if isinstance(cause, httpx2.ConnectError | httpx2.ProxyError) and connecting:
        reason = beneath.os_error if isinstance(beneath, aiohttp.ClientConnectorError) else cause
        return f"The model's server{address} cannot be reached: {str(reason) or type(reason).__name__}"
    return f"The connection to the model's server{address} broke off: {str(cause) or type(cause).__name__}"


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the seconds a server asks to wait: ``retry-after-ms``, or ``retry-after`` in seconds or as a date."""
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    given = headers.get("retry-after")
    if given is None or (seconds := _number(given)) is not None:
        return seconds if given is not None else None
    try:
        return max(0.0, (parsedate_to_datetime(given) - now).total_seconds())
    except (ValueError, TypeError):  # no date, or one without a zone
        return None


def _number(given: str | None) -> float | None:
    try:
        value = float(given or "")
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None


_log = logging.getLogger(__name__)

BASE_URL = "https://api.anthropic.com"
_CONNECT_S = 15.0
# Each agent that waits for an answer holds a connection; one that nobody used for half a minute is closed.
_LIMITS = httpx2.Limits(max_connections=1000, keepalive_expiry=30.0)
_DRAIN_S = 0.5  # what a server may take between the last event and the end of its body
_MODELS_A_PAGE = 1000
_NOT_A_STREAM = ("text/html", "application/json", "text/plain")


def make_client(
    *, api_key: str, base_url: str, timeout_s: float, transport: httpx2.AsyncBaseTransport | None = None
) -> AsyncAnthropic:
    """Return a client that sends one request per call: retries are ours, so that the user sees them.

    Args:
        api_key: Sent as it is; nothing is looked up in the environment or in files.
        base_url: Where ``/v1/messages`` is.
        timeout_s: The longest silence within an answer.
        transport: What answers instead of the network.
    """
    timeout = httpx2.Timeout(timeout_s, connect=min(_CONNECT_S, timeout_s))
    client = (
        # aiohttp costs half of httpx2 with one agent, and with two hundred a fraction.
        DefaultAioHttpClient(timeout=timeout, limits=_LIMITS)
        if transport is None
        else DefaultAsyncHttpxClient(transport=transport, timeout=timeout)
    )
    return AsyncAnthropic(
        api_key=api_key,
        base_url=base_url,
        timeout=timeout,
        max_retries=0,
        open_telemetry=False,
        # The SDK sends a bearer token; servers built for its earlier releases look for this header.
        default_headers=None if base_url == BASE_URL else {"x-api-key": api_key},
        http_client=client,
    )


class AnthropicBackend:
    """Streams answers of one server over one pool of connections."""

    def __init__(self, client: AsyncAnthropic, clock: Clock | None = None) -> None:
        self._client = client
        self._clock = clock or SystemClock()
        self._bodies = BodyWriter()
        self._refused: dict[str, set[Concession]] = {}  # by model

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[StreamItem], None]:
        """Send ``request`` and yield its answer, see ``Backend``."""
        events, step = SseDecoder(), StepDecoder()
        try:
            async with contextlib.AsyncExitStack() as stack:
                chunks = (await self._open(request, stack)).aiter_bytes()
                async for chunk in chunks:
                    if items := step.decode(events.feed(chunk)):
                        yield items
                    if events.held > MAX_ANSWER:
                        raise too_much(f"{MAX_ANSWER // 1_000_000} million characters in one piece")
                    if step.failure is not None:
                        raise step.failure
                    if step.finished:
                        await _drain(chunks)
                        return
        except (AnthropicError, httpx2.HTTPError, ClientError) as error:
            # `from None`: a cause may quote the request's headers in a logged traceback.
            raise provider_error(error, self._clock.now()) from None
        raise TransientProviderError(
            "The model's server ended its answer in the middle", mend="What was said before stands: send again"
        )

    async def models(self) -> tuple[str, ...]:
        """Return the names of the models that the server has for this key.

        Raises:
            NoKey: It refuses the key.
            ProviderError: It has no such list, or cannot be asked now.
        """
        try:
            return tuple([model.id async for model in self._client.models.list(limit=_MODELS_A_PAGE)])
        except (AuthenticationError, PermissionDeniedError) as error:
            raise NoKey(f"The key is refused: {provider_error(error, self._clock.now()).message}") from None
        except (AnthropicError, httpx2.HTTPError, ClientError, ValueError) as error:
            raise provider_error(error, self._clock.now()) from None

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _open(self, request: ModelRequest, stack: contextlib.AsyncExitStack) -> httpx2.Response:
        """Send ``request``, once more for each thing its model turns out to refuse."""
        refused = self._refused.setdefault(request.model, set())
        while True:
            settings = concede(settings_body(request), refused)
            try:
                body = self._bodies.write(settings, request.messages)
                if request.sent is not None:
                    request.sent(body)
                stream = await self._post(body.encoded())
            except BadRequestError as error:
                if (found := concession(settings, error.api_message or "")) is None:
                    raise
                _log.warning("%s takes no %s: sending without", request.model, found)
                refused.add(found)
            else:
                stack.push_async_callback(stream.close)
                _check_stream(stream.response)
                return stream.response

    async def _post(self, body: bytes) -> AsyncStream[object]:
        # `messages.create` copies the whole conversation before it is sent, and knows no `temperature` any more.
        return await self._client.post(
            "/v1/messages",
            content=body,
            cast_to=object,
            stream=True,
            stream_cls=AsyncStream[object],
            options={"headers": {"Content-Type": "application/json", "Accept": "text/event-stream"}},
        )


def _check_stream(response: httpx2.Response) -> None:
    given = response.headers.get("content-type", "")
    if given.startswith(_NOT_A_STREAM):
        raise ProviderError(
            f"The model's server answered with {given.partition(';')[0]} instead of a stream of events",
            mend="Check that the base URL is a Messages API",
        )


async def _drain(chunks: AsyncIterator[bytes]) -> None:
    """Read to the end of the body, so that the connection serves the next request too."""
    with contextlib.suppress(httpx2.HTTPError, ClientError, TimeoutError):
        async with asyncio.timeout(_DRAIN_S):
            async for _ in chunks:
                pass
