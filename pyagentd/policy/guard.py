"""The decision about an action: allow, ask or deny; and the patterns by which an approval is remembered.

A deny wins over every allow, and nothing can allow a protected place. The order of the rules is fixed, and the first
one that applies decides: 1 protected places, 2 any deny of the agent or of a session above it, also because one of
them is read-only, 3 a human's approval of exactly this resource, once, 4 tools that have no resource, 5 scope, 6 the
profile, 7 whether the tool asks for confirmation. Nothing here looks at the disk: paths are resolved, commands and
rules parsed beforehand.
"""

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, assert_never

from pyagentd.policy import shell
from pyagentd.policy.action import (
    Action,
    ResolvedPath,
    exactly,
    first_match,
    first_match_folded,
    join_patterns,
)
from pyagentd.policy.presets import Preset
from pyagentd.policy.profiles import Profile, covering_expressions, fits, read_only_refusal, verdict
from pyagentd.policy.shell import ANY, COMMAND_DEVICES, SimpleCommand


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The rules for one decision; read again for each."""

    preset: Preset
    interactive: bool  # a human can be asked
    profile: Profile | None = None  # None: every action, and a tool's ``confirm`` decides
    ancestor_denies: tuple[str, ...] = ()  # ``paths.deny`` of every session above an agent
    ancestor_commands: tuple[str, ...] = ()  # ... and their ``shell_commands.deny``
    ancestor_profiles: tuple[Profile, ...] = ()  # ... and their profiles: an agent may not do what one of them denies
    ancestor_read_only: bool = False  # ... and whether one of them is read-only
    protected: tuple[str, ...] = ()  # the daemon's own files, never written by a tool
    readable: tuple[str, ...] = ()  # read scope beside the preset's: the run's own spooled output
    grants: tuple[re.Pattern[str], ...] = ()  # match a whole action that then needs no confirmation: --allow
    remembered: tuple[re.Pattern[str], ...] = ()  # the same, from a human's answers to asks
    allow_once: frozenset[str] = frozenset()  # exact actions that a human allowed once: ``guard.once_key``


Rule = Literal["protected", "deny", "scope", "command", "profile", "headless", "read-only"]


@dataclass(frozen=True, slots=True)
class Allow:
    """The action may happen."""

    by: str  # for the audit: "scope", "meta", "grant REGEX", "profile NAME", "allowed once"


@dataclass(frozen=True, slots=True)
class Ask:
    """A human must decide."""

    reason: str
    remember: tuple[str, ...] = ()  # the regular expressions that "session" and "always" would remember
    is_routine: bool = False  # a rule asks before every such action; the reason is no warning


@dataclass(frozen=True, slots=True)
class Deny:
    """The action must not happen."""

    reason: str
    rule: Rule


Decision = Allow | Ask | Deny

Confirm = bool | Literal["always"]
"""Whether a tool asks for approval: True unless a profile or a grant allows the action, "always" in any case."""


def decide(action: Action, context: Context, confirm: Confirm) -> Decision:
    """Decide about ``action``, which the tool computed from validated arguments."""
    action = _complete_command(action)
    if refusal := protected_reason(action, context):
        return Deny(refusal, "protected")
    if refusal := denied_reason(action, context):
        return Deny(refusal, "deny")
    if refusal := read_only_refusal(action, own=context.preset.read_only, above=context.ancestor_read_only):
        return Deny(refusal, "read-only")
    if context.allow_once and not context.allow_once.isdisjoint(action.spellings(once_key(action))):
        return Allow("allowed once")
    if refusal := outside_reason(action, context):
        return Deny(refusal, "command" if action.kind == "command" else "scope")
    return _decide_in_scope(action, context, confirm)


def _complete_command(action: Action) -> Action:
    """Return a command with its parsed text, and without the devices in ``COMMAND_DEVICES``; other actions unchanged.

    If the caller has not parsed it, its files have not been resolved either.
    """
    if action.kind != "command":
        return action
    reading = action.shell
    if reading is None:
        reading = shell.read(action.command or "")
        if reading.reads or reading.writes or reading.looks:
            reading = replace(reading, unreadable="it names files, and nobody looked where they are")
    if not action.confined:
        reading = replace(reading, unreadable=reading.unreadable or reading.behind_links)
    paths, writes = (
        tuple(path for path in paths if path.lexical not in COMMAND_DEVICES)
        for paths in (action.paths, action.writes)
    )
    return replace(action, shell=reading, paths=paths, writes=writes)


def once_key(action: Action) -> str:
    """Return the entry of ``Context.allow_once`` for ``action``.

    It names the file that is really touched: if a link is changed afterwards, it is another resource.
    """
    return str(action) if action.kind == "command" else action.forms[-1]


def _decide_in_scope(action: Action, context: Context, confirm: Confirm) -> Decision:
    """Decide about an action inside the scope: by profiles, grants and the tool's ``confirm``."""
    profiles = [each for each in (context.profile, *context.ancestor_profiles) if each is not None]
    found = [(each, verdict(each, action)) for each in profiles]
    # Profiles do not ask about or deny tools without a resource; the tool itself decides whether to ask.
    verdicts = [(profile, says) for profile, says in found if action.kind != "meta" or says == "allow"]
    denying = next((profile for profile, says in verdicts if says == "deny"), None)
    asking = next((profile for profile, says in verdicts if says == "ask"), None)
    if denying is not None:
        return _profile_denial(action, denying, above=denying is not context.profile)
    if confirm == "always":
        return _decide_always_asked(action, context)
    if (reading := action.shell) is not None and reading.unreadable is not None:
        return _decide_unreadable(action, context, f"nobody can tell beforehand what it does: {reading.unreadable}")
    by_name = reading is None or shell.is_allowed_by_name(reading, context.preset.shell.allow)  # not by ``*`` alone
    if reading is not None and reading.unlisted is not None and not action.confined and not by_name:
        return _decide_unreadable(action, context, f"it runs with your rights, not confined: {reading.unlisted}")
    if asking is None and context.profile is not None and (context.profile, "allow") in verdicts:
        return Allow(f"profile {context.profile.name}")
    if asking is None and not confirm:
        return Allow("meta" if action.kind == "meta" else "scope")
    if grant := covering_grants(action, context.remembered) or covering_expressions(context.grants, action):
        return Allow(f"grant {grant}")
    if asking is not None:
        return _decide_by_human(action, context, f"the profile {asking.name!r} asks before {action.tool} does this")
    return _decide_by_human(action, context, f"{action.tool} acts only with your approval, and no grant covers this")


