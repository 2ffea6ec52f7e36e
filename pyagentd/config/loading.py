"""Reads the configuration: ``config.toml`` and the environment, once when a process starts."""

import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from pyagentd import reader, regularfile
from pyagentd.config import (
    Environment,
    Setting,
    absolute,
    config_file,
    default_agents_dir,
    runtime_setting,
    sessions_setting,
)
from pyagentd.config.tables import (
    SERVICES,
    BackendSettings,
    HookSettings,
    ServerSettings,
    Tables,
    read_hooks,
    read_server,
)
from pyagentd.errors import ConfigError
from pyagentd.reader import Source

# Where the user's own instructions and skills are.
#
# They are beside ``config.toml``, where Claude Code keeps them, and wherever ``[skills] paths`` says.


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPlaces:
    """The user's own directories and files; none of them need exist."""

    instructions: tuple[Path, ...] = ()  # files; the first that exists counts
    skills: tuple[Path, ...] = ()  # directories of the user's skills
    more_skills: tuple[Path, ...] = ()  # those that the configuration names


@dataclass(frozen=True, slots=True)
class TomlFile:
    """A parsed file that knows the line of each key."""

    path: Path
    text: str
    data: Mapping[str, Any]

    def place(self, path: reader.Path) -> str:
        """Return ``FILE:LINE`` of the value at ``path`` or of its parent; ``FILE`` if neither line is found."""
        line = reader.line_in_toml(self.text, path, reader.at(self.data, path))
        return str(self.path) if line is None else f"{self.path}:{line}"


def read_toml(path: Path, data: str | bytes) -> TomlFile:
    """Parse ``data``, the content of the file ``path``.

    Raises:
        ConfigError: It is not TOML in UTF-8, or nested too deeply; names file and line.
    """
    try:
        text = data if isinstance(data, str) else data.decode()
        return TomlFile(path, text, tomllib.loads(text))
    except RecursionError:
        raise ConfigError(f"{path}: it is nested too deeply") from None
    except tomllib.TOMLDecodeError as error:
        what, _, place = str(error).removesuffix(")").partition(" (at ")
        end = text.rstrip().count("\n") + 1
        line = place.split()[1].rstrip(",") if place.startswith("line ") else str(end)
        hint = 'Write a text in quotation marks, as in level = "info"' if what == "Invalid value" else ""
        raise ConfigError(f"{path}:{line}: {what}", hint=hint) from error
    except UnicodeDecodeError as error:
        line = str(error.object.count(b"\n", 0, error.start) + 1)
        raise ConfigError(f"{path}:{line}: this is not UTF-8", hint="Save the file in UTF-8") from error
    except ValueError as error:  # a number of thousands of digits
        raise ConfigError(f"{path}: cannot be read ({error})") from error


def read_config_file(path: Path) -> TomlFile:
    """Return the file at ``path``, an empty one when there is none; raises ``ConfigError``."""
    try:
        return read_toml(path, regularfile.read_bytes(path, links=True))
    except FileNotFoundError:
        return TomlFile(path, "", {})
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror or error})") from error


# What file and environment say together.

_ALIASES: Mapping[str, str] = {  # gptel's names, which presets written for it use
    "claude": "anthropic",
    "chatgpt": "openai",
    "llama-cpp": "llama.cpp",
    "llamacpp": "llama.cpp",
    "lm studio": "lmstudio",
    "mistrallechat": "mistral",
}

_BUILTIN_BACKENDS: Mapping[str, Mapping[str, str]] = {
    "anthropic": {"kind": "anthropic", "key_env": "ANTHROPIC_API_KEY"},
    "offline": {"kind": "offline"},
}

