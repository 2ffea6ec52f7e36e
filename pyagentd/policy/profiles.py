"""Which actions an agent may take: profiles of regular expressions over action strings (DESIGN §7).

An action is written ``tool:<name>:<detail>``. Every expression matches the whole of it, newlines included (DD-16).
Any ``allow`` wins, then any ``ask``; what neither matches is denied. Paths and commands are scope's business: a
profile never widens them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from pyagentd.errors import BadRequest
from pyagentd.policy.action import Action

Verdict = Literal["allow", "ask", "deny"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Which actions are allowed, and which are after a human was asked."""

    name: str
    allow: tuple[re.Pattern[str], ...] = ()
    ask: tuple[re.Pattern[str], ...] = ()


def compile_action(pattern: str) -> re.Pattern[str]:
    """Return ``pattern`` ready to be matched against whole action strings.

    Raises:
        BadRequest: It is no regular expression.
    """
    try:
        return re.compile(pattern, re.DOTALL)
    except (re.error, OverflowError, RecursionError) as error:
        raise BadRequest(
            f"{pattern!r} is no regular expression: {error}",
            mend="Write a Python regular expression for the whole action, such as tool:Read:.*",
        ) from error


def make_profile(name: str, *, allow: Sequence[str] = (), ask: Sequence[str] = ()) -> Profile:
    """Return a profile of expressions given as text; raises as ``compile_action``."""
    return Profile(name=name, allow=tuple(map(compile_action, allow)), ask=tuple(map(compile_action, ask)))


def resolved(profile: Profile | str | None) -> Profile | None:
    """Return a preset's profile; a name that is still one is a built-in profile's.

    Raises:
        BadRequest: No profile has that name.
    """
    if not isinstance(profile, str):
        return profile
    if profile not in BUILTIN:
        raise BadRequest(f"No profile is called {profile!r}", mend=f"Known: {', '.join(BUILTIN)}")
    return BUILTIN[profile]


def verdict(profile: Profile, action: Action) -> Verdict:
    """Return what ``profile`` says about ``action``, under every name and spelling it has.

    What is really done must be permitted too: a link's target and each command of a line as much as the whole.
    """
    if covering(profile.allow, action) is not None:
        return "allow"
    if covering((*profile.allow, *profile.ask), action) is not None:
        return "ask"
    return "deny"


def covering(patterns: Iterable[re.Pattern[str]], action: Action) -> str | None:
    """Return the expressions that together permit all of ``action``, for the audit; None when they do not.

    A human's grant for exactly this command line covers its commands; any other has to match each of them.
    """
    patterns = tuple(patterns)
    exact = re.escape(str(action))
    if action.kind == "command" and any(pattern.pattern == exact for pattern in patterns):
        return exact
    found: dict[str, None] = {}
    for form in action.forms:
        match = next(
            (
                pattern.pattern
                for spelling in action.spellings(form)
                for pattern in patterns
                if pattern.fullmatch(spelling)
            ),
            None,
        )
        if match is None:
            return None
        found[match] = None
    return ", ".join(found)


BUILTIN = {
    profile.name: profile
    for profile in (
        make_profile("open", allow=["tool:.*"]),
        make_profile(
            "standard",
            allow=[
                "tool:create_file:.*",
                "tool:str_replace:.*",
                "tool:view:.*",
                "tool:git:init",
                "tool:git:commit",
                "tool:git:branch .*",
            ],
            ask=["tool:bash:.*", "tool:git:push .*", "tool:git:merge_request .*", "tool:self_edit:.*"],
        ),
        make_profile("locked", allow=["tool:view:.*"]),
    )
}
