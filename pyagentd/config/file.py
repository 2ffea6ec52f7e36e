"""The file ``config.toml``: its values, each with the line it is on."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyagentd import regularfile
from pyagentd.errors import ConfigError

Tables = Mapping[str, frozenset[str] | None]


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The parsed file, able to say on which line a key is."""

    path: Path
    text: str
    data: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path, tables: Tables) -> ConfigFile:
        """Return the file at ``path``, an empty one when there is none.

        Args:
            path: The file.
            tables: What may be in it: the keys of each table, None where the names are the user's.

        Raises:
            ConfigError: It cannot be read, is no TOML, or has names that nothing reads.
        """
        try:
            text = regularfile.read_text(path, links=True)
            data = read_toml(text)
        except FileNotFoundError:
            return cls(path, "", {})
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: cannot be read ({error})") from error
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(_syntax_error(path, error)) from error
        except ValueError as error:
            raise ConfigError(f"{path}: {error}") from error
        file = cls(path, text, data)
        file._check_names(tables)
        return file

    def _check_names(self, tables: Tables) -> None:
        for name, table in self.data.items():
            if name not in tables:
                raise ConfigError(f"{self.place(name)}: unknown entry {name!r}; known: {', '.join(sorted(tables))}")
            if not isinstance(table, dict):
                raise ConfigError(f"{self.place(name)}: {name} is not a table")
            keys = tables[name]
            for key in table:
                if keys is not None and key not in keys:
                    raise ConfigError(f"{self.place(f'{name}.{key}')}: unknown key {key!r} in [{name}]")

    def place(self, dotted: str) -> str:
        """Return ``FILE:LINE`` of a key written as ``table.key`` or of a table; ``FILE`` when it is written oddly."""
        table, _, key = dotted.rpartition(".")
        current = ""
        for number, line in enumerate(self.text.splitlines(), start=1):
            if header := re.match(r"\s*\[+\s*([^\]]+?)\s*\]", line):
                current = header[1].replace('"', "").replace(" ", "")
                if current == dotted:
                    return f"{self.path}:{number}"
            elif current == table and re.match(rf'\s*"?{re.escape(key)}"?\s*[=.]', line):
                return f"{self.path}:{number}"
        return str(self.path)

    def string(self, dotted: str) -> str | None:
        """Return the string at ``table.key``, or None when it is not there."""
        value: Any = self.data
        for name in dotted.split("."):
            value = value.get(name, {})
        if value == {}:
            return None
        if not isinstance(value, str):
            raise ConfigError(f"{self.place(dotted)}: {dotted} is not a string")
        return value

    def texts(self, table: str, key: str) -> tuple[tuple[str, str], ...]:
        """Return the texts of the list ``table.key``, each with its ``FILE:LINE``; none when it is not there."""
        value: Any = self.data
        for name in (*table.split("."), key):
            value = value.get(name, {})
        if value == {}:
            return ()
        dotted = f"{table}.{key}"
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ConfigError(f"{self.place(dotted)}: {dotted} is not a list of texts")
        return tuple((item, self._place_of_item(dotted, item)) for item in value)

    def _place_of_item(self, dotted: str, item: str) -> str:
        path, _, line = self.place(dotted).rpartition(":")
        if not line.isdecimal():
            return str(self.path)
        spellings = (item, item.replace("\\", "\\\\"))
        lines = self.text.splitlines()[int(line) - 1 :]
        found = (n for n, text in enumerate(lines, start=int(line)) if any(each in text for each in spellings))
        return f"{path}:{next(found, line)}"

    def flag(self, dotted: str) -> bool | None:
        """Return the boolean at ``table.key``, or None when it is not there."""
        table, _, key = dotted.rpartition(".")
        value = self.data.get(table, {}).get(key)
        if value is not None and not isinstance(value, bool):
            raise ConfigError(f"{self.place(dotted)}: {dotted} is not true or false")
        return value


def read_toml(data: str | bytes) -> dict[str, Any]:
    """Return the tables in ``data``; raises ``ValueError`` where it is no TOML in UTF-8, or absurdly nested."""
    try:
        return tomllib.loads(data if isinstance(data, str) else data.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _syntax_error(path: Path, error: tomllib.TOMLDecodeError) -> str:
    message = str(error)
    if found := re.search(r"\s*\(at line (\d+), column \d+\)", message):
        return f"{path}:{found[1]}: {message[: found.start()]}"
    return f"{path}: {message}"


# One configured value, and how the first of its three sources is found.

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
