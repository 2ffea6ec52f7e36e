"""The environment of child processes: an allow-list, and nothing that looks like a secret.

Keys of providers are held in the daemon's memory and must never reach a command the model runs (DESIGN §9).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

_INHERITED = re.compile(r"PATH|HOME|LANG|LC_\w+|TERM|USER|SHELL|TMPDIR|TZ")
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|^ANTHROPIC_|^OPENAI_", re.IGNORECASE)


def child_environment(client: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a command; ``client`` is the environment of who sent the message and wins."""
    inherited = {name: value for name, value in os.environ.items() if _INHERITED.fullmatch(name)}
    given = {name: value for name, value in client.items() if not _SECRET.search(name) and _is_possible(name, value)}
    return {"TERM": "dumb", **inherited, **given}


def _is_possible(name: str, value: str) -> bool:
    return name != "" and "=" not in name and "\0" not in name + value
