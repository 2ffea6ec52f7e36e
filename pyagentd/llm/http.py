"""HTTP for all providers: a server's connections, server-sent events, limits of an answer, errors.

Importing this module imports aiohttp, so only the providers' modules import it.
"""

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import re
import ssl
import sys
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence, Set
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from itertools import groupby
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec
import truststore
from aiohttp.abc import AbstractStreamWriter

from pyagentd import __version__, reader
from pyagentd.clock import Clock, SystemClock
from pyagentd.config.tables import is_address
from pyagentd.errors import ConfigError, ContextOverflow, NoKey, ProviderError, TransientProviderError
from pyagentd.llm.backend import (
    MAX_ARGUMENTS,
    BodyWriter,
    ModelRequest,
    PartDelta,
    PartFinished,
    PartKind,
    PartStarted,
    StepFinished,
    StopReason,
    StreamItem,
)
from pyagentd.messages import Body, Reasoning, Text, ToolCall, Usage

Json = dict[str, Any]

_log = logging.getLogger(__name__)

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
        held: The size of the incomplete event in bytes.
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
        # The end of an event may be split between two chunks, so the last byte held is searched as well.
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


AGAIN = "The text so far is kept: send again"
MAX_TEXT = 4_000_000  # characters of text and reasoning in one answer
MAX_ANSWER = 32_000_000  # characters of one answer, arguments included; of one event that is not complete, bytes
MAX_CALLS = 128  # in one answer
MAX_NAME = 200  # characters of a tool's name, and of a call's id


def too_much(what: str) -> ProviderError:
    """Return the error for an answer that has more than ``what``."""
    return ProviderError(
        f"The model's answer was cut off: it has more than {what}",
        hint="The text so far is kept: send again, and ask for less at a time",
    )


_decode = msgspec.json.Decoder().decode


def load_event(event: SseEvent) -> Json:
    """Return the JSON object that an event holds; raises ``ProviderError``."""
    try:
        body = _decode(event.data)
    except (ValueError, RecursionError):
        try:  # `json` accepts half a surrogate pair, whose rest may come in the next event, and NaN
            body = json.loads(event.data)
        except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, or a thousand brackets deep
            raise malformed_event(event) from error
    if not isinstance(body, dict):
        raise malformed_event(event)
    return body


def malformed_event(event: SseEvent) -> ProviderError:
    """Return the error for an event that breaks the protocol."""
    name = f" {event.name}" if event.name else ""
    return ProviderError(
        f"The model's server sent a malformed{name} event",
        hint="Check that the base URL is what the backend's kind says",
    )


_EFFORT = ((4_000, "low"), (12_000, "medium"))  # by the largest budget of thinking, in tokens, that means it


def effort_of(budget: int) -> str:
    """Return the effort for a thinking budget in tokens."""
    return next((name for most, name in _EFFORT if budget <= most), "high")


def given_arguments(value: Any) -> str:
    """Return the input that came with the start of a call as text, as if it had come in deltas."""
    try:
        return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else "{}"
    except RecursionError:
        return str(value)


def arguments(text: str) -> Json | None:
    """Return the arguments of a call, None where they are not a JSON object."""
    try:
        value = reader.parse(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def taken_ids(request: ModelRequest) -> Mapping[str, None]:
    """Return the ids of the calls in a request; only messages that are new since the last step are scanned."""
    ids: dict[str, None]  # takes a quarter of a set's memory
    count, ids = request.kept.get(taken_ids, (0, {}))
    new = request.messages[count if count <= len(request.messages) else 0 :]
    ids |= dict.fromkeys(part.id for message in new for part in message.parts if isinstance(part, ToolCall))
    request.kept[taken_ids] = len(request.messages), ids
    return ids


_NAME = re.compile(r"[A-Za-z0-9_-]+")  # what APIs take as a tool's name, and as a call's id


def api_name(name: str, longest: int = 128) -> str:
    """Return a name or an id, which a model may have made up, in a form that the API accepts.

    The API would refuse every request of the conversation for a character that it does not allow.
    """
    if _NAME.fullmatch(name) and len(name) <= longest:
        return name
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)[: longest - 17][:80]
    return f"{plain}_{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def _without_surrogates(name: str) -> str:
    """Return a name or id without lone surrogates, which cannot be encoded for a file or a request."""
    return name.encode("utf-8", "replace").decode()[:MAX_NAME]


