"""Which actions an agent may take: profiles of regular expressions over action strings.

An action's text is ``tool:<name>:<detail>``. Every expression must match the whole of it, newlines included. Any
``allow`` wins, then any ``ask``; an action that neither matches is denied. Scope decides about paths and commands: a
profile never widens it.
"""

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, ClassVar, Literal

from pyagentd.config.tables import compile_action
from pyagentd.errors import BadRequest
from pyagentd.policy.action import META_TOOLS, Action, Kind, action_names, action_prefixes, canonical_tool
from pyagentd.policy.shell import Effect, SimpleCommand
from pyagentd.reader import INSIDE, Rule

log = logging.getLogger(__name__)

_TIMEOUT_S = 0.05  # for one text: a slower expression does not match
_REPEATED_GROUP = re.compile(r"\)[*+{]")
_NO_COUNT = re.compile(r"(?<!\\)((?:\\\\)*)\{(?!\d+(?:,\d*)?\}|,\d*\})")

Verdict = Literal["allow", "ask", "deny"]


def _parse_expression(value: object) -> re.Pattern[str]:
    if not isinstance(value, str) or not value.strip():
        raise ValueError
    return compile_action(value)


_Expression = Annotated[re.Pattern[str], Rule(parse=_parse_expression, words="a text")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Expressions for actions that are allowed, and for those that need approval; other actions are denied."""

    CLOSED: ClassVar[bool] = True  # a third list would be mistaken for a rule

    name: str = field(default="custom", metadata=INSIDE)
    allow: tuple[_Expression, ...] = ()
    ask: tuple[_Expression, ...] = ()


def fits(pattern: re.Pattern[str], text: str, *, doubt: bool = False) -> bool:
    """Return whether ``pattern`` matches all of ``text``; ``doubt`` if matching takes too long."""
    if _is_quick(pattern.pattern):
        return pattern.fullmatch(text) is not None
    found = _matches_in_time(pattern, text)
    return doubt if found is None else found


@lru_cache(maxsize=4096)
def _is_quick(pattern: str) -> bool:
    """Return whether ``pattern`` cannot backtrack much: it has at most one repetition, and none of a group."""
    bare = pattern.replace("(?:", "(")
    repeats = sum(map(bare.count, "*+{"))
    return repeats <= 1 and bare.count("?") <= 2 and bare.count("(") <= 3 and not _REPEATED_GROUP.search(bare)


@lru_cache(maxsize=256)
def _matches_in_time(pattern: re.Pattern[str], text: str) -> bool | None:
    """Return whether ``pattern`` matches all of ``text``; None if matching takes too long."""
    import regex  # slow to import, and most sessions never need it

    # Syntax that only ``regex`` has stays literal: {e<=1}, [[:alpha:]].
    same = _NO_COUNT.sub(r"\1\\{", pattern.pattern).replace("[[:", r"[\[:")
    flags = (regex.DOTALL if pattern.flags & re.DOTALL else 0) | regex.VERSION0
    try:
        return regex.fullmatch(same, text, flags, timeout=_TIMEOUT_S) is not None
    except TimeoutError:
        log.warning("the expression %r takes too long for an action of %d characters", pattern.pattern, len(text))
    except regex.error as error:
        log.warning("the expression %r cannot be matched: %s", pattern.pattern, error)
    return None


def make_profile(name: str, *, allow: Sequence[str] = (), ask: Sequence[str] = ()) -> Profile:
    """Return a profile from expressions as text; raises as ``compile_action``."""
    return Profile(name=name, allow=tuple(map(compile_action, allow)), ask=tuple(map(compile_action, ask)))


def resolve_profile(profile: Profile | str | None) -> Profile | None:
    """Return a preset's profile; a name means a built-in one.

    Raises:
        BadRequest: No profile has that name.
    """
    if not isinstance(profile, str):
        return profile
    if profile not in BUILTIN:
        raise BadRequest(f"No profile is called {profile!r}", hint=f"Known: {', '.join(BUILTIN)}")
    return BUILTIN[profile]


def verdict(profile: Profile, action: Action) -> Verdict:
    """Return the verdict of ``profile`` on ``action``, with all its names and spellings.

    The actual effects must be permitted too: a link's target, and each command of a line.
    """
    if covering_expressions(profile.allow, action) is not None:
        return "allow"
    if covering_expressions((*profile.allow, *profile.ask), action) is not None:
        return "ask"
    return "deny"


def covering_expressions(patterns: Iterable[re.Pattern[str]], action: Action) -> str | None:
    """Return the expressions that together permit all of ``action``, for the audit; None if they do not.

    A grant of exactly this command line covers its commands; any other expression must match each command.
    """
    patterns = tuple(patterns)
    exact = re.escape(str(action))
    if action.kind == "command" and any(pattern.pattern == exact for pattern in patterns):
        return exact
    found: dict[str, None] = {}
    for form in action.forms:
        match = _matching_pattern(patterns, action, form)
        if match is None:
            return None
        found[match] = None
    if not all(
        _covers_effects(patterns, action, command) for command in (action.shell.commands if action.shell else ())
    ):
        return None
    return ", ".join(found)


def _matching_pattern(patterns: tuple[re.Pattern[str], ...], action: Action, form: str) -> str | None:
    spellings = action.spellings(form)
    return next((each.pattern for text in spellings for each in patterns if fits(each, text)), None)


def _covers_effects(patterns: tuple[re.Pattern[str], ...], action: Action, command: SimpleCommand) -> bool:
    """Return whether the effects of a command's options are permitted, or spelled out by a pattern.

    ``tool:bash:find .*`` does not permit deleting: ``find -delete`` needs a pattern for ``rm`` as well.
    """
    for effect in command.effects:
        programs = [entry for entry in effect.by if entry.split()[0] != command.words[0]]
        as_it_is = any(
            _matching_pattern(patterns, action, f"tool:{action.tool}:{each}") is not None for each in programs
        )
        if not as_it_is and not any(_spells_out(each, action, command, effect) for each in patterns):
            return False
    return True


def _spells_out(pattern: re.Pattern[str], action: Action, command: SimpleCommand, effect: Effect) -> bool:
    """Return whether ``pattern`` permits the command because of the words with the effect, not with any words."""
    words = command.text.split(" ")
    named = command.words[effect.at] if effect.at >= 0 else ""
    others = " ".join("\0" if word.startswith(("-", "+", "'", '"')) or word == named else word for word in words)
    texts, probes = ([f"tool:{name}:{text}" for name in action_names(action.tool)] for text in (command.text, others))
    return any(fits(pattern, text) for text in texts) and not any(fits(pattern, text, doubt=True) for text in probes)


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
            # The last three: what other programs do, and what leaves for the network, is asked about like commands.
            ask=[
                "tool:bash:.*",
                "tool:git:push .*",
                "tool:git:merge_request .*",
                "tool:self_edit:.*",
                "mcp:.*",
                "tool:WebFetch:.*",
                "tool:WebSearch:.*",
            ],
        ),
        make_profile("locked", allow=["tool:view:.*"]),
    )
}


# The tools that a model sees: without those that its profile denies for every detail.
#
# Hiding a tool spares the model a refusal; every call is still decided anew. So a tool is hidden only if certainly
# none of its actions would pass: no expression matches any text with one of its prefixes.

# An expression with one of these is assumed to match anything. The first ones look at the end of the text, and
# partial matching takes the end of the prefix for that; ``regex`` reads the others differently from ``re``.
_UNSURE = re.compile(r"\\[bBZzGKmMXRLpPN]|\$(?!\Z)|\[\[|\{(?![\d,])|\(\?\(|--|&&|\|\||~~")


def may_pass(profile: Profile | None, tool: str) -> bool:
    """Return whether some action of ``tool`` may pass ``profile``; without a profile, any may."""
    if profile is None or canonical_tool(tool) in META_TOOLS:
        return True
    patterns = [pattern.pattern for pattern in (*profile.allow, *profile.ask)]
    return any(_may_match(pattern, prefix) for prefix in action_prefixes(tool) for pattern in patterns)


@lru_cache(maxsize=4096)
def _may_match(pattern: str, prefix: str) -> bool:
    """Return False only if ``pattern`` matches no text that begins with ``prefix``."""
    if _UNSURE.search(pattern):
        return True
    import regex  # slow to import, and most sessions have no profile

    try:
        return regex.fullmatch(pattern, prefix, regex.DOTALL | regex.VERSION0, partial=True, timeout=1.0) is not None
    except (regex.error, TimeoutError):
        return True


# Read-only agents: what a preset with ``read-only: true`` permits to its agent, and to all agents below it.
#
# This is checked before scope, profiles, grants and answers, so nothing that they allow lets such an agent change
# anything. It is an allowlist: any other tool is refused, wherever it comes from and whatever it declares.
#
# Every command is refused. Whether a command only reads depends on its options, its configuration and the programs
# that it calls, and an agent that plans can read and search without commands.

_EXPANSION = "request_scope_expansion"

READ_ONLY_TOOLS: dict[str, frozenset[Kind]] = {
    **dict.fromkeys(("Read", "Glob", "Grep"), frozenset[Kind]({"read"})),
    # These write only to the user or to the model, and an agent that they spawn is read-only too.
    **dict.fromkeys(
        ("question", "TodoWrite", "skill", "tool_search", "PersistentAgent", "task", "mission", _EXPANSION),
        frozenset[Kind]({"meta", "read"}),
    ),
    **dict.fromkeys(("WebSearch", "WebFetch"), frozenset[Kind]({"net"})),
}
"""The tools that change nothing, each with its admitted kinds of action."""

PLAN = "plan"
"""A preset of this name is always read-only."""


def is_read_only(tool: str) -> bool:
    """Return whether ``tool`` may be offered to a read-only agent."""
    return canonical_tool(tool) in READ_ONLY_TOOLS


def read_only_refusal(action: Action, *, own: bool, above: bool) -> str | None:
    """Return why a read-only agent may not take the action; None if it may, or is not read-only.

    ``own``: its own preset is read-only; ``above``: a session above it is, or was when the agent was spawned.
    """
    if not (own or above) or _only_looks(action):
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


def _only_looks(action: Action) -> bool:
    tool = canonical_tool(action.tool)
    if action.kind not in READ_ONLY_TOOLS.get(tool, ()) or action.writes or action.command is not None:
        return False
    # A request for more scope is useless for a tool that is refused anyway.
    return tool != _EXPANSION or is_read_only(action.detail.split(" ", 1)[0])
