"""Google's Gemini API, through Google's official SDK.

Gemini signs the model's reasoning and wants each signature back at the part where it was. The signature of a call is
kept in the reasoning before the call, that of a text as hidden reasoning after the text. Importing this imports the
SDK, about a second.
"""

import asyncio
import base64
import logging
import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence, Set
from contextlib import aclosing
from datetime import datetime
from typing import Any, Literal

import httpx2
from google import genai
from google.genai import errors, types

from pyagentd.clock import Clock, SystemClock
from pyagentd.errors import NoKey, ProviderError, TransientProviderError
from pyagentd.llm.backend import (
    Body,
    BodyWriter,
    ModelRequest,
    PartFinished,
    PartStarted,
    StepFinished,
    StopReason,
    StreamItem,
    dumps,
)
from pyagentd.llm.http import AGAIN, HttpRefusal, Json, Parts, api_name, ended_early, made_call, refusal
from pyagentd.llm.sdk import LIMITS, timeouts, transport_error
from pyagentd.messages import Media, Message, Reasoning, Text, ToolCall, ToolResult, Usage

_log = logging.getLogger(__name__)

PROVIDER = "gemini"  # in the record of reasoning that comes from here

# From our values to the JSON of the API; pure.

_LONGEST_NAME = 64  # characters of a function's name
_UNSIGNED = "skip_thought_signature_validator"  # what Google names for calls of another model

Quirk = Literal["temperature", "thinking", "signatures"]  # refused; refused; wanted with every call


def head(request: ModelRequest, quirks: Set[Quirk]) -> Json:
    """Return the body of ``request`` without the conversation, as a model with these quirks takes it."""
    # What it thinks counts against the limit.
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
    """Yield what ``message`` is as an item of ``contents``, nothing when it has nothing to send.

    Args:
        message: Of the conversation.
        names: Of the tools that were called, by the calls' ids.
        quirks: Of the model.
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
    said = {"error" if result.is_error else "output": text}
    return {"functionResponse": {"id": api_name(result.id), "name": name, "response": said}}


def _block(part: object) -> Json | None:
    match part:
        case Text(text=text) if text.strip():
            return {"text": text}
        case Media(type=kind, data=data):
            return {"inlineData": {"mimeType": kind, "data": data}}
    return None


def _name(name: str) -> str:
    """Return a tool's name as the API takes it: it begins with a letter."""
    return api_name(name if name[:1].isalpha() or name[:1] == "_" else f"_{name}", _LONGEST_NAME)


# From the pieces of one streamed answer to stream items; pure, one decoder per answer.

_STOPS: Mapping[str, StopReason] = {
    "STOP": "end_turn",
    "MAX_TOKENS": "max_tokens",
    **dict.fromkeys(("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR"), "refusal"),
}
_FAILED = ("MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL", "MISSING_THOUGHT_SIGNATURE")


class GeminiDecoder(Parts):
    """Folds the pieces of one answer."""

    provider = PROVIDER

    def __init__(self, request: ModelRequest) -> None:
        super().__init__(request)
        self._names = {_name(tool.name): tool.name for tool in request.tools}
        self._stop = self._why = ""
        self._blocked = False
        self._usage = Usage()

    def decode(self, piece: types.GenerateContentResponse) -> list[StreamItem]:
        """Return the items that a piece means; raises ``ProviderError``."""
        items: list[StreamItem] = []
        for candidate in (piece.candidates or ())[:1]:
            for part in (candidate.content.parts if candidate.content else None) or ():
                self._part(part, items)
            if candidate.finish_reason is not None:
                self._stop, self._why = str(candidate.finish_reason.value), candidate.finish_message or ""
        if piece.prompt_feedback is not None and piece.prompt_feedback.block_reason is not None:
            self._blocked = True
        if piece.usage_metadata is not None:
            self._usage = _usage(piece.usage_metadata)
        return items

    def end(self) -> list[StreamItem]:
        """Return what the end of the answer means; raises ``ProviderError`` where it broke off."""
        items: list[StreamItem] = []
        if not self._stop and not self._blocked:
            raise ended_early()
        if self._stop in _FAILED:
            raise TransientProviderError(f"The model's answer was broken: {self._why or self._stop}", hint=AGAIN)
        self._close(items)
        if not self._blocked and self._stop not in _STOPS:
            _log.warning("unknown reason to stop %r is taken as the end of the turn", self._stop)
        reason = "refusal" if self._blocked else _STOPS.get(self._stop, "end_turn")
        items.append(StepFinished("tool_use" if self._calls and reason == "end_turn" else reason, self._usage))
        return items

    def _part(self, part: types.Part, items: list[StreamItem]) -> None:
        signature = base64.b64encode(part.thought_signature).decode() if part.thought_signature else None
        if (call := part.function_call) is not None:
            if signature and self._kind != "reasoning":
                self._begin("reasoning", items)
            self._close(items, signature)
            self._call(call, items)
        elif part.text:
            self._grow("reasoning" if part.thought else "text", part.text, items)
        if signature and part.function_call is None:
            self._close(items)
            self._begin("reasoning", items)
            self._close(items, redacted=signature)

    def _call(self, call: types.FunctionCall, items: list[StreamItem]) -> None:
        id, name = self._begin_call(call.id or "", call.name or "")
        written = dumps(call.args or {})
        self._count(len(written))
        made, _ = made_call(id, name, written)
        items += [PartStarted(self._next, "tool", id, name), PartFinished(self._next, made)]
        self._next += 1


def _usage(given: types.GenerateContentResponseUsageMetadata) -> Usage:
    """Return the tokens that the server counted; what was read from its cache is part of the prompt there."""
    prompt = (given.prompt_token_count or 0) + (given.tool_use_prompt_token_count or 0)
    read = min(prompt, given.cached_content_token_count or 0)
    return Usage(
        input=prompt - read,
        output=given.candidates_token_count or 0,
        reasoning=given.thoughts_token_count or 0,
        cache_read=read,
    )


