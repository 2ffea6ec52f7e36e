"""What an approval may be remembered as, and what a remembered approval covers; pure.

A person who answers "for this session" or "always" agrees to regular expressions that were shown, and to nothing
else. Each is matched against a whole action string. They are chosen so that no text which one of them matches can do
more than its beginning says: a remembered ``git log`` never matches a command with another command in it, since what
would begin one (``;``, ``|``, ``$``…) is not among the characters that may follow. A command line is covered only
when *every* command of it is, and only by its exact text when it writes files, runs what its options name, or cannot
be read at all.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyagentd.policy.action import Action
from pyagentd.policy.profiles import fits

if TYPE_CHECKING:
    from pyagentd.policy.shell import ShellReading, SimpleCommand

_SPECIAL = re.compile(r"[\\.^$*+?{}\[\]|()]")

# What may follow a remembered command: nothing that a shell would take for more than words of the same command.
_ANY_WORDS = r"(?: [^;&|<>()$`\\\n\r]*)?"
_ONLY_OPTIONS = r"(?: (?:-[\w=,.:+-]*|\d+))*"

# Commands known by their second word: those that only look, whatever words follow, and those that run the project's
# own code anyway, so that no option of theirs adds to it. A command that fetches or sends may name the program to do
# it with, one that checks may write a report anywhere, one that deletes is not agreed to by its harmless uses: what
# is remembered of these is their exact text.
_KNOWN_BY_TWO = {
    "git": ("blame", "describe", "diff", "log", "ls-files", "rev-parse", "shortlog", "show", "status"),
    "cargo": ("build", "check", "clippy", "test"),
    "go": ("test",),
    "npm": ("test",),
    "pnpm": ("test",),
    "yarn": ("test",),
}
_SCRIPTS = ("npm", "pnpm", "yarn")  # `npm run NAME` is known by three
_KNOWN_BY_ONE = ("jest", "pytest", "vitest")
_FILTERS = ("cat", "cut", "head", "ls", "nl", "pwd", "tac", "tail", "tr", "uniq", "wc")  # with options alone

_A_SITE = re.compile(r"tool:WebFetch:(https?://[^/?#]+)/.*", re.DOTALL)
_A_FILE = r"[^/]+"
_A_SERVERS = re.compile(r"mcp:([\w-]+):((?:\\.|[^\\.^$*+?{}\[\]|()])+)")
_CHANGING = "(?:Edit|Write)"


def remember(action: Action) -> tuple[str, ...]:
    """Return the regular expressions that "session" and "always" would remember for ``action``.

    A change of a file is remembered for the files of its directory, a page of the web for its site, a search of the
    web for all of them, a command as described above, anything else as exactly what it is.
    """
    if action.kind == "command":
        return _remembered_command(action)
    return tuple(dict.fromkeys(_for_form(action, form) for form in action.forms))


def covered(action: Action, remembered: Iterable[re.Pattern[str]]) -> str | None:
    """Return the remembered patterns that cover ``action``, joined by " and "; None when they do not."""
    patterns = list(remembered)
    if action.kind != "command":
        return _all_matched(action.forms, patterns)  # a link must not borrow the rights of its name
    exact = literal(str(action))
    if any(pattern.pattern in (exact, re.escape(str(action))) for pattern in patterns):
        return exact
    return _covered_command(action, patterns)


def literal(text: str) -> str:
    """Return the expression that matches exactly ``text``; what needs no escape has none, since people read it."""
    return _SPECIAL.sub(r"\\\g<0>", text)


def told(pattern: str) -> str:
    """Return what a pattern made by ``remember`` covers, for people; any other as it is."""
    if (server := _A_SERVERS.fullmatch(pattern)) is not None:
        return f"{_plain(server[2])} of the MCP server {server[1]}, whatever its arguments"
    text = pattern.removeprefix("tool:")
    if text.startswith(f"{_CHANGING}:") and text.endswith(f"/{_A_FILE}"):
        return f"Edit and Write any file in {_plain(text[len(_CHANGING) + 1 : -len(_A_FILE)])}"
    tool, _, rest = text.partition(":")
    for ending, said in ((_ANY_WORDS, "with any arguments"), (_ONLY_OPTIONS, "with any options")):
        if rest.endswith(ending):
            return f"{tool} `{_plain(rest.removesuffix(ending))}` {said}"
    if rest == ".*":
        return f"{tool} anything"
    if tool == "WebFetch" and rest.endswith("/.*"):
        return f"{tool} any page of {_plain(rest.removesuffix('/.*'))}"
    detail = _plain(rest)
    if not rest or literal(detail) != rest:
        return pattern
    return f"{tool} {f'`{detail}`' if tool == 'Bash' else detail}, exactly"


def _for_form(action: Action, form: str) -> str:
    if action.kind == "write" and form.startswith(("tool:Edit:/", "tool:Write:/")):
        directory, _, _ = form.split(":", 2)[2].rpartition("/")
        return f"tool:{_CHANGING}:{literal(directory)}/{_A_FILE}"
    if action.kind == "net":
        site = _A_SITE.fullmatch(form)
        return f"tool:WebFetch:{literal(site[1])}/.*" if site else f"tool:{action.tool}:.*"
    return literal(form)


def _remembered_command(action: Action) -> tuple[str, ...]:
    reading = action.shell
    if not _divisible(action, reading):
        return (literal(str(action)),)
    assert reading is not None
    return tuple(dict.fromkeys(_for_command(action.tool, command) for command in reading.commands))


def _covered_command(action: Action, patterns: list[re.Pattern[str]]) -> str | None:
    reading = action.shell
    if not _divisible(action, reading):
        return None
    assert reading is not None
    if not all(_is_plain(command) or _has_exact(action.tool, command, patterns) for command in reading.commands):
        return None
    return _all_matched([f"tool:{action.tool}:{command.text}" for command in reading.commands], patterns)


def _divisible(action: Action, reading: ShellReading | None) -> bool:
    """Return whether a command line is no more than the commands in it, and writes no file."""
    if reading is None or reading.unreadable is not None or not reading.commands:
        return False
    return not reading.writes and not action.writes


def _for_command(tool: str, command: SimpleCommand) -> str:
    if _is_plain(command):
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


def _is_plain(command: SimpleCommand) -> bool:
    """Return whether a command is its words and nothing more: no wrapper, no variable, no option that does more."""
    if not command.words or not command.plain:
        return False
    try:
        return shlex.split(command.text) == list(command.words)
    except ValueError:
        return False


def _has_exact(tool: str, command: SimpleCommand, patterns: list[re.Pattern[str]]) -> bool:
    text = f"tool:{tool}:{command.text}"
    return any(pattern.pattern in (literal(text), re.escape(text)) for pattern in patterns)


def _all_matched(texts: Iterable[str], patterns: list[re.Pattern[str]]) -> str | None:
    """Return the patterns that match the texts, or None when one of the texts is matched by none."""
    used: dict[str, None] = {}
    for text in texts:
        found = next((pattern.pattern for pattern in patterns if fits(pattern, text)), None)
        if found is None:
            return None
        used[found] = None
    return " and ".join(used)


def _plain(expression: str) -> str:
    return re.sub(r"\\(.)", r"\1", expression)
