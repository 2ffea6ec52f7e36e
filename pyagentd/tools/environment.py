"""The environment of child processes: an allow-list, and nothing that looks like a secret.

Keys of providers are held in the daemon's memory and must never reach a command the model runs (DESIGN §9).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

_INHERITED = re.compile(r"PATH|HOME|LANG|LC_\w+|TERM|USER|SHELL|TMPDIR|TZ")
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|^ANTHROPIC_|^OPENAI_", re.IGNORECASE)
# What makes a shell or a usual program do something else than its command line says; a human approves that line.
_MEANING = re.compile(
    r"BASH_ENV|ENV|CDPATH|SHELLOPTS|BASHOPTS|BASH_FUNC_.*|BASH_COMPAT|POSIXLY_CORRECT|GLOBIGNORE|EXECIGNORE|IFS|PS4"
    r"|PROMPT_COMMAND|LD_.*|GIT_(?!AUTHOR_|COMMITTER_).*|PAGER|MANPAGER|EDITOR|VISUAL|LESS|LESSOPEN|TAR_OPTIONS"
    r"|GREP_OPTIONS|RIPGREP_CONFIG_PATH|MAKEFLAGS|PYTHONSTARTUP|PYTHONPATH|PERL5OPT|PERL5LIB|RUBYOPT|NODE_OPTIONS"
)


def child_environment(client: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a command; ``client`` is the environment of who sent the message and wins."""
    inherited = {name: value for name, value in os.environ.items() if _INHERITED.fullmatch(name)}
    given = {name: value for name, value in client.items() if _is_given(name, value)}
    return {"TERM": "dumb", **inherited, **given}


def _is_given(name: str, value: str) -> bool:
    possible = name != "" and "=" not in name and "\0" not in name + value
    return possible and not _SECRET.search(name) and not _MEANING.fullmatch(name)