def _profile_denial(action: Action, profile: Profile, *, above: bool) -> Deny:
    whose = "a session above this agent" if above else "this session"
    return Deny(
        f"{action.tool} may not do this: the profile {profile.name!r} of {whose} neither allows it nor lets the user "
        f"be asked ({action}). Reach the goal in another way, or say that it was not possible.",
        "profile",
    )


def _decide_unreadable(action: Action, context: Context, why: str) -> Decision:
    """Decide about a command that only ``*`` admits, and whose effects are not known.

    Only a human who saw this very text can allow it: the author of a profile or an ``--allow`` did not.
    """
    if grant := covering_grants(action, context.remembered):
        return Allow(f"grant {grant}")
    if context.interactive:
        return Ask(why, patterns_to_remember(action))
    return Deny(
        f"{action.tool} may not run this: {why}. No human can be asked in this run. Write it as plain commands, one "
        f"call each, or use another tool; the user can name the program in `shell_commands.allow`.",
        "headless",
    )


def _decide_always_asked(action: Action, context: Context) -> Decision:
    """Decide about an action that a human must approve each time, whatever profiles, grants and options allow."""
    if context.interactive:
        return Ask(f"{action.tool} does this only when you say so, each time")
    return Deny(
        f"{action.tool} needs a human's approval each time, and none can be asked in this run. Go on without it, and "
        f"say in your answer what you wanted to change.",
        "headless",
    )


def _decide_by_human(action: Action, context: Context, reason: str) -> Ask | Deny:
    if context.interactive:
        return Ask(reason, patterns_to_remember(action), is_routine=True)
    grants = (str(action),) if action.kind == "command" else action.forms
    options = " ".join(f"--allow {shlex.quote(re.escape(each))}" for each in grants)
    return Deny(
        f"{action.tool} needs a human's approval, and none can be asked in this run. "
        f"Whoever starts it can approve this beforehand with {options}",
        "headless",
    )


