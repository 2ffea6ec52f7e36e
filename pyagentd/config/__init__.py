"""The user's configuration, and the source of each value.

Three sources, later ones win: the defaults below, ``config.toml`` in the user's configuration directory, environment
variables. A value carries its source so that ``pyagentd config show`` can answer "why". Nothing here holds a secret:
a backend names the *variable* its key is in. docs/configuration.md shows a file.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyagentd import door
from pyagentd.errors import ConfigError

if TYPE_CHECKING:
    from pyagentd.config.loading import Config, load_config
    from pyagentd.config.tables import BUILTIN_PROFILES, BackendSettings, Confinement, ProfileSettings
else:  # a command that only asks the daemon has no file read
    __getattr__ = door(
        __name__,
        "loading",
        "tables",
        Config="loading",
        load_config="loading",
        BUILTIN_PROFILES="tables",
        BackendSettings="tables",
        Confinement="tables",
        ProfileSettings="tables",
    )

__all__ = [
    "BUILTIN_PROFILES",
    "BackendSettings",
    "Config",
    "Confinement",
    "Environment",
    "ProfileSettings",
    "Setting",
    "config_file",
    "default_agents_dir",
    "load_config",
    "runtime_dir",
    "sessions_dir",
]

# Where this user's sessions, socket and configuration are.

Environment = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Setting:
    """One configured value."""

    value: str
    source: str  # "default", "environment NAME" or "FILE:LINE"


def config_file(env: Environment | None = None) -> Path:
    """Return the path of the user's configuration file, which need not exist."""
    from platformdirs import user_config_path  # a command that only asks the daemon does without

    named = (os.environ if env is None else env).get("PYAGENTD_CONFIG")
    return absolute(named) if named else user_config_path("pyagentd", appauthor=False) / "config.toml"


def sessions_dir(env: Environment | None = None) -> Path:
    """Return the sessions root: ``PYAGENTD_SESSIONS_DIR`` or ``~/.gptel/sessions``."""
    return Path(sessions_setting(os.environ if env is None else env).value)


def default_agents_dir(env: Environment | None = None) -> Path:
    """Return the default directory of named agents, beside the sessions; ``[agents] dir`` overrides it."""
    env = os.environ if env is None else env
    sessions = Path(sessions_setting(env).value)
    return Path(f"{sessions}-agents") if env.get("PYAGENTD_SESSIONS_DIR") else sessions.parent / "agents"


def runtime_dir(env: Environment | None = None) -> Path:
    """Return the directory of socket, runtime file, lock and log; Emacs computes the same."""
    return Path(runtime_setting(os.environ if env is None else env).value)


def sessions_setting(env: Environment) -> Setting:
    """Return the sessions root with its source."""
    if value := env.get("PYAGENTD_SESSIONS_DIR"):
        if any("\ud800" <= each <= "\udfff" for each in value):  # bytes that are no text
            hint = "Name a directory in UTF-8: clients are told it as text"
            raise ConfigError(f"environment PYAGENTD_SESSIONS_DIR: {value!r} is not UTF-8", hint=hint)
        return Setting(str(absolute(value)), "environment PYAGENTD_SESSIONS_DIR")
    return Setting(str(absolute("~/.gptel/sessions")), "default")


def runtime_setting(env: Environment) -> Setting:
    """Return the runtime directory with its source."""
    if value := env.get("PYAGENTD_RUNTIME_DIR"):
        return Setting(str(absolute(value)), "environment PYAGENTD_RUNTIME_DIR")
    if value := env.get("XDG_RUNTIME_DIR"):
        return Setting(str(absolute(value) / "pyagentd"), "environment XDG_RUNTIME_DIR")
    state = env.get("XDG_STATE_HOME")
    source = "environment XDG_STATE_HOME" if state else "default"
    return Setting(str(absolute(state or "~/.local/state") / "pyagentd" / "run"), source)


def absolute(path: str, base: Path | None = None) -> Path:
    """Return ``path`` with ``~`` expanded, from ``base`` (the working directory) on.

    Raises:
        ConfigError: It names the home of an unknown user, or has a zero byte.
    """
    if "\0" in path:
        raise ConfigError(f"{path!r} is not a path: it has a zero byte", hint="Write it without")
    try:
        place = Path(path).expanduser()
    except RuntimeError:
        raise ConfigError(f"{path!r} begins with the home of a user who is not there", hint="Write ~/ or /") from None
    return place if place.is_absolute() else (base or Path.cwd()) / place
