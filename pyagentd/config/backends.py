"""How providers of models are reached: the tables ``[backend.NAME]`` of ``config.toml``, and built-in ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pyagentd.config.file import ConfigFile
from pyagentd.config.setting import Environment, Setting
from pyagentd.errors import ConfigError

BACKEND_KINDS = ("anthropic", "offline")

_BACKEND_KEYS = frozenset({"kind", "base_url", "key_env", "model"})


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSettings:
    """How to reach one provider of models."""

    name: str
    kind: str  # one of BACKEND_KINDS
    base_url: str | None = None
    key_env: str | None = None  # the environment variable that holds the key
    model: str | None = None  # used where a preset names none


def backend_tables(file: ConfigFile, env: Environment) -> tuple[dict[str, BackendSettings], dict[str, Setting]]:
    """Return the built-in backends and those of the file, and every value with where it is from, by its dotted name.

    Raises:
        ConfigError: A key or a value is not possible; names file and line.
    """
    backends: dict[str, BackendSettings] = {}
    shown: dict[str, Setting] = {}
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
        if (url := env.get("ANTHROPIC_BASE_URL")) and takes_address_from_environment(made):
            values["base_url"] = Setting(url, "environment ANTHROPIC_BASE_URL")
            made = replace(made, base_url=url)
        shown |= {f"backend.{name}.{key}": setting for key, setting in values.items()}
        backends[name] = made
    return backends, shown


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


def takes_address_from_environment(backend: BackendSettings) -> bool:
    """Return whether ``ANTHROPIC_BASE_URL`` is meant for it."""
    # A backend the user gave an address of its own must not be redirected by a variable meant for another.
    return backend.kind == "anthropic" and (backend.name == "anthropic" or backend.base_url is None)
