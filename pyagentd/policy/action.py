"""Path patterns, tool names, and the action that policy decides about."""

import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from wcmatch import fnmatch

from pyagentd.errors import BadRequest
from pyagentd.policy.shell import ShellReading

# Glob patterns over whole absolute paths.
#
# ==========  ============================================================================
# ``*``       any characters within one segment, hidden files too
# ``?``       one character of a segment; ``[a-c]`` one of a set
# ``**``      as a whole segment: any number of segments, or none
# ``/d/**``   everything below ``/d``, not ``/d`` itself
# ``**/x``    ``x`` at any depth, also directly below ``/``
# ==========  ============================================================================
#
# There is no negation and no brace expansion; matching is case-sensitive, except for prohibitions.
# A pattern that ends in ``/`` matches everything below.

# FORCEUNIX and CASE: the same answer on every system.
_FLAGS = fnmatch.DOTMATCH | fnmatch.FORCEUNIX | fnmatch.CASE

# HFS+ ignores these characters in names: with one of them, ``.git`` is still ``.git``.
_IGNORED = dict.fromkeys([*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070), 0xFEFF])

_ANY_DEPTH = "**"
_WILD = re.compile(r"[*?/]+")
_SPECIAL = re.compile(r"[*?\[\\]")
_SHOWN_PATTERNS = 5


def matches(pattern: str, path: str) -> bool:
    """Return whether ``pattern`` matches all of the absolute ``path``."""
    literal, matcher = _compile(normalise(pattern))
    # A search matches every file that it finds: the substring test is fifty times cheaper than the pattern.
    return literal in path and matcher.match(path)


def first_match(patterns: Iterable[str], path: str) -> str | None:
    """Return the first of ``patterns`` that matches ``path``, or None."""
    return next((pattern for pattern in patterns if matches(pattern, path)), None)


def first_match_folded(patterns: tuple[str, ...], path: str) -> str | None:
    """Return the first of ``patterns`` that forbids ``path``, ignoring case and Unicode composition.

    Some file systems treat ``.ENV`` as ``.env``, and both forms of ``é`` as the same; a prohibition must hold there
    too.
    """
    name = _fold(path)
    for pattern, literal, matcher in _compile_folded(patterns):
        if literal in name and matcher.match(name):
            return pattern
    return None


def under(directory: str) -> str:
    """Return a pattern for everything below ``directory``, with special characters escaped."""
    return exactly(directory.rstrip("/")) + "/**"


def exactly(path: str) -> str:
    """Return a pattern for ``path`` alone, with special characters escaped.

    Only characters that need it are escaped, since people read the pattern.
    """
    return _SPECIAL.sub(r"\\\g<0>", path)


def normalise(pattern: str) -> str:
    """Return ``pattern`` with ``~`` replaced by the user's home, and a ``/`` at its end by ``/**``."""
    if pattern.startswith("~/"):
        home = os.path.expanduser("~")  # noqa: PTH111 - as text; no Path is made here
        pattern = exactly(home.rstrip("/")) + pattern[1:]
    return pattern + "**" if pattern.endswith("/") else pattern


def validate_pattern(pattern: str) -> None:
    """Check that ``pattern`` can match an absolute path.

    Raises:
        BadRequest: It cannot: a rule that never matches must not go unnoticed.
    """
    if not pattern.startswith(("/", "**/", "~/")):
        raise BadRequest(
            f"The pattern {pattern!r} is not absolute",
            hint="Begin it with /, with ~/ or with **/ for any depth; all below a directory is /DIR/**",
        )
    if any(segment in (".", "..") for segment in pattern.split("/")):
        raise BadRequest(
            f"The pattern {pattern!r} has a . or .. segment, which no path has", hint="Write the directory it means"
        )
    if "\0" in pattern or "\n" in pattern:
        raise BadRequest(f"The pattern {pattern!r} has a control character", hint="Write one pattern a line")


