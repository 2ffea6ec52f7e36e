"""The effective configuration: what file and environment say together, read once when a process starts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from pyagentd.config.file import SWITCH, ConfigFile, Environment, Setting, picked, switched
from pyagentd.config.locations import KEYS as SKILLS_KEYS
from pyagentd.config.locations import OwnPlaces, absolute, config_file, own_places, runtime_setting, sessions_setting
from pyagentd.config.tables import (
    COMPACTION_KEYS,
    PRIVACY_KEYS,
    TRIGGER_KEYS,
    WEB_KEYS,
    BackendSettings,
    CompactionSettings,
    HookSettings,
    ModelSettings,
    ProfileSettings,
    ServerSettings,
    TriggerSettings,
    WebSettings,
    backend_tables,
    by_hand,
    compaction_table,
    extra_requests,
    model_tables,
    profile_tables,
    read_hooks,
    read_server,
    takes_address_from_environment,
    trigger_table,
    web_table,
    withheld,
)
from pyagentd.errors import ConfigError

Confinement = Literal["auto", "bubblewrap", "landlock", "off"]

CONFINEMENTS: tuple[Confinement, ...] = ("auto", "bubblewrap", "landlock", "off")
LOG_LEVELS = ("debug", "info", "warning", "error")

_TABLES: Mapping[str, frozenset[str] | None] = {  # None: names are the user's
    "default": frozenset({"backend", "model"}),
    "log": frozenset({"level"}),
    "presets": frozenset({"dir"}),
    "agents": frozenset({"dir", "template"}),
    "privacy": PRIVACY_KEYS,
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
    "mcp": None,
}

_ALIASES: Mapping[str, str] = {"claude": "anthropic"}  # gptel's name, which presets written for it use


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The effective configuration of this process."""

    file: Path  # may not exist
    sessions_dir: Path
    runtime_dir: Path
    presets_dir: Path
    agents_dir: Path  # of named agents, each with a directory below it
    agent_template: Path | None  # what they are made from; None: what comes with the package
    log_level: str
    extra_requests: bool  # whether a model may be asked what nobody typed
    titles: bool  # whether a model is asked for the title of a session
    titles_model: str | None  # which one, of the run's backend; None: the run's
    confinement: Confinement  # of commands, on this machine
    compaction: CompactionSettings
    backend_override: str | None  # backend of every preset, whatever it names
    default_backend: str | None  # of what is made from a shipped preset; None: what the preset names
    default_model: str | None  # likewise; also for a preset of the default backend that names no model
    backends: Mapping[str, BackendSettings]
    profiles: Mapping[str, ProfileSettings]
    hooks: tuple[HookSettings, ...]  # programs that are asked, in their order
    mcp: tuple[ServerSettings, ...]  # servers of tools, in their order
    mcp_problems: tuple[str, ...]  # what is wrong with others, which are left out
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
        return replace(known, base_url=url) if url and takes_address_from_environment(known) else known

    def _is_from_environment(self, setting: str) -> bool:
        return setting in self.settings and self.settings[setting].source.startswith("environment ")


def load_config(env: Environment | None = None) -> Config:
    """Read file and environment into one ``Config``.

    Raises:
        ConfigError: The file cannot be read or a value is not possible; names file and line, or the variable.
    """
    env = os.environ if env is None else env
    file = ConfigFile.read(config_file(env), _TABLES)
    own = _own_settings(file, env)
    compaction, shown_compaction = compaction_table(file)
    triggers, shown_triggers = trigger_table(file)
    backends, shown_backends = backend_tables(file, env)
    profiles, shown_profiles = profile_tables(file)
    models, shown_models = model_tables(file)
    tables = file.data.get("mcp", {})
    mcp, mcp_problems = _servers(file, tables)
    shown_mcp = {f"mcp.{each.name}": Setting(each.url or " ".join(each.command), each.source) for each in mcp}
    extra = SWITCH[own["privacy.extra_requests"].value]
    settings = own | shown_compaction | shown_triggers | shown_backends | shown_profiles | shown_models | shown_mcp
    return Config(
        file=file.path,
        sessions_dir=Path(own["sessions_dir"].value),
        runtime_dir=Path(own["runtime_dir"].value),
        presets_dir=Path(own["presets.dir"].value),
        agents_dir=Path(own["agents.dir"].value),
        agent_template=Path(template) if (template := own["agents.template"].value) else None,
        log_level=own["log.level"].value,
        extra_requests=extra,
        titles=extra and SWITCH[own["titles.enabled"].value],
        titles_model=own["titles.model"].value or None,
        confinement=_confinement(own["shell.confinement"]),
        compaction=compaction if extra else by_hand(compaction),
        backend_override=own["backend"].value or None,
        default_backend=_default_backend(own["default.backend"], backends),
        default_model=own["default.model"].value or None,
        backends=backends,
        profiles=profiles,
        hooks=read_hooks(file.data.get("hooks", {}), file.place, "hooks."),
        mcp=mcp,
        mcp_problems=mcp_problems,
        own=own_places(file, env),
        triggers=triggers,
        models=models,
        web=web_table(file),
        settings=settings if extra else settings | withheld(own["privacy.extra_requests"]),
    )


