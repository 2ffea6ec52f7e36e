"""OpenAI's Responses API: bodies, and the decoding of its stream.

Each request tells OpenAI to store nothing: reasoning comes encrypted, is kept in the session's log, and is sent with
the next request. Code shared with Chat Completions is in ``openai``.
"""

from collections.abc import Iterator, Mapping, Set
from functools import partial

from pyagentd.llm.backend import (
    BodyWriter,
    ModelRequest,
    PartFinished,
    PartKind,
    PartStarted,
    StopReason,
    StreamItem,
    dumps,
)
from pyagentd.llm.http import (
    Decoder,
    GrowingPart,
    Json,
    SseEvent,
    api_name,
    broke_off,
    effort_of,
    load_event,
    says_unsupported,
)
from pyagentd.llm.openai import LONGEST_NAME, OpenAIBackend, Quirk, result_text, usage_of
from pyagentd.messages import Media, Message, Reasoning, Text, ToolCall, ToolResult

PROVIDER = "openai"  # in the record of reasoning that comes from here

_LONGEST_ID = 64  # characters of a call's id
_LEAST = 16  # the smallest limit of tokens that the API accepts
_ENCRYPTED = "reasoning.encrypted_content"


def settings_body(request: ModelRequest, quirks: Set[Quirk]) -> Json:
    """Return the body of ``request`` without ``input``, for a model with these quirks."""
    # Reasoning counts against the limit.
    longest = max(_LEAST, request.max_tokens + (request.thinking_budget or 0))
    body: Json = {"model": request.model, "max_output_tokens": longest, "store": False}
    if request.system.strip():
        body["instructions"] = request.system
    if request.temperature is not None and "temperature" not in quirks:
        body["temperature"] = request.temperature
    if request.thinking_budget is not None and "reasoning effort" not in quirks:
        body["reasoning"] = {"effort": effort_of(request.thinking_budget)}
        if "reasoning summary" not in quirks:
            body["reasoning"]["summary"] = "auto"
    if "encrypted reasoning" not in quirks:
        body["include"] = [_ENCRYPTED]
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": api_name(tool.name, LONGEST_NAME),
                "description": tool.description,
                "parameters": dict(tool.input_schema),
                "strict": False,
            }
            for tool in request.tools
        ]
    return body | {"stream": True}


def items_of(message: Message, quirks: Set[Quirk]) -> Iterator[Json]:
    """Yield the items of ``input`` for ``message``."""
    if message.role == "assistant":
        yield from _input_items(message, quirks)
        return
    for part in message.parts:
        if isinstance(part, ToolResult):
            yield {
                "type": "function_call_output",
                "call_id": api_name(part.id, _LONGEST_ID),
                "output": result_text(part),
            }
    if content := [block for part in message.parts if (block := _block(part)) is not None]:
        yield {"role": "user", "content": content}


def _input_items(message: Message, quirks: Set[Quirk]) -> Iterator[Json]:
    thoughts: list[Json] = []  # sent with the next item only: the API refuses reasoning that nothing follows
    for part in message.parts:
        match part:
            case Reasoning(provider=provider, signature=str(id), redacted=str(data)) if (
                provider == PROVIDER and "encrypted reasoning" not in quirks
            ):
                summary = [{"type": "summary_text", "text": part.text}] if part.text else []
                thoughts.append({"type": "reasoning", "id": id, "summary": summary, "encrypted_content": data})
            case Text(text=text, phase=phase) if text.strip():
                yield from thoughts
                thoughts.clear()
                named = {"phase": phase} if phase and "phase" not in quirks else {}
                yield {"role": "assistant", "content": text} | named
            case ToolCall(id=id, name=name, input=given):
                yield from thoughts
                thoughts.clear()
                yield {
                    "type": "function_call",
                    "call_id": api_name(id, _LONGEST_ID),
                    "name": api_name(name, LONGEST_NAME),
                    "arguments": dumps(dict(given)),
                }


def _block(part: object) -> Json | None:
    match part:
        case Text(text=text):
            return {"type": "input_text", "text": text} if text.strip() else None
        case Media(type=kind, data=data) if kind.startswith("image/"):
            return {"type": "input_image", "detail": "auto", "image_url": f"data:{kind};base64,{data}"}
        case Media(type=kind, data=data):
            name = f"document.{kind.rpartition('/')[2]}"
            return {"type": "input_file", "filename": name, "file_data": f"data:{kind};base64,{data}"}
    return None


# From the events of one streamed answer to stream items; pure, one decoder per answer.

