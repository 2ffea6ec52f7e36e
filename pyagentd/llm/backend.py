"""The protocol every model speaks here: one request in, batches of stream items out.

A request is one step of a run. Its answer is a sequence of parts, each started, grown and finished, and ends with
exactly one ``StepFinished``; an answer without one ended in an error, which ``stream`` raises. Items come in batches,
one per network chunk, so a consumer pays once per chunk and not once per token.

This module knows no provider and imports none.
"""

import hashlib
import json
import weakref
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal, NamedTuple, Protocol

from pyagentd.messages import Message, Reasoning, Text, ToolCall, Usage

MAX_ARGUMENTS = 1_000_000  # characters of one call's arguments; a call with more is not made, see ``ToolCall``

# A request as it is sent: in pieces, so that whoever keeps it pays for what is new in it.

dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode  # `json.dumps` makes one for each call


def encode(value: object) -> bytes:
    """Return ``value`` as the JSON that is sent; half a surrogate pair, which has no UTF-8, as a question mark."""
    return dumps(value).encode("utf-8", "replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A request as it is sent, in pieces that stay the same from step to step."""

    head: Mapping[str, bytes]  # everything but the messages: the JSON of each value
    messages: tuple[bytes, ...]  # the JSON of each one, without breakpoints
    digests: tuple[bytes, ...]  # of these, SHA-256
    marked: Mapping[int, bytes]  # those that carry a breakpoint, as they are sent, by their number
    key: str = "messages"  # under which they are sent

    def encoded(self) -> bytes:
        """Return the bytes of the request."""
        messages = list(self.messages) or [b""]
        for number, text in self.marked.items():
            messages[number] = text
        head = b"".join(b'"%s":%s,' % (name.encode(), value) for name, value in self.head.items())
        # One join copies the conversation once.
        messages[0] = b'{%s"%s":[%s' % (head, self.key.encode(), messages[0])
        messages[-1] += b"]}"
        return b",".join(messages)


class _Written(NamedTuple):
    """What a message is in a body, without breakpoints."""

    json: tuple[bytes, ...]
    digests: tuple[bytes, ...]


class BodyWriter:
    """Writes the requests of one client, so that a step pays for what is new in it and not for the conversation.

    A run sends the same messages again with every step, as the same objects; their JSON and its digest are kept as
    long as they live. Of the rest, a long value that did not change is kept from one request to the next.

    Args:
        items: Returns what a message is in the body: none where nothing in it can be sent.
    """

    def __init__(self, items: Callable[[Message], Iterable[Mapping[str, Any]]]) -> None:
        self._items = items
        self._known: dict[int, tuple[weakref.ref[Message], _Written]] = {}  # by the identity of a living message
        self._head: dict[str, tuple[object, bytes]] = {}

    def write(
        self,
        head: Mapping[str, Any],
        messages: Iterable[Message],
        *,
        key: str = "messages",
        first: Iterable[Mapping[str, Any]] = (),
        marked: Callable[[Message], Mapping[str, Any] | None] | None = None,
        marks: int = 0,
    ) -> Body:
        """Return the body of a streamed request.

        Args:
            head: Everything but the messages.
            messages: The conversation, oldest first.
            key: Under which the messages are sent.
            first: Items before those of the messages.
            marked: Returns the item of a message with a breakpoint of the provider's cache; each message is one item.
            marks: How many of the last messages of the user are sent so.
        """
        given = list(messages)
        written = [_written(first), *map(self._message, given)]
        return Body(
            head={name: self._value(name, value) for name, value in head.items()},
            messages=tuple(chain.from_iterable(each.json for each in written)),
            digests=tuple(chain.from_iterable(each.digests for each in written)),
            marked={} if marked is None else _marked(given, written[1:], marked, marks),
            key=key,
        )

    def _message(self, message: Message) -> _Written:
        key = id(message)
        known = self._known.get(key)
        if known is not None and known[0]() is message:
            return known[1]
        written = _written(self._items(message))
        self._known[key] = (weakref.ref(message, lambda _: self._known.pop(key, None)), written)
        return written

    def _value(self, name: str, value: object) -> bytes:
        if not isinstance(value, (list, str)):
            return encode(value)
        known = self._head.get(name)
        if known is None or known[0] != value:
            self._head[name] = known = (value, encode(value))
        return known[1]


def _written(bodies: Iterable[Mapping[str, Any]]) -> _Written:
    texts = tuple(map(encode, bodies))
    return _Written(texts, tuple(hashlib.sha256(text).digest() for text in texts))


def _marked(
    messages: Sequence[Message],
    written: Sequence[_Written],
    item: Callable[[Message], Mapping[str, Any] | None],
    marks: int,
) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    number = sum(len(each.json) for each in written)
    for message, each in zip(reversed(messages), reversed(written), strict=True):
        if len(found) == marks:
            break
        number -= len(each.json)
        if each.json and message.role == "user" and (marked := item(message)) is not None:
            found[number] = encode(marked)
    return found


StopReason = Literal["end_turn", "tool_use", "max_tokens", "refusal", "stop_sequence", "pause_turn"]
PartKind = Literal["text", "reasoning", "tool"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSchema:
    """A tool as the model is told about it."""

    name: str
    description: str
    input_schema: Mapping[str, Any]  # JSON Schema of an object


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """Everything one step asks of a model."""

    model: str
    messages: tuple[Message, ...]
    system: str = ""
    tools: tuple[ToolSchema, ...] = ()
    max_tokens: int = 8192  # of the visible answer; a thinking budget comes on top
    temperature: float | None = None  # None leaves it to the provider
    thinking_budget: int | None = None  # tokens; None turns reasoning off
    purpose: str = field(default="step", compare=False)  # another word for what is not a step of a run
    sent: Callable[[Body], None] | None = field(default=None, compare=False, repr=False)  # told of every attempt


@dataclass(frozen=True, slots=True)
class PartStarted:
    """A part begins; ``call_id`` and ``name`` are set for tools."""

    index: int
    kind: PartKind
    call_id: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class PartDelta:
    """Text of a text or reasoning part; the arguments of a tool come whole, in ``PartFinished``."""

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
    """The provider said why it stopped; nothing follows."""

    stop_reason: StopReason
    usage: Usage
    estimated: bool = False  # by us: the server did not count


@dataclass(frozen=True, slots=True)
class Retrying:
    """The request failed for now and is sent again after ``delay_s`` seconds."""

    attempt: int  # the failed one, counted from 1
    delay_s: float
    message: str
    max_attempts: int = 0  # requests in all; 0: unknown
    now: Callable[[], None] = field(default=lambda: None, compare=False)  # ends the wait


@dataclass(frozen=True, slots=True)
class SentAgain:
    """The wait after a failure is over."""

    attempt: int  # the one that begins, counted from 1


StreamItem = PartStarted | PartDelta | PartFinished | StepFinished | Retrying | SentAgain


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
