"""What the user configured, and where each value came from.

Three sources, later ones win: the defaults below, ``config.toml`` in the user's configuration directory, environment
variables. A value carries its source so that ``pyagentd config show`` can answer "why". Nothing here holds a secret:
a backend names the *variable* its key is in. A file looks like this::

    [log]
    level = "info"                          # debug, info, warning, error

    [presets]
    dir = "~/agents/presets"

    [titles]
    enabled = true                          # ask the model for a title after a session's first turn
    model = "claude-haiku-4-5"              # of the run's backend; without it, the run's model

    [shell]
    confinement = "auto"                    # of commands: auto, bubblewrap, landlock, off

    [skills]
    paths = ["~/agents/skills"]             # directories of skills, beside those of project and user

    [web]                                   # see docs/tools.md
    search = "brave"                        # who searches for agents: searxng, brave, tavily
    key_env = "BRAVE_API_KEY"
    allow_private = false                   # may they fetch from private addresses

    [compaction]                            # see docs/context.md
    model = "claude-haiku-4-5"              # who summarises; without it, the run's model
    tail_turns = 2                          # of the user's, which stay as they are

    [backend.local]
    kind = "anthropic"                      # anthropic or offline
    base_url = "http://127.0.0.1:11434"
    key_env = "LOCAL_KEY"
    model = "qwen3"

    [model."qwen3"]                         # what is shown and when to compact; overrides the shipped table
    context_window = 128_000                # tokens, as is max_output
    input = 0.2                             # US dollars per million tokens; output, cache_read, cache_write too
    output = 0.6

    [profile.docs]                          # which actions an agent may take; presets name it: profile: docs
    allow = ["tool:view:.*", "tool:(create_file|str_replace):docs/.*"]
    ask = ["tool:bash:.*"]                  # what neither matches is denied

    [triggers]
    per_day = 200                           # turns that nobody began; per_minute (10) of one source to one session

    [[hooks.tool.before]]                   # programs that are asked; see docs/hooks.md
    command = ["~/bin/check-call"]
    timeout = 10
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from platformdirs import user_config_path

from pyagentd.configcompaction import COMPACTION_KEYS, CompactionSettings, compaction_table
from pyagentd.configfile import ConfigFile
from pyagentd.configmodels import ModelSettings, model_tables
from pyagentd.configplaces import KEYS as SKILLS_KEYS
from pyagentd.configplaces import OwnPlaces, own_places
from pyagentd.configtriggers import TRIGGER_KEYS, TriggerSettings, trigger_table
from pyagentd.configweb import WEB_KEYS, WebSettings, web_table
from pyagentd.errors import ConfigError
from pyagentd.hooksettings import HookSettings, read_hooks

Confinement = Literal["auto", "bubblewrap", "landlock", "off"]

CONFINEMENTS: tuple[Confinement, ...] = ("auto", "bubblewrap", "landlock", "off")
LOG_LEVELS = ("debug", "info", "warning", "error")
BACKEND_KINDS = ("anthropic", "offline")

BUILTIN_PROFILES = ("open", "standard", "locked")

_PROFILE_KEYS = frozenset({"allow", "ask"})
_BACKEND_KEYS = frozenset({"kind", "base_url", "key_env", "model"})
_TABLES: Mapping[str, frozenset[str] | None] = {  # None: names are the user's
    "log": frozenset({"level"}),
    "presets": frozenset({"dir"}),
    "titles": frozenset({"enabled", "model"}),
    "shell": frozenset({"confinement"}),
    "compaction": COMPACTION_KEYS,
    "web": WEB_KEYS,
    "skills": SKILLS_KEYS,
    "triggers": TRIGGER_KEYS,
    "backend": None,
    "model": None,
    "profile": None,
    "hooks": None,
}

_SWITCH: Mapping[str, bool] = {"on": True, "off": False, "true": True, "false": False, "1": True, "0": False}
_ALIASES: Mapping[str, str] = {"claude": "anthropic"}  # gptel's name, which presets written for it use

Environment = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Setting:
    """One configured value."""

    value: str
    source: str  # "default", "environment NAME" or "FILE:LINE"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSettings:
    """How to reach one provider of models."""

    name: str
    kind: str  # one of BACKEND_KINDS
    base_url: str | None = None
    key_env: str | None = None  # the environment variable that holds the key
    model: str | None = None  # used where a preset names none


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSettings:
    """Which actions an agent may take: regular expressions, each valid."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The effective configuration of this process."""

    file: Path  # may not exist
    sessions_dir: Path
    runtime_dir: Path
    presets_dir: Path
    log_level: str
    titles: bool  # whether a model is asked for the title of a session
    titles_model: str | None  # which one, of the run's backend; None: the run's
    confinement: Confinement  # of commands, on this machine
    compaction: CompactionSettings
    backend_override: str | None  # backend of every preset, whatever it names
    backends: Mapping[str, BackendSettings]
    profiles: Mapping[str, ProfileSettings]
    hooks: tuple[HookSettings, ...]  # programs that are asked, in their order
    models: Mapping[str, ModelSettings]
    web: WebSettings
    own: OwnPlaces  # the user's instructions and skills
    triggers: TriggerSettings
    settings: Mapping[str, Setting] = field(repr=False)  # dotted name -> value and source, for display

    def backend(self, name: str, env: Environment | None = None) -> BackendSettings:
        """Return the settings of backend ``name`` as a client with environment ``env`` means them.

        Args:
            name: As in the configuration; another case will do, and ``Claude`` is ``anthropic``.
            env: The client's variables; when it sent any, those of this process do not count.

        Raises:
            ConfigError: No backend has that name; the message lists those that exist.
        """
        folded = {known.casefold(): settings for known, settings in self.backends.items()}
        key = name.casefold()
        known = self.backends.get(name) or folded.get(key) or folded.get(_ALIASES.get(key, key))
        if known is None:
            raise ConfigError(
                f"No backend is called {name!r}; known: {', '.join(sorted(self.backends))}",
                mend=f"Add [backend.{name}] to {self.file}, which the daemon reads when it starts (pyagentd stop)",
            )
        if not env:
            return known
        if self._is_from_environment(f"backend.{known.name}.base_url"):
            known = replace(known, base_url=None)
        url = env.get("ANTHROPIC_BASE_URL")
        return replace(known, base_url=url) if url and _url_from_environment(known) else known

    def _is_from_environment(self, setting: str) -> bool:
        return setting in self.settings and self.settings[setting].source.startswith("environment ")


