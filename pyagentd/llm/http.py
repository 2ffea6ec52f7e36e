"""HTTP for all providers: server-sent events, limits of an answer, and their errors as ours.

The SDKs authenticate, send, and raise their typed errors; they come from one generator and name them alike. Importing
this imports the HTTP client, so only the providers' modules do.
"""

import asyncio
import contextlib
import hashlib
import json
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from types import ModuleType
from typing import Any, NamedTuple, Protocol

import aiohttp
import httpx2
from aiohttp import ClientError

from pyagentd import jsontext
from pyagentd.errors import ContextOverflow, ProviderError, TransientProviderError
from pyagentd.llm.backend import StreamItem

Json = dict[str, Any]

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


AGAIN = "What was said before stands: send again"
MAX_TEXT = 4_000_000  # characters of text and reasoning in one answer
MAX_ANSWER = 32_000_000  # characters of one answer, arguments included; of one event that is not complete, bytes
MAX_CALLS = 128  # in one answer
MAX_NAME = 200  # characters of a tool's name, and of a call's id


def too_much(what: str) -> ProviderError:
    """Return the error that ends an answer which has more than ``what``."""
    return ProviderError(
        f"The model's answer was cut off: it has more than {what}",
        hint="What was said before stands: send again, and ask for less at a time",
    )


def load_event(event: SseEvent) -> Json:
    """Return the JSON object that an event holds; raises ``ProviderError``."""
    try:
        body = json.loads(event.data)
    except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, or a thousand brackets deep
        raise malformed(event) from error
    if not isinstance(body, dict):
        raise malformed(event)
    return body


def malformed(event: SseEvent) -> ProviderError:
    """Return the error for an event that is not what the protocol says."""
    name = f" {event.name}" if event.name else ""
    return ProviderError(
        f"The model's server sent a malformed{name} event",
        hint="Check that the base URL is what the backend's kind says",
    )


def without_surrogates(name: str) -> str:
    """Return a name without halves of surrogate pairs, which neither a file nor a request can hold."""
    return name.encode("utf-8", "replace").decode()


def given_arguments(value: Any) -> str:
    """Return the input that came with the start of a call as text, as if it had come in deltas."""
    try:
        return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else "{}"
    except RecursionError:
        return str(value)


def arguments(text: str) -> Json | None:
    """Return the arguments of a call, None where they are no JSON object."""
    try:
        value = jsontext.parse(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


_NAME = re.compile(r"[A-Za-z0-9_-]+")  # what APIs take as a tool's name, and as a call's id


def api_name(name: str, longest: int = 128) -> str:
    """Return a name or an id that a model made up as the API takes it: other characters would end every request."""
    if _NAME.fullmatch(name) and len(name) <= longest:
        return name
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)[: longest - 17][:80]
    return f"{plain}_{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


# What the SDK and the network raise, as errors of ours.
#
# Transient is what another try may mend: timeouts, conflicts, rate limits, everything the server calls its own
# fault, and the network. The provider's wording is kept; a request's headers never are, since one of them is the
# key.

_TRANSIENT_STATUS = frozenset({408, 409, 429})
_REFUSED = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY)
_RETRY_HEADER = {"true": True, "false": False}
_NO_CREDIT = "Add credit at the provider's console, or use another key or backend"
_MENDS = {
    401: "Check the API key: the environment variable (ANTHROPIC_API_KEY, or what key_env of the backend names), "
    "or the entry in auth-source",
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
    r"prompt is too long|exceeds? (the )?(context|model'?s? (maximum )?context)|exceeds? the available context"
    r"|context[ _](length|window) (is )?exceeded|context_length_exceeded|exceed_context_size"
    r"|maximum (context|prompt) length|input is too long|too many (input )?tokens|reduce the length of the messages"
    r"|too large for model with [0-9]+ maximum context",
    re.IGNORECASE,
)
# Raised before or beside the network: sending the same request again gives the same error.
_OUR_FAULT = (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError, httpx2.DecodingError, httpx2.TooManyRedirects)


