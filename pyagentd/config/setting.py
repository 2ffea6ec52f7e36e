"""One configured value, and how the first of its three sources is found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyagentd.config.file import ConfigFile

Environment = Mapping[str, str]


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