# Places that no tool may touch, whatever a preset or a person's grant says.
#
# A session's own records decide what the agent may do next, so a tool that could write them could give itself any
# permission. Credentials must not even be read: what a model has seen has left the machine. The patterns match names,
# so they also cover a session outside the sessions root and any user's home; the daemon adds its own directories.

_RECORDS = (
    "session.md",
    "preset.md",
    "scope-plan.yml",
    "branch-metadata.yml",
    "messages.jsonl",
    "requests*.jsonl",
    "agent.json",
    "tools.org",
    "system-prompts.org",
)

SESSION_RECORDS = tuple(f"**/branches/*/{inner}{name}" for name in _RECORDS for inner in ("", "agents/**/"))

HOOKS = ("**/.pyagentd/hooks.toml", "**/.pyagentd/hooks/**")
"""A project's hooks, which are called before its agents act: an agent must not disable them."""

GIT = (
    "**/.git",  # as a file it has the repository's path
    "**/.git/**/commondir",
    "**/.git/**/config",
    "**/.git/**/config.worktree",
    "**/.git/**/hooks/**",
)
"""Files that make git run programs, later and unconfined: file tools must not write them; git itself may."""

CREDENTIALS = (
    "**/.authinfo*",
    "**/.netrc",
    "**/.git-credentials",
    "**/.pgpass",
    "**/.pypirc",
    "**/.ssh",
    "**/.ssh/**",
    "**/.gnupg",
    "**/.gnupg/**",
    "**/.aws",
    "**/.aws/**",
    "**/.password-store",
    "**/.password-store/**",
    "**/.config/gcloud/**",
    "**/.config/gh/hosts.yml",
    "**/.config/git/credentials",
    "**/.docker/config.json",
    "**/.kube/config",
    "**/.azure/**",
    "**/.vault-token",
    "**/.my.cnf",
    "**/.cargo/credentials*",
    "**/.gem/credentials",
    "**/.terraform.d/credentials.tfrc.json",
    "**/.local/share/keyrings/**",
    "**/.pyagentd-snapshots",  # former contents of other projects' files, perhaps secrets
    "**/.pyagentd-snapshots/**",
    # Of this process and the user's others: variables hold keys, and open files and memory have no path of their own.
    "/proc/*/environ",
    "/proc/*/mem",
    "/proc/*/fd/**",
    "/proc/*/map_files/**",
    "/proc/*/task/*/environ",
    "/proc/*/task/*/mem",
    "/proc/*/task/*/fd/**",
)


# The scope: the steps of the decision that look at paths and commands.
#
# A prohibition matches either form of a path, and ignores case and other differences that some file system ignores; a
# permission matches only the resolved form, character by character. Reasons are whole sentences, for the model that
# must find another way and for the person who can change a rule.

EXPAND = "Use request_scope_expansion to ask the user for approval."


def protected_reason(action: Action, context: Context) -> str | None:
    """Return why an action is always denied, whatever a preset or a person allows; None if it is not."""
    for path in (*action.paths, *action.writes):
        if _matching_pattern(CREDENTIALS, path):
            return (
                f"{action.tool} may not touch {path}: credentials may be there, which no tool reads or writes. "
                f"Ask the user for what you need to know."
            )
    for path in action.writes if action.kind in ("read", "command") else (*action.paths, *action.writes):
        if _matching_pattern((*context.protected, *SESSION_RECORDS, *HOOKS), path):
            return (
                f"{action.tool} may not change {path}: it belongs to the records and settings of pyagentd, or to "
                f"where it is installed, which no tool writes. Ask the user to change it."
            )
        if (action.kind == "write" or not action.confined) and _matching_pattern(GIT, path):
            return (
                f"{action.tool} may not change {path}: git runs the programs that are named there. Use git's own "
                f"commands with Bash, or ask the user to change it."
            )
    return None


