"""The git repository of a named agent's workspace (SPEC 003 Creation Flow 3)."""

from __future__ import annotations

from pathlib import Path

from pyagentd.agent.lifecycle import git

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
    if not any(workspace.iterdir()):
        (workspace / _PLACEHOLDER).touch()
    for words in (
        ("init", "--quiet", "--template=", "--initial-branch=main"),
        ("config", "user.name", name),
        ("config", "user.email", f"{name}@pyagentd.local"),
        ("add", "--all"),
        ("commit", "--quiet", "--allow-empty", "--no-verify", "--no-gpg-sign", "--message", "Workspace"),
    ):
        git.said(workspace, *words, timeout_s=_TIMEOUT_S)
    (workspace / ".git/hooks").mkdir(exist_ok=True)  # watched while commands run: its absence would be a change
