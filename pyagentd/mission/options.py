"""What a delegation can be told, with the specification's defaults (SPEC 004 Quick Reference: Delegation Options)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NotRequired, TypedDict

MAX_TURNS = 5
PROGRAM_TIMEOUT_MS = 5_000
MISSION_TIMEOUT_MS = 60_000
MEMORY_BYTES = 1_048_576
MAX_DEPTH = 3
TURN_BUDGET = 20

Validation = Literal["enabled", "warn_only", "disabled", "strict"]
Isolation = Literal["none", "process"]


class Message(TypedDict):
    """One message of the conversation with the model."""

    role: Literal["user", "assistant"]
    content: str


class Request(TypedDict):
    """What an LLM callback is given (SPEC 004 LLM Input Structure)."""

    system: str
    messages: list[Message]
    turn: int
    prompt: str
    tool_names: list[str]
    llm_opts: dict[str, Any]


class Tokens(TypedDict, total=False):
    """What a request used."""

    input: int
    output: int


class Answer(TypedDict):
    """What an LLM callback may return instead of bare text."""

    content: str
    tokens: NotRequired[Tokens]
    cost_usd: NotRequired[float]


# A callback may be a coroutine function too; ``adelegate`` awaits it on the caller's loop.
LLM = Callable[[Request], str | Mapping[str, Any] | Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptLimit:
    """How much of a large value a model is shown.

    Attributes:
        list: Items from the start of a list.
        string: UTF-8 bytes from the start of a string.
    """

    list: int = 5
    string: int = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """When to call a failing LLM again (SPEC 004 LLM Retry Scope).

    Attributes:
        max_attempts: All attempts of one turn, the first included.
        backoff: ``exponential`` waits base, 2·base, 4·base…; ``linear`` base, 2·base, 3·base…
        retryable_errors: Names of errors worth another attempt; None means every error.
        base_ms: The first wait.
    """

    max_attempts: int = 3
    backoff: Literal["exponential", "linear"] = "exponential"
    retryable_errors: tuple[str, ...] | None = None
    base_ms: int = 1_000
