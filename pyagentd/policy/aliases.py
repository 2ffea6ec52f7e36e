"""One tool, one name of ours, and what others call it (DD-42).

A preset written for gptel, for Claude Code or from an older specification names the same tools differently; policy,
log and wire only ever see our name. Profiles are written about *actions* (``tool:view:.*``): there one name may
stand for several of our tools, and one of our tools answers to every name it has anywhere.
"""

from __future__ import annotations

META_TOOLS = frozenset(
    {
        "PersistentAgent",
        "task",
        "mission",
        "request_scope_expansion",
        "question",
        "TodoWrite",
        "skill",
        "tool_search",
        "TaskOutput",
        "KillTask",
    }
)
"""Tools that touch no resource of their own: every profile has them, and they have no scope (DESIGN §7)."""

# Columns: the locked id of spec 002; names of spec 000's tools; of spec 003's; of Claude Code and others.
_OTHER_NAMES: dict[str, tuple[str, ...]] = {
    "Read": ("read", "read_file", "read_file_in_scope", "view", "View", "ReadFile"),
    "Write": ("write", "write_file", "write_file_in_scope", "create_file", "WriteFile"),
    "Edit": ("edit", "edit_file", "edit_file_in_scope", "str_replace", "MultiEdit"),
    "Glob": ("glob", "glob_files", "list_files", "list_directory", "list_project_files", "LS"),
    "Grep": ("grep", "grep_files", "search_files", "search_project_content"),
    "Bash": ("bash", "run_approved_command", "run_command", "shell", "Shell"),
    "PersistentAgent": ("persistent_agent",),
    "task": ("Task", "agent", "Agent"),
    "question": ("ask_user_questions", "ask_user_question", "AskUserQuestion", "Question"),
    "TodoWrite": ("todo", "todo_write", "Todo"),
    "request_scope_expansion": ("scope_expansion", "RequestScopeExpansion"),
    "WebSearch": ("web_search",),
    "WebFetch": ("web_fetch",),
    "skill": ("Skill",),
    "tool_search": ("ToolSearch",),
    "TaskOutput": ("task_output", "BashOutput"),
    "KillTask": ("kill_task", "KillShell", "KillBash", "TaskStop"),
}

_OURS = {other: ours for ours, others in _OTHER_NAMES.items() for other in others}

# What has one action and we have several tools: finding a file and searching in files is viewing them (spec 003), and
# an agent is an agent whichever of two schemas it was asked for with.
_SHARED_ACTIONS: dict[str, tuple[str, ...]] = {
    "Glob": ("view",),
    "Grep": ("view",),
    "PersistentAgent": ("task", *_OTHER_NAMES["task"]),
    "task": ("PersistentAgent", *_OTHER_NAMES["PersistentAgent"]),
}

# Tools of spec 003 whose action is another tool's name and the beginning of its detail.
_PARTS: dict[str, str] = {
    "git_init": "git:init",
    "git_commit": "git:commit",
    "git_push": "git:push ",
    "git_branch": "git:branch ",
    "git_merge_request": "git:merge_request ",
    "self_edit_system_prompt": "self_edit:system_prompt",
    "self_edit_docs": "self_edit:docs:",
    "self_edit_permissions": "self_edit:permissions:",
    "self_edit_model": "self_edit:model:",
}


def canonical_tool(name: str) -> str:
    """Return our name of the tool that somebody calls ``name``; a name nobody knows stays as it is."""
    return _OURS.get(name, name)


def is_ours(name: str) -> bool:
    """Return whether a name is, in any spelling, that of a tool of ours: nobody else's may have it."""
    return name in META_TOOLS or name in _OTHER_NAMES or name in _OURS or name in _PARTS


def action_names(tool: str) -> tuple[str, ...]:
    """Return every name under which a profile may speak about ``tool``, ours first."""
    ours = canonical_tool(tool)
    return (ours, *_OTHER_NAMES.get(ours, ()), *_SHARED_ACTIONS.get(ours, ()))


def action_prefixes(tool: str) -> tuple[str, ...]:
    """Return what an action string of ``tool`` begins with, in every spelling."""
    if tool in _PARTS:
        return (f"tool:{_PARTS[tool]}",)
    return tuple(f"tool:{name}:" for name in action_names(tool))
