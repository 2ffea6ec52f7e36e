"""Which actions an agent may take: profiles of regular expressions over action strings (DESIGN §7).

An action is written ``tool:<name>:<detail>``. Every expression matches the whole of it, newlines included (DD-16).
Any ``allow`` wins, then any ``ask``; what neither matches is denied. Paths and commands are scope's business: a
profile never widens them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pyagentd.errors import BadRequest
from pyagentd.policy.action import Action
from pyagentd.policy.aliases import action_names

if TYPE_CHECKING:
    from pyagentd.policy.shell import Effect, SimpleCommand

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
        match = _matching(patterns, action, form)
        if match is None:
            return None
        found[match] = None
    if not all(_covers_effects(patterns, action, command) for command in _commands(action)):
        return None
    return ", ".join(found)


def _matching(patterns: tuple[re.Pattern[str], ...], action: Action, form: str) -> str | None:
    spellings = action.spellings(form)
    return next((each.pattern for text in spellings for each in patterns if each.fullmatch(text)), None)


def _commands(action: Action) -> tuple[SimpleCommand, ...]:
    return action.shell.commands if action.shell is not None else ()


def _covers_effects(patterns: tuple[re.Pattern[str], ...], action: Action, command: SimpleCommand) -> bool:
    """Return whether what a command does by its options is permitted: as what it does, or because it is spelled out.

    ``tool:bash:find .*`` is no word about deleting: ``find -delete`` needs ``rm`` to be permitted as well.
    """
    for effect in command.effects:
        programs = [entry for entry in effect.by if entry.split()[0] != command.words[0]]
        as_it_is = any(_matching(patterns, action, f"tool:{action.tool}:{each}") is not None for each in programs)
        if not as_it_is and not any(_spells_out(each, action, command, effect) for each in patterns):
            return False
    return True


def _spells_out(pattern: re.Pattern[str], action: Action, command: SimpleCommand, effect: Effect) -> bool:
    """Return whether ``pattern`` permits the command for the words that have the effect, and not for any words."""
    words = command.text.split(" ")
    named = command.words[effect.at] if effect.at >= 0 else ""
    others = " ".join("\0" if word.startswith(("-", "+", "'", '"')) or word == named else word for word in words)
    texts, probes = ([f"tool:{name}:{text}" for name in action_names(action.tool)] for text in (command.text, others))
    return any(map(pattern.fullmatch, texts)) and not any(map(pattern.fullmatch, probes))


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
