"""The protocol of every backend: one request in, batches of stream items out; and what sends a request again.

A request is one step of a run. Its answer is a sequence of parts, each started, grown and finished, and ends with
exactly one ``StepFinished``; an answer without one ended in an error, which ``stream`` raises. Items come in batches,
one per network chunk, so a consumer pays once per chunk and not once per token.

``RetryingBackend`` sends a request again after a transient failure, only if no part of its answer was passed on yet;
otherwise the consumer would get the beginning of one answer followed by another. Each wait is an item of the stream.
Waits grow exponentially with jitter, unless the server says how long to wait.

This module knows no provider and imports none.
"""

import asyncio
import json
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

import msgspec

from pyagentd.errors import TransientProviderError
from pyagentd.messages import Body, Mark, Message, Reasoning, Text, ToolCall, Usage, begins_with

_CHUNK = 512 << 10  # about how many bytes of a request are sent at once
MAX_ARGUMENTS = 1_000_000  # characters of one call's arguments; a call with more is not made, see ``ToolCall``

# The body of a request, in pieces, so that storing it costs only what is new in it.

dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode  # `json.dumps` makes one for each call
_encode = msgspec.json.Encoder().encode


_K = TypeVar("_K")
_V = TypeVar("_V")


def encode(value: object) -> bytes:
    """Return ``value`` as JSON in UTF-8; a lone surrogate, which UTF-8 cannot encode, becomes a question mark."""
    try:
        return _encode(value)
    except (UnicodeEncodeError, TypeError, RecursionError):
        return dumps(value).encode("utf-8", "replace")


class IdentityCache(Generic[_K, _V]):
    """A cache of values computed from objects, keyed by identity; the oldest entry is dropped first.

    Runs share equal tools and system prompts as the same objects, so few entries serve many agents.
    """

    def __init__(self, make: Callable[[_K], _V], most: int = 128) -> None:
        self._make = make
        self._most = most
        self._made: dict[int, tuple[_K, _V]] = {}

    def __call__(self, given: _K) -> _V:
        """Return the value for ``given``, computed on the first call."""
        if (known := self._made.get(id(given))) is None:
            if len(self._made) >= self._most:
                del self._made[next(iter(self._made))]
            self._made[id(given)] = known = (given, self._make(given))
        return known[1]


@dataclass(slots=True)
class _SentMessages:
    """The serialised messages of a branch's last request."""

    first: list[Mapping[str, Any]]
    messages: tuple[Message, ...] = ()
    items: list[int] = field(default_factory=list)  # the number of items for each message
    json: list[bytes] = field(default_factory=list)  # of all items, the first ones included, without breakpoints
    size: int = 0  # of their JSON, with a comma behind each
    marks: Mapping[int, Mark] = field(default_factory=dict)  # of the last request, by the number of the item
    joined: list[bytes] = field(default_factory=list)  # see ``Body``
    alone: int = 0

    def add(self, bodies: Iterable[Mapping[str, Any]]) -> int:
        """Serialise and append items; return their number."""
        before = len(self.json)
        for body in bodies:
            # Copied because it is kept for long, and the encoder over-allocates by up to half its length.
            self.json.append(text := bytes(memoryview(encode(body))))
            self.size += len(text) + 1
        return len(self.json) - before


