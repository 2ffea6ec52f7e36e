"""How providers of models are reached: the tables ``[backend.NAME]`` of ``config.toml``, and built-in ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from pyagentd.config.file import ConfigFile, Environment, Setting, switched
from pyagentd.errors import ConfigError

BACKEND_KINDS = ("anthropic", "offline")

_BACKEND_KEYS = frozenset({"kind", "base_url", "key_env", "model"})


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSettings:
    """How to reach one provider of models."""

    name: str
    kind: str  # one of BACKEND_KINDS
    base_url: str | None = None
    key_env: str | None = None  # the environment variable that holds the key
    model: str | None = None  # used where a preset names none


def backend_tables(file: ConfigFile, env: Environment) -> tuple[dict[str, BackendSettings], dict[str, Setting]]:
    """Return the built-in backends and those of the file, and every value with where it is from, by its dotted name.

    Raises:
        ConfigError: A key or a value is not possible; names file and line.
    """
    backends: dict[str, BackendSettings] = {}
    shown: dict[str, Setting] = {}
    builtin = {
        "anthropic": {"kind": "anthropic", "key_env": "ANTHROPIC_API_KEY"},
        "offline": {"kind": "offline"},
    }
    tables = file.data.get("backend", {})
    for name in [*builtin, *(name for name in tables if name not in builtin)]:
        values = {key: Setting(value, "default") for key, value in builtin.get(name, {}).items()}
        values |= _backend_table(file, name, tables.get(name, {}))
        if "kind" not in values:
            raise ConfigError(
                f"{file.place(f'backend.{name}')}: backend.{name} has no kind", mend='Add kind = "anthropic"'
            )
        made = _made(name, {key: setting.value for key, setting in values.items()})
        if (url := env.get("ANTHROPIC_BASE_URL")) and takes_address_from_environment(made):
            values["base_url"] = Setting(url, "environment ANTHROPIC_BASE_URL")
            made = replace(made, base_url=url)
        shown |= {f"backend.{name}.{key}": setting for key, setting in values.items()}
        backends[name] = made
    return backends, shown


def _made(name: str, values: dict[str, Any]) -> BackendSettings:
    return BackendSettings(name=name, **values)  # the values' names and the kind have been checked


def _backend_table(file: ConfigFile, name: str, table: object) -> dict[str, Setting]:
    prefix = f"backend.{name}"
    if not isinstance(table, dict):
        raise ConfigError(f"{file.place(prefix)}: {prefix} is not a table")
    values = {}
    for key, value in table.items():
        place = file.place(f"{prefix}.{key}")
        if key not in _BACKEND_KEYS:
            raise ConfigError(f"{place}: unknown key {key!r}; known: {', '.join(sorted(_BACKEND_KEYS))}")
        if not isinstance(value, str):
            raise ConfigError(f"{place}: {prefix}.{key} is not a string")
        if key == "kind" and value not in BACKEND_KINDS:
            raise ConfigError(f"{place}: kind is {value!r}, not one of {', '.join(BACKEND_KINDS)}")
        values[key] = Setting(value, place)
    return values


def takes_address_from_environment(backend: BackendSettings) -> bool:
    """Return whether ``ANTHROPIC_BASE_URL`` is meant for it."""
    # A backend the user gave an address of its own must not be redirected by a variable meant for another.
    return backend.kind == "anthropic" and (backend.name == "anthropic" or backend.base_url is None)


# When and how a conversation is compacted: the table ``[compaction]`` of ``config.toml``.


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSettings:
    """How conversations are kept within a model's window.

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
    reserve_tokens: int = 20_000
    tail_turns: int = 2
    tail_budget_pct: float = 0.25
    retry_on_transient: int = 2
    prune_tool_outputs: bool = True
    chunked_summarize: bool = True
    drop_middle: bool = True
    model: str = ""
    max_tokens: int = 2048
    timeout_s: float = 60.0