def _own_settings(file: ConfigFile, env: Environment) -> dict[str, Setting]:
    """Return the values that are no table's of a subject, by their dotted names."""
    presets = picked(file, env, "presets.dir", "PYAGENTD_PRESETS_DIR", str(file.path.parent / "presets"))
    agents = picked(file, env, "agents.dir", "PYAGENTD_AGENTS_DIR", "")
    template = picked(file, env, "agents.template", "PYAGENTD_AGENT_TEMPLATE", "")
    level = picked(file, env, "log.level", "PYAGENTD_LOG_LEVEL", "info")
    if level.value not in LOG_LEVELS:
        raise ConfigError(f"{level.source}: log level is {level.value!r}, not one of {', '.join(LOG_LEVELS)}")
    override = env.get("PYAGENTD_BACKEND")
    sessions, base = sessions_setting(env), file.path.parent
    own = f"{sessions.value}-agents" if env.get("PYAGENTD_SESSIONS_DIR") else Path(sessions.value).parent / "agents"
    agents_dir = absolute(agents.value, base) if agents.value else Path(own)
    return {
        "sessions_dir": sessions,
        "runtime_dir": runtime_setting(env),
        "presets.dir": replace(presets, value=str(absolute(presets.value, base))),
        "agents.dir": replace(agents, value=str(agents_dir)),
        "agents.template": replace(template, value=str(absolute(template.value, base)) if template.value else ""),
        "log.level": level,
        "privacy.extra_requests": extra_requests(file, env),
        "titles.enabled": switched(file, env, "titles.enabled", "PYAGENTD_TITLES"),
        "titles.model": picked(file, env, "titles.model", "PYAGENTD_TITLES_MODEL", ""),
        "shell.confinement": picked(file, env, "shell.confinement", "PYAGENTD_CONFINEMENT", "auto"),
        "default.backend": _stated(file, "default.backend"),
        "default.model": _stated(file, "default.model"),
        "backend": Setting(override, "environment PYAGENTD_BACKEND") if override else Setting("", "default"),
    }


def _servers(file: ConfigFile, tables: Mapping[str, object]) -> tuple[tuple[ServerSettings, ...], tuple[str, ...]]:
    """Return the servers of tools, and what is wrong with those that cannot be used: one keeps no others away."""
    servers, problems = [], []
    for name, table in tables.items():
        try:
            servers.append(read_server(name, table, file.place(f"mcp.{name}")))
        except ConfigError as error:
            problems.append(str(error))
    return tuple(servers), tuple(problems)


def _stated(file: ConfigFile, dotted: str) -> Setting:
    value = (file.string(dotted) or "").strip()
    return Setting(value, file.place(dotted)) if value else Setting("", "default")


def _default_backend(setting: Setting, backends: Mapping[str, BackendSettings]) -> str | None:
    name = setting.value
    if name and _ALIASES.get(name.casefold(), name) not in backends:
        known = ", ".join(sorted(backends))
        raise ConfigError(f"{setting.source}: no backend is called {name!r}; known: {known}")
    return name or None


def _confinement(setting: Setting) -> Confinement:
    confinement = next((known for known in CONFINEMENTS if known == setting.value), None)
    if confinement is None:
        known = ", ".join(CONFINEMENTS)
        raise ConfigError(f"{setting.source}: confinement is {setting.value!r}, not one of {known}")
    return confinement