_KINDS: Mapping[str, PartKind] = {"message": "text", "reasoning": "reasoning", "function_call": "tool"}
_STOPS: Mapping[str, StopReason] = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}


class ResponseDecoder(Decoder):
    """Folds the events of one answer."""

    provider = PROVIDER
    longest_name = LONGEST_NAME

    def __init__(self, request: ModelRequest) -> None:
        super().__init__(request)
        self._items: dict[int, GrowingPart] = {}

    def _read_event(self, event: SseEvent, items: list[StreamItem]) -> None:
        body = load_event(event)
        match str(body.get("type") or event.name).removeprefix("response."):
            case "output_text.delta" | "reasoning_summary_text.delta" | "reasoning_text.delta":
                self._text(body["output_index"], body["delta"], items)
            case "function_call_arguments.delta":
                self._count(len(body["delta"]))
            case "output_item.added":
                self._item_added(body, items)
            case "output_item.done":
                self._item_done(body, items)
            case "reasoning_summary_part.added" if body["summary_index"] > 0:
                self._text(body["output_index"], "\n\n", items)
            case "refusal.delta":
                self._refused = True
                self._text(body["output_index"], body["delta"], items)
            case "completed" | "incomplete":
                self._completed(body["response"], items)
            case "failed" | "error":
                error = (body.get("response") or {}).get("error") or body.get("error") or body
                raise broke_off({"error": error})

    def _item_added(self, body: Json, items: list[StreamItem]) -> None:
        fields = body["item"]
        if (kind := _KINDS.get(fields["type"])) is None:
            return
        item = self._items[body["output_index"]] = GrowingPart(kind)
        if kind == "tool":
            item.call_id, item.name = self._begin_call(fields["call_id"], fields["name"])
        items.append(PartStarted(body["output_index"], kind, item.call_id, item.name))

    def _text(self, index: int, text: str, items: list[StreamItem]) -> None:
        self._grow_part(index, self._items[index], text, items)

    def _item_done(self, body: Json, items: list[StreamItem]) -> None:
        index, fields = body["output_index"], body["item"]
        if (item := self._items.pop(index, None)) is None:
            return
        match item.kind:
            case "text":
                items.append(PartFinished(index, Text(text="".join(item.pieces), phase=fields.get("phase"))))
            case "reasoning":
                part = Reasoning(
                    text="".join(item.pieces),
                    signature=fields.get("id") or None,
                    redacted=fields.get("encrypted_content") or None,
                    provider=PROVIDER,
                )
                items.append(PartFinished(index, part))
            case "tool":
                is_cut = fields.get("status") == "incomplete"
                self._finish_call(index, item.call_id, item.name, fields["arguments"], items, is_cut=is_cut)

    def _completed(self, response: Json, items: list[StreamItem]) -> None:
        for index, item in self._items.items():
            if item.kind == "text":
                items.append(PartFinished(index, Text(text="".join(item.pieces))))
        why = (response.get("incomplete_details") or {}).get("reason")
        reason = _STOPS.get(why, "max_tokens") if why else "end_turn"
        usage = usage_of(response.get("usage") or {}, "input_tokens", "output_tokens")
        self._finish(reason, usage, items)


class ResponsesBackend(OpenAIBackend):
    """The Responses API."""

    path = "/responses"
    key = "input"
    api = "Responses API; if it speaks Chat Completions, the kind is openai-compatible"
    decoder = ResponseDecoder

    def settings(self, request: ModelRequest, quirks: Set[Quirk]) -> Json:
        """Return the body without the conversation."""
        return settings_body(request, quirks)

    def system(self, request: ModelRequest, quirks: Set[Quirk]) -> list[Json]:
        """Return nothing: the system prompt is in the settings."""
        return []

    def writer(self, quirks: Set[Quirk]) -> BodyWriter:
        """Return a new writer of bodies."""
        return BodyWriter(partial(items_of, quirks=quirks))

    def quirk(self, body: Json, refusal: str) -> Quirk | None:
        """Return the quirk that a refusal reveals, or None."""
        if "temperature" in body and "temperature" in refusal:
            return "temperature"
        if "include" in body and ("encrypted content" in refusal or _ENCRYPTED in refusal):
            return "encrypted reasoning"
        if "summary" in body.get("reasoning", {}) and "summar" in refusal:
            return "reasoning summary"
        if "phase" in refusal and says_unsupported(refusal):
            return "phase"
        if "reasoning" in body and "reasoning" in refusal and says_unsupported(refusal):
            return "reasoning effort"
        return None
