"""What ``config.toml`` may say: a dataclass for each table, with its defaults and bounds.

``reader.read`` makes them from the parsed file; an error is a ``ConfigError`` with file, line and key. No key of a
provider is here: ``key_env`` names the variable that has it.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import urlsplit

from msgspec import Meta

from pyagentd.config import absolute
from pyagentd.errors import BadRequest
from pyagentd.reader import INSIDE, FromOne, Misfit, Path, Rule, Source, Text, read

Confinement = Literal["auto", "bubblewrap", "landlock", "off"]
LogLevel = Literal["debug", "info", "warning", "error"]

BUILTIN_PROFILES = ("open", "standard", "locked")


def is_address(text: str) -> bool:
    """Return whether ``text`` is an address that can be reached over HTTP."""
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _address(value: object) -> str:
    if not isinstance(value, str) or not is_address(value):
        raise ValueError
    return value


def _no_or_one_address(value: object) -> str:
    return "" if value == "" else _address(value)


def _server_address(value: object) -> str:
    """Return the address of an MCP server, or ""; variables may stand for any part of it."""
    if not isinstance(value, str):
        raise ValueError
    if not value.startswith("${"):
        _no_or_one_address(re.sub(r"\$\{[^}]*\}", "1", value))
    return value


def _written_path(value: object) -> str:
    """Return a path as it is written; raises ``ConfigError`` where it names the home of nobody."""
    if not isinstance(value, str):
        raise ValueError
    absolute(value)
    return value


_Path = Annotated[str, Rule(parse=_written_path, words="a path")]
_ADDRESS = "an address that begins with http:// or https://"
_FromZero = Annotated[int, Meta(ge=0)]


def compile_action(pattern: str) -> re.Pattern[str]:
    """Return ``pattern`` ready to be matched against whole texts, such as action strings.

    Raises:
        BadRequest: It is not a regular expression.
    """
    try:
        return re.compile(str(pattern), re.DOTALL)
    except (re.error, OverflowError, RecursionError) as error:
        raise BadRequest(
            f"{pattern!r} is not a regular expression: {error}",
            hint="Write one that matches the whole text, such as tool:Read:.* for an action",
        ) from error


def _expression(text: object) -> re.Pattern[str]:
    if not isinstance(text, str):
        raise ValueError
    return compile_action(text)


_Action = Annotated[str, Rule(parse=lambda text: _expression(text).pattern, words="a text")]


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultTable:
    """``[default]``: what answers in place of what a shipped preset names.

    Attributes:
        backend: "": what the preset names.
        model: Likewise; also for a preset of that backend that names no model.
    """

    backend: Text = ""
    model: Text = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTable:
    """``[log]``."""

    level: LogLevel = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class PresetsTable:
    """``[presets]``."""

    dir: _Path = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentsTable:
    """``[agents]``: where named agents are, and what they are made from."""

    dir: _Path = ""
    template: _Path = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyTable:
    """``[privacy]`` (docs/privacy.md).

    Attributes:
        extra_requests: Whether a model may be asked what nobody typed: titles, summaries of a conversation that no
            longer fits, descriptions of conversations that are saved. Off counts whatever the tables of these
            subjects say; a summary that the user asks for is the user's own request.
    """

    extra_requests: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TitlesTable:
    """``[titles]``: whether a model is asked for the title of a session, and which; "" is the run's."""

    enabled: bool = True
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellTable:
    """``[shell]``: how commands are confined on this machine."""

    confinement: Confinement = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillsTable:
    """``[skills]``: directories of skills, beside those of project and user."""

    paths: tuple[_Path, ...] = ()


Kind = Literal["anthropic", "bedrock", "vertex", "gemini", "offline", "openai", "openai-compatible"]


class Service(NamedTuple):
    """A provider known by name."""

    base_url: str | None  # None: the SDK knows
    key_env: str | None  # the usual variable for the key
    kind: Kind = "openai-compatible"