def denied_reason(action: Action, context: Context) -> str | None:
    """Return which ``deny`` of the agent or of a session above it forbids the action, or None."""
    for path in (*action.paths, *action.writes):
        if pattern := _matching_pattern(context.preset.paths.deny, path):
            return (
                f"{action.tool} may not touch {path}: `paths.deny` has {pattern}. "
                f"Do without it; only the user can change that, in preset.md."
            )
        if pattern := _matching_pattern(context.ancestor_denies, path):
            return (
                f"{action.tool} may not touch {path}: a session above this agent denies {pattern} to all its agents. "
                f"Do without it and say so in your answer."
            )
    if action.command is None or action.shell is None:
        return None
    if text := shell.matching_deny(action.command, action.shell, context.preset.shell.deny):
        return f"{action.tool} may not run this: `shell_commands.deny` has {text!r}. Reach the goal in another way."
    if text := shell.matching_deny(action.command, action.shell, context.ancestor_commands):
        return (
            f"{action.tool} may not run this: a session above this agent denies {text!r} in commands to all its "
            f"agents. Reach the goal in another way, or say in your answer that it was not possible."
        )
    return None


def outside_reason(action: Action, context: Context) -> str | None:
    """Return why an action is outside the scope; None if it is inside."""
    paths = context.preset.paths
    match action.kind:
        case "meta":
            return None
        case "net" | "mcp" | "self":  # no path in the scope: profiles and the tool decide
            return None
        case "read" | "write" if not action.paths:
            return f"{action.tool} names no path, so nothing says that it is inside `paths.{action.kind}`. Name one."
        case "read":
            return _path_refusal(action, "read", action.paths, paths.read, context.readable)
        case "write":
            return _path_refusal(action, "write", action.paths, paths.write)
        case "command":
            return _command_refusal(action, context)
        case _:
            assert_never(action.kind)


def _command_refusal(action: Action, context: Context) -> str | None:
    if action.shell is None:
        return f"{action.tool} may not run this: what it does was not read."
    if why := shell.refusal(action.shell, context.preset.shell.allow):
        return f"{action.tool} may not run this: {why}. Use another tool for it, or another command. {EXPAND}"
    paths = context.preset.paths
    why = _path_refusal(action, "read", action.paths, paths.read, also=context.readable)
    return why or _path_refusal(action, "write", action.writes, paths.write)


def _path_refusal(
    action: Action, right: str, touched: Iterable[ResolvedPath], scope: tuple[str, ...], also: tuple[str, ...] = ()
) -> str | None:
    for path in touched:
        # A link inside the scope that leads out of it is outside: the file that would be opened counts.
        if first_match(scope, path.resolved) is None and first_match(also, path.resolved) is None:
            return (
                f"{action.tool} may not {right} {path}: it is outside `paths.{right}` of this session "
                f"({join_patterns(scope)}). Stay inside if you can. {EXPAND}"
            )
    return None


def _matching_pattern(patterns: tuple[str, ...], path: ResolvedPath) -> str | None:
    """Return the pattern that matches either form of ``path``: a link must not bypass a prohibition."""
    found = first_match_folded(patterns, path.resolved)
    return found or (None if path.lexical == path.resolved else first_match_folded(patterns, path.lexical))


# Remembered approvals: the patterns for an action, and whether patterns cover one; pure.
#
# A person who answers "for this session" or "always" agrees to the regular expressions that were shown, and to
# nothing else. Each is matched against a whole action string. No text that one of them matches can do more than its
# beginning says: a remembered ``git log`` never matches a line with another command, since the characters that could
# start one (``;``, ``|``, ``$``…) must not follow. A command line is covered only if *every* command of it is, and
# only by its exact text if it writes files, runs programs that its options name, or cannot be parsed.


_SPECIAL = re.compile(r"[\\.^$*+?{}\[\]|()]")

# What may follow a remembered command: only characters that a shell reads as words of the same command.
_ANY_WORDS = r"(?: [^;&|<>()$`\\\n\r]*)?"
_ONLY_OPTIONS = r"(?: (?:-[\w=,.:+-]*|\d+))*"