@dataclass(slots=True)
class GrowingPart:
    """An unfinished part, for APIs that number the parts."""

    kind: PartKind
    call_id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)


class Decoder:
    """Folds the events of one streamed answer.

    Args:
        request: The request that is answered, for its tools' names and the ids of its calls.

    Attributes:
        finished: The answer is complete.
        failure: The error that the server reported, or its breach of the protocol; transient if a retry may succeed.
    """

    provider = "anthropic"  # in the record of reasoning that comes from here
    longest_name = 128  # characters of a tool's name

    def __init__(self, request: ModelRequest) -> None:
        self.finished = False
        self.failure: ProviderError | None = None
        self._names = {api_name(tool.name, self.longest_name): tool.name for tool in request.tools}
        self._taken = taken_ids(request)
        self._ids: set[str] = set()  # of the answer's calls
        self._calls = self._text_length = self._received = 0  # calls; characters of text, of everything
        self._next = 0  # number of the next part, where the API gives none
        self._kind: PartKind | None = None  # of the open part, text or reasoning
        self._pieces: list[str] = []
        self._broken: list[PartFinished] = []  # calls whose arguments are not a JSON object
        self._refused = False  # the model refused to answer

    def decode(self, events: Iterable[SseEvent]) -> list[StreamItem]:
        """Return the items for ``events``, up to the first invalid event, which sets ``failure``.

        Adjacent deltas are merged into one item, so a chunk of many tokens costs its reader as much as one token.
        """
        items: list[StreamItem] = []
        try:
            for event in events:
                try:
                    self._read_event(event, items)
                except (KeyError, TypeError, AttributeError, IndexError) as error:
                    raise malformed_event(event) from error
                if self.finished:
                    break
        except ProviderError as error:
            self.failure = error
        merged: list[StreamItem] = []
        for index, group in groupby(items, lambda item: item.index if isinstance(item, PartDelta) else None):
            if index is None:
                merged += group
            else:
                merged.append(PartDelta(index, "".join(each.text for each in group if isinstance(each, PartDelta))))
        return merged

    def end(self) -> list[StreamItem]:
        """Return the items due at the end of the body: none, where the API marks the end of an answer itself."""
        return []

    def _read_event(self, event: SseEvent, items: list[StreamItem]) -> None:
        raise NotImplementedError

    def _count_text(self, text: str) -> None:
        if not isinstance(text, str):
            raise TypeError("text of a delta")
        self._text_length += len(text)
        if self._text_length > MAX_TEXT:
            raise too_much(f"{MAX_TEXT // 1_000_000} million characters of text")
        self._count(len(text))

    def _count(self, characters: int) -> None:
        self._received += characters
        if self._received > MAX_ANSWER:
            raise too_much(f"{MAX_ANSWER // 1_000_000} million characters")

    def _begin_call(self, id: str, name: str) -> tuple[str, str]:
        """Count a new call; return its id and its tool's name."""
        self._calls += 1
        if self._calls > MAX_CALLS:
            raise too_much(f"{MAX_CALLS} calls of tools")
        return self._unique_id(_without_surrogates(id)), self._name(name)

    def _unique_id(self, id: str) -> str:
        """Return ``id``, or a new id if it is empty or that of another call in the request or the answer."""
        if not id or id in self._taken or id in self._ids:
            id = f"{id or 'call'}_{uuid.uuid4().hex[:12]}"
        self._ids.add(id)
        return id

    def _finish_call(
        self, index: int, id: str, name: str, text: str, items: list[StreamItem], *, is_cut: bool = False
    ) -> None:
        """End a call with the arguments in ``text``; too long ones are kept unparsed, see ``ToolCall``."""
        given = arguments(text if text.strip() else "{}") if len(text) <= MAX_ARGUMENTS else None
        call = ToolCall(id=id, name=name, input=given or {}, unreadable="" if given is not None else text)
        is_half = is_cut or (given is None and len(text) <= MAX_ARGUMENTS)
        (self._broken if is_half else items).append(PartFinished(index, call))

    def _finish(self, reason: StopReason, usage: Usage, items: list[StreamItem]) -> None:
        """End the answer."""
        # A call cut off by the token limit is void; any other malformed call is passed on: the model gets an error.
        if reason != "max_tokens":
            items.extend(self._broken)
        if self._calls and reason == "end_turn":
            reason = "tool_use"  # so proxies and several servers end an answer with calls
        self.finished = True
        items.append(StepFinished("refusal" if self._refused else reason, usage))

    def _name(self, name: str) -> str:
        name = _without_surrogates(name)
        return self._names.get(name, name)

    def _grow_part(self, index: int, part: GrowingPart, text: str, items: list[StreamItem]) -> None:
        self._count_text(text)
        part.pieces.append(text)
        if text:
            items.append(PartDelta(index, text))

    def _grow(self, kind: PartKind, text: str, items: list[StreamItem]) -> None:
        """Add to the open part, or begin another one."""
        self._count_text(text)
        if not text:
            return
        if self._kind != kind:
            self._begin(kind, items)
        self._pieces.append(text)
        items.append(PartDelta(self._next, text))

    def _begin(self, kind: PartKind, items: list[StreamItem]) -> None:
        self._close(items)
        self._kind = kind
        items.append(PartStarted(self._next, kind))

    def _close(self, items: list[StreamItem], signature: str | None = None, redacted: str | None = None) -> None:
        """End the open part; ``signature`` belongs to reasoning."""
        if self._kind is None:
            return
        text = "".join(self._pieces)
        thought = Reasoning(text=text, signature=signature, redacted=redacted, provider=self.provider)
        items.append(PartFinished(self._next, Text(text=text) if self._kind == "text" else thought))
        self._next, self._kind = self._next + 1, None
        self._pieces.clear()


