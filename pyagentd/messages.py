"""What a model sees: roles and ordered parts, the same for every provider.

The store builds these values from document and log, ``llm`` translates them into a provider's format, and they are
never stored themselves. In a valid view every ``ToolCall`` of an assistant message has exactly one ``ToolResult`` in
the user message that follows it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

Role = Literal["user", "assistant"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Plain text of either role."""

    text: str
    phase: str | None = None  # of OpenAI, which wants it back with the text: "commentary" or "final_answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasoning:
    """A thinking block; it is sent back unchanged to the provider that made it, and to no other."""

    text: str
    signature: str | None = None  # what that wants to see again; of Chat Completions, the field that it came in
    redacted: str | None = None  # the provider's opaque data, when it hides the text
    provider: str = "anthropic"  # the kind of backend, as far as they understand each other


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A request of the model to run a tool."""

    id: str
    name: str
    input: Mapping[str, Any]
    unreadable: str = field(
        default="", compare=False
    )  # what came as arguments and is not a JSON object, or is too long
    spooled: str = field(default="", compare=False)  # where that is, when it is too long: then only its head is above


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The answer to the ``ToolCall`` with the same id."""

    id: str
    text: str
    is_error: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """A picture or a document that the user attached; made right before a request, see ``runtime/run_setup.py``."""

    type: str  # "image/png", "application/pdf"…
    data: str = field(repr=False)  # base64


Part = Text | Reasoning | ToolCall | ToolResult | Media


@dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True)
class Message:
    """One message of the model's view."""

    role: Role
    parts: tuple[Part, ...]
    id: str = field(default="", compare=False)  # of the recorded message of the user that begins here


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one step; ``input`` excludes those read from or written to the provider's cache."""

    input: int = 0
    output: int = 0
    reasoning: int = 0
    cache_read: int = 0
    cache_write: int = 0

    @property
    def total(self) -> int:
        """All five buckets together."""
        return self.input + self.output + self.reasoning + self.cache_read + self.cache_write

    def to_dict(self) -> dict[str, int]:
        """Return it in the form of the log and of events."""
        return {
            "input": self.input,
            "output": self.output,
            "reasoning": self.reasoning,
            "cache_read": self.cache_read,
            "cache_write": self.cache_write,
        }

    def __add__(self, other: "Usage") -> "Usage":
        """Return the sum, bucket by bucket."""
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            reasoning=self.reasoning + other.reasoning,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
        )


def begins_with(messages: tuple[Message, ...], first: tuple[Message, ...]) -> bool:
    """Return whether ``messages`` begin with ``first``; unlike that of a slice, this comparison copies nothing."""
    try:
        return first <= messages
    except TypeError:  # the first two that differ have no order
        return False


# The body of a request: ``llm`` writes it, the store keeps it in the trace.


class Mark(NamedTuple):
    """A message at which the provider's prompt cache has a breakpoint."""

    inserted: bytes  # into its JSON
    before_end: int  # how many bytes of that come behind
    block: int  # which of its blocks carries it, -1 for none
    value: Mapping[str, Any]  # what is written there, as ``cache_control``


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """The body of a request, in pieces that stay the same from step to step."""

    head: Mapping[str, bytes]  # everything but the messages: the JSON of each value
    messages: list[bytes]  # the JSON of each one, without breakpoints; later requests add theirs behind
    count: int  # of those that are in this request
    marked: Mapping[int, Mark]  # those that carry a breakpoint, by their number
    key: str = "messages"  # under which they are sent

    # The first messages as they are sent, many together: the same in later requests.
    joined: tuple[bytes, ...] = field(compare=False, repr=False)
    alone: int = field(compare=False)  # the number of the first message that is not in these
    size: int  # in bytes

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes of the request, some messages at a time, so that no copy of the whole is made."""
        values = b"".join(b'"%s":%s,' % (name.encode(), value) for name, value in self.head.items())
        begin = b'{%s"%s":[' % (values, self.key.encode())
        if self.joined:
            yield begin
            yield from self.joined
            begin = b""
        rest = self.messages[self.alone : self.count] or [b""]
        for number, mark in self.marked.items():
            written = rest[number - self.alone]
            place = len(written) - mark.before_end
            rest[number - self.alone] = b"".join((written[:place], mark.inserted, written[place:]))
        rest[0] = begin + rest[0]
        rest[-1] += b"]}"
        yield b",".join(rest)

    def to_bytes(self) -> bytes:
        """Return the whole request."""
        return b"".join(self.chunks())