def sessions_dir(env: Environment | None = None) -> Path:
    """Return the sessions root: ``PYAGENTD_SESSIONS_DIR`` or ``~/.gptel/sessions`` (SPEC 001)."""
    return Path(_sessions_dir(os.environ if env is None else env).value)


def runtime_dir(env: Environment | None = None) -> Path:
    """Return the directory of socket, runtime file, lock and log; Emacs computes the same."""
    return Path(_runtime_dir(os.environ if env is None else env).value)


def config_file(env: Environment | None = None) -> Path:
    """Return where the user's configuration is read from, whether or not it exists."""
    named = (os.environ if env is None else env).get("PYAGENTD_CONFIG")
    return _absolute(named) if named else user_config_path("pyagentd", appauthor=False) / "config.toml"


def load_config(env: Environment | None = None) -> Config:
    """Read file and environment into one ``Config``.

    Raises:
        ConfigError: The file cannot be read or a value is not possible; names file and line, or the variable.
    """
    env = os.environ if env is None else env
    file = ConfigFile.read(config_file(env), _TABLES)
    presets = _pick(file, env, "presets.dir", "PYAGENTD_PRESETS_DIR", str(file.path.parent / "presets"))
    level = _pick(file, env, "log.level", "PYAGENTD_LOG_LEVEL", "info")
    if level.value not in LOG_LEVELS:
        raise ConfigError(f"{level.source}: log level is {level.value!r}, not one of {', '.join(LOG_LEVELS)}")
    confinement = _pick(file, env, "shell.confinement", "PYAGENTD_CONFINEMENT", "auto")
    confined = next((known for known in CONFINEMENTS if known == confinement.value), None)
    if confined is None:
        known = ", ".join(CONFINEMENTS)
        raise ConfigError(f"{confinement.source}: confinement is {confinement.value!r}, not one of {known}")
    override = env.get("PYAGENTD_BACKEND") or None
    titles, titles_model = _titles(file, env), _pick(file, env, "titles.model", "PYAGENTD_TITLES_MODEL", "")
    settings = {
        "sessions_dir": _sessions_dir(env),
        "runtime_dir": _runtime_dir(env),
        "presets.dir": replace(presets, value=str(_absolute(presets.value, file.path.parent))),
        "log.level": level,
        "titles.enabled": titles,
        "titles.model": titles_model,
        "shell.confinement": confinement,
        "backend": Setting(override, "environment PYAGENTD_BACKEND") if override else Setting("", "default"),
    }
    compaction, shown = compaction_table(file)
    settings |= {dotted: Setting(*value) for dotted, value in shown.items()}
    triggers, shown = trigger_table(file)
    settings |= {dotted: Setting(*value) for dotted, value in shown.items()}
    backends = dict(_backends(file, env, settings))
    return Config(
        file=file.path,
        sessions_dir=Path(settings["sessions_dir"].value),
        runtime_dir=Path(settings["runtime_dir"].value),
        presets_dir=Path(settings["presets.dir"].value),
        log_level=level.value,
        titles=_SWITCH[titles.value],
        titles_model=titles_model.value or None,
        confinement=confined,
        compaction=compaction,
        backend_override=override,
        backends=backends,
        profiles=dict(_profiles(file, settings)),
        hooks=read_hooks(file.data.get("hooks", {}), file.place, "hooks."),
        own=own_places(file, env),
        triggers=triggers,
        models=dict(_models(file, settings)),
        web=web_table(file),
        settings=settings,
    )