def stop_reason(reason: str | None, known: Mapping[str, StopReason]) -> StopReason:
    """Return the ``StopReason`` for the server's; raises ``ProviderError`` if it gave none."""
    if reason is None:
        raise ProviderError("The model's server ended its answer without saying why it stopped", hint=AGAIN)
    if reason not in known:
        _log.warning("unknown reason to stop %r is taken as the end of the turn", reason)
    return known.get(reason, "end_turn")


def tokens(count: Any) -> int:
    """Return a count of tokens, 0 for None; raises ``ProviderError`` when it is not a whole number."""
    if count is None:
        return 0
    if isinstance(count, bool) or not isinstance(count, int | float) or count % 1:
        raise ProviderError(f"The model's server counted {count!r} tokens", hint=AGAIN)
    return max(0, int(count))


# Refusals of a server and network failures, converted to ``ProviderError``.
#
# Transient are those that a retry may fix: timeouts, conflicts, rate limits, server errors (5xx), network failures.
# The provider's wording is kept; the request's headers are not, since one of them is the key.

_TRANSIENT_STATUS = frozenset({408, 409, 429})
_REFUSED = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY)
_RETRY_HEADER = {"true": True, "false": False}
_RETRY_DELAY = re.compile(r'"retryDelay": "([0-9]+(?:\.[0-9]+)?)s"')  # so Google says how long to wait
_NO_CREDIT = "Add credit at the provider's console, or use another key or backend"
_MENDS = {
    401: "Check the API key: the environment variable (ANTHROPIC_API_KEY, or what key_env of the backend names), "
    "or the entry in auth-source",
    402: _NO_CREDIT,
    403: "The API key may not use this model or endpoint: choose another model, or use another key",
    404: "Check the preset's model and the base URL, which for servers like OpenAI's mostly ends in /v1",
    429: "It was tried several times: wait a little and send again, or use another model or key",
    400: "If it names a message, edit or rewind that; otherwise check the preset's model and settings",
}
_OVERLOADED = "It was tried several times and nothing is lost: send again in a while"
OFFLINE = "Nothing is lost: check the network and the base URL, then send again"
_BAD_KEY = re.compile(r"api.?key (is )?(not valid|invalid|expired)", re.IGNORECASE)
_CREDIT = re.compile(r"credit balance|insufficient (funds|credit|quota)|billing", re.IGNORECASE)
# Errors about a prompt that does not fit, as worded by the providers and by other servers with the same API.
_TOO_LONG = re.compile(
    r"prompt is too long|exceeds? (the )?(context|model'?s? (maximum )?context)|exceeds? the available context"
    r"|context[ _](length|window) (is )?exceeded|context_length_exceeded|exceed_context_size"
    r"|maximum (context|prompt) length|input is too long|too many (input )?tokens|reduce the length of the messages"
    r"|token count .{0,40}exceeds the maximum|too large for model with [0-9]+ maximum context",
    re.IGNORECASE,
)