COMPACTION_KEYS = frozenset(each.name for each in fields(CompactionSettings))


def compaction_table(file: ConfigFile) -> tuple[CompactionSettings, dict[str, Setting]]:
    """Return what is configured, and every value with where it is from, by its dotted name.

    Raises:
        ConfigError: A value is not possible; names file and line.
    """
    table: Mapping[str, Any] = file.data.get("compaction", {})
    for key, value in table.items():
        if problem := _problem(key, value):
            place = file.place(f"compaction.{key}")
            raise ConfigError(f"{place}: compaction.{key} is {value!r}, which is no {problem}")
    made = CompactionSettings(**table)
    shown = {}
    for each in fields(made):
        dotted = f"compaction.{each.name}"
        value = getattr(made, each.name)
        text = str(value).lower() if isinstance(value, bool) else str(value)
        shown[dotted] = Setting(text, file.place(dotted) if each.name in table else "default")
    return made, shown


def _problem(key: str, value: object) -> str:
    """Return what ``value`` is not, "" when it may be the value of ``key``."""
    match getattr(CompactionSettings(), key):
        case bool():
            return "" if isinstance(value, bool) else "true or false"
        case str():
            return "" if isinstance(value, str) else "string"
        case int():
            least = 0 if key in ("reserve_tokens", "retry_on_transient") else 1
            return "" if type(value) is int and value >= least else f"whole number from {least}"
        case _ if key == "tail_budget_pct":
            return "" if type(value) in (int, float) and 0 < float(str(value)) < 1 else "number between 0 and 1"
    return "" if type(value) in (int, float) and float(str(value)) > 0 else "number above 0"


# What ``[[hooks.EVENT]]`` of the configuration, and ``[[EVENT]]`` of a project's ``hooks.toml``, may say.
#
# ::
#
#     [[hooks.tool.before]]
#     command = ["~/bin/check-call", "--strict"]   # a program and its arguments
#     timeout = 10                                 # seconds (default 10, at most 120)
#     tools = "Bash|Write"                         # of tool events: a regular expression for the tool's whole name

EVENTS = ("message.user", "model.resolve", "tool.before", "tool.after", "run.finished")
DEFAULT_S = 10.0
MOST_S = 120.0

_KEYS = frozenset({"command", "timeout", "tools"})


@dataclass(frozen=True, slots=True, kw_only=True)
class HookSettings:
    """One program that is asked about an event."""

    event: str
    command: tuple[str, ...]  # not empty
    timeout_s: float = DEFAULT_S
    tools: re.Pattern[str] | None = None  # of tool events: which tools' calls
    source: str = ""  # FILE:LINE

    def is_about(self, tool: str) -> bool:
        """Return whether it is to be asked about calls of ``tool``."""
        return self.tools is None or self.tools.fullmatch(tool) is not None


def read_hooks(data: Mapping[str, Any], place: Callable[[str], str], prefix: str = "") -> tuple[HookSettings, ...]:
    """Return the hooks that a table says, in its order.

    Args:
        data: ``{"tool": {"before": [{"command": […]}]}}``.
        place: Returns where a dotted name is, for errors.
        prefix: Before the names of events there, such as "hooks.".

    Raises:
        ConfigError: Something of it is not possible; names file and line.
    """
    known = {tuple(event.split(".")) for event in EVENTS}
    for first, below in data.items():
        for second in below if isinstance(below, dict) else ("",):
            if (first, second) not in known:
                named = ".".join(filter(None, (first, second)))
                raise ConfigError(
                    f"{place(prefix + named)}: there is no event {named!r} for hooks",
                    mend=f"Known: {', '.join(EVENTS)}",
                )
    return tuple(hook for event in EVENTS for hook in _of_event(data, event, place, prefix))