# What a model refuses, learned from the first refusal, and other errors; pure.


def quirk(sent: Json, refused: str) -> Quirk | None:
    """Return what to change after the server refused a body with the message ``refused``, None for nothing."""
    said, settings = refused.lower(), sent["generationConfig"]
    if re.search(r"thought.?signature", said):
        return "signatures"
    if "temperature" in settings and "temperature" in said:
        return "temperature"
    if "thinkingConfig" in settings and "think" in said:
        return "thinking"
    return None


def _error(error: Exception, now: datetime) -> ProviderError:
    if not isinstance(error, errors.APIError):
        return transport_error(error)
    headers = {name.lower(): value for name, value in dict(getattr(error.response, "headers", {})).items()}
    if delay := re.search(r"""["']retryDelay["']: ["']([0-9.]+)s["']""", str(error.details)):
        headers.setdefault("retry-after", delay[1])
    return refusal(HttpRefusal(error.code or 500, headers, error.details), now)


# The backend.


class GeminiBackend:
    """Streams answers of one server over one pool of connections.

    Args:
        api_key: Sent as it is; nothing is looked up in the environment or in files.
        base_url: Where ``/v1/models`` is.
        timeout_s: The longest silence within an answer.
        clock: What a date to wait for is measured by.
    """

    def __init__(self, *, api_key: str, base_url: str, timeout_s: float, clock: Clock | None = None) -> None:
        http = httpx2.AsyncClient(
            timeout=timeouts(timeout_s), limits=LIMITS, event_hooks={"response": [self._remember_response]}
        )
        options = types.HttpOptions(base_url=base_url, timeout=round(timeout_s * 1000), httpx_async_client=http)
        self._client = genai.Client(vertexai=False, api_key=api_key, http_options=options)
        self._http = http
        self._clock = clock or SystemClock()
        self._responses: dict[asyncio.Task[Any] | None, httpx2.Response] = {}  # by who reads them
        self._quirks: dict[str, frozenset[Quirk]] = {}  # by model
        self._names: Mapping[str, str] = {}
        self._writers: dict[frozenset[Quirk], BodyWriter] = {}

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[StreamItem], None]:
        """Send ``request`` and yield its answer, see ``Backend``."""
        decoder, reader = GeminiDecoder(request), asyncio.current_task()
        try:
            async with aclosing(self._pieces(request)) as pieces:
                async for piece in pieces:
                    if items := decoder.decode(piece):
                        yield items
            yield decoder.end()
        except (errors.APIError, httpx2.HTTPError) as error:
            # `from None`: a cause may quote the request's headers in a logged traceback.
            raise _error(error, self._clock.now()) from None
        except (errors.UnknownApiResponseError, ValueError) as error:
            raise ProviderError(
                f"The model's server sent what is not an answer of the Gemini API ({type(error).__name__})",
                hint="Check that the base URL is what the backend's kind says",
            ) from None
        finally:
            # The SDK leaves that to the garbage collector where somebody stops reading.
            if (response := self._responses.pop(reader, None)) is not None:
                await response.aclose()

    async def models(self) -> tuple[str, ...]:
        """Return the names of the models that answer with this key.

        Raises:
            NoKey: It refuses the key.
            ProviderError: It has no such list, or cannot be asked now.
        """
        try:
            listed = [each async for each in await self._client.aio.models.list(config={"page_size": 1000})]
        except (errors.APIError, httpx2.HTTPError) as error:
            made = _error(error, self._clock.now())
            if isinstance(error, errors.APIError) and (error.code in (401, 403) or "API key" in made.message):
                raise NoKey(f"The key is refused: {made.message}") from None
            raise made from None
        answering = (each for each in listed if "generateContent" in (each.supported_actions or ["generateContent"]))
        return tuple((each.name or "").removeprefix("models/") for each in answering)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _remember_response(self, response: httpx2.Response) -> None:
        self._responses[asyncio.current_task()] = response

    async def _pieces(self, request: ModelRequest) -> AsyncGenerator[types.GenerateContentResponse, None]:
        """Send ``request``, once more for each thing that its model turns out to refuse."""
        while True:
            quirks = self._quirks.get(request.model, frozenset())
            settings = head(request, quirks)
            body = self._body(settings, request, quirks)
            if request.sent is not None:
                request.sent(body)
            config = types.GenerateContentConfig.model_validate(
                {name: value for name, value in settings.items() if name in ("systemInstruction", "tools")}
                | settings["generationConfig"]
                | {"automaticFunctionCalling": {"disable": True}}
            )
            try:
                answer = await self._client.aio.models.generate_content_stream(
                    model=request.model,
                    contents=[types.Content.model_validate_json(each) for each in body.messages],
                    config=config,
                )
                async for piece in answer:
                    yield piece
                return
            except errors.ClientError as error:
                found = quirk(settings, str(error.details)) if error.code == 400 else None
                if found is None or found in quirks:
                    raise
                _log.warning("%s: sending the request in another form (%s)", request.model, found)
                self._quirks[request.model] = quirks | {found}

    def _body(self, settings: Json, request: ModelRequest, quirks: frozenset[Quirk]) -> Body:
        if (writer := self._writers.get(quirks)) is None:
            writer = self._writers[quirks] = BodyWriter(lambda each: contents(each, self._names, quirks))
        calls = (part for each in request.messages for part in each.parts if isinstance(part, ToolCall))
        self._names = {call.id: call.name for call in calls}
        return writer.write(settings, request.messages, key="contents", kept=request.kept)
