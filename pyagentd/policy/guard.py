"""The one decision: may this action happen, must a human be asked, or not (DESIGN §7).

The order is fixed: 1 protected places, 2 any deny, of the agent or above it, that it only looks included, 3 what a
human allowed once for exactly this resource, 4 tools that have no resource, 5 scope, 6 the profile, 7 the tool's own
wish to be confirmed. Nothing here looks at the disk: paths come resolved, commands read, rules parsed.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from typing import Literal

from pyagentd.policy import readonly, scope, shell
from pyagentd.policy.action import Action as Action
from pyagentd.policy.action import Kind as Kind
from pyagentd.policy.action import ResolvedPath as ResolvedPath
from pyagentd.policy.context import Context as Context
from pyagentd.policy.profiles import Profile, Verdict, covering, verdict
from pyagentd.policy.remember import covered, remember

Rule = Literal["protected", "deny", "scope", "command", "profile", "headless", "read-only"]


@dataclass(frozen=True, slots=True)
class Allow:
    """It may happen."""

    by: str  # for the audit: "scope", "meta", "grant REGEX", "profile NAME", "allowed once"


@dataclass(frozen=True, slots=True)
class Ask:
    """A human decides."""

    reason: str
    remember: tuple[str, ...] = ()  # the regular expressions that "session" and "always" would remember
    is_routine: bool = False  # a rule asks before every such action; the reason warns of nothing


@dataclass(frozen=True, slots=True)
class Deny:
    """It may not happen."""

    reason: str
    rule: Rule


Decision = Allow | Ask | Deny

Confirm = bool | Literal["always"]
"""Whether a tool wants a human to agree: unless a named profile or a grant does, or every single time."""


def decide(action: Action, context: Context, confirm: Confirm) -> Decision:
    """Return whether ``action`` may happen.

    Args:
        action: Computed by the tool from its checked arguments.
        context: The rules.
        confirm: The tool wants a human to agree, see ``Confirm``.
    """
    action = _read(action)
    if refusal := scope.protected(action, context):
        return Deny(refusal, "protected")
    if refusal := scope.denied(action, context):
        return Deny(refusal, "deny")
    if refusal := readonly.refusal(action, own=context.preset.read_only, above=context.ancestor_read_only):
        return Deny(refusal, "read-only")
    if context.allow_once and not context.allow_once.isdisjoint(action.spellings(once_key(action))):
        return Allow("allowed once")
    if refusal := scope.outside(action, context):
        return Deny(refusal, "command" if action.kind == "command" else "scope")
    return _permitted(action, context, confirm)


def _read(action: Action) -> Action:
    """Return a command with what the grammar makes of it; who did not read it did not look where its files are."""
    if action.kind != "command":
        return action
    reading = action.shell
    if reading is None:
        reading = shell.read(action.command or "")
        if reading.reads or reading.writes or reading.looks:
            reading = replace(reading, unreadable="it names files, and nobody looked where they are")
    if not action.confined:
        reading = replace(reading, unreadable=reading.unreadable or reading.behind_links)
    return replace(action, shell=reading)


def once_key(action: Action) -> str:
    """Return what ``Context.allow_once`` holds when a human allows ``action`` once.

    It names the file that is really touched: a link that is put elsewhere afterwards is another resource.
    """
    return str(action) if action.kind == "command" else action.forms[-1]


def _permitted(action: Action, context: Context, confirm: Confirm) -> Decision:
    """Return what profiles, grants and the tool itself say about an action that is inside the scope."""
    asking = None  # the profile that wants a human to be asked
    for profile in (context.profile, *context.ancestor_profiles):
        says = _says(profile, action)
        if profile is not None and says == "deny":
            return _out_of_profile(action, profile, above=profile is not context.profile)
        if profile is not None and says == "ask":
            asking = asking or profile
    if confirm == "always":
        return _always(action, context)
    if (unreadable := _unreadable(action)) is not None:
        return _unreadable_command(action, context, f"nobody can tell beforehand what it does: {unreadable}")
    if (unlisted := _unlisted(action, context)) is not None:
        return _unreadable_command(action, context, f"it runs with your rights, not confined: {unlisted}")
    if asking is None and context.profile is not None and _says(context.profile, action) == "allow":
        return Allow(f"profile {context.profile.name}")
    if asking is None and not confirm:
        return Allow("meta" if action.kind == "meta" else "scope")
    if grant := covered(action, context.remembered) or covering(context.grants, action):
        return Allow(f"grant {grant}")
    if asking is not None:
        return _question(action, context, f"the profile {asking.name!r} asks before {action.tool} does this")
    return _question(action, context, f"{action.tool} acts only with your approval, and no grant covers this")


def _says(profile: Profile | None, action: Action) -> Verdict | None:
    """Return what ``profile`` says; None when it leaves it to the tool, as no profile does."""
    if profile is None:
        return None
    says = verdict(profile, action)
    # Tools without a resource of their own are in every profile; whether they ask is theirs to say.
    return None if action.kind == "meta" and says != "allow" else says


def _out_of_profile(action: Action, profile: Profile, *, above: bool) -> Deny:
    whose = "a session above this agent" if above else "this session"
    return Deny(
        f"{action.tool} may not do this: the profile {profile.name!r} of {whose} neither allows it nor lets the user "
        f"be asked ({action}). Reach the goal in another way, or say that it was not possible.",
        "profile",
    )


def _unreadable(action: Action) -> str | None:
    """Return why nobody can say what a command does, as the end of a sentence; None when it can be read."""
    return action.shell.unreadable if action.shell is not None else None


def _unlisted(action: Action, context: Context) -> str | None:
    """Return why a command that nothing confines is not admitted by ``*``, which is all that admits it."""
    if action.confined or action.shell is None or shell.admitted_by_name(action.shell, context.preset.shell):
        return None
    return action.shell.unlisted


def _unreadable_command(action: Action, context: Context, why: str) -> Decision:
    """Return the decision about a command that is admitted by ``*`` alone and cannot be vouched for.

    Only a human who saw this very text can let it pass: whoever wrote a profile or an ``--allow`` did not.
    """
    if grant := covered(action, context.remembered):
        return Allow(f"grant {grant}")
    if context.interactive:
        return Ask(why, remember(action))
    return Deny(
        f"{action.tool} may not run this: {why}. No human can be asked in this run. Write it as plain commands, one "
        f"call each, or use another tool; the user can name the program in `shell_commands.allow`.",
        "headless",
    )


def _always(action: Action, context: Context) -> Decision:
    """Return the decision about what needs a human's word each time: no profile, grant or option stands for it."""
    if context.interactive:
        return Ask(f"{action.tool} does this only when you say so, each time")
    return Deny(
        f"{action.tool} needs a human's approval each time, and none can be asked in this run. Go on without it, and "
        f"say in your answer what you wanted to change.",
        "headless",
    )


def _question(action: Action, context: Context, reason: str) -> Ask | Deny:
    if context.interactive:
        return Ask(reason, remember(action), is_routine=True)
    grants = (str(action),) if action.kind == "command" else action.forms
    options = " ".join(f"--allow {shlex.quote(re.escape(each))}" for each in grants)
    return Deny(
        f"{action.tool} needs a human's approval, and none can be asked in this run. "
        f"Whoever starts it can approve this beforehand with {options}",
        "headless",
    )
