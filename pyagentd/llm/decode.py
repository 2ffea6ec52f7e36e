"""From the events of one streamed Anthropic answer to stream items; pure, one decoder per answer.

Unknown events, blocks and deltas are skipped, because the API adds new ones without notice; what is known but broken
is a ``ProviderError`` that says so. Runs for every token, so the common event takes the shortest way.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, cast, get_args

from pyagentd import jsontext
from pyagentd.errors import ProviderError, TransientProviderError
from pyagentd.llm.backend import (
    PartDelta,
    PartFinished,
    PartKind,
    PartStarted,
    StepFinished,
    StopReason,
    StreamItem,
)
from pyagentd.llm.sse import SseEvent
from pyagentd.messages import Reasoning, Text, ToolCall, Usage

_log = logging.getLogger(__name__)

Json = dict[str, Any]

_AGAIN = "What was said before stands: send again"
MAX_ARGUMENTS = 1_000_000  # characters of one call's arguments; a call with more is not made, see ``ToolCall``
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