_VARIABLES: Mapping[tuple[str, str], str] = {  # which win over the file
    ("presets", "dir"): "PYAGENTD_PRESETS_DIR",
    ("agents", "dir"): "PYAGENTD_AGENTS_DIR",
    ("agents", "template"): "PYAGENTD_AGENT_TEMPLATE",
    ("log", "level"): "PYAGENTD_LOG_LEVEL",
    ("privacy", "extra_requests"): "PYAGENTD_EXTRA_REQUESTS",
    ("titles", "enabled"): "PYAGENTD_TITLES",
    ("titles", "model"): "PYAGENTD_TITLES_MODEL",
    ("shell", "confinement"): "PYAGENTD_CONFINEMENT",
}
_SWITCHES = frozenset({("privacy", "extra_requests"), ("titles", "enabled")})
_SWITCH: Mapping[str, bool] = {"on": True, "off": False, "true": True, "false": False, "1": True, "0": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(Tables):
    """The effective configuration of this process: file and environment, and values derived from them."""

    file: Path  # may not exist
    sessions_dir: Path
    runtime_dir: Path
    presets_dir: Path
    agents_dir: Path  # of named agents, each with a directory below it
    agent_template: Path | None  # what they are made from; None: what comes with the package
    backend_override: str | None  # backend of every preset, whatever it names
    hooks: tuple[HookSettings, ...]  # programs that are asked, in their order
    mcp: tuple[ServerSettings, ...]  # servers of tools, in their order
    mcp_problems: tuple[str, ...]  # what is wrong with others, which are left out
    own: OwnPlaces  # the user's instructions and skills
    settings: Mapping[str, Setting] = field(repr=False)  # dotted name -> value and source, for display

    def backend(self, name: str, env: Environment | None = None) -> BackendSettings:
        """Return the settings of backend ``name`` for a client with environment ``env``.

        Args:
            name: As in the configuration, in any case; ``Claude`` means ``anthropic``.
            env: The client's variables; if it sent any, they replace those of this process.

        Raises:
            ConfigError: No backend has that name; the message lists those that exist.
        """
        folded = {each.casefold(): settings for each, settings in self.backends.items()}
        alias = _ALIASES.get(name.casefold(), name.casefold())
        known = self.backends.get(name) or folded.get(name.casefold()) or folded.get(alias) or service(alias)
        if known is None:
            raise ConfigError(
                f"No backend is called {name!r}; known: {', '.join(sorted({*self.backends, *SERVICES}))}",
                hint=f"Add [backend.{name}] to {self.file}, which the daemon reads when it starts (pyagentd stop)",
            )
        if not env:
            return known
        address = self.settings.get(f"backend.{known.name}.base_url")
        if address is not None and address.source.startswith("environment "):
            known = replace(known, base_url=None)
        url = env.get("ANTHROPIC_BASE_URL")
        return replace(known, base_url=url) if url and known.takes_address_from_environment else known

    @property
    def key_variables(self) -> frozenset[str]:
        """The environment variables that hold keys of providers."""
        own = (each.key_env for each in self.backends.values())
        return frozenset(each for each in (*own, *(known.key_env for known in SERVICES.values())) if each)


def load_config(env: Environment | None = None) -> Config:
    """Read file and environment into one ``Config``.

    Raises:
        ConfigError: The file cannot be read or a value is not possible; names file and line, or the variable.
    """
    env = os.environ if env is None else env
    file = read_config_file(config_file(env))
    tables, source, variables = _read_tables(file, env)
    backends = {name: replace(each, name=name) for name, each in tables.backends.items()}
    if address := env.get("ANTHROPIC_BASE_URL"):
        for name, each in backends.items():
            if each.takes_address_from_environment:
                backends[name] = replace(each, base_url=address)
    mcp, mcp_problems = _servers(tables.server_tables, source)
    sessions, runtime, base = sessions_setting(env), runtime_setting(env), file.path.parent
    places = {
        "presets.dir": absolute(tables.presets.dir or "presets", base),
        "agents.dir": absolute(tables.agents.dir, base) if tables.agents.dir else default_agents_dir(env),
        "agents.template": absolute(tables.agents.template, base) if tables.agents.template else None,
    }
    override = env.get("PYAGENTD_BACKEND")
    claude = (Path(home) / ".claude",) if (home := env.get("HOME")) else ()

    def source_of(path: reader.Path) -> str:
        return variables.get(path) or (file.place(path) if reader.at(file.data, path) is not None else "default")

    settings = {
        "sessions_dir": sessions,
        "runtime_dir": runtime,
        "backend": Setting(override, "environment PYAGENTD_BACKEND") if override else Setting("", "default"),
        **{reader.dotted_path(path): Setting(text, source_of(path)) for path, text in _leaves(tables)},
        **{f"mcp.{each.name}": Setting(each.url or " ".join(each.command), each.source) for each in mcp},
    }
    for name, place in places.items():
        settings[name] = replace(settings[name], value=str(place or ""))
    for name, made in backends.items():
        if made.base_url != tables.backends[name].base_url:
            settings[f"backend.{name}.base_url"] = Setting(made.base_url or "", "environment ANTHROPIC_BASE_URL")
    if not tables.privacy.extra_requests:
        tables = replace(
            tables,
            titles=replace(tables.titles, enabled=False),
            compaction=replace(tables.compaction, auto=False),
        )
        withheld = Setting("false", settings["privacy.extra_requests"].source)
        settings |= {"titles.enabled": withheld, "compaction.auto": withheld}
    return Config(
        **{each.name: getattr(tables, each.name) for each in fields(Tables)} | {"backends": backends},
        file=file.path,
        sessions_dir=Path(sessions.value),
        runtime_dir=Path(runtime.value),
        presets_dir=Path(settings["presets.dir"].value),
        agents_dir=Path(settings["agents.dir"].value),
        agent_template=places["agents.template"],
        backend_override=override or None,
        hooks=read_hooks(tables.hook_tables, source, ("hooks",)),
        mcp=mcp,
        mcp_problems=mcp_problems,
        own=OwnPlaces(
            instructions=(base / "AGENTS.md", *(each / "CLAUDE.md" for each in claude)),
            skills=(base / "skills", *(each / "skills" for each in claude)),
            more_skills=tuple(absolute(text, base) for text in tables.skills.paths),
        ),
        settings=settings,
    )


def check_config(file: TomlFile) -> None:
    """Check a file as the configuration, without the environment; raises as ``load_config``."""
    _read_tables(file, {})


def _read_tables(file: TomlFile, env: Environment) -> tuple[Tables, Source, Mapping[reader.Path, str]]:
    """Return the tables of file and environment, their source, and the variables that set values, by path."""
    data, variables = _with_environment(file, env)
    source = Source(place=lambda path: variables.get(path) or file.place(path), error=ConfigError)
    tables = reader.read(data, Tables, source)
    default = tables.default.backend
    named = _ALIASES.get(default.casefold(), default)
    if default and named not in tables.backends and service(named.casefold()) is None:
        known = ", ".join(sorted({*tables.backends, *SERVICES}))
        raise source.wrong(("default", "backend"), f"no backend is called {default!r}; known: {known}")
    return tables, source, variables


def _with_environment(file: TomlFile, env: Environment) -> tuple[dict[str, Any], dict[reader.Path, str]]:
    """Return the values of file, variables and built-in backends, and the variables that set values, by path."""
    data: dict[str, Any] = dict(file.data)
    sources: dict[reader.Path, str] = {}
    for (table, key), variable in _VARIABLES.items():
        if (value := env.get(variable)) and isinstance(data.setdefault(table, {}), dict):
            switched = _SWITCH.get(value.lower(), value) if (table, key) in _SWITCHES else value
            data[table] = {**data[table], key: switched}
            sources[table, key] = f"environment {variable}"
    backends = data.get("backend", {})
    if isinstance(backends, dict):
        backends = {name: _of_service(values) for name, values in backends.items()}
        builtin = {
            name: {**values, **backends.get(name, {})}
            for name, values in _BUILTIN_BACKENDS.items()
            if isinstance(backends.get(name, {}), dict)
        }
        data["backend"] = {**builtin, **{name: each for name, each in backends.items() if name not in builtin}}
    return data, sources


def _of_service(values: Any) -> Any:
    """Return a table with the defaults of its kind in ``SERVICES``, if it is one; the table's own keys win."""
    kind = values.get("kind") if isinstance(values, dict) else None
    if (known := service(kind) if isinstance(kind, str) else None) is None:
        return values
    where = {} if known.base_url is None else {"base_url": known.base_url}
    if "base_url" not in values and known.key_env is not None:  # a key is for the provider's own server
        where["key_env"] = known.key_env
    return {**where, **values, "kind": known.kind}


def service(name: str) -> BackendSettings | None:
    """Return the settings of a provider in ``SERVICES`` that is not configured; None if there is no such name."""
    if (known := SERVICES.get(name)) is None:
        return None
    return BackendSettings(name=name, kind=known.kind, base_url=known.base_url, key_env=known.key_env)


def _servers(tables: Mapping[str, object], source: Source) -> tuple[tuple[ServerSettings, ...], tuple[str, ...]]:
    """Return the servers of tools, and the errors of those that cannot be used, which do not affect the others."""
    servers, problems = [], []
    for name, table in tables.items():
        try:
            servers.append(read_server(name, table, source, ("mcp", name)))
        except ConfigError as error:
            problems.append(str(error))
    return tuple(servers), tuple(problems)


def _leaves(value: Any, path: reader.Path = ()) -> Iterator[tuple[reader.Path, str]]:
    """Yield every value of the tables with its path, for display."""
    if is_dataclass(value):
        for name, key in reader.keys_by_field(type(value)).items():
            if path or key not in ("hooks", "mcp"):
                yield from _leaves(getattr(value, name), (*path, key))
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from _leaves(each, (*path, name))
    elif isinstance(value, bool):
        yield path, str(value).lower()
    elif value is not None:
        yield path, ", ".join(value) if isinstance(value, tuple) else str(value)