class BodyWriter:
    """Writes the request bodies of one client; a step serialises only its new messages, not the whole conversation.

    Every step of a run sends the same message objects again, with new ones at the end: the JSON of the last request
    is kept and extended, by the next step and by the next run. Long values of the other fields are cached too.

    Args:
        items: Returns the items of the body for a message: none where nothing in it can be sent.
        mark: Adds a breakpoint of the provider's prompt cache to a user message. Requires that a message is at
            most one item.
        marks: How many of the last user messages get a breakpoint.
    """

    def __init__(
        self,
        items: Callable[[Message], Iterable[Mapping[str, Any]]],
        mark: Callable[[Message], Mark] | None = None,
        marks: int = 0,
    ) -> None:
        self._items = items
        self._mark = mark
        self._marks = marks
        self._long: IdentityCache[object, bytes] = IdentityCache(encode)

    def write(
        self,
        head: Mapping[str, Any],
        messages: Iterable[Message],
        *,
        key: str = "messages",
        first: Sequence[Mapping[str, Any]] = (),
        kept: dict[object, Any] | None = None,
    ) -> Body:
        """Return the body of a streamed request.

        Args:
            head: Everything but the messages.
            messages: The conversation, oldest first.
            key: Under which the messages are sent.
            first: Items to send before the messages.
            kept: The branch's cache of what was written, see ``ModelRequest``.
        """
        whole, opening, kept = tuple(messages), list(first), {} if kept is None else kept
        sent: _SentMessages | None = kept.get(self)
        if sent is None or sent.first != opening or not begins_with(whole, sent.messages):
            sent = _SentMessages(opening)
            sent.add(opening)
        for message in whole[len(sent.messages) :]:
            sent.items.append(sent.add(self._items(message)))
        sent.messages = whole
        kept[self] = sent
        # The breakpoints by number of the item, and how much longer they make the request.
        found: dict[int, Mark] = {}
        longer, number = 0, len(sent.json)
        if self._mark is not None:
            for message, items in zip(reversed(sent.messages), reversed(sent.items), strict=True):
                if len(found) == self._marks:
                    break
                number -= items
                if items and message.role == "user":
                    found[number] = mark = sent.marks.get(number) or self._mark(message)
                    longer += len(mark.inserted)
        sent.marks = found
        # Joined before the first breakpoint and the last item, some hundred kilobytes of them at a time.
        end = min([*sent.marks, max(0, len(sent.json) - 1)])
        if sent.size - sum(map(len, sent.joined)) >= _CHUNK:
            size = 0
            for number in range(sent.alone, end):
                size += len(sent.json[number]) + 1
                if size >= _CHUNK:
                    sent.joined.append(b",".join((*sent.json[sent.alone : number + 1], b"")))
                    sent.alone, size = number + 1, 0
        written: dict[str, bytes] = {}
        # `{"key":[`, the items with no comma behind the last, `]}`; and `"name":value,` for each other field.
        size = len(key) + 7 + sent.size + longer - (1 if sent.json else 0)
        for name, value in head.items():
            written[name] = json = (self._long if isinstance(value, (list, str)) else encode)(value)
            size += len(name) + len(json) + 4
        return Body(
            head=written,
            messages=sent.json,
            count=len(sent.json),
            marked=sent.marks,
            key=key,
            joined=tuple(sent.joined),
            alone=sent.alone,
            size=size,
        )