# Commands known by their second word: those that only read, whatever words follow, and those that run the project's
# own code anyway, so that no option adds to it. Other commands are remembered by their exact text: one that fetches
# or sends may name a program to run, one that checks may write a report anywhere, and the harmless uses of one that
# deletes prove nothing.
_KNOWN_BY_TWO = {
    "git": ("blame", "describe", "diff", "log", "ls-files", "rev-parse", "shortlog", "show", "status"),
    "cargo": ("build", "check", "clippy", "test"),
    "go": ("test",),
    "npm": ("test",),
    "pnpm": ("test",),
    "yarn": ("test",),
}
_SCRIPTS = ("npm", "pnpm", "yarn")  # `npm run NAME` is known by three words
_KNOWN_BY_ONE = ("jest", "pytest", "vitest")
_FILTERS = ("cat", "cut", "head", "ls", "nl", "pwd", "tac", "tail", "tr", "uniq", "wc")  # with options alone

_A_SITE = re.compile(r"tool:WebFetch:(https?://[^/?#]+)/.*", re.DOTALL)
_A_FILE = r"[^/]+"
_A_SERVERS = re.compile(r"mcp:([\w-]+):((?:\\.|[^\\.^$*+?{}\[\]|()])+)")
_CHANGING = "(?:Edit|Write)"


def patterns_to_remember(action: Action) -> tuple[str, ...]:
    """Return the regular expressions that "session" and "always" would remember for ``action``.

    A change of a file is remembered for the files of its directory, a web page for its site, a web search for all
    searches, a command as described above, anything else exactly.
    """
    if action.kind == "command":
        patterns = [_pattern_for_command(action.tool, command) for command in _commands_alone(action)]
        return tuple(dict.fromkeys(patterns or [literal(str(action))]))
    return tuple(dict.fromkeys(_pattern_for_form(action, form) for form in action.forms))


def covering_grants(action: Action, remembered: Iterable[re.Pattern[str]]) -> str | None:
    """Return the remembered patterns that cover ``action``, joined by " and "; None if it is not covered."""
    patterns = list(remembered)
    if action.kind != "command":
        return _matched_patterns(action.forms, patterns)  # a link must not get the permissions of its name
    if _has_exact(str(action), patterns):
        return literal(str(action))
    commands = _commands_alone(action)
    texts = [f"tool:{action.tool}:{command.text}" for command in commands]
    plain_or_exact = (
        _is_plain_command(each) or _has_exact(text, patterns) for each, text in zip(commands, texts, strict=True)
    )
    return _matched_patterns(texts, patterns) if commands and all(plain_or_exact) else None


def literal(text: str) -> str:
    """Return an expression that matches ``text`` alone, escaped only where necessary, for people to read."""
    return _SPECIAL.sub(r"\\\g<0>", text)


def explain_pattern(pattern: str) -> str:
    """Describe what a pattern of ``patterns_to_remember`` covers; return any other pattern unchanged."""
    if (server := _A_SERVERS.fullmatch(pattern)) is not None:
        return f"{_unescape(server[2])} of the MCP server {server[1]}, whatever its arguments"
    text = pattern.removeprefix("tool:")
    if text.startswith(f"{_CHANGING}:") and text.endswith(f"/{_A_FILE}"):
        return f"Edit and Write any file in {_unescape(text[len(_CHANGING) + 1 : -len(_A_FILE)])}"
    tool, _, rest = text.partition(":")
    for ending, words in ((_ANY_WORDS, "with any arguments"), (_ONLY_OPTIONS, "with any options")):
        if rest.endswith(ending):
            return f"{tool} `{_unescape(rest.removesuffix(ending))}` {words}"
    if rest == ".*":
        return f"{tool} anything"
    if tool == "WebFetch" and rest.endswith("/.*"):
        return f"{tool} any page of {_unescape(rest.removesuffix('/.*'))}"
    detail = _unescape(rest)
    if not rest or literal(detail) != rest:
        return pattern
    return f"{tool} {f'`{detail}`' if tool == 'Bash' else detail}, exactly"


def _pattern_for_form(action: Action, form: str) -> str:
    if action.kind == "write" and form.startswith(("tool:Edit:/", "tool:Write:/")):
        directory, _, _ = form.split(":", 2)[2].rpartition("/")
        return f"tool:{_CHANGING}:{literal(directory)}/{_A_FILE}"
    if action.kind == "net":
        site = _A_SITE.fullmatch(form)
        return f"tool:WebFetch:{literal(site[1])}/.*" if site else f"tool:{action.tool}:.*"
    return literal(form)


