"""What of a repository is nowhere else: its branch, how many files are not committed, how many commits not pushed.

The repository may be an agent's. Git is kept from everything that its configuration or its submodules could have it
run, and from fetching; where a configuration names a program all the same, or is in more files than one, nothing is
said.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from pyagentd import installation

_TIMEOUT_S = 5.0
_OPTIONS = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.pager=cat")
_RUNS = re.compile(
    r"filter\.|include(if)?\.|extensions\.worktreeconfig$|core\.(worktree|gitproxy|sshcommand|alternaterefscommand)$",
    re.IGNORECASE,
)
_OWN = {
    "PATH": installation.PATH,
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ALLOW_PROTOCOL": "none",  # a partial clone fetches what it misses, by a program that it names
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}


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
    git = installation.program("git")
    if git is None or not (directory / ".git").exists():
        return None
    names = _said(git, directory, "config", "--name-only", "--list")  # of all files that git reads here
    if names is None or any(_RUNS.match(name) for name in names.splitlines()):
        return None
    branch = _said(git, directory, "symbolic-ref", "--quiet", "--short", "HEAD")
    changed = _said(git, directory, "status", "--porcelain", "-z", "--no-renames", "--ignore-submodules=all")
    commits = _said(git, directory, "rev-list", "--count", "--min-parents=1", "--branches", "--not", "--remotes")
    if changed is None or commits is None:
        return None
    return Worktree(branch=(branch or "").strip(), uncommitted=changed.count("\0"), unpushed=int(commits))


def _said(git: str, directory: Path, *words: str) -> str | None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            [git, *_OPTIONS, "-C", str(directory), *words],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            env=environment | _OWN,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None
