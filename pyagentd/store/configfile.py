"""Appends tables to ``config.toml``, and changes nothing else in it."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyagentd.config.loading import check_config, read_config_file, read_toml
from pyagentd.errors import ConfigError
from pyagentd.store.atomic import make_dirs, rewrite_text


def append(file: Path, text: str) -> None:
    """Append ``text``, one or more tables, to the configuration ``file``.

    Raises:
        ConfigError: The result would be invalid; nothing is written.
        StoreError: It cannot be written.
    """
    after = f"{read_config_file(file).text.rstrip()}\n\n{text.strip()}\n".lstrip()
    try:
        check_config(read_toml(file, after))
    except ConfigError as error:
        raise ConfigError(f"Nothing was written: {error.message}", hint=error.hint) from None
    make_dirs(file.parent)
    rewrite_text(file, after, links=True)


def table(path: Sequence[str], values: Mapping[str, Any]) -> str:
    """Return a table of TOML."""
    head = ".".join(name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _value(name) for name in path)
    return "\n".join([f"[{head}]", *(f"{key} = {_value(value)}" for key, value in values.items()), ""])


def _value(value: Any) -> str:
    """Return a value as TOML; strings of JSON are valid strings of TOML."""
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{_value(key)} = {_value(each)}' for key, each in value.items())} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
