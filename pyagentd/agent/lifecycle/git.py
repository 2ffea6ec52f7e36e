"""Git in a repository that may be an agent's: only its own configuration counts, and no hook or monitor of it.

The environment cannot lead it elsewhere, and it neither fetches nor asks. Filters that a configuration names still
run where files are read or written: who does not know the repository looks for them first, see ``worktree``.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from pyagentd import installation
from pyagentd.errors import StoreError

_OPTIONS = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.pager=cat")
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


def said(directory: Path, *words: str, timeout_s: float) -> str:
    """Run git in ``directory`` and return what it says.

    Blocks, for ``timeout_s`` seconds at most.

    Raises:
        StoreError: There is no git, it takes longer, or it refuses.
    """
    git = installation.program("git")
    if git is None:
        raise StoreError("git is not installed", mend="An agent's workspace is a git repository: install git")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            [git, *_OPTIONS, "-C", str(directory), *words],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            env=environment | _OWN,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise StoreError(f"git {words[0]} in {directory}: {error}") from error
    if done.returncode:
        raise StoreError(f"git {words[0]} in {directory}: {done.stderr.strip() or f'exit {done.returncode}'}")
    return done.stdout
