"""Where an agent may act: the steps of the decision that look at paths and commands (DESIGN §7, steps 1, 2 and 5).

A prohibition matches either form of a path, and takes names for the same that some file system takes for the same;
a permission matches the resolved form only, character by character. Reasons are whole sentences, for the model that
must do something else and for the person who can change a rule.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from pyagentd.policy import roam, shell
from pyagentd.policy.action import Action, ResolvedPath
from pyagentd.policy.context import Context
from pyagentd.policy.patterns import first_match, first_match_folded
from pyagentd.policy.presets import Commands
from pyagentd.policy.protected import COMMAND_DEVICES, CREDENTIALS, GIT, HOOKS, SESSION_RECORDS

EXPAND = "Use request_scope_expansion to ask the user for approval."

_SHOWN_PATTERNS = 5


def protected(action: Action, context: Context) -> str | None:
    """Return why nobody may do this, whatever a preset or a person says; None when nothing speaks against it."""
    for path in _touched(action):
        if _either(CREDENTIALS, path):
            return (
                f"{action.tool} may not touch {path}: credentials may be there, which no tool reads or writes. "
                f"Ask the user for what you need to know."
            )
    for path in _written(action):
        if _either((*context.protected, *SESSION_RECORDS, *HOOKS), path):
            return (
                f"{action.tool} may not change {path}: it belongs to the records and settings of pyagentd, or to "
                f"where it is installed, which no tool writes. Ask the user to change it."
            )
        if (action.kind == "write" or not action.confined) and _either(GIT, path):
            return (
                f"{action.tool} may not change {path}: git runs the programs that are named there. Use git's own "
                f"commands with Bash, or ask the user to change it."
            )
    return None


def denied(action: Action, context: Context) -> str | None:
    """Return which ``deny`` of the agent or of a session above it forbids this, or None."""
    for path in _touched(action):
        if pattern := _either(context.preset.paths.deny, path):
            return (
                f"{action.tool} may not touch {path}: `paths.deny` has {pattern}. "
                f"Do without it; only the user can change that, in preset.md."
            )
        if pattern := _either(context.ancestor_denies, path):
            return (
                f"{action.tool} may not touch {path}: a session above this agent denies {pattern} to all its agents. "
                f"Do without it and say so in your answer."
            )
    if action.command is None or action.shell is None:
        return None
    if text := shell.denied(action.command, action.shell, context.preset.shell):
        return f"{action.tool} may not run this: `shell_commands.deny` has {text!r}. Reach the goal in another way."
    if text := shell.denied(action.command, action.shell, Commands(deny=context.ancestor_commands)):
        return (
            f"{action.tool} may not run this: a session above this agent denies {text!r} in commands to all its "
            f"agents. Reach the goal in another way, or say in your answer that it was not possible."
        )
    return None


def outside(action: Action, context: Context) -> str | None:
    """Return why this is outside what the preset allows; None when it is inside."""
    paths = context.preset.paths
    match action.kind:
        case "meta":
            return None
        case "net" | "mcp" | "self":  # no path that scope knows: profiles and the tool itself decide
            return None
        case "pattern":
            return _outside_roam(action, context)
        case "read":
            return _named(action, "read") or _outside(action, "read", action.paths, paths.read, context.readable)
        case "write":
            return _named(action, "write") or _outside(action, "write", action.paths, paths.write)
        case "command":
            return _outside_commands(action, context)
        case _:
            assert_never(action.kind)


def _outside_roam(action: Action, context: Context) -> str | None:
    if action.roam is None:
        why: str | None = "nothing says which notes it is about"
    else:
        why = roam.refusal(action.roam, context.preset.roam)
    return why and f"{action.tool} may not do this: {why}. {EXPAND}"


def _outside_commands(action: Action, context: Context) -> str | None:
    if action.shell is None:
        return f"{action.tool} may not run this: nobody has read what it does."
    if why := shell.refusal(action.shell, context.preset.shell):
        return f"{action.tool} may not run this: {why}. Use another tool for it, or another command. {EXPAND}"
    paths = context.preset.paths
    reads = tuple(path for path in action.paths if path.lexical not in COMMAND_DEVICES)
    return _outside(action, "read", reads, paths.read, context.readable) or _outside(
        action, "write", tuple(_written(action)), paths.write
    )


def _named(action: Action, right: str) -> str | None:
    if action.paths:
        return None
    return f"{action.tool} names no path, so nothing says that it is inside `paths.{right}`. Name one."


def _outside(
    action: Action, right: str, touched: Iterable[ResolvedPath], scope: tuple[str, ...], also: tuple[str, ...] = ()
) -> str | None:
    for path in touched:
        # A link inside the scope that leads out of it is outside: what counts is the file that would be opened.
        if first_match(scope, path.resolved) is None and first_match(also, path.resolved) is None:
            return (
                f"{action.tool} may not {right} {path}: it is outside `paths.{right}` of this session "
                f"({_listed(scope)}). Stay inside if you can. {EXPAND}"
            )
    return None


def _touched(action: Action) -> Iterable[ResolvedPath]:
    """Yield every path of an action; of a command not the devices that are its own."""
    if action.kind != "command":
        return (*action.paths, *action.writes)
    return (path for path in (*action.paths, *action.writes) if path.lexical not in COMMAND_DEVICES)


def _written(action: Action) -> Iterable[ResolvedPath]:
    if action.kind == "command":
        return (path for path in action.writes if path.lexical not in COMMAND_DEVICES)
    return action.writes if action.kind == "read" else (*action.paths, *action.writes)


def _either(patterns: tuple[str, ...], path: ResolvedPath) -> str | None:
    """Return the pattern that matches either form of ``path``: a link must not lead around a prohibition."""
    found = first_match_folded(patterns, path.resolved)
    return found or (None if path.lexical == path.resolved else first_match_folded(patterns, path.lexical))


def _listed(patterns: Iterable[str]) -> str:
    listed = list(patterns)
    more = len(listed) - _SHOWN_PATTERNS
    return ", ".join([*listed[:_SHOWN_PATTERNS], *([f"{more} more"] if more > 0 else [])]) or "which is empty"