class HttpRefusal(Exception):
    """The server answered with a status that is no success.

    Attributes:
        status: The HTTP status.
        headers: The headers of the answer.
        body: The JSON value of the answer's body, or its text.
    """

    def __init__(self, status: int, headers: Mapping[str, str], body: object) -> None:
        super().__init__(status)
        self.status = status
        self.headers = headers
        self.body = body


def refusal(refused: HttpRefusal, now: datetime) -> ProviderError:
    """Convert a refusal into a ``ProviderError``.

    Args:
        refused: The refusal.
        now: The current time (aware), from which a ``retry-after`` date is measured.
    """
    status, headers = refused.status, refused.headers
    text = f"The model's server says {status} {_reason(refused)}"
    transient = status in _TRANSIENT_STATUS or status >= 500
    if "insufficient_quota" in text:
        return ProviderError(text, hint=_NO_CREDIT)
    if _RETRY_HEADER.get(headers.get("x-should-retry", ""), transient):
        hint = _MENDS[status] if status == HTTPStatus.TOO_MANY_REQUESTS else _OVERLOADED
        wait = retry_after(headers, now)
        if wait is None and (delay := _RETRY_DELAY.search(json.dumps(refused.body, default=str))):
            wait = float(delay[1])
        return TransientProviderError(text, retry_after=wait, hint=hint)
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE or (status in _REFUSED and _TOO_LONG.search(text)):
        return ContextOverflow(text)
    if status == HTTPStatus.BAD_REQUEST and _CREDIT.search(text):
        return ProviderError(text, hint=_NO_CREDIT)
    if status == HTTPStatus.BAD_REQUEST and _BAD_KEY.search(text):
        return ProviderError(text, hint=_MENDS[401])
    if 300 <= status < 400:
        where = headers.get("location", "another address")
        return ProviderError(f"{text}: it is at {where}", hint="Write that address as the backend's base URL")
    return ProviderError(text, hint=_MENDS.get(status, "The run ended; what was said before stands. Send again"))


def _reason(refused: HttpRefusal) -> str:
    """Return the server's own words, or the status' name when its body holds none."""
    kind, message = error_of_body(refused.body)
    if message:
        return f"({kind or 'error'}): {message.rstrip('.')}"
    try:
        return HTTPStatus(refused.status).phrase
    except ValueError:
        return "Overloaded" if refused.status == 529 else "(no reason given)"


def error_of_body(body: object) -> tuple[str, str]:
    """Return the kind and the message of the error in the body of an answer; "" for a missing one."""
    if isinstance(body, Mapping):
        inner = body.get("error", body.get("detail"))
        if inner is not None and not isinstance(body.get("message"), str):
            return error_of_body(inner)
        kind = next((str(body[key]) for key in ("code", "type", "status") if isinstance(body.get(key), str)), "")
        message = body.get("message") or body.get("msg")
        return kind, message if isinstance(message, str) else (json.dumps(message) if message else "")
    if isinstance(body, list):
        return "", "; ".join(message for each in body if (message := error_of_body(each)[1]))
    return "", body if isinstance(body, str) and not body.lstrip().startswith("<") else ""


_PASSING = re.compile(
    r"overloaded|rate.?limit|too.many.requests|timeout|unavailable|server_error|api_error|internal|try again"
    r"|\b(408|429|5\d\d)\b",
    re.IGNORECASE,
)


def broke_off(body: Json) -> ProviderError:
    """Return the error for a body with ``error`` instead of an answer; transient if a retry may succeed."""
    kind, message = error_of_body(body)
    number = body["error"].get("code") if isinstance(body["error"], dict) else None
    text = f"The model's server broke off: {message or 'no message'} ({kind or number or 'error'})"
    if _TOO_LONG.search(text):
        return ContextOverflow(text)
    return TransientProviderError(text, hint=AGAIN) if _PASSING.search(text) else ProviderError(text, hint=AGAIN)


