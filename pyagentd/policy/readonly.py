"""Agents that only look: what a preset with ``read-only: true`` may do, and all its agents with it; pure.

This is what makes plan mode a fact and no promise (mode-plan I4): the decision asks here before it looks at scope,
profile, grant or answer, so nothing that anybody allowed, allows or will allow lets such an agent change anything.
It names what may happen and not what may not: a tool that nobody thought of is refused, wherever it comes from and
whatever it says of itself.

Commands are refused whole. Whether one only looks depends on what its options, its configuration and the programs
that it calls do, and who plans can read and search without any.
"""

from __future__ import annotations

from pyagentd.policy.action import Action, Kind
from pyagentd.policy.aliases import canonical_tool

_EXPANSION = "request_scope_expansion"

LOOKING: dict[str, frozenset[Kind]] = {
    **dict.fromkeys(("Read", "Glob", "Grep"), frozenset[Kind]({"read"})),
    # What these tell goes to the user or to the model, and an agent may do what its parent may.
    **dict.fromkeys(
        ("question", "TodoWrite", "skill", "tool_search", "PersistentAgent", "task", "mission", _EXPANSION),
        frozenset[Kind]({"meta", "read"}),
    ),
    **dict.fromkeys(("WebSearch", "WebFetch"), frozenset[Kind]({"net"})),
}
"""The tools that change nothing, each with the kinds of action that it has for it."""

PLAN = "plan"
"""The preset of this name is read-only whoever wrote it."""


def looks(tool: str) -> bool:
    """Return whether ``tool`` may be offered to an agent that only looks."""
    return canonical_tool(tool) in LOOKING


def refusal(action: Action, *, own: bool, above: bool) -> str | None:
    """Return why an agent that only looks may not do this; None when it may, or when it is no such agent.

    Args:
        action: What is about to happen.
        own: Its own preset is read-only.
        above: That of a session above it is, or was when it was spawned.
    """
    if not (own or above) or _looks(action):
        return None
    if own:
        return (
            f"{action.tool} may not do this: this session is in plan mode (read-only), where nothing can be changed "
            f"and no command is run, whoever allows it. Write what should be done into your plan as text; it is "
            f"carried out once the user has approved it."
        )
    return (
        f"{action.tool} may not do this: a session above this agent is in plan mode (read-only), so its agents can "
        f"change nothing and run no command either. Report what you found, and what should be done, in your answer."
    )


def _looks(action: Action) -> bool:
    tool = canonical_tool(action.tool)
    if action.kind not in LOOKING.get(tool, ()) or action.writes or action.command is not None:
        return False
    return tool != _EXPANSION or looks(action.detail.split(" ", 1)[0])  # nobody is asked for nothing