StopReason = Literal["end_turn", "tool_use", "max_tokens", "refusal", "stop_sequence", "pause_turn"]
PartKind = Literal["text", "reasoning", "tool"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSchema:
    """A tool as described to the model."""

    name: str
    description: str
    input_schema: Mapping[str, Any]  # JSON Schema of an object


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One step's request to a model."""

    model: str
    messages: tuple[Message, ...]
    system: str = ""
    tools: tuple[ToolSchema, ...] = ()
    max_tokens: int = 8192  # of the visible answer; a thinking budget comes on top
    temperature: float | None = None  # None leaves it to the provider
    thinking_budget: int | None = None  # tokens; None turns reasoning off
    purpose: str = field(default="step", compare=False)  # "step" of a run, or such as "mission", "rewrite"
    sent: Callable[[Body], None] | None = field(default=None, compare=False, repr=False)  # called before each attempt
    # The body writer's cache, shared by the requests of a branch.
    kept: dict[object, Any] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class PartStarted:
    """A part begins; ``call_id`` and ``name`` are set for tools."""

    index: int
    kind: PartKind
    call_id: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class PartDelta:
    """More text of a text or reasoning part; a tool's arguments come whole, in ``PartFinished``."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class PartFinished:
    """A part is complete.

    A tool part that was started may stay unfinished when the answer ran into ``max_tokens``; it is void then.
    """

    index: int
    part: Text | Reasoning | ToolCall


@dataclass(frozen=True, slots=True)
class StepFinished:
    """The answer is complete, with the reason why it ended; nothing follows."""

    stop_reason: StopReason
    usage: Usage
    estimated: bool = False  # by us: the server did not count


@dataclass(frozen=True, slots=True)
class RetryNotice:
    """The request failed for now and is sent again after ``delay_s`` seconds."""

    attempt: int  # the failed one, counted from 1
    delay_s: float
    message: str
    max_attempts: int = 0  # requests in all; 0: unknown
    now: Callable[[], None] = field(default=lambda: None, compare=False)  # ends the wait


@dataclass(frozen=True, slots=True)
class SentAgain:
    """The wait after a failure is over, and the request is sent again."""

    attempt: int  # the next one, counted from 1


StreamItem = PartStarted | PartDelta | PartFinished | StepFinished | RetryNotice | SentAgain


class Backend(Protocol):
    """A model's server."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[StreamItem], None]:
        """Send ``request`` and yield its answer in batches.

        A consumer that stops early closes the generator (``contextlib.aclosing``); that ends the request.

        Raises:
            ProviderError: The server refused, or broke its protocol.
            TransientProviderError: The server or the network failed for now.
        """
        ...

    async def close(self) -> None:
        """Close the connections; streams in flight end with an error."""
        ...


# A single request to a model outside any run: for a title, a summary, a rewritten text.


class Answered(NamedTuple):
    """The texts of an answer, its usage, and why it ended."""

    texts: tuple[str, ...]
    usage: Usage
    stop_reason: StopReason | None


def give_up(failed: RetryNotice) -> None:
    """Raise ``TransientProviderError`` instead of trying a request again."""
    raise TransientProviderError(failed.message)


async def ask_model(
    backend: Backend, request: ModelRequest, *, retrying: Callable[[RetryNotice], None] = lambda failed: None
) -> Answered:
    """Send a single request and return the answer.

    Args:
        backend: The model's backend.
        request: The request.
        retrying: Called before every retry; an exception that it raises ends the request.

    Raises:
        ProviderError: The server failed.
    """
    texts: list[str] = []
    usage = Usage()
    stop_reason: StopReason | None = None
    async with aclosing(backend.stream(request)) as batches:
        async for batch in batches:
            for item in batch:
                match item:
                    case RetryNotice():
                        retrying(item)
                    case PartFinished(part=Text(text=text)):
                        texts.append(text)
                    case StepFinished():
                        usage, stop_reason = usage + item.usage, item.stop_reason
    return Answered(tuple(texts), usage, stop_reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How many attempts to make and how long to wait between them."""

    max_attempts: int = 5  # requests in all, the first one included
    base_s: float = 0.5  # the longest first wait; each next one is twice as long
    cap_s: float = 30.0
    retry_after_cap_s: float = 120.0  # the longest wait that a server can ask for

    def delay(self, attempt: int, retry_after: float | None, jitter: float) -> float:
        """Return the seconds to wait after the failed ``attempt`` (from 1); ``jitter`` is in [0, 1)."""
        if retry_after is not None:
            return min(retry_after, self.retry_after_cap_s)
        longest = min(self.cap_s, self.base_s * 2.0 ** (attempt - 1))
        return longest * (0.5 + jitter / 2)


class RetryingBackend:
    """Wraps a backend, opened with the first request, and retries after its transient failures.

    Args:
        opening: Opens the wrapped backend.
        policy: The attempts and waits; the default is five attempts.
        sleep: Waits the given seconds.
        jitter: Returns a number in [0, 1), for each wait.
    """

    def __init__(
        self,
        opening: Callable[[], Coroutine[Any, Any, Backend]],
        policy: RetryPolicy | None = None,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._open = opening
        self._opening: asyncio.Task[Backend] | None = None
        self._policy = policy or RetryPolicy()
        self._sleep = sleep
        self._jitter = jitter

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[StreamItem], None]:
        """Yield the answer of the first attempt that succeeds, and a ``RetryNotice`` before each wait."""
        attempt = 1
        while True:
            seen = False
            try:
                if self._opening is None:
                    self._opening = asyncio.create_task(self._open())
                    self._opening.add_done_callback(self._note_opened)
                # Shielded: aborting one run must not fail the others that wait for the same client.
                backend = await asyncio.shield(self._opening)
                async with aclosing(backend.stream(request)) as batches:
                    async for batch in batches:
                        seen = True
                        yield batch
                return
            except TransientProviderError as error:
                if seen or attempt >= self._policy.max_attempts:
                    raise
                delay = self._policy.delay(attempt, error.retry_after, self._jitter())
                message = error.message
            now = asyncio.Event()
            yield [RetryNotice(attempt, delay, message, self._policy.max_attempts, now.set)]
            await self._wait(delay, now)
            attempt += 1
            yield [SentAgain(attempt)]

    async def _wait(self, delay_s: float, now: asyncio.Event) -> None:
        """Wait ``delay_s`` seconds, or until ``now`` is set."""
        waits = [asyncio.ensure_future(self._sleep(delay_s)), asyncio.ensure_future(now.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def close(self) -> None:
        """Close the wrapped backend, if it was opened; the next request opens it anew."""
        opening, self._opening = self._opening, None
        if opening is not None:
            await (await opening).close()

    def _note_opened(self, opening: asyncio.Task[Backend]) -> None:
        if self._opening is opening and (opening.cancelled() or opening.exception() is not None):
            self._opening = None  # the next request tries again