def network_error(error: BaseException, address: str = "") -> ProviderError:
    """Convert an exception of aiohttp into a ``ProviderError``; ``address`` is the server's, as ``host:port``."""
    server = f"he model's server{f' at {address}' if address else ''}"
    match error:
        case aiohttp.ConnectionTimeoutError():
            text = f"T{server} could not be reached in time"
        case TimeoutError():
            text = f"T{server} went silent"
        case aiohttp.ClientConnectorError():
            reason = error.os_error
            text = f"T{server} cannot be reached: {str(reason) or type(reason).__name__}"
        case aiohttp.ClientConnectionError() | aiohttp.ClientPayloadError() | OSError():
            text = f"The connection to t{server} broke off: {str(error) or type(error).__name__}"
        case _:
            # The exception's text may quote a header.
            kind = type(error).__name__
            return ProviderError(
                f"The request could not be sent or its answer read ({kind})", hint="Check the base URL"
            )
    return TransientProviderError(text, hint=OFFLINE)


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the seconds a server asks to wait: ``retry-after-ms``, or ``retry-after`` in seconds or as a date."""
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    header = headers.get("retry-after")
    if header is None or (seconds := _number(header)) is not None:
        return seconds if header is not None else None
    try:
        return max(0.0, (parsedate_to_datetime(header) - now).total_seconds())
    except (ValueError, TypeError):  # not a date, or one without a zone
        return None


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None


CONNECT_S = 15.0
MAX_CONNECTIONS = 1000  # each agent that waits for an answer holds one
KEEP_S = 30.0  # how long an idle one is kept
_DRAIN_S = 0.5  # the longest time between the last event and the end of the body
_NOT_A_STREAM = ("text/html", "application/json", "text/plain")
_MAX_REFUSAL = 1 << 20  # bytes of the body of a refusal
_REFUSAL_S = 10.0  # the longest time to read it
MAX_LIST = 8_000_000  # bytes of one page of a list of models
MAX_MODELS = 10_000


class Answer(NamedTuple):
    """A server's answer, whose body still arrives."""

    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]


class Server(Protocol):
    """One provider's server."""

    def post(self, path: str, body: Body) -> AbstractAsyncContextManager[Answer]:
        """Send a request and return the answer; leaving the block ends it.

        Raises:
            HttpRefusal: The server answered with an error status.
            ProviderError: The network failed, before the answer or within it.
        """
        ...

    async def close(self) -> None:
        """Close the connections; unfinished answers end with an error."""
        ...


class _Chunks(aiohttp.Payload):
    """The body of a request, sent in chunks: it is never held in one piece while the server answers."""

    def __init__(self, body: Body) -> None:
        super().__init__(body)
        self._size = body.size

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the body as text."""
        return cast(Body, self._value).to_bytes().decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Send the body."""
        for chunk in cast(Body, self._value).chunks():
            await writer.write(memoryview(chunk))  # asyncio copies what the socket does not take at once, else twice


