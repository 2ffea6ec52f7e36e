"""How a server is really started: its settings with ``${NAME}`` replaced, and the environment that it gets.

A server is another program, so it gets none of our variables but those that say where things are, and what its
settings name. The keys of model providers are never among them, whatever the settings say.

Where a program runs is part of what it is: ``python -m``, npx and uv look there for modules, programs and settings.
So one that the user configured runs in an empty directory of ours, whatever a checkout has, unless ``cwd`` is given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyagentd.config.tables import ServerSettings
from pyagentd.errors import ConfigError
from pyagentd.log import conceal
from pyagentd.tools.environment import child_environment

_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")
_ROOT = ("root", "workspaceFolder", "CLAUDE_PROJECT_DIR")  # ours, and what other programs call it
_ENDS_SEARCH = {"package.json": "{}\n", "uv.toml": ""}
_PROVIDERS = re.compile(r"ANTHROPIC_.*|OPENAI_.*|PYAGENTD_.*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A server that can be started; two that are equal are one."""

    name: str
    command: tuple[str, ...] = field(default=(), repr=False)
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # what its settings say
    cwd: Path = Path("/")
    is_apart: bool = False  # ``cwd`` is ours, made when the program is started
    root: Path = Path("/")  # the workspace: one server for each
    url: str = field(default="", repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    call_s: float = 60.0
    start_s: float = 30.0
    base: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)  # the usual variables

    @property
    def environment(self) -> dict[str, str]:
        """All variables of the program."""
        return {**self.base, **dict(self.env)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Surrounding:
    """What the settings of a server may refer to."""

    root: Path  # the workspace
    apart: Path  # has a directory for each server that runs in none of the user's
    variable: Callable[[str], str]  # returns the value of one; "" when nobody has it
    path: str = ""  # where the client of the run finds programs
    keys: Collection[str] = ()  # the variables that the keys of model providers are in


def launch(settings: ServerSettings, around: Surrounding) -> Launch:
    """Return how a server is started in a workspace.

    Raises:
        ConfigError: Its settings refer to a variable that nobody has, or that it must not have.
    """

    def filled(text: str) -> str:
        return text if settings.literal else _VARIABLE.sub(lambda found: _value(settings, around, found), text)

    is_apart = not settings.cwd and not settings.of_project
    cwd = around.apart / settings.name if is_apart else around.root / Path(filled(settings.cwd)).expanduser()
    base = child_environment({"PATH": around.path} if around.path else {})
    if settings.of_project:
        base["PYTHONSAFEPATH"] = "1"  # modules that merely lie there are no part of what was trusted
    return Launch(
        name=settings.name,
        command=settings.command if settings.literal else tuple(_home(filled(word)) for word in settings.command),
        env=tuple((name, filled(value)) for name, value in settings.env),
        cwd=cwd,
        is_apart=is_apart,
        root=around.root,
        url=filled(settings.url),
        headers=tuple((name, filled(value)) for name, value in settings.headers),
        call_s=settings.call_s,
        start_s=settings.start_s,
        base=base,
    )


def make_apart(directory: Path) -> None:
    """Make the directory in which a server runs that has none of the user's; blocks.

    Its files have npm and uv look for nothing in the directories above it. Raises ``OSError``.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, text in _ENDS_SEARCH.items():
        (directory / name).write_text(text)


def at_root(text: str, root: Path) -> str:
    """Return ``text`` with the workspace in the place of its names, and all else as it is written."""
    return _VARIABLE.sub(lambda found: str(root) if found[1] in _ROOT else found[0], text)


def _value(settings: ServerSettings, around: Surrounding, found: re.Match[str]) -> str:
    name, otherwise = found[1], found[2]
    if name in _ROOT:
        return str(around.root)
    if name in around.keys or _PROVIDERS.fullmatch(name):
        raise ConfigError(
            f"{settings.source}: the MCP server {settings.name} wants ${{{name}}}, which is not given to servers",
            mend="Keep what a server needs in a variable of its own",
        )
    value = around.variable(name) or otherwise
    if value is None:
        raise ConfigError(
            f"{settings.source}: the MCP server {settings.name} needs the variable {name}, which is not set",
            mend=f"Set {name} where the daemon is started, then: pyagentd stop",
        )
    conceal(value)
    return value


def _home(word: str) -> str:
    return str(Path(word).expanduser()) if word.startswith("~/") else word
