"""Which actions an agent may take: profiles of regular expressions over action strings (DESIGN §7).

An action is written ``tool:<name>:<detail>``. Every expression matches the whole of it, newlines included (DD-16).
Any ``allow`` wins, then any ``ask``; what neither matches is denied. Paths and commands are scope's business: a
profile never widens them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pyagentd.errors import BadRequest

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
