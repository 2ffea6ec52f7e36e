"""Completes the id of a session without importing the module of the command.

Ids are read from the disk: completion must not start a daemon.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
)

from pyagentd import config, store
from pyagentd.config import config_file, default_agents_dir, sessions_dir
from pyagentd.errors import ConfigError, NotASession

# fmt: off
COMMANDS = frozenset({
    "abort", "agents", "approve", "archive", "asks", "attach", "audit", "branch", "branches", "changes", "chat",
    "compact", "delete", "duplicate", "export", "fork", "grants", "queue", "regenerate", "rename", "restore",
    "rewind", "send", "show", "status", "switch", "tasks", "trigger", "trust", "unrewind", "usage", "variants",
    "watch", "webhook",
})
# fmt: on
"""The commands whose first argument is a session."""

_DATED = re.compile(r"-\d{8,14}(-|$)")


def session_ids(incomplete: str) -> list[str]:
    """Return the ids of sessions, and the names of named agents, that begin with ``incomplete``."""
    agents = _agents_dir()
    return sorted({*_ids(sessions_dir(), incomplete), *(_ids(agents, incomplete) if agents else ())})


def _agents_dir() -> Path | None:
    """Return the directory of named agents, or None if the configuration is invalid."""
    file = config_file()
    try:
        if not file.exists() or b"agents" not in file.read_bytes():
            return default_agents_dir()
        return config.load_config().agents_dir
    except (ConfigError, OSError):
        return None


def _ids(home: Path, incomplete: str) -> Iterator[str]:
    for place in filter(_has_conversation, _directories(str(home))):
        name = os.path.basename(place)  # noqa: PTH119 - no path is made of what is not kept
        is_id = _DATED.search(name) or os.path.isfile(f"{place}/agent.json")  # noqa: PTH113
        id = name if is_id else _written_id(place)
        if id.startswith(incomplete):
            yield id


def _written_id(place: str) -> str:
    """Return the id of a session from its files, for a directory that was renamed."""
    try:
        return store.paths.ref_of(Path(place)).session_id
    except NotASession:
        return os.path.basename(place)  # noqa: PTH119


def _has_conversation(place: str) -> bool:
    files = ("session.md", "messages.jsonl")  # a missing document is restored from the log
    return any(os.path.isfile(f"{each}/{name}") for each in _directories(f"{place}/branches") for name in files)  # noqa: PTH113


def _directories(home: str) -> list[str]:
    try:
        with os.scandir(home) as found:
            return [e.path for e in found if not e.name.startswith(".") and e.is_dir(follow_symlinks=False)]
    except OSError:
        return []


class _SessionIds(ShellComplete):
    """Completes the first argument of a command that takes a session."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        if len(args) == 1 and args[0] in COMMANDS and not incomplete.startswith("-"):
            return [CompletionItem(each) for each in session_ids(incomplete)]
        return super().get_completions(args, incomplete)


for _shell in (BashComplete, FishComplete, ZshComplete):
    add_completion_class(type(_shell.__name__, (_SessionIds, _shell), {}))
