"""What of a git directory a command may not change: that decides what git runs, later and outside.

Git runs programs that ``config`` and ``hooks`` name, for whoever uses the repository next.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_PARTS = ("config", "config.worktree")
_HOOKS = "hooks"
_MOST_MODULES = 200


def decisive(directory: str) -> Iterator[str]:
    """Yield the paths below the git directory ``directory`` that are read-only, those of its submodules too."""
    yield from _decisive(directory)
    modules = Path(directory, "modules")
    if modules.is_dir():
        for found, _ in zip(modules.rglob("HEAD"), range(_MOST_MODULES), strict=False):
            yield from _decisive(str(found.parent))


def _decisive(directory: str) -> Iterator[str]:
    for part in _PARTS:
        path = f"{directory}/{part}"
        if os.path.isfile(path) and not os.path.islink(path):  # noqa: PTH113, PTH114
            yield path
    yield f"{directory}/{_HOOKS}"  # also where there is none: it could be made


def of_worktree(root: Path) -> str | None:
    """Return the git directory that the linked work tree ``root`` belongs to.

    The repository must name this work tree too: a file that a command wrote must not open a directory to it.
    """
    try:
        text = (root / ".git").read_text("utf-8")
        if not text.startswith("gitdir: "):
            return None
        entry = Path(os.path.realpath(root / text[len("gitdir: ") :].strip()))
        back = (entry / "gitdir").read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    common = entry.parent.parent
    said = entry.parent.name == "worktrees" and os.path.realpath(back) == os.path.realpath(root / ".git")
    return str(common) if said and common.name == ".git" and (common / "HEAD").is_file() else None
