"""What of a repository is nowhere else: its branch, how many files are not committed, how many commits not pushed.

The repository may be an agent's. Git is kept from everything that its configuration or its submodules could have it
run, and from fetching; where a configuration names a program all the same, or is in more files than one, nothing is
said.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pyagentd.agent.lifecycle import git
from pyagentd.errors import StoreError

_TIMEOUT_S = 5.0
_RUNS = re.compile(
    r"filter\.|include(if)?\.|extensions\.worktreeconfig$|core\.(worktree|gitproxy|sshcommand|alternaterefscommand)$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Worktree:
    """How a repository stands."""

    branch: str  # "" when none is checked out
    uncommitted: int  # files and new directories
    unpushed: int  # commits that are on no remote, without the first one of a history


def look(directory: Path) -> Worktree | None:
    """Return how the repository whose work tree is ``directory`` stands; None when it is none, or cannot be asked.

    Blocks, for some seconds at most.
    """
    if not (directory / ".git").exists():
        return None
    names = _said(directory, "config", "--name-only", "--list")  # of all files that git reads here
    if names is None or any(_RUNS.match(name) for name in names.splitlines()):
        return None
    branch = _said(directory, "symbolic-ref", "--quiet", "--short", "HEAD")
    changed = _said(directory, "status", "--porcelain", "-z", "--no-renames", "--ignore-submodules=all")
    commits = _said(directory, "rev-list", "--count", "--min-parents=1", "--branches", "--not", "--remotes")
    if changed is None or commits is None:
        return None
    return Worktree(branch=(branch or "").strip(), uncommitted=changed.count("\0"), unpushed=int(commits))


def _said(directory: Path, *words: str) -> str | None:
    try:
        return git.said(directory, *words, timeout_s=_TIMEOUT_S)
    except StoreError:
        return None
