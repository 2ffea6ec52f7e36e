"""Google's Gemini API: bodies, and the decoding of its stream.

Gemini signs the model's reasoning and expects each signature back at the same part. The signature of a call is kept
in the reasoning before the call, the signature of a text as hidden reasoning after the text.
"""

import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from typing import Any, Literal
from urllib.parse import quote

from pyagentd.clock import Clock
from pyagentd.errors import TransientProviderError
from pyagentd.llm.backend import (
    BodyWriter,
    ModelRequest,
    PartStarted,
    StopReason,
    StreamItem,
)
from pyagentd.llm.http import (
    AGAIN,
    Decoder,
    HttpBackend,
    HttpServer,
    Json,
    SseEvent,
    api_name,
    broke_off,
    given_arguments,
    load_event,
    stop_reason,
    tokens,
)
from pyagentd.messages import Body, Media, Message, Reasoning, Text, ToolCall, ToolResult, Usage

PROVIDER = "gemini"  # in the record of reasoning that comes from here

# From our values to the JSON of the API; pure.

_LONGEST_NAME = 64  # characters of a function's name
_UNSIGNED = "skip_thought_signature_validator"  # what Google names for calls of another model

Quirk = Literal["temperature", "thinking", "signatures"]  # refused; refused; wanted with every call


def settings_body(request: ModelRequest, quirks: Set[Quirk]) -> Json:
    """Return the body of ``request`` without the conversation, for a model with these quirks."""
    # Reasoning counts against the limit.
    settings: Json = {"maxOutputTokens": request.max_tokens + (request.thinking_budget or 0)}
    if request.temperature is not None and "temperature" not in quirks:
        settings["temperature"] = request.temperature
    if request.thinking_budget is not None and "thinking" not in quirks:
        settings["thinkingConfig"] = {"includeThoughts": True, "thinkingBudget": request.thinking_budget}
    body: Json = {"model": request.model, "generationConfig": settings}
    if request.system.strip():
        body["systemInstruction"] = {"parts": [{"text": request.system}]}
    if request.tools:
        declared = [
            {
                "name": _name(tool.name),
                "description": tool.description,
                "parametersJsonSchema": dict(tool.input_schema),
            }
            for tool in request.tools
        ]
        body["tools"] = [{"functionDeclarations": declared}]
    return body


def contents(message: Message, names: Mapping[str, str], quirks: Set[Quirk]) -> Iterator[Json]:
    """Yield the item of ``contents`` for ``message``, nothing when nothing in it can be sent.

    Args:
        message: A message of the conversation.
        names: The names of the called tools, by the calls' ids.
        quirks: The model's quirks.
    """
    if message.role == "assistant":
        parts = list(_content_parts(message, quirks))
        if any(part.keys() - {"thoughtSignature"} != {"text"} or part["text"] for part in parts):
            yield {"role": "model", "parts": parts}
        return
    # The API wants as many results, before anything else, as there were calls.
    results = [_result(part, names) for part in message.parts if isinstance(part, ToolResult)]
    others = [block for part in message.parts if (block := _block(part)) is not None]
    if results or others:
        yield {"role": "user", "parts": [*results, *others]}


def _content_parts(message: Message, quirks: Set[Quirk]) -> Iterator[Json]:
    signature, first = "", True
    for part in message.parts:
        match part:
            case Reasoning(provider="gemini", redacted=str(hidden)):
                yield {"text": "", "thoughtSignature": hidden}
            case Reasoning(provider="gemini", signature=str(given)):
                signature = given
            case Text(text=text) if text.strip():
                yield {"text": text}
            case ToolCall(id=id, name=name, input=given):
                if not signature and first and "signatures" in quirks:
                    signature = _UNSIGNED
                call = {"functionCall": {"id": api_name(id), "name": _name(name), "args": dict(given)}}
                yield call | ({"thoughtSignature": signature} if signature else {})
                signature, first = "", False


def _result(result: ToolResult, names: Mapping[str, str]) -> Json:
    text = result.text if result.text.strip() else "The tool failed without a message." if result.is_error else ""
    name = _name(names.get(result.id, "unknown"))
    output = {"error" if result.is_error else "output": text}
    return {"functionResponse": {"id": api_name(result.id), "name": name, "response": output}}


def _block(part: object) -> Json | None:
    match part:
        case Text(text=text) if text.strip():
            return {"text": text}
        case Media(type=kind, data=data):
            return {"inlineData": {"mimeType": kind, "data": data}}
    return None


def _name(name: str) -> str:
    """Return a tool's name in the form that the API accepts: it begins with a letter."""
    return api_name(name if name[:1].isalpha() or name[:1] == "_" else f"_{name}", _LONGEST_NAME)


# From the events of one streamed answer to stream items; pure, one decoder per answer.

_STOPS: Mapping[str, StopReason] = {
    "STOP": "end_turn",
    "MAX_TOKENS": "max_tokens",
    **dict.fromkeys(("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR"), "refusal"),
}
_FAILED = ("MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL", "MISSING_THOUGHT_SIGNATURE")


