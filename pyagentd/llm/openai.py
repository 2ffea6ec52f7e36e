"""Chat Completions, the API of most model servers: bodies, and the decoding of its stream.

As in ``anthropic``, requests go out over aiohttp and not through the official SDK, which is twice as large as all of
the daemon. Servers differ in the fields that they accept and in the form of answers: a field that a server refuses is
left out from then on, and all known forms of an answer are read.
"""

import hashlib
import logging
import re
from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Literal
from urllib.parse import urlsplit

from pyagentd.clock import Clock
from pyagentd.errors import ProviderError, TransientProviderError
from pyagentd.llm.backend import (
    BodyWriter,
    ModelRequest,
    PartStarted,
    StopReason,
    StreamItem,
    ToolSchema,
    dumps,
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
    effort_of,
    given_arguments,
    load_event,
    says_unsupported,
    stop_reason,
    tokens,
)
from pyagentd.llm.textcalls import TextCalls, describe_tools, in_words
from pyagentd.messages import Media, Message, Part, Reasoning, Text, ToolCall, ToolResult, Usage

_log = logging.getLogger(__name__)

PROVIDER = "openai-compatible"  # in the record of reasoning that comes from here

# From our values to the JSON of Chat Completions; pure.

LONGEST_NAME = 64  # characters of a tool's name
_LONGEST_ID = 40  # characters of a call's id
_SHORT_ID = 9  # Mistral requires exactly this many letters and digits
_FIELDS = ("reasoning_content", "reasoning")  # where servers write it, and want it back
_DOCUMENTS = ("api.openai.com", "openrouter.ai")  # who takes PDF

Quirk = Literal[
    "temperature",  # refused
    "reasoning effort",  # refused
    "max_tokens",  # called max_completion_tokens
    "stream options",  # refused
    "call ids",  # nine letters and digits
    "encrypted reasoning",  # refused
    "reasoning summary",  # refused
    "phase",  # refused
    "reasoning wanted",  # every message with calls needs its reasoning, empty where it has none
    "reasoning refused",
    "tools",  # refused: the system prompt describes them, and the model writes calls as text
]


def settings_body(request: ModelRequest, quirks: Set[Quirk]) -> Json:
    """Return the body of ``request`` without ``messages``, for a server with these quirks."""
    longest = "max_completion_tokens" if "max_tokens" in quirks else "max_tokens"
    # Reasoning counts against the limit.
    body: Json = {"model": request.model, longest: request.max_tokens + (request.thinking_budget or 0)}
    if request.temperature is not None and "temperature" not in quirks:
        body["temperature"] = request.temperature
    if (budget := request.thinking_budget) is not None and "reasoning effort" not in quirks:
        body["reasoning_effort"] = effort_of(budget)
    if request.tools and "tools" not in quirks:
        body["tools"] = [_tool(tool) for tool in request.tools]
    if "stream options" not in quirks:
        body["stream_options"] = {"include_usage": True}
    return body | {"stream": True}


def _tool(tool: ToolSchema) -> Json:
    schema = {"name": api_name(tool.name, LONGEST_NAME), "description": tool.description}
    return {"type": "function", "function": schema | {"parameters": dict(tool.input_schema)}}


def message_bodies(message: Message, quirks: Set[Quirk], *, documents: bool) -> Iterator[Json]:
    """Yield the items of ``messages`` for ``message``: each tool result is a separate item.

    Args:
        message: A message of the conversation.
        quirks: The server's quirks.
        documents: Whether the server accepts PDF; otherwise a sentence tells the model of the attachment.
    """
    if "tools" in quirks:
        message = in_words(message)
    if message.role == "assistant":
        if (body := _wire_message(message, quirks)) is not None:
            yield body
        return
    for part in message.parts:
        if isinstance(part, ToolResult):
            yield {"role": "tool", "tool_call_id": _id(part.id, quirks), "content": result_text(part)}
    content = [block for part in message.parts if (block := _block(part, documents)) is not None]
    if content and all(block["type"] == "text" for block in content):
        yield {"role": "user", "content": "\n\n".join(block["text"] for block in content)}
    elif content:
        yield {"role": "user", "content": content}


