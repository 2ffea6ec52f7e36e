"""Where this user's sessions, socket and configuration are."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_config_path

Environment = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Setting:
    """One configured value."""

    value: str
    source: str  # "default", "environment NAME" or "FILE:LINE"


def sessions_dir(env: Environment | None = None) -> Path:
    """Return the sessions root: ``PYAGENTD_SESSIONS_DIR`` or ``~/.gptel/sessions``."""
    return Path(sessions_setting(os.environ if env is None else env).value)


def runtime_dir(env: Environment | None = None) -> Path:
    """Return the directory of socket, runtime file, lock and log; Emacs computes the same."""
    return Path(runtime_setting(os.environ if env is None else env).value)


def config_file(env: Environment | None = None) -> Path:
    """Return where the user's configuration is read from, whether or not it exists."""
    named = (os.environ if env is None else env).get("PYAGENTD_CONFIG")
    return absolute(named) if named else user_config_path("pyagentd", appauthor=False) / "config.toml"


def sessions_setting(env: Environment) -> Setting:
    """Return the sessions root, with where it is from."""
    if value := env.get("PYAGENTD_SESSIONS_DIR"):
        return Setting(str(absolute(value)), "environment PYAGENTD_SESSIONS_DIR")
    return Setting(str(absolute("~/.gptel/sessions")), "default")


def runtime_setting(env: Environment) -> Setting:
    """Return the runtime directory, with where it is from."""
    if value := env.get("PYAGENTD_RUNTIME_DIR"):
        return Setting(str(absolute(value)), "environment PYAGENTD_RUNTIME_DIR")
    if value := env.get("XDG_RUNTIME_DIR"):
        return Setting(str(absolute(value) / "pyagentd"), "environment XDG_RUNTIME_DIR")
    state = env.get("XDG_STATE_HOME")
    source = "environment XDG_STATE_HOME" if state else "default"
    return Setting(str(absolute(state or "~/.local/state") / "pyagentd" / "run"), source)


def absolute(path: str, base: Path | None = None) -> Path:
    """Return ``path`` with ``~`` expanded, from ``base`` (the working directory) on."""
    return (base or Path.cwd()).joinpath(Path(path).expanduser())


# Where the user's own instructions and skills are.
#
# They are beside ``config.toml``, where Claude Code keeps them, and wherever ``[skills] paths`` says.


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPlaces:
    """Places of the user's own; none of them need exist."""

    instructions: tuple[Path, ...] = ()  # files; the first that exists counts
    skills: tuple[Path, ...] = ()  # directories of the user's skills
    more_skills: tuple[Path, ...] = ()  # those that the configuration names


def own_places(directory: Path, skills: Iterable[str], env: Environment) -> OwnPlaces:
    """Return the places for a process with this environment.

    Args:
        directory: Where ``config.toml`` is.
        skills: What ``[skills] paths`` says.
        env: The environment.
    """
    home = env.get("HOME")
    claude = (Path(home) / ".claude",) if home else ()
    return OwnPlaces(
        instructions=(directory / "AGENTS.md", *(each / "CLAUDE.md" for each in claude)),
        skills=(directory / "skills", *(each / "skills" for each in claude)),
        more_skills=tuple(absolute(text, directory) for text in skills),
    )
