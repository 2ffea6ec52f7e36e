"""What the user states of models: the tables ``[model."NAME"]`` of ``config.toml``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pyagentd.config.file import ConfigFile
from pyagentd.config.setting import Setting
from pyagentd.errors import ConfigError

_TOKENS = ("context_window", "max_output")
_PRICES = ("input", "output", "cache_read", "cache_write")
_MEND = "A price is in US dollars per million tokens, a size in tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """What is stated of one model; None where nothing is."""

    context_window: int | None = None  # tokens
    max_output: int | None = None  # tokens
    input: float | None = None  # US dollars per million tokens, as are the next three
    output: float | None = None
    cache_read: float | None = None
    cache_write: float | None = None

    def stated(self) -> dict[str, Any]:
        """Return what is stated, by name."""
        return {key: value for key, value in asdict(self).items() if value is not None}

    @property
    def states_prices(self) -> bool:
        """Whether any price is stated."""
        return any(getattr(self, key) is not None for key in _PRICES)


def model_tables(file: ConfigFile) -> tuple[dict[str, ModelSettings], dict[str, Setting]]:
    """Return what is stated of each model, and every value with where it is from, by its dotted name.

    Raises:
        ConfigError: A key or a value is not possible; names file and line.
    """
    models: dict[str, ModelSettings] = {}
    shown: dict[str, Setting] = {}
    for name, table in file.data.get("model", {}).items():
        prefix = f"model.{name}"
        if not isinstance(table, dict):
            raise ConfigError(f"{file.place(prefix)}: {prefix} is not a table", mend=f'Write [model."{name}"]')
        for key, value in table.items():
            _check(file, prefix, key, value)
        if ("input" in table) != ("output" in table):
            raise ConfigError(
                f"{file.place(prefix)}: {prefix} has a price for one of input and output only", mend="Give both"
            )
        for key, value in table.items():
            shown[f"{prefix}.{key}"] = Setting(str(value), file.place(f"{prefix}.{key}"))
        models[name] = ModelSettings(**table)
    return models, shown


def _check(file: ConfigFile, prefix: str, key: str, value: object) -> None:
    place = file.place(f"{prefix}.{key}")
    if key not in (*_TOKENS, *_PRICES):
        known = ", ".join((*_TOKENS, *_PRICES))
        raise ConfigError(f"{place}: unknown key {key!r} in [{prefix}]; known: {known}", mend=_MEND)
    # `true` is a number to Python.
    if key in _TOKENS and (type(value) is not int or value <= 0):
        raise ConfigError(f"{place}: {prefix}.{key} is not a whole number above 0", mend=_MEND)
    if key in _PRICES and (type(value) not in (int, float) or not 0 <= float(str(value)) < float("inf")):
        raise ConfigError(f"{place}: {prefix}.{key} is not a number from 0", mend=_MEND)
