"""The arguments of ``delegate``: their types, the options with their defaults, the protocol of an LLM callback."""

import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NotRequired, Protocol, TypeAlias, TypedDict, get_args

from pyagentd.errors import did_you_mean

if TYPE_CHECKING:
    from pyagentd.mission.budget import Budget
    from pyagentd.mission.checkpoint import State
    from pyagentd.mission.runtime import Event
    from pyagentd.mission.signature import Signature
    from pyagentd.mission.tools import LLMTool, Tool

MAX_TURNS = 5
PROGRAM_TIMEOUT_S = 5.0
MISSION_TIMEOUT_S = 60.0
MEMORY_BYTES = 1_048_576
MAX_DEPTH = 3
PARALLEL = 10
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
    """The answer of an LLM callback that returns more than text."""

    content: str
    tokens: NotRequired[Tokens]
    cost_usd: NotRequired[float]


CALLER = "caller"
"""As ``llm`` of a tool: the model of the mission that calls the tool."""

Reply: TypeAlias = str | Answer | Mapping[str, Any]


class LLM(Protocol):
    """A model: a function of a request; ``adelegate`` awaits a coroutine function on the caller's loop."""

    def __call__(self, request: Request, /) -> Reply | Awaitable[Reply]:
        """Return the model's answer."""
        ...


ModelLike: TypeAlias = LLM | str | Mapping[str, Any]
"""A callback, the name of a registered model, or arguments of ``Model`` as a dict."""


class ToolOptions(TypedDict, total=False):
    """The options in ``(function, signature, options)``."""

    validation: "ValidationMode"
    description: str
    signature: str


_Contract: TypeAlias = "str | Signature | type"
_Described: TypeAlias = "tuple[_Function, _Contract | ToolOptions] | tuple[_Function, _Contract, ToolOptions]"
_Function: TypeAlias = Callable[..., Any]
ToolLike: TypeAlias = "_Function | _Described | Tool | LLMTool | Mapping[str, Any]"
Tools: TypeAlias = Sequence["ToolLike"] | Mapping[str, "ToolLike"]
"""Functions and other tools; a dict by name for tools without a name."""


class DataclassInstance(Protocol):
    """An instance of a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


class PydanticModel(Protocol):
    """An instance of a pydantic model."""

    def model_dump(self) -> dict[str, Any]:
        """Return its fields."""
        ...


Context: TypeAlias = Mapping[str, Any] | DataclassInstance | PydanticModel
"""The data of a mission: by name, or an instance with fields; the ``Step`` of another mission is one."""

Seconds: TypeAlias = timedelta | float


class LLMError(Exception):
    """An LLM callback could not answer.

    Args:
        reason: The name that ``retryable_errors`` can list: ``rate_limit``, ``timeout``, ``server_error``,
            ``client_error``, ``config_error``, or any other.
        message: What happened.
        final: Whether never to retry, whatever ``retryable_errors`` says.
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
        base_s: The first wait; in milliseconds as ``base_ms``.
    """

    max_attempts: int = 3
    backoff: Literal["exponential", "linear"] = "exponential"
    retryable_errors: tuple[str, ...] | None = None
    base_s: Seconds = 1.0
    base_ms: InitVar[float | None] = None

    def __post_init__(self, base_ms: float | None) -> None:
        if base_ms is not None:
            object.__setattr__(self, "base_s", base_ms / 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a mission.

    Attributes:
        max_turns: The number of answers of the model after which the mission has failed.
        timeout_s: The computing time of one program; waiting for tools does not count.
        mission_timeout_s: The wall time of the mission; None for no own limit. A child has at most the time left to
            its parent. An async tool or model that still runs at the deadline is cancelled, a blocking one is left
            behind in its thread.
        tool_time_counts: Whether the time inside tools counts against ``timeout_s`` too.
        parallel: How many tool calls of one program run at a time.
        tree_turns: The turns of the mission and its children together; a child uses its parent's.
        max_depth: How deep missions nest; a child uses its parent's.
        max_cost_usd: The cost of the mission with its children, in US dollars.
        max_consecutive_failures: The number of failed turns in a row after which the mission fails.
        memory_bytes: The size of ``memory/``.
    """

    max_turns: int = MAX_TURNS
    timeout_s: Seconds = PROGRAM_TIMEOUT_S
    mission_timeout_s: Seconds | None = MISSION_TIMEOUT_S
    tool_time_counts: bool = False
    parallel: int = PARALLEL
    tree_turns: int = TURN_BUDGET
    max_depth: int = MAX_DEPTH
    max_cost_usd: float | None = None
    max_consecutive_failures: int | None = None
    memory_bytes: int = MEMORY_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(Limits):
    """How a mission runs.

    Attributes:
        prompt_limit: How much of a large value is shown to the model.
        llm_retry: When a failing LLM is called again.
        signature_validation: How strictly inputs, outputs and tools are checked.
        isolation: Whether programs run in a process of their own.
        llm_opts: Passed on to the callback.
        system_prompt: Instead of the generated one, a function of it, or a mapping with ``prefix``, ``suffix``,
            ``language_spec`` and ``output_format``.
    """

    prompt_limit: PromptLimit = field(default_factory=PromptLimit)
    llm_retry: Retry = field(default_factory=Retry)
    signature_validation: ValidationMode = "enabled"
    isolation: Isolation = "none"
    llm_opts: Mapping[str, Any] = field(default_factory=dict)
    system_prompt: str | Callable[[str], str] | Mapping[str, str] | None = None

    def mistakes(self) -> Iterator[str]:
        """Yield a sentence for each invalid option."""
        for name, least in (("max_turns", 1), ("memory_bytes", 0), ("parallel", 1), ("tree_turns", 1)):
            yield from _not_a_number(name, getattr(self, name), least)
        yield from _not_a_number("max_depth", self.max_depth, 0)
        if self.max_consecutive_failures is not None:
            yield from _not_a_number("max_consecutive_failures", self.max_consecutive_failures, 1)
        yield from _no_time("timeout_s", self.timeout_s)
        if self.mission_timeout_s is not None:
            yield from _no_time("mission_timeout_s", self.mission_timeout_s)
        cost = self.max_cost_usd
        if cost is not None and not (isinstance(cost, int | float) and cost >= 0):
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


