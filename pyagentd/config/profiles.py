"""Which actions agents may take: the tables ``[profile.NAME]`` of ``config.toml``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pyagentd.config.file import ConfigFile
from pyagentd.config.setting import Setting
from pyagentd.errors import ConfigError

BUILTIN_PROFILES = ("open", "standard", "locked")

_PROFILE_KEYS = frozenset({"allow", "ask"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSettings:
    """Which actions an agent may take: regular expressions, each valid."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()


def profile_tables(file: ConfigFile) -> tuple[dict[str, ProfileSettings], dict[str, Setting]]:
    """Return the user's profiles, and every value with where it is from, by its dotted name.

    Raises:
        ConfigError: A name, a key or a value is not possible; names file and line.
    """
    profiles: dict[str, ProfileSettings] = {}
    shown: dict[str, Setting] = {}
    for name, table in file.data.get("profile", {}).items():
        prefix = f"profile.{name}"
        if not re.fullmatch(r"[\w-]+", name):
            raise ConfigError(
                f"{file.place(prefix)}: {name!r} is no name of a profile", mend="Letters, digits, - and _"
            )
        if name in BUILTIN_PROFILES:
            raise ConfigError(
                f"{file.place(prefix)}: the profile {name} is built in", mend="Call yours something else"
            )
        if not isinstance(table, dict):
            raise ConfigError(f"{file.place(prefix)}: {prefix} is not a table")
        for key in table:
            if key not in _PROFILE_KEYS:
                raise ConfigError(
                    f"{file.place(f'{prefix}.{key}')}: unknown key {key!r} in [{prefix}]",
                    mend="A profile has allow and ask; what neither matches is denied",
                )
        lists = {key: tuple(_expressions(file, prefix, key)) for key in table}
        for key, texts in lists.items():
            shown[f"{prefix}.{key}"] = Setting(", ".join(texts), file.place(f"{prefix}.{key}"))
        profiles[name] = ProfileSettings(**lists)
    return profiles, shown


def _expressions(file: ConfigFile, table: str, key: str) -> Iterator[str]:
    for text, place in file.texts(table, key):
        try:
            re.compile(text, re.DOTALL)
        except (re.error, OverflowError, RecursionError) as error:
            raise ConfigError(
                f"{place}: {text!r} is no regular expression: {error}",
                mend="Write one for the whole action, such as tool:Read:.*",
            ) from error
        yield text