def _fold(text: str) -> str:
    """Return ``text`` without the differences that any file system ignores."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text.translate(_IGNORED)).casefold())


class _Matcher:
    """Matches paths with a pattern, in time proportional to both: a model may write any pattern.

    A pattern is a list of runs of names, separated by ``**``. The first run must be at the start of the path, the
    last one at the end; each run in between is matched at its first possible place.
    """

    def __init__(self, pattern: str) -> None:
        self._runs: list[list[Callable[[str], object]]] = [[]]
        for segment in re.split("/+", pattern):
            if segment == _ANY_DEPTH:
                self._runs.append([])
            else:
                self._runs[-1].append(_name_matcher(segment))

    def match(self, path: str) -> bool:
        """Return whether the pattern matches all of ``path``."""
        names = path.split("/")
        *runs, last = self._runs
        if last and not names[-1]:
            names.pop()  # the slash after a directory
        at = 0
        for number, run in enumerate(runs):
            starts = range(at, len(names) - len(run) + 1)[: None if number else 1]
            start = next((start for start in starts if _begins(run, names[start:])), None)
            if start is None:
                return False
            at = start + len(run)
        if not last:
            return at < len(names)
        start = len(names) - len(last)
        return (start >= at if runs else start == 0) and _begins(last, names[start:])


def _begins(run: Sequence[Callable[[str], object]], names: Sequence[str]) -> bool:
    """Return whether ``names``, at least as many, begin with a run of a pattern."""
    return all(fits(name) for fits, name in zip(run, names, strict=False))


def _name_matcher(segment: str) -> Callable[[str], object]:
    """Return a predicate that matches names with the segment of a pattern."""
    if not _SPECIAL.search(segment):
        return segment.__eq__
    return re.compile(fnmatch.translate(segment, flags=_FLAGS)[0][0]).match


@lru_cache(maxsize=1024)
def _compile_folded(patterns: tuple[str, ...]) -> tuple[tuple[str, str, _Matcher], ...]:
    return tuple((pattern, *_compile(_fold(normalise(pattern)))) for pattern in patterns)


@lru_cache(maxsize=4096)
def _compile(pattern: str) -> tuple[str, _Matcher]:
    """Return a text that every path matched by ``pattern`` contains, and the matcher."""
    plain = re.split(r"[\[\\]", pattern, maxsplit=1)[0]  # what follows a set or an escape is not literal
    return max(_WILD.split(plain), key=len), _Matcher(pattern)


# Tool names.
#
# Presets that were written for gptel, Claude Code or other programs use other names for the same tools; policy, log
# and wire only see pyagentd's. A profile may use any of these names in an action (``tool:view:.*``), and one name may
# mean several tools there.

META_TOOLS = frozenset(
    {
        "PersistentAgent",
        "task",
        "mission",
        "request_scope_expansion",
        "question",
        "TodoWrite",
        "skill",
        "tool_search",
        "TaskOutput",
        "KillTask",
    }
)
"""Tools without a resource of their own: profiles do not deny them, and they have no scope."""

# pyagentd's name, which never changes; names in gptel, in hosts of named agents, in Claude Code and others.
_OTHER_NAMES: dict[str, tuple[str, ...]] = {
    "Read": ("read", "read_file", "read_file_in_scope", "view", "View", "ReadFile"),
    "Write": ("write", "write_file", "write_file_in_scope", "create_file", "WriteFile"),
    "Edit": ("edit", "edit_file", "edit_file_in_scope", "str_replace", "MultiEdit"),
    "Glob": ("glob", "glob_files", "list_files", "list_directory", "list_project_files", "LS"),
    "Grep": ("grep", "grep_files", "search_files", "search_project_content"),
    "Bash": ("bash", "run_approved_command", "run_command", "shell", "Shell"),
    "PersistentAgent": ("persistent_agent",),
    "task": ("Task", "agent", "Agent"),
    "question": ("ask_user_questions", "ask_user_question", "AskUserQuestion", "Question"),
    "TodoWrite": ("todo", "todo_write", "Todo"),
    "request_scope_expansion": ("scope_expansion", "RequestScopeExpansion"),
    "WebSearch": ("web_search",),
    "WebFetch": ("web_fetch",),
    "skill": ("Skill",),
    "tool_search": ("ToolSearch",),
    "TaskOutput": ("task_output", "BashOutput"),
    "KillTask": ("kill_task", "KillShell", "KillBash", "TaskStop"),
}

_OURS = {other: ours for ours, others in _OTHER_NAMES.items() for other in others}

# One action name for several tools: finding files and searching in them is viewing, and either of two tools spawns an
# agent.
_SHARED_ACTIONS: dict[str, tuple[str, ...]] = {
    "Glob": ("view",),
    "Grep": ("view",),
    "PersistentAgent": ("task", *_OTHER_NAMES["task"]),
    "task": ("PersistentAgent", *_OTHER_NAMES["PersistentAgent"]),
}

# Tools whose action has another tool's name and the beginning of its detail.
_PARTS: dict[str, str] = {
    "git_init": "git:init",
    "git_commit": "git:commit",
    "git_push": "git:push ",
    "git_branch": "git:branch ",
    "git_merge_request": "git:merge_request ",
    "self_edit_system_prompt": "self_edit:system_prompt",
    "self_edit_docs": "self_edit:docs:",
    "self_edit_permissions": "self_edit:permissions:",
    "self_edit_model": "self_edit:model:",
}


def canonical_tool(name: str) -> str:
    """Return pyagentd's name for the tool ``name``; an unknown name is returned unchanged."""
    return _OURS.get(name, name)


