"""One tool, one name of ours, and what others call it (DD-42).

A preset written for gptel, for Claude Code or from an older specification names the same tools differently; policy,
log and wire only ever see our name.
"""

from __future__ import annotations

_OTHER_NAMES = {
    "Read": ("read", "read_file", "view", "read_file_in_scope"),
    "Write": ("write", "write_file", "write_file_in_scope", "create_file"),
    "Edit": ("edit", "edit_file", "edit_file_in_scope", "str_replace", "MultiEdit"),
    "Glob": ("glob", "list_files", "glob_files"),
    "Grep": ("grep", "grep_files", "search_files"),
    "Bash": ("bash", "run_approved_command", "run_command", "shell"),
    "PersistentAgent": ("persistent_agent", "agent", "Agent"),
}

_OURS = {other: ours for ours, others in _OTHER_NAMES.items() for other in others}


def canonical_tool(name: str) -> str:
    """Return our name of the tool that somebody calls ``name``; a name nobody knows stays as it is."""
    return _OURS.get(name, name)
