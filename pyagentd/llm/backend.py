"""The protocol every model speaks here: one request in, batches of stream items out.

A request is one step of a run. Its answer is a sequence of parts, each started, grown and finished, and ends with
exactly one ``StepFinished``; an answer without one ended in an error, which ``stream`` raises. Items come in batches,
one per network chunk, so a consumer pays once per chunk and not once per token.

This module knows no provider and imports none.
"""

import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from pyagentd.messages import Message, Reasoning, Text, ToolCall, Usage

MAX_ARGUMENTS = 1_000_000  # characters of one call's arguments; a call with more is not made, see ``ToolCall``

# A request as it is sent: in pieces, so that whoever keeps it pays for what is new in it.

dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode  # `json.dumps` makes one for each call


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A request as it is sent, in pieces that stay the same from step to step."""

    head: Mapping[str, Any]  # everything but the messages
    messages: tuple[str, ...]  # the JSON of each one, without breakpoints
    digests: tuple[bytes, ...]  # of these, SHA-256
    marked: Mapping[int, str]  # those that carry a breakpoint, as they are sent, by their number
    key: str = "messages"  # under which they are sent

    def encoded(self) -> bytes:
        """Return the bytes of the request."""
        listed = ",".join(self.marked.get(number, text) for number, text in enumerate(self.messages))
        # Half a surrogate pair has no UTF-8; the document replaces it too.
        return f'{dumps(self.head)[:-1]},"{self.key}":[{listed}]}}'.encode("utf-8", "replace")


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