# By names that gptel's users call their backends, too.
SERVICES: Mapping[str, Service] = {
    "openai": Service("https://api.openai.com/v1", "OPENAI_API_KEY", "openai"),
    "gemini": Service("https://generativelanguage.googleapis.com", "GEMINI_API_KEY", "gemini"),
    "bedrock": Service(None, "AWS_BEARER_TOKEN_BEDROCK", "bedrock"),
    "vertex": Service(None, None, "vertex"),
    "ollama": Service("http://127.0.0.1:11434/v1", None),
    "llama.cpp": Service("http://127.0.0.1:8080/v1", None),
    "lmstudio": Service("http://127.0.0.1:1234/v1", None),
    "vllm": Service("http://127.0.0.1:8000/v1", None),
    "deepseek": Service("https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    "openrouter": Service("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "groq": Service("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "mistral": Service("https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    "xai": Service("https://api.x.ai/v1", "XAI_API_KEY"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSettings:
    """``[backend.NAME]``: how to reach one provider of models.

    A kind of ``SERVICES`` may be given; it stands for the kind there, with the address and the variable.
    """

    name: str = field(default="", metadata=INSIDE)
    kind: Annotated[Kind, Rule(words=f"one of anthropic, offline, openai-compatible, {', '.join(SERVICES)}")]
    base_url: str | None = None
    key_env: str | None = None  # the environment variable that holds the key
    model: str | None = None  # used where a preset names none
    region: str | None = None  # of a cloud; None: what the environment says
    project: str | None = None  # of Google's cloud, likewise
    models: tuple[str, ...] = ()  # that are offered beside those that it lists
    text_calls: bool | None = (
        None  # whether calls of tools are looked for in answers' text; None: where it needs no key
    )

    @property
    def reads_text_calls(self) -> bool:
        """Whether calls of tools are looked for in the text of its answers."""
        return self.key_env is None if self.text_calls is None else self.text_calls

    @property
    def needs_key(self) -> bool:
        """Whether it answers nobody without the key that it names: a cloud has other credentials as well."""
        return self.key_env is not None and self.kind not in ("offline", "bedrock", "vertex")

    @property
    def takes_address_from_environment(self) -> bool:
        """Whether ``ANTHROPIC_BASE_URL`` is meant for it, and not for another that has no address of its own."""
        return self.kind == "anthropic" and (self.name == "anthropic" or self.base_url is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSettings:
    """``[compaction]``: how conversations are kept within a model's window.

    Attributes:
        auto: Compact when the conversation reaches the threshold; by hand it can be done anyway.
        reserve_tokens: Kept free below the window, or the model's longest answer where that is less.
        tail_turns: How many of the user's turns stay verbatim.
        tail_budget_pct: How much of what is usable they may take, from 0 to 1.
        retry_on_transient: How often a summary that failed for now is tried again.
        prune_tool_outputs: Try without old tool outputs: before anything is summarised, and for what is too long.
        chunked_summarize: Summarise in pieces what is too long for one request.
        drop_middle: Leave out the middle of what is too long even in pieces.
        model: Who summarises, of the run's backend; "" is the run's own model.
        max_tokens: Of a summary.
        timeout_s: How long one summary may take, retries included.
    """

    auto: bool = True
    reserve_tokens: _FromZero = 20_000
    tail_turns: FromOne = 2
    tail_budget_pct: Annotated[float, Meta(gt=0, lt=1)] = 0.25
    retry_on_transient: _FromZero = 2
    prune_tool_outputs: bool = True
    chunked_summarize: bool = True
    drop_middle: bool = True
    model: str = ""
    max_tokens: FromOne = 2048
    timeout_s: Annotated[float, Meta(gt=0)] = 60.0


_Tokens = Annotated[FromOne, Rule(words="a whole number of tokens above 0")]
_Price = Annotated[float, Meta(ge=0), Rule(words="a number from 0: US dollars per million tokens")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """``[model."NAME"]``: what the user states of one model; None where nothing is."""

    context_window: _Tokens | None = None
    max_output: _Tokens | None = None
    input: _Price | None = None
    output: _Price | None = None
    cache_read: _Price | None = None
    cache_write: _Price | None = None

    def __post_init__(self) -> None:
        if (self.input is None) != (self.output is None):
            raise Misfit((), "there is a price for one of input and output only", "Give both")

    def stated(self) -> dict[str, Any]:
        """Return what is stated, by name."""
        return {key: value for key, value in asdict(self).items() if value is not None}

    @property
    def states_prices(self) -> bool:
        """Whether any price is stated."""
        return bool(self.stated().keys() - {"context_window", "max_output"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSettings:
    """``[profile.NAME]``: which actions an agent may take, regular expressions; what neither matches is denied."""

    allow: tuple[_Action, ...] = ()
    ask: tuple[_Action, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerSettings:
    """``[triggers]``: how many turns may begin by themselves.

    Attributes:
        per_minute: Of one source from outside, to one session.
        per_day: Of all sources and schedules together.
    """

    per_minute: _FromZero = 10
    per_day: _FromZero = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryTable:
    """``[telemetry]``: what is sent to an OpenTelemetry collector (docs/observability.md).

    Attributes:
        enabled: Whether anything is.
        endpoint: The collector's address, for OTLP over HTTP; "": ``OTEL_EXPORTER_OTLP_ENDPOINT`` of the daemon's
            environment, or http://localhost:4318.
        service_name: What it is told who sends.
        interval_s: How often numbers are sent.
        capture_content: Whether prompts, answers, arguments and results of tools are sent as well.
        redact: MODULE:FUNCTION, called with an attribute's name and its text; returns what is sent, None for nothing.
    """

    enabled: bool = False
    endpoint: Annotated[str, Rule(parse=_no_or_one_address, words=_ADDRESS)] = ""
    service_name: str = "pyagentd"
    interval_s: Annotated[
        float, Meta(gt=0, le=3600), Rule(keys=("interval",), words="a number of seconds above 0, up to 3600")
    ] = 60.0
    capture_content: bool = False
    redact: Annotated[str, Meta(pattern=r"^([\w.]+:\w+)?$"), Rule(words="MODULE:FUNCTION")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSettings:
    """``[web]``: what agents may reach on the web, and how.

    Attributes:
        search: Who searches; None: nobody.
        search_url: Where, in place of the provider's own address; searxng has none of its own.
        key_env: The variable that the provider's key is in; None: the provider's usual one.
        allow_private: Whether pages of private, loopback and link-local addresses may be fetched.
    """

    search: Literal["searxng", "brave", "tavily"] | None = None
    search_url: Annotated[str, Rule(parse=_address, words=_ADDRESS)] | None = None
    key_env: str | None = None
    allow_private: bool = False

    def __post_init__(self) -> None:
        if self.search == "searxng" and self.search_url is None:
            hint = 'Add search_url = "https://searx.example.org" to [web]'
            raise Misfit(("search",), "searxng needs the address of an instance", hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """All of ``config.toml``. Servers and hooks are read apart: ``read_server``, ``read_hooks``."""

    default: DefaultTable = DefaultTable()
    log: LogTable = LogTable()
    presets: PresetsTable = PresetsTable()
    agents: AgentsTable = AgentsTable()
    privacy: PrivacyTable = PrivacyTable()
    titles: TitlesTable = TitlesTable()
    shell: ShellTable = ShellTable()
    skills: SkillsTable = SkillsTable()
    compaction: CompactionSettings = CompactionSettings()
    triggers: TriggerSettings = TriggerSettings()
    telemetry: TelemetryTable = TelemetryTable()
    web: WebSettings = WebSettings()
    backends: Annotated[Mapping[str, BackendSettings], Rule(keys=("backend",))] = field(default_factory=dict)
    profiles: Annotated[Mapping[str, ProfileSettings], Rule(keys=("profile",))] = field(default_factory=dict)
    models: Annotated[Mapping[str, ModelSettings], Rule(keys=("model",))] = field(default_factory=dict)
    hook_tables: Annotated[Mapping[str, Any], Rule(keys=("hooks",))] = field(default_factory=dict)
    server_tables: Annotated[Mapping[str, Any], Rule(keys=("mcp",))] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.profiles:
            if not re.fullmatch(r"[\w-]+", name):
                raise Misfit(("profile", name), f"{name!r} is not a name of a profile", "Letters, digits, - and _")
            if name in BUILTIN_PROFILES:
                raise Misfit(("profile", name), f"the profile {name} is built in", "Call yours something else")


# What ``[[hooks.EVENT]]`` of the configuration, and ``[[EVENT]]`` of a project's ``hooks.toml``, may say.
#
# ::
#
#     [[hooks.tool.before]]
#     command = ["~/bin/check-call", "--strict"]   # a program and its arguments
#     timeout = 10                                 # seconds (default 10, at most 120)
#     tools = "Bash|Write"                         # of tool events: a regular expression for the tool's whole name

EVENTS = ("message.user", "model.resolve", "tool.before", "tool.after", "run.finished")


def _program(value: object) -> tuple[str, ...]:
    """Return a program and its arguments."""
    if not isinstance(value, list | tuple) or not value or not all(isinstance(each, str) and each for each in value):
        raise ValueError
    return tuple(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class HookSettings:
    """One program that is asked about an event."""

    event: str = field(default="", metadata=INSIDE)
    command: Annotated[
        tuple[str, ...], Rule(parse=_program, words='a program and its arguments: ["PROGRAM", "ARGUMENT"]')
    ]
    timeout_s: Annotated[
        float, Meta(gt=0, le=120), Rule(keys=("timeout",), words="a number of seconds above 0, up to 120")
    ] = 10.0
    tools: Annotated[re.Pattern[str] | None, Rule(parse=_expression, words="a regular expression")] = None
    source: str = field(default="", metadata=INSIDE)  # FILE:LINE

    def is_about(self, tool: str) -> bool:
        """Return whether it is to be asked about calls of ``tool``."""
        return self.tools is None or self.tools.fullmatch(tool) is not None


def read_hooks(data: object, source: Source, path: Path = ()) -> tuple[HookSettings, ...]:
    """Return the hooks that a table says, in the order of ``EVENTS``.

    Args:
        data: ``{"tool": {"before": [{"command": […]}]}}``.
        source: Where it is from.
        path: Where in it ``data`` is.

    Raises:
        ConfigError: Something of it is not possible; names file and line.
    """
    tables = read(data, Mapping[str, Mapping[str, tuple[HookSettings, ...]]], source, path)
    named = {f"{first}.{second}": hooks for first, below in tables.items() for second, hooks in below.items()}
    if unknown := [event for event in named if event not in EVENTS]:
        place = (*path, *unknown[0].split("."))
        raise source.wrong(place, f"there is no event {unknown[0]!r} for hooks", f"Known: {', '.join(EVENTS)}")
    return tuple(
        replace(hook, event=event, source=source.place((*path, *event.split("."), number)))
        for event in EVENTS
        for number, hook in enumerate(named.get(event, ()))
    )


# Servers of the Model Context Protocol: ``[mcp.NAME]`` of ``config.toml``, of a preset, or a project's file.
#
# ::
#
#     [mcp.files]                             # a program, which speaks on its standard input and output
#     command = ["npx", "-y", "@modelcontextprotocol/server-filesystem", "${root}"]
#     env = { LEVEL = "debug" }               # beside PATH, HOME and the like; nothing else is passed on
#
#     [mcp.tracker]                           # or a server on the web (streamable HTTP)
#     url = "https://tracker.example.org/mcp"
#     headers = { Authorization = "Bearer ${TRACKER_TOKEN}" }
#     tools = ["search", "get_*"]             # only these; without it, all
#     timeout = 60                            # seconds for one call; start_timeout (30) for its start
#     trusted = true                          # what it says only to look is not asked about
#     enabled = true
#
# A project's ``.mcp.json`` says the same in the words of other programs (``mcpServers``). Nothing is expanded here:
# what ``${NAME}`` stands for is known when a server is started.

_SERVER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")


def _words(value: object) -> tuple[str, ...]:
    """Return a program, or a program and its arguments; none where the list is empty, as without the key."""
    return _program([value] if isinstance(value, str) and value else value) if value not in ("", [], ()) else ()


_A_DAY = Meta(gt=0, le=24 * 60 * 60)
_SECONDS = "a number of seconds above 0, up to 86400"
_Type = Annotated[
    Literal["stdio", "http", "streamable-http", "streamableHttp"],
    Rule(words="stdio or http (streamable HTTP): others cannot be reached"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """One server."""

    name: str = field(default="", metadata=INSIDE)
    command: Annotated[tuple[str, ...], Rule(parse=_words, words="a program, or a list of it and its arguments")] = ()
    args: tuple[str, ...] = ()  # more arguments; of a server that was read they are in ``command``
    env: Mapping[str, str] = field(default_factory=dict)  # variables of the program
    cwd: str = ""  # where it runs; "": in a directory of its own, one of a project in the workspace root
    url: Annotated[str, Rule(parse=_server_address, words=_ADDRESS)] = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    tools: tuple[str, ...] | None = None  # patterns as in a shell; None: all
    call_s: Annotated[float, _A_DAY, Rule(keys=("timeout",), words=_SECONDS)] = 60.0
    start_s: Annotated[float, _A_DAY, Rule(keys=("start_timeout",), words=_SECONDS)] = 30.0
    trusted: bool = False  # its word is believed that a tool only looks
    enabled: bool = True
    type: _Type | None = None  # what can be reached says the same
    transport: _Type | None = None
    source: str = field(default="", metadata=INSIDE)  # FILE:LINE, or FILE
    of_project: bool = field(default=False, metadata=INSIDE)  # a project's file names it; the user trusts it as it is
    literal: bool = field(
        default=False, metadata=INSIDE
    )  # its texts mean what they say: ${NAME} and ~ are not filled

    def __post_init__(self) -> None:
        if bool(self.command) == bool(self.url):
            hint = 'Write command = ["PROGRAM", "ARGUMENT"] or url = "https://…"'
            raise Misfit((), "an MCP server needs either a command or a url", hint)


def read_server(name: str, table: object, source: Source, path: Path = ()) -> ServerSettings:
    """Return the server that a table describes.

    Args:
        name: What it is called.
        table: Its keys and values, see above.
        source: Where that is written. One that is lenient is a file of other programs, which have more keys.
        path: Where in it.

    Raises:
        PyagentdError: The source's error: something of it is not possible.
    """
    if not _SERVER_NAME.fullmatch(name):
        hint = "Use at most 32 letters, digits, _ and -, the first no _ or -"
        raise source.wrong(path, f"{name!r} is not a name for an MCP server", hint)
    made = read(table, ServerSettings, source, path)
    is_disabled = source.lenient and isinstance(table, Mapping) and table.get("disabled") is True
    return replace(
        made,
        name=name,
        command=(*made.command, *made.args) if made.command else (),
        args=(),
        enabled=made.enabled and not is_disabled,
        source=source.place(path),
    )
