"""The one decision: may this action happen, must a human be asked, or not (DESIGN §7).

The order is fixed and each step can only refuse or pass on: protected places, then any deny, then what a human
allowed once, then scope, then the tool's wish to be confirmed. Nothing here looks at the disk: paths come resolved,
rules come parsed. Reasons are whole sentences, for the model that must do something else and for the person who can
change a rule.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, assert_never

from pyagentd.policy import commands
from pyagentd.policy.patterns import first_match
from pyagentd.policy.presets import Preset
from pyagentd.policy.profiles import Profile
from pyagentd.policy.protected import CREDENTIALS, SESSION_RECORDS

Kind = Literal["read", "write", "command", "pattern", "meta"]
Rule = Literal["protected", "deny", "scope", "command", "profile", "headless"]

_SHOWN_PATTERNS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedPath:
    """A path in both its forms, absolute and without ``.`` or ``..``."""

    lexical: str  # as written
    resolved: str  # with every symbolic link followed; only this one is ever opened

    def __str__(self) -> str:
        same = self.lexical == self.resolved
        return self.lexical if same else f"{self.lexical} (really {self.resolved})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What is about to happen; as text ``tool:<name>:<detail>``, which grants match."""

    tool: str
    detail: str
    kind: Kind
    paths: tuple[ResolvedPath, ...] = ()  # used as ``kind`` says; of a command: what it is known to read
    writes: tuple[ResolvedPath, ...] = ()  # what a command is known to write
    command: str | None = None
    root: str = ""  # the workspace root, for what a profile says about paths relative to it

    def __str__(self) -> str:
        return f"tool:{self.tool}:{self.detail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The rules that hold for one decision, read anew for each."""

    preset: Preset
    interactive: bool  # a human can be asked
    profile: Profile | None = None  # None: every action, and a tool's ``confirm`` decides
    ancestor_denies: tuple[str, ...] = ()  # ``paths.deny`` of every session above an agent (DD-7)
    ancestor_commands: tuple[str, ...] = ()  # ... and their ``shell_commands.deny``
    protected: tuple[str, ...] = ()  # the daemon's own places, never written by a tool
    readable: tuple[str, ...] = ()  # in the read scope besides the preset's: the run's own spooled output
    grants: tuple[re.Pattern[str], ...] = ()  # match a whole action that then needs no confirmation: --allow
    remembered: tuple[re.Pattern[str], ...] = ()  # the same, given by a human as answer to an ask
    allow_once: frozenset[str] = frozenset()  # actions a human allowed, exactly


@dataclass(frozen=True, slots=True)
class Allow:
    """It may happen."""

    by: str  # for the audit: "scope", "meta", "grant REGEX", "profile NAME", "allowed once"


@dataclass(frozen=True, slots=True)
class Ask:
    """A human decides."""

    reason: str
    remember: tuple[str, ...] = ()  # the regular expressions that "session" and "always" would remember


@dataclass(frozen=True, slots=True)
class Deny:
    """It may not happen."""

    reason: str
    rule: Rule


Decision = Allow | Ask | Deny


def decide(action: Action, context: Context, confirm: bool) -> Decision:
    """Return whether ``action`` may happen.

    Args:
        action: Computed by the tool from its checked arguments.
        context: The rules.
        confirm: The tool wants a human to agree, unless a grant does.
    """
    if refusal := _protected(action, context):
        return Deny(refusal, "protected")
    if refusal := _denied(action, context):
        return Deny(refusal, "deny")
    if str(action) in context.allow_once:
        return Allow("allowed once")
    if refusal := _out_of_scope(action, context):
        return Deny(refusal, "command" if action.kind == "command" else "scope")
    if not confirm:
        return Allow("meta" if action.kind == "meta" else "scope")
    for grant in (*context.remembered, *context.grants):
        if grant.fullmatch(str(action)):
            return Allow(f"grant {grant.pattern}")
    return _confirmation(action, context)


def _protected(action: Action, context: Context) -> str | None:
    for path in action.paths:
        if _either(CREDENTIALS, path):
            return (
                f"{action.tool} may not touch {path}: credentials may be there, which no tool reads or writes. "
                f"Ask the user for what you need to know."
            )
        if action.kind != "read" and _either((*context.protected, *SESSION_RECORDS), path):
            return (
                f"{action.tool} may not change {path}: it belongs to the records and settings of pyagentd, which no "
                f"tool writes. Ask the user to change it."
            )
    return None


def _denied(action: Action, context: Context) -> str | None:
    for path in action.paths:
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
    if action.command is not None and (text := commands.denied(action.command, context.preset.shell)):
        return f"{action.tool} may not run this: `shell_commands.deny` has {text!r}. Reach the goal in another way."
    return None


def _out_of_scope(action: Action, context: Context) -> str | None:
    paths = context.preset.paths
    match action.kind:
        case "meta" | "pattern":
            return None
        case "read":
            return _outside(action, "read", paths.read, context.readable)
        case "write":
            return _outside(action, "write", paths.write)
        case "command":
            why = commands.refusal(action.command or "", context.preset.shell)
            return why and (
                f"{action.tool} may not run this: {why}. Use another tool, or ask the user to change "
                f"`shell_commands` in preset.md."
            )
        case _:
            assert_never(action.kind)


def _outside(action: Action, right: str, scope: tuple[str, ...], also: tuple[str, ...] = ()) -> str | None:
    if not action.paths:
        return f"{action.tool} names no path, so nothing says that it is inside `paths.{right}`. Name one."
    for path in action.paths:
        # A link inside the scope that leads out of it is outside: what counts is the file that would be opened.
        if first_match(scope, path.resolved) is None and first_match(also, path.resolved) is None:
            return (
                f"{action.tool} may not {right} {path}: it is outside `paths.{right}` of this session "
                f"({_listed(scope)}). Stay inside, or ask the user to add it to preset.md."
            )
    return None


def _confirmation(action: Action, context: Context) -> Ask | Deny:
    grant = re.escape(str(action))
    if context.interactive:
        return Ask(f"{action.tool} acts only with your approval, and no grant covers this", (grant,))
    return Deny(
        f"{action.tool} needs a human's approval, and none can be asked in this run. "
        f"Whoever starts it can approve this beforehand with --allow {shlex.quote(grant)}",
        "headless",
    )


def _either(patterns: tuple[str, ...], path: ResolvedPath) -> str | None:
    """Return the pattern that matches either form of ``path``: a link must not lead around a prohibition."""
    found = first_match(patterns, path.resolved)
    return found or (None if path.lexical == path.resolved else first_match(patterns, path.lexical))


def _listed(patterns: Iterable[str]) -> str:
    listed = list(patterns)
    more = len(listed) - _SHOWN_PATTERNS
    return ", ".join([*listed[:_SHOWN_PATTERNS], *([f"{more} more"] if more > 0 else [])]) or "which is empty"
