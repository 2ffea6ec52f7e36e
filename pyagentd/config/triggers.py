"""How many turns may begin by themselves: the table ``[triggers]`` of ``config.toml`` (neighbours B.7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from pyagentd.config.file import ConfigFile
from pyagentd.config.setting import Setting
from pyagentd.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerSettings:
    """Limits of deliveries.

    Attributes:
        per_minute: Of one source from outside, to one session.
        per_day: Of all sources and schedules together.
    """

    per_minute: int = 10
    per_day: int = 200


TRIGGER_KEYS = frozenset(each.name for each in fields(TriggerSettings))


def trigger_table(file: ConfigFile) -> tuple[TriggerSettings, dict[str, Setting]]:
    """Return what is configured, and every value with where it is from, by its dotted name.

    Raises:
        ConfigError: A value is no number from 0 up; names file and line.
    """
    table: Mapping[str, Any] = file.data.get("triggers", {})
    for key, value in table.items():
        if type(value) is not int or value < 0:
            place = file.place(f"triggers.{key}")
            raise ConfigError(f"{place}: triggers.{key} is {value!r}, which is no number from 0 up")
    made = TriggerSettings(**table)
    shown = {
        f"triggers.{key}": Setting(
            str(getattr(made, key)), file.place(f"triggers.{key}") if key in table else "default"
        )
        for key in sorted(TRIGGER_KEYS)
    }
    return made, shown
