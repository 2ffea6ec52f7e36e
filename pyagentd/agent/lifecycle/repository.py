"""The git repository of a named agent's workspace (SPEC 003 Creation Flow 3)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from pyagentd import installation
from pyagentd.errors import StoreError

_TIMEOUT_S = 60.0
_PLACEHOLDER = ".gitkeep"


def init_repository(workspace: Path, name: str) -> None:
    """Make ``workspace`` a repository whose first commit has what is in it; one that has a ``.git`` stays.

    What is committed there later is committed as the agent ``name``. Neither hooks nor templates of the user's run.

    Raises:
        StoreError: There is no git, or it refuses.
    """
    if (workspace / ".git").exists():
        return
    git = installation.program("git")
    if git is None:
        raise StoreError("git is not installed", mend="An agent's workspace is a git repository: install git")
    if not any(workspace.iterdir()):
        (workspace / _PLACEHOLDER).touch()
    for words in (
        ("init", "--quiet", "--template=", "--initial-branch=main"),
        ("config", "user.name", name),
        ("config", "user.email", f"{name}@pyagentd.local"),
        ("add", "--all"),
        ("commit", "--quiet", "--allow-empty", "--no-verify", "--no-gpg-sign", "--message", "Workspace"),
    ):
        _run(git, workspace, *words)
    (workspace / ".git/hooks").mkdir(exist_ok=True)  # watched while commands run: its absence would be a change


def _run(git: str, workspace: Path, *words: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    own = {"PATH": installation.PATH, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            [git, "-C", str(workspace), *words],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            env=environment | own,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise StoreError(f"git {words[0]} in {workspace}: {error}") from error
    if done.returncode:
        raise StoreError(f"git {words[0]} in {workspace}: {done.stderr.strip() or f'exit {done.returncode}'}")
