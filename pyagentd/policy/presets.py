"""What the front matter of a preset means.

Spelling is generous (``include-tool-results`` or ``include_tool_results``, tools as a list, a line or a table, names
of other systems' tools, unknown keys ignored), meaning is strict: a value of the wrong kind is an
error that names its line, never a default. No ``paths`` means no path, no ``shell_commands`` no command.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NoReturn, TypeVar, get_args

from pyagentd.config.tables import ServerSettings, read_server
from pyagentd.errors import BadRequest, ConfigError, PresetError
from pyagentd.policy.action import Roam, canonical_tool, normalised, validate_pattern
from pyagentd.policy.profiles import BUILTIN, PLAN, Profile, compile_action
from pyagentd.reader import Source

# Which servers of tools a preset wants: the key ``mcp`` of its front matter.
#
# ::
#
#     mcp: all                        # every configured one; what a session gets without the key
#     mcp: [tracker, docs]            # these; [] or none: no server; what an agent gets without the key
#     mcp:
#       tracker: true
#       docs: {tools: ["search*"]}    # of that one only these tools
#       own: {command: [npx, some-server]}

_ALL, _NONE = "all", "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedServers:
    """What a preset says."""

    all: bool = False
    names: tuple[str, ...] = ()  # of configured ones
    only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by name: patterns of the tools that count
    own: tuple[ServerSettings, ...] = ()  # written out

    def of(self, known: Mapping[str, ServerSettings]) -> tuple[list[ServerSettings], list[str]]:
        """Return the servers of those ``known``, and the names that none of them has."""
        own = {each.name: each for each in self.own}
        names = dict.fromkeys([*(known if self.all else ()), *self.names, *self.only, *own])
        every = {**known, **own}
        found = [self._narrowed(every[name]) for name in names if name in every and every[name].enabled]
        return found, [name for name in names if name not in every]

    def _narrowed(self, server: ServerSettings) -> ServerSettings:
        return replace(server, tools=self.only[server.name]) if server.name in self.only else server


def read_wanted(value: object, place: str) -> WantedServers:
    """Return what the value of the key says.

    Raises:
        ConfigError: It is of the wrong kind.
    """
    match value:
        case str():
            words = re.findall(r"[^\s,]+", value)
            if _ALL in words:
                return WantedServers(all=True)
            return WantedServers(names=tuple(word for word in words if word != _NONE))
        case bool():
            return WantedServers(all=value)
        case list():
            return _joined(place, [_listed(each, place) for each in value])
        case Mapping():
            return _joined(place, [(str(name), each) for name, each in value.items()])
    raise ConfigError(f"{place}: `mcp` is a {type(value).__name__}", mend=_MEND)


_MEND = "It should be all, none, a list of names, or a table of servers"


def _listed(each: object, place: str) -> tuple[str, object]:
    if isinstance(each, str):
        return each, True
    if isinstance(each, Mapping) and isinstance(each.get("name"), str):
        return str(each["name"]), {key: value for key, value in each.items() if key != "name"}
    if isinstance(each, Mapping) and len(each) == 1:
        ((name, table),) = each.items()
        return str(name), table
    raise ConfigError(f"{place}: `mcp` lists what is neither a name nor a server", mend=_MEND)


def _joined(place: str, rows: list[tuple[str, object]]) -> WantedServers:
    names, only, own = list[str](), dict[str, tuple[str, ...]](), list[ServerSettings]()
    for name, table in rows:
        if table is True or table is None:
            names.append(name)
        elif isinstance(table, Mapping) and table.keys() == {"tools"}:
            only[name] = tuple(_texts(table["tools"], name, place))
        elif table is not False:
            own.append(
                replace(read_server(name, table, Source.at(place, ConfigError)), trusted=False)
            )  # only config.toml may say so
    return WantedServers(names=tuple(names), only=only, own=tuple(own))


def _texts(value: object, name: str, place: str) -> Iterator[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ConfigError(f"{place}: tools of the MCP server {name} is not a list of texts")
    yield from map(str, value)


# Reads the keys of a front matter one by one, with errors that name file, line and key.
#
# Spelling is generous, with dashes or with underscores; a value of the wrong kind is an error, never a default.

_T = TypeVar("_T")
_Choice = TypeVar("_Choice", bound=str)

_FRONT_STARTS_ON_LINE = 2  # of the file: the first line is the delimiter
_NUMBER = r"(\d+(?:\.\d+)?)"
_DURATION = re.compile(rf"(?:{_NUMBER}h)?(?:{_NUMBER}m)?(?:{_NUMBER}s?)?")


class Keys:
    """A mapping of the front matter, read key by key with errors that say where."""

    def __init__(self, values: Mapping[str, Any], source: str, prefix: str = "", line: int = 1) -> None:
        self._values = values
        self._source = source
        self._prefix = prefix  # "paths." inside that section
        self._line = line  # where the section itself is

    def missing(self, key: str, example: str) -> NoReturn:
        """Raise the error that a key is not there, with an example of its value."""
        raise PresetError(
            f"{self._source}:{self._line}: `{key}` is missing", mend=f"Add a line such as `{key}: {example}`"
        )

    def section(self, key: str) -> Keys:
        """Return the mapping below a key, empty when it is not there."""
        spelling, value = self._get(key)
        if value is not None and not isinstance(value, Mapping):
            self._wrong(key, value, "keys and values")
        return Keys(value or {}, self._source, f"{key}.", self._line_of(spelling))

    def text(self, key: str) -> str:
        """Return a text without the space around it, "" when it is not there."""
        _, value = self._get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            self._wrong(key, value, "a text: put it in quotes" if isinstance(value, Mapping | list) else "a text")
        return str(value).strip()

    def choice(self, key: str, default: _Choice, choices: tuple[_Choice, ...]) -> _Choice:
        """Return one of ``choices``."""
        value = self.text(key)
        if value and value not in choices:
            self._wrong(key, value, f"one of {', '.join(choices)}")
        return next((choice for choice in choices if choice == value), default)

    def number(self, key: str, low: float, high: float) -> float | None:
        """Return a number between two others, or None."""
        _, value = self._get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            self._wrong(key, value, f"a number from {low} to {high}")
        return float(value)

    def count(self, key: str) -> int | None:
        """Return a whole number above 0, or None."""
        _, value = self._get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            self._wrong(key, value, "a whole number above 0")
        return int(value)

    def flag(self, key: str, *, default: bool, must: bool = False) -> bool:
        """Return true or false; with ``must`` anything but true is wrong."""
        _, value = self._get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self._wrong(key, value, "true or false")
        if must and not value:
            self._wrong(key, value, "true: an agent of this name only looks; give one that works another name")
        return value

    def duration(self, key: str) -> float | None:
        """Return seconds, given as a number or as ``90s``, ``10m``, ``1h30m``."""
        _, value = self._get(key)
        if value is None:
            return None
        seconds = 0.0
        if isinstance(value, str) and (found := _DURATION.fullmatch(value.strip())):
            seconds = sum(
                float(number or 0) * unit for number, unit in zip(found.groups(), (3600, 60, 1), strict=True)
            )
        elif isinstance(value, int | float) and not isinstance(value, bool):
            seconds = float(value)
        if not 0 < seconds < float("inf"):
            self._wrong(key, value, "seconds above 0, or a text such as 90s, 10m or 1h30m")
        return seconds

    def profile(self, key: str, other: str, known: Mapping[str, Profile] | None) -> Profile | str | None:
        """Return a profile written out, one of ``known`` or the built-in ones by name, or None."""
        if self._get(key)[1] is None:
            key = other
        spelling, value = self._get(key)
        if value is None:
            return None
        if isinstance(value, str):
            return self._named_profile(key, value.strip(), known)
        if not isinstance(value, Mapping):
            self._wrong(key, value, "the name of a profile, or its lists allow and ask")
        section = Keys(value, self._source, f"{self._prefix}{spelling}.", self._line_of(spelling))
        return section._written_profile()

    def _named_profile(self, key: str, name: str, known: Mapping[str, Profile] | None) -> Profile | str:
        if known is None:
            return name
        profiles = {**BUILTIN, **known}
        if name not in profiles:
            one = f"one of {', '.join(sorted(profiles))}, or lists allow and ask"
            self._wrong(key, name, f"{one}; the daemon reads config.toml when it starts (pyagentd stop)")
        return profiles[name]

    def _written_profile(self) -> Profile:
        for key in self._values:
            if key not in ("allow", "ask"):
                where = f"{self._source}:{self._line_of(str(key))}"
                raise PresetError(
                    f"{where}: `{self._prefix}{key}` is no list of a profile",
                    mend="A profile has allow and ask; what neither matches is denied",
                )
        return Profile(name="custom", allow=self._expressions("allow"), ask=self._expressions("ask"))

    def _expressions(self, key: str) -> tuple[re.Pattern[str], ...]:
        return tuple(self._each(key, compile_action))

    def _each(self, key: str, made: Callable[[str], _T]) -> Iterator[_T]:
        """Yield what ``made`` makes of the texts of a list; its ``BadRequest`` is told with the line."""
        for index, text in enumerate(self.texts(key)):
            try:
                yield made(text)
            except BadRequest as error:
                where = self._line_of_item(key, index)
                raise PresetError(
                    f"{self._source}:{where}: `{self._prefix}{key}`: {error.message}", mend=error.mend
                ) from error

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts, empty when it is not there."""
        _, value = self._get(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) and item.strip() for item in value):
            self._wrong(key, value, "a list of texts")
        return tuple(str(item) for item in value)

    def patterns(self, key: str) -> tuple[str, ...]:
        """Return a list of path patterns."""
        return tuple(self._each(key, _pattern))

    def directories(self, key: str) -> tuple[str, ...]:
        """Return a list of relative directory patterns."""
        return tuple(self._each(key, _relative))

    def tools(self, key: str) -> tuple[str, ...]:
        """Return tools given as a list, as words of one line, or as a table of ``NAME: {allowed: true}``."""
        _, value = self._get(key)
        if isinstance(value, str):
            names = re.findall(r"[^\s,]+", value)
        elif isinstance(value, Mapping):
            names = [str(tool) for tool, rule in value.items() if isinstance(rule, Mapping) and rule.get("allowed")]
        else:
            names = list(self.texts(key))
        return tuple(dict.fromkeys(map(canonical_tool, names)))

    def servers(self, key: str) -> WantedServers | None:
        """Return which servers of tools are wanted, see ``servers``; None when it is not there."""
        spelling, value = self._get(key)
        if value is None:
            return None
        try:
            return read_wanted(value, f"{self._source}:{self._line_of(spelling)}")
        except ConfigError as error:
            raise PresetError(error.message, mend=error.mend) from error

    def _get(self, key: str) -> tuple[str, Any]:
        """Return the spelling used, with dashes or with underscores, and the value or None."""
        for spelling in (key, key.replace("-", "_"), key.replace("_", "-")):
            if spelling in self._values:
                return spelling, self._values[spelling]
        return key, None

    def _wrong(self, key: str, value: object, wanted: str) -> NoReturn:
        spelling, _ = self._get(key)
        shown = f"{value!r}" if isinstance(value, str | int | float) else _kind(value)
        raise PresetError(
            f"{self._source}:{self._line_of(spelling)}: `{self._prefix}{spelling}` is {shown}",
            mend=f"It should be {wanted}",
        )

    def _line_of(self, key: str) -> int:
        lines = getattr(self._values, "lc", None)
        if lines is None or key not in self._values:
            return self._line
        return int(lines.key(key)[0]) + _FRONT_STARTS_ON_LINE

    def _line_of_item(self, key: str, index: int) -> int:
        lines = getattr(self._get(key)[1], "lc", None)
        return self._line_of(key) if lines is None else int(lines.item(index)[0]) + _FRONT_STARTS_ON_LINE