def provider_error(error: Exception, now: datetime, sdk: ModuleType) -> ProviderError:
    """Return the error of ours that ``error``, raised by the SDK or by httpx2, means.

    Args:
        error: What the SDK or httpx2 raised.
        now: The time a ``retry-after`` date is measured from, aware.
        sdk: The provider's.
    """
    if isinstance(error, sdk.APIStatusError):
        return _of_status(error, now)
    cause = error.__cause__ if isinstance(error, sdk.APIConnectionError) else error
    if isinstance(cause, httpx2.TransportError) and not isinstance(cause, _OUR_FAULT):
        return TransientProviderError(_of_network(cause, _address(error)), hint=_OFFLINE)
    if isinstance(cause, httpx2.HTTPError) or isinstance(error, sdk.APIConnectionError):
        # Its text may quote a header.
        kind = type(cause or error).__name__
        return ProviderError(f"The request could not be sent or its answer read ({kind})", hint="Check the base URL")
    return ProviderError(f"The request was refused before it was sent: {error}")


def _of_status(error: Any, now: datetime) -> ProviderError:
    status = error.status_code
    headers = error.response.headers
    text = f"The model's server says {status} {_reason(error)}"
    transient = status in _TRANSIENT_STATUS or status >= 500
    if "insufficient_quota" in text:
        return ProviderError(text, hint=_NO_CREDIT)
    if _RETRY_HEADER.get(headers.get("x-should-retry", ""), transient):
        hint = _MENDS[status] if status == HTTPStatus.TOO_MANY_REQUESTS else _OVERLOADED
        return TransientProviderError(text, retry_after=retry_after(headers, now), hint=hint)
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE or (status in _REFUSED and _TOO_LONG.search(text)):
        return ContextOverflow(text)
    if status == HTTPStatus.BAD_REQUEST and _CREDIT.search(text):
        return ProviderError(text, hint=_NO_CREDIT)
    return ProviderError(text, hint=_MENDS.get(status, "The run ended; what was said before stands. Send again"))


def _reason(error: Any) -> str:
    """Return the server's own words, or the status' name when its body holds none."""
    kind, said = error_of_body(error.body)
    if said:
        return f"({kind or 'error'}): {said.rstrip('.')}"
    try:
        return HTTPStatus(error.status_code).phrase
    except ValueError:
        return "Overloaded" if error.status_code == 529 else "(no reason given)"


def error_of_body(body: object) -> tuple[str, str]:
    """Return the kind of an error and its message, from the body that a server sent; "" for what it does not say."""
    if isinstance(body, Mapping):
        inner = body.get("error", body.get("detail"))
        if inner is not None and not isinstance(body.get("message"), str):
            return error_of_body(inner)
        kind = next((str(body[key]) for key in ("code", "type") if isinstance(body.get(key), str)), "")
        said = body.get("message") or body.get("msg")
        return kind, said if isinstance(said, str) else (json.dumps(said) if said else "")
    if isinstance(body, list):
        return "", "; ".join(said for each in body if (said := error_of_body(each)[1]))
    return "", body if isinstance(body, str) and not body.lstrip().startswith("<") else ""


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


CONNECT_S = 15.0
# Each agent that waits for an answer holds a connection; one that nobody used for half a minute is closed.
LIMITS = httpx2.Limits(max_connections=1000, keepalive_expiry=30.0)
_DRAIN_S = 0.5  # what a server may take between the last event and the end of its body
_NOT_A_STREAM = ("text/html", "application/json", "text/plain")


class Step(Protocol):
    """Folds the events of one answer."""

    finished: bool
    failure: ProviderError | None

    def decode(self, events: Iterable[SseEvent]) -> list[StreamItem]:
        """Return the items that ``events`` mean, up to the one that fails."""
        ...

    def end(self) -> list[StreamItem]:
        """Return the items that the end of the body means."""
        ...


async def read_answer(chunks: AsyncIterator[bytes], step: Step) -> AsyncIterator[Sequence[StreamItem]]:
    """Yield what ``step`` makes of an answer; raises what failed, or that it ended in the middle."""
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
        return
    raise TransientProviderError(
        "The model's server ended its answer in the middle", hint="What was said before stands: send again"
    )


def check_stream(response: httpx2.Response, api: str) -> None:
    """Raise ``ProviderError`` where the answer is no stream of events; ``api`` is what was expected."""
    given = response.headers.get("content-type", "")
    if given.startswith(_NOT_A_STREAM):
        raise ProviderError(
            f"The model's server answered with {given.partition(';')[0]} instead of a stream of events",
            hint=f"Check that the base URL is a {api}",
        )


async def _drain(chunks: AsyncIterator[bytes]) -> None:
    """Read to the end of the body, so that the connection serves the next request too."""
    with contextlib.suppress(httpx2.HTTPError, ClientError, TimeoutError):
        async with asyncio.timeout(_DRAIN_S):
            async for _ in chunks:
                pass
