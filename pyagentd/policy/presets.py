"""What the front matter of a preset means.

Spelling is generous (``include-tool-results`` or ``include_tool_results``, tools as a list, a line or a table, names
of other systems' tools, unknown keys ignored: DD-42, DD-46), meaning is strict: a value of the wrong kind is an
error that names its line, never a default. No ``paths`` means no path, no ``shell_commands`` no command.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from pyagentd.errors import BadRequest, PresetError
from pyagentd.policy.frontmatter import Keys
from pyagentd.policy.profiles import Profile
from pyagentd.policy.readonly import PLAN
from pyagentd.policy.roam import Roam
from pyagentd.policy.servers import WantedServers

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
    time_budget_s: float | None = None  # of one run
    token_budget: int | None = None  # of one run
    signature: str = ""  # it runs as a mission under this contract (SPEC 004); "" chats
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