class DelegateOptions(TypedDict, total=False):
    """The options of ``delegate``; those of ``Limits`` take precedence over ``limits``.

    The names in milliseconds are the specification's.
    """

    tools: Tools | None
    context: Context | None
    limits: Limits | None
    tool_catalog: Tools | None
    context_signature: "str | Signature | type | None"
    memory: Mapping[str, Any] | None
    models: Mapping[str, ModelLike] | None
    budget: "Budget | None"
    checkpoint_dir: str | Path | None
    resume_from: "State | str | Path | None"
    on_checkpoint: "Callable[[State], None] | None"
    telemetry: "Callable[[Event], None] | None"
    cancelled: Callable[[], bool] | None
    monotonic: Callable[[], float]
    epoch: Callable[[], float]
    sleep: Callable[[float], None]
    prompt_limit: PromptLimit | Mapping[str, int] | None
    llm_retry: Retry | Mapping[str, Any] | None
    signature_validation: ValidationMode
    isolation: Isolation
    llm_opts: Mapping[str, Any] | None
    system_prompt: str | Callable[[str], str] | Mapping[str, str] | None
    max_turns: int
    timeout_s: Seconds
    timeout_ms: float
    mission_timeout_s: Seconds | None
    mission_timeout_ms: float | None
    tool_time_counts: bool
    parallel: int
    tree_turns: int
    max_depth: int
    max_cost_usd: float | None
    max_consecutive_failures: int | None
    memory_bytes: int


IN_MS = {"timeout_ms": "timeout_s", "mission_timeout_ms": "mission_timeout_s"}
KNOWN = frozenset({"prompt", "llm", "signature", *DelegateOptions.__annotations__})


def check_known(names: Mapping[str, Any]) -> None:
    """Refuse unknown options of ``delegate``.

    Raises:
        TypeError: One is unknown; the message suggests another.
    """
    if unknown := [name for name in names if name not in KNOWN]:
        raise TypeError(f"delegate has no option {unknown[0]!r}. {did_you_mean(unknown[0], KNOWN)}".rstrip(". "))


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """The arguments of ``delegate``, by the same names."""

    prompt: str
    llm: Any
    signature: Any = None
    tools: Any = None
    tool_catalog: Any = None
    context: Any = None
    context_signature: Any = None
    memory: Mapping[str, Any] | None = None
    models: Mapping[str, Any] | None = None
    budget: "Budget | None" = None
    checkpoint_dir: str | Path | None = None
    resume_from: "State | str | Path | None" = None
    on_checkpoint: "Callable[[State], None] | None" = None
    options: Options = field(default_factory=Options)


def arguments_of(given: Mapping[str, Any]) -> Arguments:
    """Return the arguments of ``delegate`` that are ``given`` by name, single limits and options among them."""
    limits: Limits | None = given.get("limits")
    if limits is not None and not isinstance(limits, Limits):
        raise TypeError("limits is no Limits: write Limits(max_turns=5), or max_turns=5 alone")
    options = {each.name: getattr(limits, each.name) for each in fields(Limits)} if limits else {}
    options |= {each.name: given[each.name] for each in fields(Options) if each.name in given}
    for in_ms, name in IN_MS.items():
        if in_ms in given:
            time = given[in_ms]
            options[name] = time / 1000 if isinstance(time, int | float) else time
    shown = given.get("prompt_limit")
    options["prompt_limit"] = shown if isinstance(shown, PromptLimit) else PromptLimit(**dict(shown or {}))
    options["llm_retry"] = retry(given.get("llm_retry"))
    options["llm_opts"] = given.get("llm_opts") or {}
    own = {each.name: given[each.name] for each in fields(Arguments) if each.name in given}
    return Arguments(**own, options=Options(**options))


def seconds(time: Seconds) -> float:
    """Return a time in seconds."""
    return time.total_seconds() if isinstance(time, timedelta) else float(time)


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


def _no_time(name: str, value: object) -> Iterator[str]:
    if isinstance(value, bool) or not isinstance(value, timedelta | int | float) or not seconds(value) > 0:
        yield f"{name} is {value!r}, not a time above 0: seconds, or a timedelta"
    elif seconds(value) == math.inf:
        unlimited = "; None is no limit" if name == "mission_timeout_s" else ""
        yield f"{name} is {value!r}: a time has an end{unlimited}"
