"""Parses the front matter of a preset into a ``Preset``.

Spelling is lenient (``include-tool-results`` or ``include_tool_results``, tools as a list, a line or a table, tool
names of other programs, unknown keys ignored), values are strict: one of the wrong type is an error that names its
line, never a default. No ``paths`` means no path, no ``shell_commands`` no command.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from msgspec import Meta

from pyagentd.clock import seconds_of
from pyagentd.config.tables import ServerSettings, read_server
from pyagentd.errors import BadRequest, PresetError
from pyagentd.policy.action import canonical_tool, normalise, validate_pattern
from pyagentd.policy.profiles import BUILTIN, PLAN, Profile
from pyagentd.reader import INSIDE, FromOne, FullText, Path, Rule, Source, Text, Tokens, describe, find_key, read

# The MCP servers that a preset names: the key ``mcp`` of its front matter.
#
# ::
#
#     mcp: all                        # every configured server; the default of a session
#     mcp: [tracker, docs]            # these; [] or none: no server, the default of an agent
#     mcp:
#       tracker: true
#       docs: {tools: ["search*"]}    # only these tools of the server
#       own: {command: [npx, some-server]}


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedServers:
    """The MCP servers and tools that a preset names."""

    all: bool = False
    names: tuple[str, ...] = ()  # names of configured servers
    only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by name: patterns of the admitted tools
    own: tuple[ServerSettings, ...] = ()  # servers that the preset defines

    def of(self, known: Mapping[str, ServerSettings]) -> tuple[list[ServerSettings], list[str]]:
        """Return the named servers among ``known``, and the unknown names."""
        own = {each.name: each for each in self.own}
        names = dict.fromkeys([*(known if self.all else ()), *self.names, *self.only, *own])
        every = {**known, **own}
        wanted = [every[name] for name in names if name in every and every[name].enabled]
        found = [replace(each, tools=self.only[each.name]) if each.name in self.only else each for each in wanted]
        return found, [name for name in names if name not in every]


def read_wanted(value: object, source: Source, path: Path = ()) -> WantedServers:
    """Parse the value of the key ``mcp``; ``source`` and ``path`` locate it.

    Raises:
        PyagentdError: The source's error: the value has the wrong type.
    """
    match value:
        case str():
            names = re.findall(r"[^\s,]+", value)
            if "all" in names:
                return WantedServers(all=True)
            return WantedServers(names=tuple(name for name in names if name != "none"))
        case bool():
            return WantedServers(all=value)
        case list():
            rows = [(*_server_entry(each, source, (*path, n)), (*path, n)) for n, each in enumerate(value)]
        case Mapping():
            rows = [(str(name), table, (*path, str(name))) for name, table in value.items()]
        case _:
            raise source.wrong(path, f"`mcp` is {describe(value)}", _HINT)
    wanted, only, own = list[str](), dict[str, tuple[str, ...]](), list[ServerSettings]()
    for name, table, place in rows:
        if table is True or table is None:
            wanted.append(name)
        elif isinstance(table, Mapping) and table.keys() == {"tools"}:
            only[name] = read(table["tools"], tuple[str, ...], source, (*place, "tools"))
        elif table is not False:
            strict = replace(source, lenient=False)
            own.append(replace(read_server(name, table, strict, place), trusted=False))  # only config.toml may set it
    return WantedServers(names=tuple(wanted), only=only, own=tuple(own))


_HINT = "It should be all, none, a list of names, or a table of servers"


def _server_entry(each: object, source: Source, path: Path) -> tuple[str, object]:
    if isinstance(each, str):
        return each, True
    if isinstance(each, Mapping) and isinstance(each.get("name"), str):
        return str(each["name"]), {key: value for key, value in each.items() if key != "name"}
    if isinstance(each, Mapping) and len(each) == 1:
        ((name, table),) = each.items()
        return str(name), table
    raise source.wrong(path, "`mcp` lists what is neither a name nor a server", _HINT)


# Parsers of single values.


def _parse_backend(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError
    return value.strip()


def _parse_line(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError
    return " ".join(value.split())


def _parse_seconds(value: object) -> float:
    """Parse seconds: a number, or ``90s``, ``10m``, ``1h30m``."""
    seconds = seconds_of(str(value))
    if not 0 < seconds < float("inf"):
        raise ValueError
    return seconds


def parse_tools(value: object) -> tuple[str, ...]:
    """Parse tools: a list, words of one line, or a table of ``NAME: true`` or ``{allowed: true}``."""
    if isinstance(value, str):
        names = re.findall(r"[^\s,]+", value)
    elif isinstance(value, Mapping):
        rules = {
            str(tool): rule.get("allowed") if isinstance(rule, Mapping) else rule for tool, rule in value.items()
        }
        for tool, rule in rules.items():
            if not isinstance(rule, bool | None):
                raise BadRequest(f"{tool} is {describe(rule)}", hint="It should be true or false")
        names = [tool for tool, rule in rules.items() if rule]
    elif isinstance(value, list):
        for number, each in enumerate(value, start=1):
            if not isinstance(each, str) or not each.strip():
                raise BadRequest(f"entry {number} is {describe(each)}", hint="It should be a list of texts")
        names = list(map(str, value))
    else:
        raise ValueError
    return tuple(dict.fromkeys(map(canonical_tool, names)))


def _parse_pattern(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError
    validate_pattern(value)
    return normalise(value)


_Pattern = Annotated[str, Rule(parse=_parse_pattern, words="a text")]
_Tools = Annotated[tuple[str, ...], Rule(parse=parse_tools, words="a list of texts")]
_Temperature = Annotated[float, Meta(ge=0, le=2)] | None

DEFAULT_PRESET = "programming-assistant"

Mode = Literal["primary", "subagent", "all"]
Result = Literal["all", "last"]
Caller = Literal["user", "agent"]
Isolation = Literal["none", "process"]
Thinking = Literal["", "off", "low", "medium", "high"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """Where tools may act: absolute glob patterns, see ``action``."""

    read: tuple[_Pattern, ...] = ()
    write: tuple[_Pattern, ...] = ()
    deny: tuple[_Pattern, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """The commands that may run."""

    allow: tuple[FullText, ...] = ()  # first words of a command, or "*"
    deny: tuple[FullText, ...] = ()  # texts that must not occur in it
    network: bool = False  # a confined command may reach the network
    confine: bool = True  # commands see only the agent's scope, if the system can do that


_Duration = Annotated[
    float,
    Rule(keys=("time-budget",), parse=_parse_seconds, words="seconds above 0, or a text such as 90s, 10m or 1h30m"),
]
_Profile = Annotated[
    Profile | str,
    Rule(keys=("profile", "permissions"), words="the name of a profile, or its lists allow and ask"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """The configuration of a branch or an agent, or a template for one."""

    name: str = field(default="", metadata=INSIDE)  # the file's, without .md
    backend: Annotated[str, Rule(parse=_parse_backend, words="the name of a backend, such as Claude")]
    model: Text = ""  # "": the backend's own
    description: Annotated[str, Rule(parse=_parse_line, words="a text: put it in quotes")] = ""
    mode: Mode = "all"  # who may use it: the user, a parent agent, or both
    temperature: _Temperature = None  # None: the model's own
    max_tokens: Tokens | None = None
    thinking: Thinking = ""  # how much the model thinks before it answers; "" and "off": not at all
    tools: _Tools = ()  # pyagentd's names, not checked for existence
    emacs_tools: tuple[FullText, ...] = ()  # names or categories of tools of the user's Emacs
    include_tool_results: bool = True
    paths: Paths = field(default_factory=Paths)
    shell: Annotated[Commands, Rule(keys=("shell_commands",))] = field(default_factory=Commands)
    body: str = field(default="", metadata=INSIDE)  # the system message
    result: Result = "all"  # what of an agent's answer its parent gets: all its text, or what followed its last tool
    caller: Caller = "user"  # "agent": the system message says that the caller is another agent
    profile: _Profile | None = None  # a profile, the name of one, or none
    read_only: bool = False  # it and its agents change nothing, whatever else is allowed: see ``profiles``
    max_turns: FromOne | None = None  # requests to the model in one run; None: no limit
    max_calls: FromOne | None = None  # tool calls in one run; None: the general limit, ``run.MAX_CALLS``
    time_budget_s: _Duration | None = None  # of one run
    token_budget: FromOne | None = None  # of one run
    signature: Text = ""  # with one it runs as a mission; "" is a chat
    prompt: Text = ""  # a mission's prompt, with `{{field}}` for its inputs; "": the message
    # Servers of tools; None: all of a session, none of an agent.
    mcp: WantedServers | None = field(default=None, metadata=INSIDE)
    parallel: FromOne | None = None  # of a mission: parallel tool calls of one program; None: 10
    isolation: Isolation = "none"  # of a mission: "process" runs its programs in a separate process


_OF_MISSIONS = ("prompt", "isolation", "parallel")  # in other presets these keys belong to other programs


def parse_preset(
    name: str,
    front: Mapping[str, Any],
    body: str,
    file: str,
    *,
    profiles: Mapping[str, Profile] | None = None,
) -> Preset:
    """Parse the preset in a file.

    Args:
        name: The preset's name.
        front: The front matter; if it knows its lines (``lc``), errors name them.
        body: The text after the front matter.
        file: The file, for errors.
        profiles: The user's own by name: a named profile is looked up here and among the built-in ones. With None it
            stays a name, for callers that only check whether the file is valid.

    Raises:
        PresetError: A value is missing or has the wrong type; names file, line and key.
    """
    source = Source.of_front_matter(front, file, PresetError)
    is_mission = bool(str(front.get("signature") or "").strip())
    ours = {key: value for key, value in front.items() if is_mission or key not in _OF_MISSIONS}
    made = read(ours, Preset, source)
    if (key := find_key(front, "read-only")) and name == PLAN and not made.read_only:
        hint = "It should be true: an agent of this name only looks; give one that works another name"
        raise source.wrong((key,), f"`{key}` is false", hint)
    servers = find_key(front, "mcp")
    profile = find_key(front, "profile", "permissions")
    return replace(
        made,
        name=name,
        body=body.strip(),
        profile=known_profile(made.profile, profiles, source, (profile,)) if profile else None,
        read_only=made.read_only or name == PLAN,
        mcp=read_wanted(front[servers], source, (servers,)) if servers else None,
        result="last" if made.signature and not find_key(front, "result") else made.result,
    )


def read_profile(value: object, known: Mapping[str, Profile], source: Source, path: Path) -> Profile | str | None:
    """Return the profile that ``value`` names or contains: ``{"allow": [REGEX…], "ask": [REGEX…]}``.

    Raises:
        PyagentdError: The source's error: the profile is unknown, or an expression is invalid.
    """
    return known_profile(read(value, _Profile, source, path), known, source, path)


def known_profile(
    profile: Profile | str | None, known: Mapping[str, Profile] | None, source: Source, path: Path
) -> Profile | str | None:
    """Return a profile, looked up by name in ``known`` and the built-in ones; raises as ``read_profile``."""
    if not isinstance(profile, str) or known is None:
        return profile
    profiles, name = {**BUILTIN, **known}, profile.strip()
    if name not in profiles:
        one = f"It should be one of {', '.join(sorted(profiles))}, or lists allow and ask"
        hint = f"{one}; the daemon reads config.toml when it starts (pyagentd stop)"
        raise source.wrong(path, f"`{path[-1]}` is {name!r}", hint)
    return profiles[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSettings:
    """Settings of one message."""

    model: Text = ""  # [BACKEND/]MODEL
    temperature: _Temperature = None
    max_tokens: Tokens | None = None
    thinking: Thinking = ""
    system: Text = ""
    tools: _Tools = ()


def parse_message_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Parse the settings of one message; return them by their names in ``Preset``.

    Args:
        given: Values by the names of ``MessageSettings``, as in a front matter. None means the preset's.

    Raises:
        BadRequest: A name is unknown, or a value has the wrong type.
    """
    given = {
        name: value.strip() if isinstance(value, str) else value for name, value in given.items() if value is not None
    }
    made = read(given, MessageSettings, Source.at("settings", BadRequest))
    values = {("body" if name == "system" else name): getattr(made, name) for name in given}
    if "model" in values:
        backend, _, values["model"] = made.model.rpartition("/")
        values |= {"backend": backend} if backend else {}
    return values
