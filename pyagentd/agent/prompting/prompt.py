"""The system prompt: the preset's words, the project's instructions, the skills, where the conversation happens.

All but the first is made once per session and kept in its log, so that the prefix a provider caches stays the same
from the first request to the last (neighbours B.3).
"""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import datetime
from pathlib import Path

from pyagentd import installation


def environment(root: Path, now: datetime) -> str:
    """Return a description of the place a session works in; blocks for a moment (git)."""
    lines = [
        f"Workspace root: {root}",
        f"Platform: {platform.system()} {platform.release()}",
        f"Git: {_git_branch(root)}",
        f"Date: {now.astimezone():%Y-%m-%d}",
        "Mentions: in messages of the user, @path is a file or directory below the workspace root; @name is a preset "
        "that an agent can be made from.",
    ]
    return "<environment>\n" + "\n".join(lines) + "\n</environment>"


_CALLED_BY_AGENT = "Your caller is another agent; return structured output."  # neighbours B.6, word for word


def system_prompt(
    preset_body: str,
    environment_text: str,
    *,
    instructions: str = "",
    skills: str = "",
    model: str = "",
    called_by_agent: bool = False,
) -> str:
    """Return the whole system prompt in the order that must not change: the tools' schemas follow it in a request.

    Args:
        preset_body: The agent's own words.
        environment_text: See ``environment``.
        instructions: Of the user and the project, see ``instructions``.
        skills: The list of skills, see ``skills.index``.
        model: Who answers.
        called_by_agent: Whether the one who asks is an agent, and this one is to know.
    """
    caller = _CALLED_BY_AGENT if called_by_agent else ""
    if model:
        environment_text = environment_text.replace("\n</environment>", f"\nModel: {model}\n</environment>")
    parts = (preset_body.strip(), caller, instructions, skills, environment_text)
    return "\n\n".join(part for part in parts if part)


def _git_branch(root: Path) -> str:
    git = installation.program("git")
    if git is None:
        return "not known"
    try:
        if (branch := _asked(git, root, "rev-parse", "--abbrev-ref", "HEAD")) is not None:
            return f"on branch {branch}"
        branch = _asked(git, root, "symbolic-ref", "--short", "HEAD")  # also before the first commit
    except (OSError, subprocess.SubprocessError):
        branch = None
    return "not a repository" if branch is None else f"on branch {branch}, without commits"


def _asked(git: str, root: Path, *words: str) -> str | None:
    """Return what git says, None where it fails."""
    found = subprocess.run(
        [git, "-C", str(root), *words],
        capture_output=True,
        text=True,
        timeout=2,
        env={**os.environ, "PATH": installation.PATH},
        check=False,
    )
    return found.stdout.strip() if found.returncode == 0 else None
