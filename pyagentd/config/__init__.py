"""What the user configured, and where each value came from.

Three sources, later ones win: the defaults below, ``config.toml`` in the user's configuration directory, environment
variables. A value carries its source so that ``pyagentd config show`` can answer "why". Nothing here holds a secret:
a backend names the *variable* its key is in. A file looks like this::

    [log]
    level = "info"                          # debug, info, warning, error

    [presets]
    dir = "~/agents/presets"

    [agents]                                # see docs/named-agents.md
    dir = "~/agents/named"                  # of named agents; without it, beside the sessions
    template = "~/agents/template"          # what a named agent is made from

    [privacy]                               # see docs/privacy.md
    extra_requests = true                   # requests that nobody typed: for titles and summaries

    [titles]
    enabled = true                          # ask the model for a title after a session's first turn
    model = "anthropic/claude-haiku-4-5"    # where this backend serves; else, and without it, the run's model

    [shell]
    confinement = "auto"                    # of commands: auto, bubblewrap, landlock, off

    [skills]
    paths = ["~/agents/skills"]             # directories of skills, beside those of project and user

    [web]                                   # see docs/tools.md
    search = "brave"                        # who searches for agents: searxng, brave, tavily
    key_env = "BRAVE_API_KEY"
    allow_private = false                   # may they fetch from private addresses

    [compaction]                            # see docs/context.md
    model = "anthropic/claude-haiku-4-5"    # who summarises where this backend serves; else the run's model
    tail_turns = 2                          # of the user's, which stay as they are

    [backend.local]
    kind = "anthropic"                      # anthropic, openai-compatible, offline, or one of docs/models.md
    base_url = "http://127.0.0.1:11434"
    key_env = "LOCAL_KEY"
    model = "qwen3"                         # what answers there, where nobody names another

    [default]                               # of what is made from a shipped preset, in place of what that names
    backend = "local"
    model = "qwen3"                         # without it, the backend's

    [model."qwen3"]                         # what is shown and when to compact; overrides the shipped table
    context_window = 128_000                # tokens, as is max_output
    input = 0.2                             # US dollars per million tokens; output, cache_read, cache_write too
    output = 0.6

    [profile.docs]                          # which actions an agent may take; presets name it: profile: docs
    allow = ["tool:view:.*", "tool:(create_file|str_replace):docs/.*"]
    ask = ["tool:bash:.*"]                  # what neither matches is denied

    [triggers]
    per_day = 200                           # turns without a person; per_minute (10) of one source to one session

    [telemetry]                             # see docs/observability.md
    enabled = true                          # send spans and numbers to an OpenTelemetry collector
    endpoint = "http://localhost:4318"
    capture_content = false                 # texts of messages and tools, too

    [[hooks.tool.before]]                   # programs that are asked; see docs/hooks.md
    command = ["~/bin/check-call"]
    timeout = 10

    [mcp.tracker]                           # servers of tools; see docs/mcp.md
    url = "https://tracker.example.org/mcp"
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyagentd.door import door

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
    """Return where the user's configuration is read from, whether or not it exists."""
    from platformdirs import user_config_path  # a command that only asks the daemon does without

    named = (os.environ if env is None else env).get("PYAGENTD_CONFIG")
    return absolute(named) if named else user_config_path("pyagentd", appauthor=False) / "config.toml"


def sessions_dir(env: Environment | None = None) -> Path:
    """Return the sessions root: ``PYAGENTD_SESSIONS_DIR`` or ``~/.gptel/sessions``."""
    return Path(sessions_setting(os.environ if env is None else env).value)


def default_agents_dir(env: Environment | None = None) -> Path:
    """Return where named agents are, unless ``[agents] dir`` says otherwise: beside the sessions."""
    env = os.environ if env is None else env
    sessions = Path(sessions_setting(env).value)
    return Path(f"{sessions}-agents") if env.get("PYAGENTD_SESSIONS_DIR") else sessions.parent / "agents"


def runtime_dir(env: Environment | None = None) -> Path:
    """Return the directory of socket, runtime file, lock and log; Emacs computes the same."""
    return Path(runtime_setting(os.environ if env is None else env).value)


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