def _of_event(
    data: Mapping[str, Any], event: str, place: Callable[[str], str], prefix: str
) -> Iterator[HookSettings]:
    first, second = event.split(".")
    rows, source = data.get(first, {}).get(second, []), place(prefix + event)
    if not isinstance(rows, list):
        raise ConfigError(f"{source}: {prefix}{event} is not a list", mend=f"Write [[{prefix}{event}]]")
    for row in rows:
        if not isinstance(row, dict) or not row.keys() <= _KEYS:
            raise ConfigError(f"{source}: a hook has only {', '.join(sorted(_KEYS))}")
        command, timeout = row.get("command"), row.get("timeout", DEFAULT_S)
        if (
            not isinstance(command, list)
            or not command
            or not all(isinstance(each, str) and each for each in command)
        ):
            raise ConfigError(f"{source}: a hook needs a command", mend='Write command = ["PROGRAM", "ARGUMENT"]')
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= MOST_S:
            raise ConfigError(f"{source}: timeout is {timeout!r}, not a number of seconds up to {MOST_S:g}")
        yield HookSettings(
            event=event,
            command=tuple(command),
            timeout_s=float(timeout),
            tools=_tools(row.get("tools"), source),
            source=source,
        )


def _tools(text: object, source: str) -> re.Pattern[str] | None:
    if text is None:
        return None
    try:
        return re.compile(str(text))
    except (re.error, RecursionError, OverflowError) as error:
        raise ConfigError(f"{source}: {text!r} is no regular expression: {error}") from error


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

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
CALL_S = 60.0
START_S = 30.0
MCP_MOST_S = 24 * 60 * 60.0

_MCP_KEYS = (
    "command", "args", "env", "cwd", "url", "headers", "tools", "timeout", "start_timeout", "trusted", "enabled",
    "type", "transport",
)  # fmt: skip
_STDIO = ("stdio",)
_HTTP = ("http", "streamable-http", "streamableHttp")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """One server, as it is written down."""

    name: str
    command: tuple[str, ...] = ()  # a program and its arguments; of a server on the web empty
    env: tuple[tuple[str, str], ...] = ()  # variables of the program
    cwd: str = ""  # where it runs; "": in a directory of its own, one of a project in the workspace root
    url: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    tools: tuple[str, ...] | None = None  # patterns as in a shell; None: all
    call_s: float = CALL_S
    start_s: float = START_S
    trusted: bool = False  # its word is believed that a tool only looks
    enabled: bool = True
    source: str = ""  # FILE:LINE, or FILE
    of_project: bool = False  # a project's file names it, which the user trusts as it is
    literal: bool = False  # its texts mean what they say: ${NAME} and ~ stand for nothing


def read_server(name: str, table: object, place: str, *, strict: bool = True) -> ServerSettings:
    """Return the server that a table describes.

    Args:
        name: What it is called.
        table: Its keys and values, see above.
        place: Where that is written, for errors.
        strict: Keys that nothing reads are an error; other programs' files may have them.

    Raises:
        ConfigError: Something of it is not possible; names the place.
    """
    if not NAME.fullmatch(name):
        raise ConfigError(
            f"{place}: {name!r} is no name for an MCP server",
            mend="Use at most 32 letters, digits, _ and -, the first no _ or -",
        )
    if not isinstance(table, Mapping):
        raise ConfigError(f"{place}: the MCP server {name} is not a table")
    keys = _Keys(name, table, place)
    unknown = [str(key) for key in table if key not in _MCP_KEYS]
    if strict and unknown:
        raise ConfigError(
            f"{place}: unknown key {unknown[0]!r} of the MCP server {name}; known: {', '.join(_MCP_KEYS)}"
        )
    keys.check_type()
    command, url = keys.command(), keys.text("url")
    if bool(command) == bool(url):
        raise ConfigError(
            f"{place}: the MCP server {name} needs either a command or a url",
            mend='Write command = ["PROGRAM", "ARGUMENT"] or url = "https://…"',
        )
    if url and not re.match(r"https?://[^/]|\$\{", url):
        raise ConfigError(f"{place}: {url!r} of the MCP server {name} is no address; it begins with https://")
    return ServerSettings(
        name=name,
        command=command,
        env=keys.pairs("env"),
        cwd=keys.text("cwd"),
        url=url,
        headers=keys.pairs("headers"),
        tools=keys.texts("tools"),
        call_s=keys.seconds("timeout", CALL_S),
        start_s=keys.seconds("start_timeout", START_S),
        trusted=keys.flag("trusted", default=False),
        enabled=keys.flag("enabled", default=True) and not (not strict and keys.flag("disabled", default=False)),
        source=place,
    )