def result_text(result: ToolResult) -> str:
    """Return a tool result as text; an error is marked as one."""
    if not result.text.strip():
        return "Error: The tool failed without a message." if result.is_error else "(no output)"
    failed = result.is_error and not result.text.lower().startswith("error")
    return f"Error: {result.text}" if failed else result.text


def _wire_message(message: Message, quirks: Set[Quirk]) -> Json | None:
    text = "".join(part.text for part in message.parts if isinstance(part, Text))
    calls = [part for part in message.parts if isinstance(part, ToolCall)]
    body: Json = {"role": "assistant", "content": text if text.strip() else None}
    if not calls:
        return body if text.strip() else None
    body["tool_calls"] = [
        {
            "id": _id(call.id, quirks),
            "type": "function",
            "function": {"name": api_name(call.name, LONGEST_NAME), "arguments": dumps(dict(call.input))},
        }
        for call in calls
    ]
    # Servers that expect reasoning back expect it only with messages that have calls.
    own = [part for part in message.parts if isinstance(part, Reasoning) and part.provider == PROVIDER]
    if "reasoning refused" not in quirks:
        for name in _FIELDS:
            if thought := "".join(part.text for part in own if part.signature == name):
                body[name] = thought
    if "reasoning wanted" in quirks:
        body.setdefault(_FIELDS[0], "")
    return body


def _block(part: object, documents: bool) -> Json | None:
    match part:
        case Text(text=text):
            return {"type": "text", "text": text} if text.strip() else None
        case Media(type=kind, data=data) if kind.startswith("image/"):
            return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}
        case Media(type=kind, data=data) if documents:
            name = f"document.{kind.rpartition('/')[2]}"
            return {"type": "file", "file": {"filename": name, "file_data": f"data:{kind};base64,{data}"}}
        case Media(type=kind):
            return {
                "type": "text",
                "text": f"(A document of type {kind} was attached here; it cannot be shown to you.)",
            }
    return None


def _id(id: str, quirks: Set[Quirk]) -> str:
    if "call ids" in quirks and not re.fullmatch(r"[A-Za-z0-9]{9}", id):
        return hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:_SHORT_ID]
    return api_name(id, _LONGEST_ID)


def check_media(request: ModelRequest, *, documents: bool) -> None:
    """Raise ``ProviderError`` when an attachment of the last prompt cannot be sent."""
    if documents or not request.messages:
        return
    for part in _just_attached(request.messages[-1]):
        if isinstance(part, Media) and not part.type.startswith("image/"):
            raise ProviderError(
                f"A document ({part.type}) is attached, and this backend's API takes none: only text and images",
                hint="Attach its text or pictures of its pages, or use a backend that takes them (docs/models.md)",
            )


def _just_attached(message: Message) -> Iterator[Part]:
    """Yield the parts of the last prompt; a failed prompt before it is in the same message, and is skipped."""
    texts = 0
    for part in reversed(message.parts):
        texts += isinstance(part, Text) and not part.text.startswith("<attachment>")
        if texts > 1:
            return
        yield part


# From the events of one streamed answer to stream items; pure, one decoder per answer.

_STOPS: dict[str, StopReason] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "model_length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
_DONE = SseEvent("", b"[DONE]")
_FAILED = ("error", "insufficient_system_resource")  # as a reason to stop


@dataclass(slots=True)
class _Call:
    """An unfinished tool call."""

    index: int
    given_id: str  # by the server
    id: str
    name: str = ""  # begun once it is known
    pieces: list[str] = field(default_factory=list)