def is_ours(name: str) -> bool:
    """Return whether a name is pyagentd's or another name of a built-in tool, and so reserved."""
    return name in META_TOOLS or name in _OTHER_NAMES or name in _OURS or name in _PARTS


def action_names(tool: str) -> tuple[str, ...]:
    """Return every name that a profile may use for ``tool``, pyagentd's first."""
    ours = canonical_tool(tool)
    return (ours, *_OTHER_NAMES.get(ours, ()), *_SHARED_ACTIONS.get(ours, ()))


def action_prefixes(tool: str) -> tuple[str, ...]:
    """Return the prefixes of the action strings of ``tool``, with every name."""
    if tool in _PARTS:
        return (f"tool:{_PARTS[tool]}",)
    return tuple(f"tool:{name}:" for name in action_names(tool))


def join_patterns(allowed: Sequence[str]) -> str:
    """Return the first patterns of a list for a sentence, and the number of further ones."""
    more = [f"{len(allowed) - _SHOWN_PATTERNS} more"] if len(allowed) > _SHOWN_PATTERNS else []
    return ", ".join([*allowed[:_SHOWN_PATTERNS], *more]) or "which is empty"


# The action: what is about to happen, and every way to write it.
#
# Its text is ``tool:<name>:<detail>``. Profiles and grants are regular expressions on that text. They may use any
# name of the tool and, inside the workspace, the path relative to its root.

Kind = Literal["read", "write", "command", "net", "mcp", "self", "meta"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedPath:
    """An absolute path as written and resolved, without ``.`` or ``..``."""

    lexical: str  # as written
    resolved: str  # with every symbolic link followed; only this form is ever opened

    def __str__(self) -> str:
        same = self.lexical == self.resolved
        return self.lexical if same else f"{self.lexical} (really {self.resolved})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The target of a call, which a tool derives from the arguments."""

    detail: str  # the last part of the action string: an absolute path, a command, a name
    paths: tuple[ResolvedPath, ...] = ()  # used as ``Action.kind`` says; for a command, the files that it reads
    writes: tuple[ResolvedPath, ...] = ()  # the files that a command writes, as far as known
    command: str | None = None
    shell: ShellReading | None = None  # the parsed command
    confined: bool = True  # something keeps the command inside its scope while it runs
    rule: str = ""  # of kind "mcp": the whole text of the action, ``mcp:<server>:<tool>``
    may_change_any_file: bool = False  # ... of the workspace, and it is not known which
    change: str | None = None  # of kind "self": what it was and what it would be, as JSON for the audit


@dataclass(frozen=True, slots=True, kw_only=True)
class Action(Target):
    """A tool call before it is made; its text is ``tool:<name>:<detail>``, or ``rule``."""

    tool: str
    kind: Kind
    root: str = ""  # the workspace root, for a profile's relative paths

    def __str__(self) -> str:
        return self.rule or f"tool:{self.tool}:{self.detail}"

    @property
    def forms(self) -> tuple[str, ...]:
        """The action as written, and as it takes effect: the target of a link, each command of a line.

        A permission must match all of them: a link must not get the permissions of its name, nor a command those of
        the one before it.
        """
        if self.kind == "command":
            commands = self.shell.commands if self.shell is not None else ()
            return tuple(dict.fromkeys((str(self), *(f"tool:{self.tool}:{each.text}" for each in commands))))
        own = {path.lexical.rstrip("/"): path.resolved.rstrip("/") for path in self.paths}
        really = own.get(self.detail.rstrip("/"))
        if really is None or really == self.detail.rstrip("/"):
            return (str(self),)
        return (str(self), f"tool:{self.tool}:{really or '/'}")

    def spellings(self, form: str) -> Iterator[str]:
        """Yield every way to write one of ``forms``."""
        if self.rule:
            yield from (self.rule, f"tool:{self.rule}")  # so that ``tool:.*`` is everything
            return
        detail = form.removeprefix(f"tool:{self.tool}:")
        details = [detail]
        if self.root and self.kind in ("read", "write"):
            root = self.root.rstrip("/")
            if detail.rstrip("/") == root:
                details.append(".")
            elif detail.startswith(root + "/"):
                details.append(detail[len(root) + 1 :])
        for name in action_names(self.tool):
            for each in details:
                yield f"tool:{name}:{each}"