def _kind(value: object) -> str:
    """Return what a value that is no text or number is called in YAML."""
    match value:
        case Mapping():
            return "keys and values"
        case list():
            return "a list"
        case None:
            return "empty"
    return f"a {type(value).__name__}"


def _relative(text: str) -> str:
    if text.startswith(("/", "~")):
        raise BadRequest(
            f"The pattern {text!r} is not relative", mend="It is about directories below that of the notes"
        )
    validate_pattern(f"/{text}", shown=text)
    return text


def _pattern(text: str) -> str:
    validate_pattern(text)
    return normalised(text)


DEFAULT_PRESET = "programming-assistant"

Mode = Literal["primary", "subagent", "all"]
Result = Literal["all", "last"]
Caller = Literal["user", "agent"]
Isolation = Literal["none", "process"]
Thinking = Literal["", "off", "low", "medium", "high"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """Where tools may act: absolute glob patterns, see ``patterns``."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """Which commands may run."""

    allow: tuple[str, ...] = ()  # first words of a command, or "*"
    deny: tuple[str, ...] = ()  # texts that must not occur in it
    network: bool = False  # a confined command may reach the network
    confine: bool = True  # commands see only the agent's scope, where the system can do that


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """The configuration of a branch or an agent, or a template for one."""

    name: str  # the file's, without .md
    backend: str
    model: str  # "": the backend's own
    description: str = ""
    mode: Mode = "all"  # who may use it: the user, a parent agent, or both
    temperature: float | None = None  # None: the model's own
    max_tokens: int | None = None
    thinking: Thinking = ""  # how much the model thinks before it answers; "" and "off": not at all
    tools: tuple[str, ...] = ()  # our names; whether a tool of that name exists is not known here
    emacs_tools: tuple[str, ...] = ()  # names or categories of tools of the user's Emacs, where there is one
    include_tool_results: bool = True
    paths: Paths = field(default_factory=Paths)
    shell: Commands = field(default_factory=Commands)
    body: str = ""  # the system message
    result: Result = "all"  # what of an agent's answer its parent gets: all its text, or what followed its last tool
    caller: Caller = "user"  # "agent": a model that was spawned is told so
    profile: Profile | str | None = None  # one written out, the name of one, or none
    roam: Roam = field(default_factory=Roam)
    read_only: bool = False  # it and its agents change nothing, whatever else is allowed: see ``readonly``
    max_turns: int | None = None  # requests to the model in one run; None: no limit
    max_calls: int | None = None  # of tools in one run; None: what holds for all, see ``run.MAX_CALLS``
    time_budget_s: float | None = None  # of one run
    token_budget: int | None = None  # of one run
    signature: str = ""  # it runs as a mission under this contract; "" chats
    prompt: str = ""  # of a mission: what it is told, with `{{field}}` for its inputs; "": the message it is sent
    mcp: WantedServers | None = None  # servers of tools; None: all of a session, none of an agent
    isolation: Isolation = "none"  # of a mission: "process" runs its programs in a process of their own


def parse_preset(
    name: str,
    front: Mapping[str, Any],
    body: str,
    source: str,
    *,
    profiles: Mapping[str, Profile] | None = None,
) -> Preset:
    """Return the preset that a file describes.

    Args:
        name: What it is called.
        front: The front matter; one that knows its lines (``lc``) makes errors name them.
        body: What follows the front matter.
        source: The file, for errors.
        profiles: The user's own by name: a profile that is named is looked up here and among the built-in ones.
            None leaves the name as it is, for who only wants to know that the file can be read.

    Raises:
        PresetError: A value is missing or of the wrong kind; names file, line and key.
    """
    keys = Keys(front, source)
    paths = keys.section("paths")
    shell = keys.section("shell_commands")
    roam = keys.section("org_roam_patterns")
    signature = keys.text("signature")
    return Preset(
        name=name,
        backend=keys.text("backend") or keys.missing("backend", "Claude"),
        model=keys.text("model"),
        description=" ".join(keys.text("description").split()),
        mode=keys.choice("mode", "all", get_args(Mode)),
        temperature=keys.number("temperature", 0, 2),
        max_tokens=keys.count("max-tokens"),
        thinking=keys.choice("thinking", "", get_args(Thinking)),
        tools=keys.tools("tools"),
        emacs_tools=keys.texts("emacs-tools"),
        include_tool_results=keys.flag("include-tool-results", default=True),
        paths=Paths(read=paths.patterns("read"), write=paths.patterns("write"), deny=paths.patterns("deny")),
        shell=Commands(
            allow=shell.texts("allow"),
            deny=shell.texts("deny"),
            network=shell.flag("network", default=False),
            confine=shell.flag("confine", default=True),
        ),
        body=body.strip(),
        result=keys.choice("result", "last" if signature else "all", get_args(Result)),
        caller=keys.choice("caller", "user", get_args(Caller)),
        profile=keys.profile("profile", "permissions", profiles),
        roam=Roam(
            subdirectory=roam.directories("subdirectory"), tags=roam.texts("tags"), node_ids=roam.texts("node_ids")
        ),
        read_only=keys.flag("read-only", default=name == PLAN, must=name == PLAN),
        max_turns=keys.count("max-turns"),
        max_calls=keys.count("max-calls"),
        time_budget_s=keys.duration("time-budget"),
        token_budget=keys.count("token-budget"),
        mcp=keys.servers("mcp"),
        signature=signature,
        prompt=keys.text("prompt") if signature else "",
        isolation=keys.choice("isolation", "none", get_args(Isolation)) if signature else "none",
    )


MESSAGE_SETTINGS = ("model", "temperature", "max_tokens", "thinking", "system", "tools")


def parse_message_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what holds for one message only, by the names of ``Preset``.

    Args:
        given: Values by the names in ``MESSAGE_SETTINGS``, as in a front matter; a model is ``[BACKEND/]MODEL``. None
            stands for the preset's.

    Raises:
        BadRequest: A name is unknown, or a value of the wrong kind.
    """
    given = {name: value for name, value in given.items() if value is not None}
    if unknown := [name for name in given if name not in MESSAGE_SETTINGS]:
        raise BadRequest(f"{unknown[0][:40]!r} is no setting", mend=f"Known: {', '.join(MESSAGE_SETTINGS)}")
    keys = Keys(given, "settings")
    try:
        backend, _, model = keys.text("model").rpartition("/")
        values: dict[str, Any] = {
            "model": model,
            "temperature": keys.number("temperature", 0, 2),
            "max_tokens": keys.count("max_tokens"),
            "thinking": keys.choice("thinking", "", get_args(Thinking)),
            "system": keys.text("system"),
            "tools": keys.tools("tools"),
        }
    except PresetError as error:
        raise BadRequest(error.message, mend=error.mend) from None
    values = {("body" if name == "system" else name): values[name] for name in given}
    return values | ({"backend": backend} if backend else {})