class ChatDecoder(Decoder):
    """Folds the chunks of one answer."""

    provider = PROVIDER
    longest_name = LONGEST_NAME

    def __init__(self, request: ModelRequest) -> None:
        super().__init__(request)
        self._field = ""  # where reasoning comes, the first one of an answer
        self._made: list[_Call] = []
        self._at: dict[int, _Call] = {}  # by the server's number: some give all of them the same
        self._stop: str | None = None
        self._usage: Json = {}

    def end(self) -> list[StreamItem]:
        """Return the last items: some servers do not mark the end of an answer."""
        return [] if self._stop is None else self.decode([_DONE])

    def _read_event(self, event: SseEvent, items: list[StreamItem]) -> None:
        if event.data.strip() == _DONE.data:
            self._end(items)
            return
        body = load_event(event)
        if body.get("error"):
            raise broke_off(body)
        self._usage.update(body.get("usage") or {})
        for choice in (body.get("choices") or ())[:1]:
            if choice.get("error"):
                raise broke_off(choice)
            delta = choice.get("delta") or choice.get("message") or {}
            self._delta(delta, items)
            self._stop = choice.get("finish_reason") or self._stop

    def _delta(self, delta: Json, items: list[StreamItem]) -> None:
        for name in _FIELDS:
            if (thought := delta.get(name)) and self._field in ("", name):
                self._field = name
                self._grow("reasoning", thought, items)
        content = delta.get("content")
        if isinstance(content, list):  # Mistral's reasoning models
            for block in content:
                if block["type"] == "thinking":
                    self._grow("reasoning", "".join(each.get("text", "") for each in block["thinking"]), items)
                elif block["type"] == "text":
                    self._grow("text", block["text"], items)
        elif content:
            self._grow("text", content, items)
        if refusal := delta.get("refusal"):
            self._refused = True
            self._grow("text", refusal, items)
        for call in delta.get("tool_calls") or ():
            self._call(call, items)

    def _close(self, items: list[StreamItem], signature: str | None = None, redacted: str | None = None) -> None:
        super()._close(items, self._field or None)

    def _call(self, given: Json, items: list[StreamItem]) -> None:
        function = given.get("function") or {}
        id, name = given.get("id") or "", function.get("name") or ""
        number = given.get("index")
        if number is None:  # a piece without a new id belongs to the last call
            last = self._made[-1].given_id if self._made else ""
            number = len(self._made) - (id in ("", last))
        call = self._at.get(number)
        if call is None or (id and name and call.pieces and id != call.given_id):
            self._close(items)
            call = _Call(self._next, id, *self._begin_call(id, ""))
            self._next += 1
            self._at[number] = call
            self._made.append(call)
        if name and not call.name:  # some servers send it after the id
            call.name = self._name(name)
            items.append(PartStarted(call.index, "tool", call.id, call.name))
        text = function.get("arguments") or ""
        text = text if isinstance(text, str) else given_arguments(text)
        self._count(len(text))
        call.pieces.append(text)

    def _end(self, items: list[StreamItem]) -> None:
        if self._stop in _FAILED:
            raise TransientProviderError(f"The model's server broke off: it stopped with {self._stop!r}", hint=AGAIN)
        reason = stop_reason(self._stop, _STOPS)
        self._close(items)
        items.extend(PartStarted(call.index, "tool", call.id) for call in self._made if not call.name)
        for call in self._made:
            self._finish_call(call.index, call.id, call.name, "".join(call.pieces), items)
        self._finish(reason, usage_of(self._usage, "prompt_tokens", "completion_tokens"), items)


def usage_of(usage: Json, prompt: str, answer: str) -> Usage:
    """Return the usage that a server counted; ``prompt`` and ``answer`` are the keys of the two counts."""
    of_prompt, of_answer = usage.get(f"{prompt}_details") or {}, usage.get(f"{answer}_details") or {}
    sent, answered = tokens(usage.get(prompt)), tokens(usage.get(answer))
    reasoning = tokens(of_answer.get("reasoning_tokens"))
    # xAI does not include reasoning in the count of the answer.
    if reasoning > answered or (reasoning and tokens(usage.get("total_tokens")) == sent + answered + reasoning):
        answered += reasoning
    read = min(sent, tokens(of_prompt.get("cached_tokens") or usage.get("prompt_cache_hit_tokens")))
    written = min(sent - read, tokens(of_prompt.get("cache_write_tokens")))
    return Usage(
        input=sent - read - written,
        output=answered - reasoning,
        reasoning=reasoning,
        cache_read=read,
        cache_write=written,
    )