def _pick(file: ConfigFile, env: Environment, dotted: str, variable: str, default: str) -> Setting:
    if value := env.get(variable):
        return Setting(value, f"environment {variable}")
    if (value := file.string(dotted)) is not None:
        return Setting(value, file.place(dotted))
    return Setting(default, "default")


def _titles(file: ConfigFile, env: Environment) -> Setting:
    """Return whether titles are made, "on" or "off"."""
    if value := env.get("PYAGENTD_TITLES"):
        if value.lower() not in _SWITCH:
            raise ConfigError(f"environment PYAGENTD_TITLES: {value!r} is not on or off")
        return Setting("on" if _SWITCH[value.lower()] else "off", "environment PYAGENTD_TITLES")
    if (flag := file.flag("titles.enabled")) is not None:
        return Setting("on" if flag else "off", file.place("titles.enabled"))
    return Setting("on", "default")


def _sessions_dir(env: Environment) -> Setting:
    if value := env.get("PYAGENTD_SESSIONS_DIR"):
        return Setting(str(_absolute(value)), "environment PYAGENTD_SESSIONS_DIR")
    return Setting(str(_absolute("~/.gptel/sessions")), "default")


def _runtime_dir(env: Environment) -> Setting:
    if value := env.get("PYAGENTD_RUNTIME_DIR"):
        return Setting(str(_absolute(value)), "environment PYAGENTD_RUNTIME_DIR")
    if value := env.get("XDG_RUNTIME_DIR"):
        return Setting(str(_absolute(value) / "pyagentd"), "environment XDG_RUNTIME_DIR")
    state = env.get("XDG_STATE_HOME")
    source = "environment XDG_STATE_HOME" if state else "default"
    return Setting(str(_absolute(state or "~/.local/state") / "pyagentd" / "run"), source)


def _backends(
    file: ConfigFile, env: Environment, settings: dict[str, Setting]
) -> Iterator[tuple[str, BackendSettings]]:
    """Yield the built-in backends and those of the file, noting every value's source in ``settings``."""
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
        if (url := env.get("ANTHROPIC_BASE_URL")) and _url_from_environment(made):
            values["base_url"] = Setting(url, "environment ANTHROPIC_BASE_URL")
            made = replace(made, base_url=url)
        settings.update({f"backend.{name}.{key}": setting for key, setting in values.items()})
        yield name, made


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


def _profiles(file: ConfigFile, settings: dict[str, Setting]) -> Iterator[tuple[str, ProfileSettings]]:
    """Yield the user's profiles, noting their sources in ``settings``."""
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
            settings[f"{prefix}.{key}"] = Setting(", ".join(texts), file.place(f"{prefix}.{key}"))
        yield name, ProfileSettings(**lists)


def _models(file: ConfigFile, settings: dict[str, Setting]) -> Iterator[tuple[str, ModelSettings]]:
    """Yield what the file states of models, noting every value's source in ``settings``."""
    for name, model, shown in model_tables(file):
        settings.update({dotted: Setting(value, place) for dotted, (value, place) in shown.items()})
        yield name, model


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


def _url_from_environment(backend: BackendSettings) -> bool:
    # A backend the user gave an address of its own must not be redirected by a variable meant for another.
    return backend.kind == "anthropic" and (backend.name == "anthropic" or backend.base_url is None)


def _absolute(path: str, base: Path | None = None) -> Path:
    return (base or Path.cwd()).joinpath(Path(path).expanduser())