class HttpServer:
    """A server over one pool of connections, see ``Server``.

    Args:
        base_url: The URL that paths are appended to.
        headers: Headers of every request, the key among them.
        timeout_s: The longest silence within an answer.
    """

    def __init__(self, base_url: str, headers: Mapping[str, str], timeout_s: float) -> None:
        parts = urlsplit(base_url)
        self.base_url = base_url.rstrip("/")
        self._address = parts.netloc.rpartition("@")[2]
        self._headers = {"User-Agent": f"pyagentd/{__version__}", **headers}
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=min(CONNECT_S, timeout_s), sock_read=timeout_s)
        self._tls = _certificates() if parts.scheme == "https" else None
        self._proxy = None if proxy_bypass(parts.hostname or "") else _proxy_for(parts.scheme)
        self._session: aiohttp.ClientSession | None = None

    @asynccontextmanager
    async def post(self, path: str, body: Body) -> AsyncIterator[Answer]:
        """Send a request, see ``Server``."""
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        async with self._request("POST", path, headers, _Chunks(body)) as response:
            yield Answer(response.headers, response.content.iter_any())

    async def get(self, path: str) -> object:
        """Return the JSON value that the server has at ``path``; raises as ``post`` does."""
        async with self._request("GET", path, {"Accept": "application/json"}) as response:
            text = await _read_bounded(response, MAX_LIST)
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise ProviderError(
                f"The model's server answers {path} with what is not JSON", hint="Check the base URL"
            ) from None

    @asynccontextmanager
    async def _request(
        self, method: str, path: str, headers: Mapping[str, str], body: aiohttp.Payload | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=MAX_CONNECTIONS, keepalive_timeout=KEEP_S, ssl=True if self._tls is None else self._tls
            )
            self._session = aiohttp.ClientSession(
                connector=connector, headers=self._headers, timeout=self._timeout, cookie_jar=aiohttp.DummyCookieJar()
            )
        try:
            async with self._session.request(
                method, self.base_url + path, data=body, headers=headers, allow_redirects=False, proxy=self._proxy
            ) as response:
                if response.status >= 300:
                    refusal = await _body_of(response.content.iter_any())
                    raise HttpRefusal(response.status, response.headers, refusal)
                yield response
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # `from None`: a cause may quote the request's headers in a logged traceback.
            raise network_error(error, self._address) from None

    async def close(self) -> None:
        """Close the connections, see ``Server``."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def _proxy_for(scheme: str) -> str | None:
    """Return the address of the proxy for requests of ``scheme``, from the environment, or None.

    Raises:
        ConfigError: It is not the address of an HTTP proxy.
    """
    proxies = getproxies()
    named = proxies.get(scheme) or proxies.get("all")
    if named is None:
        return None
    address = named if "://" in named else f"http://{named}"  # as curl reads it
    if not is_address(address):
        raise ConfigError(
            f"The proxy that {scheme}_proxy or all_proxy names cannot be used: it is no address of an HTTP proxy",
            hint=f"Set {scheme}_proxy to one, such as http://127.0.0.1:3128, or name the model's server in no_proxy",
        )
    return address


def _certificates() -> ssl.SSLContext:
    """Return the TLS context: certificates of SSL_CERT_FILE or SSL_CERT_DIR if set, else those the system trusts."""
    if sys.platform in ("darwin", "win32") and not {"SSL_CERT_FILE", "SSL_CERT_DIR"} & set(os.environ):
        return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return ssl.create_default_context()


async def _body_of(chunks: AsyncIterator[bytes]) -> object:
    """Return the JSON value of an error body, or its text; a body that is too long or too slow is cut."""
    held = bytearray()
    with contextlib.suppress(OSError, aiohttp.ClientError):
        async with asyncio.timeout(_REFUSAL_S):
            async for chunk in chunks:
                held += chunk
                if len(held) >= _MAX_REFUSAL:
                    break
    text = held[:_MAX_REFUSAL].decode("utf-8", "replace")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


async def _read_bounded(response: aiohttp.ClientResponse, most: int) -> bytes:
    """Return the body of ``response``; raises ``ProviderError`` if it has more than ``most`` bytes."""
    held = bytearray()
    async for chunk in response.content.iter_any():
        held += chunk
        if len(held) > most:
            raise too_much(f"{most // 1_000_000} million bytes")
    return bytes(held)


async def read_answer(chunks: AsyncIterator[bytes], step: Decoder) -> AsyncIterator[Sequence[StreamItem]]:
    """Yield the items that ``step`` decodes from an answer; raises its failure, or that the answer is truncated."""
    events = SseDecoder()
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
    if items := step.end():
        yield items
    if step.failure is not None or not step.finished:
        raise step.failure or TransientProviderError("The model's server ended its answer in the middle", hint=AGAIN)


async def _drain(chunks: AsyncIterator[bytes]) -> None:
    """Read to the end of the body, so that the connection serves the next request too."""
    with contextlib.suppress(Exception):
        async with asyncio.timeout(_DRAIN_S):
            async for _ in chunks:
                pass


_UNSUPPORTED = re.compile(
    "not support|unsupported|not permitted|unrecognized|unknown|extra|not allowed|not available"
)
_OTHER_FORM = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY)  # another form of the request may succeed
_Quirk = TypeVar("_Quirk", bound=str)


def says_unsupported(refusal: str) -> bool:
    """Return whether a refusal, in lower case, says that something is not supported."""
    return _UNSUPPORTED.search(refusal) is not None


class HttpBackend(Generic[_Quirk]):
    """Streams answers of one server over one pool of connections.

    A quirk is a deviation of a model or its server from the API, learned from its first refusal. A model's name does
    not tell its quirks, and a preset written for one model must work with the next.

    Args:
        server: The server of the requests.
        clock: The time from which a ``retry-after`` date is measured.
    """

    path: str  # of a request
    list_path: str  # of the list of models
    key = "messages"  # what holds the conversation
    api: str  # the name of the API, for hints
    usual: frozenset[_Quirk] = frozenset()
    decoder: Callable[[ModelRequest], Decoder]  # makes the decoder of an answer

    def __init__(self, server: Server, clock: Clock | None = None) -> None:
        self._server = server
        self._clock = clock or SystemClock()
        self._quirks: dict[str, frozenset[_Quirk]] = {}  # by model
        self._writers: dict[frozenset[_Quirk], BodyWriter] = {}

    def settings(self, request: ModelRequest, quirks: Set[_Quirk]) -> Json:
        """Return the body without the conversation."""
        raise NotImplementedError

    def system(self, request: ModelRequest, quirks: Set[_Quirk]) -> list[Json]:
        """Return the items before the conversation: the system prompt, in some APIs."""
        return []

    def writer(self, quirks: Set[_Quirk]) -> BodyWriter:
        """Return a new writer of bodies."""
        raise NotImplementedError

    def quirk(self, body: Json, refusal: str) -> _Quirk | None:
        """Return the quirk that a refusal of ``body`` reveals, or None; ``refusal`` is its text in lower case."""
        raise NotImplementedError

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[StreamItem], None]:
        """Send ``request`` and yield its answer, see ``Backend``."""
        try:
            async with contextlib.AsyncExitStack() as stack:
                answer = await self._open(request, stack)
                async for items in read_answer(answer.chunks, self.decoder(request)):
                    yield items
        except HttpRefusal as refused:
            raise refusal(refused, self._clock.now()) from None

    def addressed(self, request: ModelRequest, body: Body) -> tuple[str, Body]:
        """Return the path and the body of a request."""
        return self.path, body

    def listed(self, page: Any) -> tuple[list[Any], str]:
        """Return the names on a page of the list of models, and the path of the next page, "" for none.

        This reads the format of Anthropic and OpenAI. Any other raises ``KeyError``, ``TypeError`` or the like.
        """
        names = [each["id"] for each in page["data"] if "id" in each]
        if page.get("has_more") is not True or not isinstance(last := page.get("last_id"), str):
            return names, ""
        return names, f"{self.list_path}{'&' if '?' in self.list_path else '?'}after_id={quote(last)}"

    async def models(self) -> tuple[str, ...]:
        """Return the names of the models that the server has for this key.

        Raises:
            NoKey: It refuses the key.
            ProviderError: It has no such list, or cannot be asked now.
        """
        assert isinstance(self._server, HttpServer)  # backends with other servers override this method
        names: dict[str, None] = {}
        page = self.list_path
        try:
            while page and len(names) <= MAX_MODELS:
                before = len(names)
                found, page = self.listed(await self._server.get(page))
                names |= dict.fromkeys(name for name in found if isinstance(name, str))
                if len(names) == before:  # the server repeats a page
                    break
        except (KeyError, TypeError, AttributeError):
            raise ProviderError("The model's server has no list of models", hint="Check the base URL") from None
        except HttpRefusal as refused:
            error = refusal(refused, self._clock.now())
            is_key = refused.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
            if is_key or _BAD_KEY.search(error.message):
                raise NoKey(f"The key is refused: {error.message}") from None
            raise error from None
        return tuple(names)

    async def close(self) -> None:
        """Close the connections."""
        await self._server.close()

    async def _open(self, request: ModelRequest, stack: contextlib.AsyncExitStack) -> Answer:
        """Send ``request``, once more for each quirk that a refusal reveals."""
        while True:
            quirks = self._quirks.get(request.model, self.usual)
            if (writer := self._writers.get(quirks)) is None:
                writer = self._writers[quirks] = self.writer(quirks)
            settings, first = self.settings(request, quirks), self.system(request, quirks)
            body = writer.write(settings, request.messages, key=self.key, first=first, kept=request.kept)
            if request.sent is not None:
                request.sent(body)
            try:
                answer = await stack.enter_async_context(self._server.post(*self.addressed(request, body)))
            except HttpRefusal as error:
                found = None
                if error.status in _OTHER_FORM or error.status >= 500:
                    # The whole body is searched: the name of the refused field may be outside the message.
                    refusal = json.dumps(error.body, ensure_ascii=False, default=str).lower()
                    found = self.quirk(settings, refusal)
                if found is None or found in quirks:
                    raise
                _log.warning("%s: sending the request in another form (%s)", request.model, found)
                self._quirks[request.model] = quirks | {found}
                self._writers.pop(quirks, None)  # with its cache of this conversation
                request.kept.pop(writer, None)
            else:
                kind = answer.headers.get("content-type", "").partition(";")[0]
                if kind in _NOT_A_STREAM:
                    body_sent = await _body_of(answer.chunks)
                    if isinstance(body_sent, dict) and body_sent.get("error"):  # some begin before they know it
                        raise broke_off(body_sent)
                    raise ProviderError(
                        f"The model's server answered with {kind} instead of a stream of events",
                        hint=f"Check that the base URL is a {self.api}",
                    )
                return answer
