"""The file ``config.toml`` as it was parsed, and one configured value with where it is from."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyagentd import reader, regularfile
from pyagentd.errors import ConfigError

Environment = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Setting:
    """One configured value."""

    value: str
    source: str  # "default", "environment NAME" or "FILE:LINE"


@dataclass(frozen=True, slots=True)
class TomlFile:
    """A parsed file, able to say on which line something is."""

    path: Path
    text: str
    data: Mapping[str, Any]

    def place(self, path: reader.Path) -> str:
        """Return ``FILE:LINE`` of what is at ``path``, or of what holds it; ``FILE`` when it is written oddly."""
        line = reader.line_in_toml(self.text, path, reader.at(self.data, path))
        return str(self.path) if line is None else f"{self.path}:{line}"


def read_toml(path: Path, data: str | bytes) -> TomlFile:
    """Return what the file ``path`` with the content ``data`` says.

    Raises:
        ConfigError: It is no TOML in UTF-8, or absurdly nested; names file and line.
    """
    try:
        text = data if isinstance(data, str) else data.decode()
        return TomlFile(path, text, tomllib.loads(text))
    except RecursionError:
        raise ConfigError(f"{path}: it is nested too deeply") from None
    except tomllib.TOMLDecodeError as error:
        what, _, line = str(error).removesuffix(")").partition(" (at line ")
        raise ConfigError(f"{path}:{line.split(',')[0]}: {what}" if line else f"{path}: {what}") from error
    except ValueError as error:  # no UTF-8, or a number of thousands of digits
        raise ConfigError(f"{path}: cannot be read ({error})") from error


def read_config_file(path: Path) -> TomlFile:
    """Return the file at ``path``, an empty one when there is none; raises ``ConfigError``."""
    try:
        return read_toml(path, regularfile.read_bytes(path, links=True))
    except FileNotFoundError:
        return TomlFile(path, "", {})
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error})") from error