@dataclass(frozen=True, slots=True)
class _Keys:
    """Reads the values of one server, with errors that say where."""

    name: str
    table: Mapping[str, Any]
    place: str

    def _wrong(self, key: str, wanted: str) -> ConfigError:
        return ConfigError(f"{self.place}: {key} of the MCP server {self.name} is not {wanted}")

    def check_type(self) -> None:
        """Refuse what other programs can reach and we cannot."""
        kind = self.table.get("type") or self.table.get("transport")
        if kind is not None and kind not in (*_STDIO, *_HTTP):
            raise ConfigError(
                f"{self.place}: the MCP server {self.name} has the type {kind!r}, which cannot be reached",
                mend="Known: stdio, http (streamable HTTP)",
            )

    def command(self) -> tuple[str, ...]:
        value, more = self.table.get("command", ()), self.texts("args") or ()
        words = (value,) if isinstance(value, str) else value
        if not isinstance(words, tuple | list) or not all(isinstance(each, str) and each for each in words):
            raise self._wrong("command", "a program, or a list of it and its arguments")
        return (*words, *more) if words else ()

    def text(self, key: str) -> str:
        value = self.table.get(key, "")
        if not isinstance(value, str):
            raise self._wrong(key, "a text")
        return value

    def texts(self, key: str) -> tuple[str, ...] | None:
        value = self.table.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise self._wrong(key, "a list of texts")
        return tuple(value)

    def pairs(self, key: str) -> tuple[tuple[str, str], ...]:
        value = self.table.get(key, {})
        if not isinstance(value, Mapping) or not all(isinstance(each, str) for each in value.values()):
            raise self._wrong(key, "a table of texts")
        return tuple((str(name), str(text)) for name, text in value.items())

    def seconds(self, key: str, default: float) -> float:
        value = self.table.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MCP_MOST_S:
            raise self._wrong(key, f"a number of seconds up to {MCP_MOST_S:g}")
        return float(value)

    def flag(self, key: str, *, default: bool) -> bool:
        value = self.table.get(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false")
        return value


# What the user states of models: the tables ``[model."NAME"]`` of ``config.toml``.

_TOKENS = ("context_window", "max_output")
_PRICES = ("input", "output", "cache_read", "cache_write")
_MEND = "A price is in US dollars per million tokens, a size in tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """What is stated of one model; None where nothing is."""

    context_window: int | None = None  # tokens
    max_output: int | None = None  # tokens
    input: float | None = None  # US dollars per million tokens, as are the next three
    output: float | None = None
    cache_read: float | None = None
    cache_write: float | None = None

    def stated(self) -> dict[str, Any]:
        """Return what is stated, by name."""
        return {key: value for key, value in asdict(self).items() if value is not None}

    @property
    def states_prices(self) -> bool:
        """Whether any price is stated."""
        return any(getattr(self, key) is not None for key in _PRICES)


def model_tables(file: ConfigFile) -> tuple[dict[str, ModelSettings], dict[str, Setting]]:
    """Return what is stated of each model, and every value with where it is from, by its dotted name.

    Raises:
        ConfigError: A key or a value is not possible; names file and line.
    """
    models: dict[str, ModelSettings] = {}
    shown: dict[str, Setting] = {}
    for name, table in file.data.get("model", {}).items():
        prefix = f"model.{name}"
        if not isinstance(table, dict):
            raise ConfigError(f"{file.place(prefix)}: {prefix} is not a table", mend=f'Write [model."{name}"]')
        for key, value in table.items():
            _check(file, prefix, key, value)
        if ("input" in table) != ("output" in table):
            raise ConfigError(
                f"{file.place(prefix)}: {prefix} has a price for one of input and output only", mend="Give both"
            )
        for key, value in table.items():
            shown[f"{prefix}.{key}"] = Setting(str(value), file.place(f"{prefix}.{key}"))
        models[name] = ModelSettings(**table)
    return models, shown


def _check(file: ConfigFile, prefix: str, key: str, value: object) -> None:
    place = file.place(f"{prefix}.{key}")
    if key not in (*_TOKENS, *_PRICES):
        known = ", ".join((*_TOKENS, *_PRICES))
        raise ConfigError(f"{place}: unknown key {key!r} in [{prefix}]; known: {known}", mend=_MEND)
    # `true` is a number to Python.
    if key in _TOKENS and (type(value) is not int or value <= 0):
        raise ConfigError(f"{place}: {prefix}.{key} is not a whole number above 0", mend=_MEND)
    if key in _PRICES and (type(value) not in (int, float) or not 0 <= float(str(value)) < float("inf")):
        raise ConfigError(f"{place}: {prefix}.{key} is not a number from 0", mend=_MEND)


# The table ``[privacy]``: whether a model may be asked what nobody typed (docs/privacy.md).
#
# Such requests are titles, summaries of a conversation that no longer fits, and descriptions of conversations that
# are saved. ``extra_requests = false`` turns all of them off, whatever the tables of these subjects say; a summary
# that the user asks for is the user's own request.

PRIVACY_KEYS = frozenset({"extra_requests"})

_WITHHELD = {"titles.enabled": "off", "compaction.auto": "false"}


def extra_requests(file: ConfigFile, env: Environment) -> Setting:
    """Return whether a model may be asked what nobody typed, "on" or "off".

    Raises:
        ConfigError: The value is none of these; names file and line, or the variable.
    """
    return switched(file, env, "privacy.extra_requests", "PYAGENTD_EXTRA_REQUESTS")


def by_hand(compaction: CompactionSettings) -> CompactionSettings:
    """Return how conversations are compacted where only the user asks for it."""
    return replace(compaction, auto=False)


def withheld(reason: Setting) -> dict[str, Setting]:
    """Return the settings that ``reason``, the table's, turns off, by their dotted names, each with its source."""
    return {name: Setting(value, reason.source) for name, value in _WITHHELD.items()}


# Which actions agents may take: the tables ``[profile.NAME]`` of ``config.toml``.

BUILTIN_PROFILES = ("open", "standard", "locked")

_PROFILE_KEYS = frozenset({"allow", "ask"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSettings:
    """Which actions an agent may take: regular expressions, each valid."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()


def profile_tables(file: ConfigFile) -> tuple[dict[str, ProfileSettings], dict[str, Setting]]:
    """Return the user's profiles, and every value with where it is from, by its dotted name.

    Raises:
        ConfigError: A name, a key or a value is not possible; names file and line.
    """
    profiles: dict[str, ProfileSettings] = {}
    shown: dict[str, Setting] = {}
    for name, table in file.data.get("profile", {}).items():
        prefix = f"profile.{name}"
        if not re.fullmatch(r"[\w-]+", name):
            raise ConfigError(
                f"{file.place(prefix)}: {name!r} is no name of a profile", mend="Letters, digits, - and _"
            )
        if name in BUILTIN_PROFILES:
            raise ConfigError(
                f"{file.place(prefix)}: the profile {name} is built in", mend="Call yours something else"
            )
        if not isinstance(table, dict):
            raise ConfigError(f"{file.place(prefix)}: {prefix} is not a table")
        for key in table:
            if key not in _PROFILE_KEYS:
                raise ConfigError(
                    f"{file.place(f'{prefix}.{key}')}: unknown key {key!r} in [{prefix}]",
                    mend="A profile has allow and ask; what neither matches is denied",
                )
        lists = {key: tuple(_expressions(file, prefix, key)) for key in table}
        for key, texts in lists.items():
            shown[f"{prefix}.{key}"] = Setting(", ".join(texts), file.place(f"{prefix}.{key}"))
        profiles[name] = ProfileSettings(**lists)
    return profiles, shown


def _expressions(file: ConfigFile, table: str, key: str) -> Iterator[str]:
    for text, place in file.texts(table, key):
        try:
            re.compile(text, re.DOTALL)
        except (re.error, OverflowError, RecursionError) as error:
            raise ConfigError(
                f"{place}: {text!r} is no regular expression: {error}",
                mend="Write one for the whole action, such as tool:Read:.*",
            ) from error
        yield text


# How many turns may begin by themselves: the table ``[triggers]`` of ``config.toml``.


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerSettings:
    """Limits of deliveries.

    Attributes:
        per_minute: Of one source from outside, to one session.
        per_day: Of all sources and schedules together.
    """

    per_minute: int = 10
    per_day: int = 200


TRIGGER_KEYS = frozenset(each.name for each in fields(TriggerSettings))


def trigger_table(file: ConfigFile) -> tuple[TriggerSettings, dict[str, Setting]]:
    """Return what is configured, and every value with where it is from, by its dotted name.

    Raises:
        ConfigError: A value is no number from 0 up; names file and line.
    """
    table: Mapping[str, Any] = file.data.get("triggers", {})
    for key, value in table.items():
        if type(value) is not int or value < 0:
            place = file.place(f"triggers.{key}")
            raise ConfigError(f"{place}: triggers.{key} is {value!r}, which is no number from 0 up")
    made = TriggerSettings(**table)
    shown = {
        f"triggers.{key}": Setting(
            str(getattr(made, key)), file.place(f"triggers.{key}") if key in table else "default"
        )
        for key in sorted(TRIGGER_KEYS)
    }
    return made, shown


# The table ``[web]`` of ``config.toml``: who searches for agents, and whether they may fetch from private addresses.
#
# Nothing here holds a key: ``key_env`` names the variable that does.

WEB_KEYS = frozenset({"search", "search_url", "key_env", "allow_private"})

SEARCH_PROVIDERS = ("searxng", "brave", "tavily")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSettings:
    """What agents may reach on the web, and how.

    Attributes:
        search: Who searches, one of ``SEARCH_PROVIDERS``; None: nobody.
        search_url: Where, in place of the provider's own address; searxng has none of its own.
        key_env: The variable that the provider's key is in; None: the provider's usual one.
        allow_private: Whether pages of private, loopback and link-local addresses may be fetched.
    """

    search: str | None = None
    search_url: str | None = None
    key_env: str | None = None
    allow_private: bool = False


def web_table(file: ConfigFile) -> WebSettings:
    """Return what the file says.

    Raises:
        ConfigError: A value is not possible; names file and line.
    """
    search, url = file.string("web.search"), file.string("web.search_url")
    if search is not None and search not in SEARCH_PROVIDERS:
        known = ", ".join(SEARCH_PROVIDERS)
        raise ConfigError(f"{file.place('web.search')}: search is {search!r}, not one of {known}")
    if search == "searxng" and url is None:
        raise ConfigError(
            f"{file.place('web.search')}: searxng needs the address of an instance",
            mend='Add search_url = "https://searx.example.org" to [web]',
        )
    if url is not None and not url.startswith(("http://", "https://")):
        raise ConfigError(
            f"{file.place('web.search_url')}: {url!r} is no address; it begins with http:// or https://"
        )
    return WebSettings(
        search=search,
        search_url=url,
        key_env=file.string("web.key_env"),
        allow_private=bool(file.flag("web.allow_private")),
    )
