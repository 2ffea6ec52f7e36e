"""The environment of child processes: an allow-list, and nothing that looks like a secret.

Keys of providers are held in the daemon's memory and must never reach a command the model runs (DESIGN §9).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

_INHERITED = re.compile(r"PATH|HOME|LANG|LC_\w+|TERM|USER|SHELL|TMPDIR|TZ")
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|^ANTHROPIC_|^OPENAI_", re.IGNORECASE)
# Read by a shell before the command: they would undo its limits.
_SHELL_S = re.compile(r"BASH_ENV|ENV|SHELLOPTS|BASHOPTS|BASH_FUNC_.*")


def child_environment(client: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a command; ``client`` is the environment of who sent the message and wins."""
    inherited = {name: value for name, value in os.environ.items() if _INHERITED.fullmatch(name)}
    given = {name: value for name, value in client.items() if _is_given(name, value)}
    return {"TERM": "dumb", **inherited, **given}


def _is_given(name: str, value: str) -> bool:
    possible = name != "" and "=" not in name and "\0" not in name + value
    return possible and not _SECRET.search(name) and not _SHELL_S.fullmatch(name)
