"""The options of ``delegate`` with their defaults, and the types of an LLM callback: request, answer, error."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NotRequired, TypedDict, get_args

MAX_TURNS = 5
PROGRAM_TIMEOUT_MS = 5_000
MISSION_TIMEOUT_MS = 60_000
MEMORY_BYTES = 1_048_576
MAX_DEPTH = 3
PARALLEL = 8
TURN_BUDGET = 20

ValidationMode = Literal["enabled", "warn_only", "disabled", "strict"]
Isolation = Literal["none", "process"]


class Message(TypedDict):
    """One message of the conversation with the model."""

    role: Literal["user", "assistant"]
    content: str


class Request(TypedDict):
    """The argument of an LLM callback."""

    system: str
    messages: list[Message]
    turn: int
    prompt: str
    tool_names: list[str]
    llm_opts: dict[str, Any]


class Tokens(TypedDict, total=False):
    """The tokens of a request."""

    input: int
    output: int


class Answer(TypedDict):
    """What an LLM callback may return instead of bare text."""

    content: str
    tokens: NotRequired[Tokens]
    cost_usd: NotRequired[float]


CALLER = "caller"
"""As ``llm`` of a tool: the model of the mission that calls the tool."""

# A callback may be a coroutine function too; ``adelegate`` awaits it on the caller's loop.
LLM = Callable[[Request], str | Mapping[str, Any] | Awaitable[Any]]


class LLMError(Exception):
    """An LLM callback could not answer.

    Args:
        reason: The name that ``retryable_errors`` can list: ``rate_limit``, ``timeout``, ``server_error``,
            ``client_error``, ``config_error``, or any other.
        message: What happened.
        final: Whether not to retry, whatever ``retryable_errors`` says.
    """

    def __init__(self, reason: str, message: str = "", *, final: bool = False) -> None:
        super().__init__(message or reason)
        self.reason = reason
        self.final = final


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptLimit:
    """How much of a large value is shown to a model.

    Attributes:
        list: Items shown from the start of a list.
        string: UTF-8 bytes shown from the start of a string.
    """

    list: int = 5
    string: int = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """When to call a failing LLM again.

    Attributes:
        max_attempts: Attempts in one turn, including the first.
        backoff: ``exponential`` waits base, 2·base, 4·base…; ``linear`` base, 2·base, 3·base…
        retryable_errors: Names of the errors that are retried; None for all.
        base_ms: The first wait, in milliseconds.
    """

    max_attempts: int = 3
    backoff: Literal["exponential", "linear"] = "exponential"
    retryable_errors: tuple[str, ...] | None = None
    base_ms: int = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a mission runs.

    Attributes:
        max_turns: The number of answers of the model after which the mission has failed.
        timeout_ms: The computing time of one program, in milliseconds; the time inside tools does not count.
        mission_timeout_ms: The time limit of the mission, whatever it waits for, in milliseconds; None for no limit
            of its own.
        prompt_limit: How much of a large value is shown to the model.
        llm_retry: When a failing LLM is called again.
        signature_validation: How strictly inputs, outputs and tools are checked.
        max_cost_usd: The cost limit of the mission with its children, in US dollars.
        max_consecutive_failures: The number of failed turns in a row after which the mission fails.
        memory_bytes: The size limit of ``memory/``.
        isolation: Whether programs run in a process of their own.
        tool_time_counts: Whether the time inside tools counts against ``timeout_ms`` too.
        parallel: How many tool calls of one program run at a time.
        llm_opts: Passed on to the callback.
        system_prompt: Instead of the generated one, a function of it, or a mapping with ``prefix``, ``suffix``,
            ``language_spec`` and ``output_format``.
    """

    max_turns: int = MAX_TURNS
    timeout_ms: int = PROGRAM_TIMEOUT_MS
    mission_timeout_ms: int | None = MISSION_TIMEOUT_MS
    prompt_limit: PromptLimit = field(default_factory=PromptLimit)
    llm_retry: Retry = field(default_factory=Retry)
    signature_validation: ValidationMode = "enabled"
    max_cost_usd: float | None = None
    max_consecutive_failures: int | None = None
    memory_bytes: int = MEMORY_BYTES
    isolation: Isolation = "none"
    tool_time_counts: bool = False
    parallel: int = PARALLEL
    llm_opts: Mapping[str, Any] = field(default_factory=dict)
    system_prompt: str | Callable[[str], str] | Mapping[str, str] | None = None

    def mistakes(self) -> Iterator[str]:
        """Yield a sentence for each invalid option."""
        for name, least in (("max_turns", 1), ("timeout_ms", 1), ("memory_bytes", 0), ("parallel", 1)):
            yield from _not_a_number(name, getattr(self, name), least)
        for name in ("mission_timeout_ms", "max_consecutive_failures"):
            if getattr(self, name) is not None:
                yield from _not_a_number(name, getattr(self, name), 1)
        if self.max_cost_usd is not None and not self.max_cost_usd >= 0:
            yield f"max_cost_usd is {self.max_cost_usd!r}, not a number from 0"
        for name, value, allowed in (
            ("signature_validation", self.signature_validation, get_args(ValidationMode)),
            ("isolation", self.isolation, get_args(Isolation)),
            ("llm_retry.backoff", self.llm_retry.backoff, ("exponential", "linear")),
        ):
            if value not in allowed:
                yield f"{name} is {value!r}, not one of {', '.join(allowed)}"
        yield from _not_a_number("llm_retry.max_attempts", self.llm_retry.max_attempts, 1)
        yield from _not_a_number("prompt_limit.list", self.prompt_limit.list, 0)
        yield from _not_a_number("prompt_limit.string", self.prompt_limit.string, 0)


def options_of(**named: Any) -> Options:
    """Return the options among the arguments of ``delegate``."""
    known = {name: value for name, value in named.items() if name in Options.__slots__}
    known["prompt_limit"] = prompt_limit(named.get("prompt_limit"))
    known["llm_retry"] = retry(named.get("llm_retry"))
    return Options(**known)


def prompt_limit(given: PromptLimit | Mapping[str, int] | None) -> PromptLimit:
    """Return the limit that ``given`` specifies: a ``PromptLimit``, ``{"list": 5, "string": 1000}``, or None."""
    return given if isinstance(given, PromptLimit) else PromptLimit(**dict(given or {}))


def retry(given: Retry | Mapping[str, Any] | None) -> Retry:
    """Return the retry that ``given`` specifies: a ``Retry``, ``{"max_attempts": 3, …}``, or None."""
    if isinstance(given, Retry):
        return given
    named = dict(given or {})
    if named.get("retryable_errors") is not None:
        named["retryable_errors"] = tuple(str(each).removeprefix(":") for each in named["retryable_errors"])
    return Retry(**named)


def _not_a_number(name: str, value: object, least: int) -> Iterator[str]:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        yield f"{name} is {value!r}, not a whole number from {least}"