def _commands_alone(action: Action) -> tuple[SimpleCommand, ...]:
    """Return the commands of a parsed line that writes no file; () for any other line."""
    reading = action.shell
    if reading is None or reading.unreadable is not None or reading.writes or action.writes:
        return ()
    return reading.commands


def _pattern_for_command(tool: str, command: SimpleCommand) -> str:
    if _is_plain_command(command):
        words = command.words
        program, second = words[0], words[1] if len(words) > 1 else ""
        if second in _KNOWN_BY_TWO.get(program, ()):
            return f"tool:{tool}:{literal(f'{program} {second}')}{_ANY_WORDS}"
        if program in _SCRIPTS and second == "run" and len(words) > 2 and re.fullmatch(r"[\w:-]+", words[2]):
            return f"tool:{tool}:{literal(' '.join(words[:3]))}{_ANY_WORDS}"
        if program in _KNOWN_BY_ONE:
            return f"tool:{tool}:{literal(program)}{_ANY_WORDS}"
        if program in _FILTERS and re.fullmatch(program + _ONLY_OPTIONS, command.text):
            return f"tool:{tool}:{literal(program)}{_ONLY_OPTIONS}"
    return literal(f"tool:{tool}:{command.text}")


def _is_plain_command(command: SimpleCommand) -> bool:
    """Return whether a command is just its words: no wrapper, no variable, no option with effects."""
    if not command.words or not command.plain:
        return False
    try:
        return shlex.split(command.text) == list(command.words)
    except ValueError:
        return False


def _has_exact(text: str, patterns: list[re.Pattern[str]]) -> bool:
    return any(pattern.pattern in (literal(text), re.escape(text)) for pattern in patterns)


def _matched_patterns(texts: Iterable[str], patterns: list[re.Pattern[str]]) -> str | None:
    """Return the patterns that match the texts, or None if a text is matched by none."""
    used: dict[str, None] = {}
    for text in texts:
        found = next((pattern.pattern for pattern in patterns if fits(pattern, text)), None)
        if found is None:
            return None
        used[found] = None
    return " and ".join(used)


def _unescape(expression: str) -> str:
    return re.sub(r"\\(.)", r"\1", expression)


# Additions to the scope that a model requests and a human may approve; pure.
#
# Only lists that allow can grow. What is denied, protected or outside the profile stays so: these rules come first,
# with a widening too.

Right = Literal["read", "write", "command"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Widening:
    """Additions to one list of permissions."""

    right: Right
    patterns: tuple[str, ...]  # path patterns, or programs
    commands: tuple[str, ...] = ()  # requested command lines, in full

    @property
    def place(self) -> tuple[str, str]:
        """The section and key in ``preset.md`` of the list that they are added to."""
        return ("shell_commands", "allow") if self.right == "command" else ("paths", self.right)

    def preset(self, preset: Preset) -> Preset:
        """Return ``preset`` with the additions."""
        shell, paths = preset.shell, preset.paths
        if self.right == "command":
            return replace(preset, shell=replace(shell, allow=_merge(shell.allow, self.patterns)))
        added = _merge(paths.read if self.right == "read" else paths.write, self.patterns)
        return replace(preset, paths=replace(paths, **{self.right: added}))

    def widen(self, context: Context, action: Action) -> Context | None:
        """Return ``context`` with the additions, as far as they concern ``action``; None if they do not.

        A file that was requested by its exact name needs no further question; one that matches a pattern does, and so
        does every command: a requested line is inside the scope unchanged, and then its tool asks.
        """
        if action.kind != self.right and not (action.kind == "command" and self.right in ("read", "write")):
            return None
        named = (
            action.kind in ("read", "write")
            and len(action.paths) == 1
            and exactly(action.paths[0].resolved) in self.patterns
        )
        once = context.allow_once | {once_key(action)} if named else context.allow_once
        preset = self.preset(context.preset)
        if action.command is not None and action.command in self.commands:
            preset = replace(preset, shell=replace(preset.shell, allow=_merge(preset.shell.allow, (ANY,))))
        return replace(context, preset=preset, allow_once=once)


def _merge(had: Iterable[str], new: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*had, *new)))