# Quirks of servers, learned from the first refusal; pure.

# The errors of Ollama (for a model whose template has no tools), llama.cpp, vLLM, LM Studio and others.
_NO_TOOLS = re.compile(
    r"does not support (tools|function calling)|tools? param requires --jinja|requires --enable-auto-tool-choice"
    r"|(tools|functions|function calling)\W? (is|are) not supported"
)


# The client and the backend.


def server(*, api_key: str, base_url: str, timeout_s: float) -> HttpServer:
    """Return the server at ``base_url``.

    Args:
        api_key: The key itself; it is not looked up in the environment or in files.
        base_url: The URL before ``/chat/completions``.
        timeout_s: The longest silence within an answer.
    """
    return HttpServer(base_url, {"Authorization": f"Bearer {api_key}"}, timeout_s)


class OpenAIBackend(HttpBackend[Quirk]):
    """Chat Completions.

    Args:
        server: See ``server``.
        clock: The time from which a ``retry-after`` date is measured.
        text_calls: Whether tool calls are parsed from the text of answers, see ``textcalls``.
    """

    path = "/chat/completions"
    list_path = "/models"
    api = "Chat Completions API, which often ends in /v1"

    def __init__(self, server: HttpServer, clock: Clock | None = None, *, text_calls: bool = False) -> None:
        super().__init__(server, clock)
        self._text_calls = text_calls
        self._host = urlsplit(server.base_url).hostname or ""
        self.usual = frozenset({"max_tokens"} if self._host == "api.openai.com" else ())

    def takes_documents(self) -> bool:
        """Return whether the API accepts PDF."""
        return self._host in _DOCUMENTS

    def settings(self, request: ModelRequest, quirks: Set[Quirk]) -> Json:
        """Return the body without the conversation; raises ``ProviderError`` if an attachment cannot be sent."""
        check_media(request, documents=self.takes_documents())
        return settings_body(request, quirks)

    def system(self, request: ModelRequest, quirks: Set[Quirk]) -> list[Json]:
        """Return the system prompt, as a message before the conversation."""
        tools = describe_tools(request.tools) if request.tools and "tools" in quirks else ""
        system = "\n\n".join(filter(None, (request.system.strip(), tools)))
        return [{"role": "system", "content": system}] if system else []

    def writer(self, quirks: Set[Quirk]) -> BodyWriter:
        """Return a new writer of bodies."""
        return BodyWriter(partial(message_bodies, quirks=quirks, documents=self.takes_documents()))

    def decoder(self, request: ModelRequest) -> Decoder:
        """Return a decoder for the answer."""
        in_text = self._text_calls or "tools" in self._quirks.get(request.model, ())
        decoder = ChatDecoder(request)
        return TextCalls(decoder, request) if in_text and request.tools else decoder

    def quirk(self, body: Json, refusal: str) -> Quirk | None:
        """Return the quirk that a refusal reveals, or None."""
        if "max_completion_tokens" in refusal and "max_tokens" in body:
            return "max_tokens"
        if "temperature" in body and "temperature" in refusal:
            return "temperature"
        if "stream_options" in body and ("stream_options" in refusal or "stream options" in refusal):
            return "stream options"
        if "reasoning_effort" in body and (
            "reasoning_effort" in refusal or ("thinking" in refusal and says_unsupported(refusal))
        ):
            return "reasoning effort"
        if "tool call id" in refusal and "length of 9" in refusal:
            return "call ids"
        if "reasoning_content" in refusal and ("passed back" in refusal or "missing" in refusal):
            return "reasoning wanted"
        if any(name in refusal for name in _FIELDS) and says_unsupported(refusal):
            return "reasoning refused"
        if "tools" in body and _NO_TOOLS.search(refusal):
            return "tools"
        return None
