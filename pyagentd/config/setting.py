"""One configured value, and how the first of its three sources is found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyagentd.config.file import ConfigFile
from pyagentd.errors import ConfigError

Environment = Mapping[str, str]

SWITCH: Mapping[str, bool] = {"on": True, "off": False, "true": True, "false": False, "1": True, "0": False}


@dataclass(frozen=True, slots=True)
class Setting:
    """One configured value."""

    value: str
    source: str  # "default", "environment NAME" or "FILE:LINE"


def picked(file: ConfigFile, env: Environment, dotted: str, variable: str, default: str) -> Setting:
    """Return the value at ``table.key``: of the variable, else of the file, else the default."""
    if value := env.get(variable):
        return Setting(value, f"environment {variable}")
    if (value := file.string(dotted)) is not None:
        return Setting(value, file.place(dotted))
    return Setting(default, "default")


def switched(file: ConfigFile, env: Environment, dotted: str, variable: str) -> Setting:
    """Return whether ``table.key`` is "on" or "off": by the variable, else the file, else on.

    Raises:
        ConfigError: The value is none of these; names file and line, or the variable.
    """
    if value := env.get(variable):
        if value.lower() not in SWITCH:
            raise ConfigError(f"environment {variable}: {value!r} is not on or off")
        return Setting("on" if SWITCH[value.lower()] else "off", f"environment {variable}")
    if (flag := file.flag(dotted)) is not None:
        return Setting("on" if flag else "off", file.place(dotted))
    return Setting("on", "default")