class GeminiDecoder(Decoder):
    """Folds the events of one answer."""

    provider = PROVIDER

    def __init__(self, request: ModelRequest) -> None:
        super().__init__(request)
        self._names = {_name(tool.name): tool.name for tool in request.tools}
        self._stop = self._why = ""
        self._usage: Json = {}

    def end(self) -> list[StreamItem]:
        """Return the last items: the end of the body ends the answer, if the server gave a reason to stop.

        Raises:
            TransientProviderError: The server stopped at malformed output of the model.
        """
        if not self._stop and not self._refused:
            return []
        if self._stop in _FAILED:
            raise TransientProviderError(f"The model's answer was broken: {self._why or self._stop}", hint=AGAIN)
        items: list[StreamItem] = []
        self._close(items)
        self._finish(stop_reason(self._stop or "SAFETY", _STOPS), _usage(self._usage), items)
        return items

    def _read_event(self, event: SseEvent, items: list[StreamItem]) -> None:
        body = load_event(event)
        if body.get("error"):
            raise broke_off(body)
        for candidate in (body.get("candidates") or ())[:1]:
            for part in (candidate.get("content") or {}).get("parts") or ():
                self._part(part, items)
            if candidate.get("finishReason"):
                self._stop, self._why = candidate["finishReason"], candidate.get("finishMessage") or ""
        if (body.get("promptFeedback") or {}).get("blockReason"):
            self._refused = True
        self._usage.update(body.get("usageMetadata") or {})

    def _part(self, part: Json, items: list[StreamItem]) -> None:
        signature = part.get("thoughtSignature") or None
        if (call := part.get("functionCall")) is not None:
            if signature and self._kind != "reasoning":
                self._begin("reasoning", items)
            self._close(items, signature)
            self._call(call, items)
        elif part.get("text"):
            self._grow("reasoning" if part.get("thought") else "text", part["text"], items)
        if signature and call is None:
            self._close(items)
            self._begin("reasoning", items)
            self._close(items, redacted=signature)

    def _call(self, call: Json, items: list[StreamItem]) -> None:
        id, name = self._begin_call(call.get("id") or "", call.get("name") or "")
        written = given_arguments(call.get("args"))
        self._count(len(written))
        items.append(PartStarted(self._next, "tool", id, name))
        self._finish_call(self._next, id, name, written, items)
        self._next += 1


def _usage(usage: Json) -> Usage:
    """Return the usage that the server counted; its prompt tokens include those read from the cache."""
    prompt = tokens(usage.get("promptTokenCount")) + tokens(usage.get("toolUsePromptTokenCount"))
    read = min(prompt, tokens(usage.get("cachedContentTokenCount")))
    return Usage(
        input=prompt - read,
        output=tokens(usage.get("candidatesTokenCount")),
        reasoning=tokens(usage.get("thoughtsTokenCount")),
        cache_read=read,
    )


# The client and the backend.


def server(*, api_key: str, base_url: str, timeout_s: float) -> HttpServer:
    """Return the server at ``base_url``.

    Args:
        api_key: The key itself; it is not looked up in the environment or in files.
        base_url: The URL before ``/v1/models``.
        timeout_s: The longest silence within an answer.
    """
    return HttpServer(base_url, {"x-goog-api-key": api_key}, timeout_s)


class GeminiBackend(HttpBackend[Quirk]):
    """The Gemini API."""

    list_path = "/v1/models?pageSize=1000"
    key = "contents"
    api = "Gemini API"
    decoder = GeminiDecoder

    def __init__(self, server: HttpServer, clock: Clock | None = None) -> None:
        super().__init__(server, clock)
        self._names: dict[str, str] = {}  # of the tools that were called, by the calls' ids

    def settings(self, request: ModelRequest, quirks: Set[Quirk]) -> Json:
        """Return the body without the conversation."""
        calls = (part for each in request.messages for part in each.parts if isinstance(part, ToolCall))
        self._names = {call.id: call.name for call in calls}
        return settings_body(request, quirks)

    def writer(self, quirks: Set[Quirk]) -> BodyWriter:
        """Return a new writer of bodies."""
        return BodyWriter(lambda each: contents(each, self._names, quirks))

    def addressed(self, request: ModelRequest, body: Body) -> tuple[str, Body]:
        """Return the path and the body of a request: the path names the model."""
        head = {name: value for name, value in body.head.items() if name != "model"}
        size = body.size - len(b'"model":%s,' % body.head["model"])
        model = request.model if "/" in request.model else f"models/{request.model}"
        return f"/v1/{quote(model)}:streamGenerateContent?alt=sse", replace(body, head=head, size=size)

    def listed(self, page: Any) -> tuple[list[Any], str]:
        """Return the names on a page of the list of models, and the path of the next page."""
        answering = (
            each["name"]
            for each in page["models"]
            if "generateContent" in each.get("supportedGenerationMethods", ["generateContent"])
        )
        further = page.get("nextPageToken")
        return (
            [name.removeprefix("models/") for name in answering],
            f"{self.list_path}&pageToken={quote(further)}" if further else "",
        )

    def quirk(self, body: Json, refusal: str) -> Quirk | None:
        """Return the quirk that a refusal reveals, or None."""
        settings = body["generationConfig"]
        if re.search(r"thought.?signature", refusal):
            return "signatures"
        if "temperature" in settings and "temperature" in refusal:
            return "temperature"
        if "thinkingConfig" in settings and "think" in refusal:
            return "thinking"
        return None
