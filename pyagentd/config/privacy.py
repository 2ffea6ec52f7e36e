"""The table ``[privacy]``: whether a model may be asked what nobody typed (docs/privacy.md).

Such requests are titles, summaries of a conversation that no longer fits, and descriptions of conversations that are
saved. ``extra_requests = false`` turns all of them off, whatever the tables of these subjects say; a summary that the
user asks for is the user's own request.
"""

from __future__ import annotations

from dataclasses import replace

from pyagentd.config.compaction import CompactionSettings
from pyagentd.config.file import ConfigFile
from pyagentd.config.setting import Environment, Setting, switched

PRIVACY_KEYS = frozenset({"extra_requests"})

_WITHHELD = {"titles.enabled": "off", "compaction.auto": "false"}


def extra_requests(file: ConfigFile, env: Environment) -> Setting:
    """Return whether a model may be asked what nobody typed, "on" or "off".

    Raises:
        ConfigError: The value is none of these; names file and line, or the variable.
    """
    return switched(file, env, "privacy.extra_requests", "PYAGENTD_EXTRA_REQUESTS")


def by_hand(compaction: CompactionSettings) -> CompactionSettings:
    """Return how conversations are compacted where only the user asks for it."""
    return replace(compaction, auto=False)


def withheld(reason: Setting) -> dict[str, Setting]:
    """Return the settings that ``reason``, the table's, turns off, by their dotted names, each with its source."""
    return {name: Setting(value, reason.source) for name, value in _WITHHELD.items()}
