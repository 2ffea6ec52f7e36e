"""What the directory of a named agent holds beside a session's ``branches/`` and ``current`` (SPEC 003).

::

    <agents root>/<name>/
        agent.json          its configuration
        docs/               what it always knows
        sessions/           conversations that were saved
        workspace/          a git repository, where it works
"""

from __future__ import annotations

from pathlib import Path

from pyagentd.store import paths
from pyagentd.store.paths import BranchRef

AGENT_FILE = "agent.json"
DOCS_DIR = "docs"
SAVED_DIR = "sessions"
WORKSPACE_DIR = "workspace"

DECISIVE = (AGENT_FILE, f"{DOCS_DIR}/**", f"{SAVED_DIR}/**", f"{paths.BRANCHES_DIR}/**", paths.CURRENT_LINK)
"""What of a directory decides what the agent may do and knows: everything but its workspace."""


def agent_file(directory: Path) -> Path:
    """Return the configuration of the agent that lives in ``directory``."""
    return directory.absolute() / AGENT_FILE


def docs_dir(directory: Path) -> Path:
    """Return the directory of an agent's documents."""
    return directory.absolute() / DOCS_DIR


def saved_dir(directory: Path) -> Path:
    """Return the directory of an agent's saved conversations."""
    return directory.absolute() / SAVED_DIR


def workspace_dir(directory: Path) -> Path:
    """Return the directory in which an agent works."""
    return directory.absolute() / WORKSPACE_DIR


def named_dir(root: Path, ref: BranchRef) -> Path | None:
    """Return the directory of the named agent whose branch ``ref`` is; None of other sessions and of sub-agents.

    Args:
        root: The agents root, resolved.
        ref: The branch; nothing is looked up on disk but whether there is an ``agent.json``.
    """
    if ref.is_agent or ref.session_dir.parent != root:
        return None
    return ref.session_dir if agent_file(ref.session_dir).is_file() else None


def is_below(root: Path, session_dir: Path) -> bool:
    """Return whether a session lives directly in the agents root, so that ``decisive_places`` names what it has."""
    return session_dir.resolve().parent == root


def decisive_places(root: Path) -> list[Path]:
    """Return what of each agent in ``root`` decides about it, whether or not it is there: see ``DECISIVE``."""
    try:
        directories = sorted(entry for entry in root.iterdir() if entry.is_dir() and not entry.is_symlink())
    except OSError:
        return []
    names = (AGENT_FILE, DOCS_DIR, SAVED_DIR, paths.BRANCHES_DIR)
    return [directory / name for directory in directories for name in names]
