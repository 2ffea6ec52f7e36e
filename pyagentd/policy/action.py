"""Actions as policy sees them: patterns of paths, names of tools, and the action itself."""

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
# ``*``       any characters of one segment, hidden files too
# ``?``       one character of a segment; ``[a-c]`` one of a set
# ``**``      as a whole segment: any number of segments, also none
# ``/d/**``   everything below ``/d``, not ``/d`` itself
# ``**/x``    ``x`` at any depth, also right below ``/``
# ==========  ============================================================================
#
# There is no negation and no brace expansion; case counts, except where something is forbidden.
# A pattern that ends in ``/`` means everything below.

# FORCEUNIX and CASE: the same answer on every system.
_FLAGS = fnmatch.DOTMATCH | fnmatch.FORCEUNIX | fnmatch.CASE

# HFS+ leaves these out of names: with one of them in it, ``.git`` is still ``.git``.
_IGNORED = dict.fromkeys([*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070), 0xFEFF])

_ANY_DEPTH = "**"
_WILD = re.compile(r"[*?/]+")
_SPECIAL = re.compile(r"[*?\[\\]")
_SHOWN_PATTERNS = 5


def matches(pattern: str, path: str) -> bool:
    """Return whether ``pattern`` matches all of the absolute ``path``."""
    literal, matcher = _compile(normalise(pattern))
    # A search asks about every file it finds: looking for a word is fifty times cheaper than matching.
    return literal in path and matcher.match(path)


def first_match(patterns: Iterable[str], path: str) -> str | None:
    """Return the first of ``patterns`` that matches ``path``, or None."""
    return next((pattern for pattern in patterns if matches(pattern, path)), None)


def first_match_folded(patterns: tuple[str, ...], path: str) -> str | None:
    """Return the first of ``patterns`` that forbids ``path``: matched without regard to case and composition.

    Some file systems take ``.ENV`` for ``.env``, and one form of ``é`` for the other; a prohibition holds there too.
    """
    name = _fold(path)
    for pattern, literal, matcher in _compile_folded(patterns):
        if literal in name and matcher.match(name):
            return pattern
    return None


def under(directory: str) -> str:
    """Return the pattern of everything below ``directory``, whatever characters are in its name."""
    return exactly(directory.rstrip("/")) + "/**"


def exactly(path: str) -> str:
    """Return the pattern of ``path`` alone, whatever characters are in its name.

    Only what has a meaning in a pattern is escaped: people read it.
    """
    return _SPECIAL.sub(r"\\\g<0>", path)


def normalise(pattern: str) -> str:
    """Return ``pattern`` with ``~`` for the user's home and a ``/`` at its end written out."""
    if pattern.startswith("~/"):
        home = os.path.expanduser("~")  # noqa: PTH111 - as text; no Path is made here
        pattern = exactly(home.rstrip("/")) + pattern[1:]
    return pattern + "**" if pattern.endswith("/") else pattern


def validate_pattern(pattern: str) -> None:
    """Check that ``pattern`` can match an absolute path at all.

    Raises:
        BadRequest: It cannot: a rule that never matches must not look like one that does.
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
    """Return ``text`` as the least distinguishing file system keeps it."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text.translate(_IGNORED)).casefold())


class _Matcher:
    """Tells which paths a pattern matches, in time proportional to both: a model may write any pattern.

    A pattern is runs of names, between which are any number of others. The first run is where the path begins, the
    last one where it ends, and of one in between its first place is as good as a later one.
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
    """Return whether ``names``, which are as many at least, begin with a run of a pattern."""
    return all(fits(name) for fits, name in zip(run, names, strict=False))


def _name_matcher(segment: str) -> Callable[[str], object]:
    """Return what tells whether a name is one that the segment of a pattern means."""
    if not _SPECIAL.search(segment):
        return segment.__eq__
    return re.compile(fnmatch.translate(segment, flags=_FLAGS)[0][0]).match


@lru_cache(maxsize=1024)
def _compile_folded(patterns: tuple[str, ...]) -> tuple[tuple[str, str, _Matcher], ...]:
    return tuple((pattern, *_compile(_fold(normalise(pattern)))) for pattern in patterns)


@lru_cache(maxsize=4096)
def _compile(pattern: str) -> tuple[str, _Matcher]:
    """Return a text that occurs in every path ``pattern`` matches, and its matcher."""
    plain = re.split(r"[\[\\]", pattern, maxsplit=1)[0]  # what follows a set or an escape is not taken literally
    return max(_WILD.split(plain), key=len), _Matcher(pattern)


# Names of tools.
#
# A preset that was written for gptel, for Claude Code or for an older program has other names for the same tools;
# policy, log and wire only ever see ours. A profile may use any of these names in an action (``tool:view:.*``), and
# one name may stand for several of our tools there.

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
"""Tools that touch no resource of their own: every profile has them, and they have no scope."""

# Our name, which never changes; names in gptel, in hosts of named agents, in Claude Code and others.
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

# One action for several of our tools: to find files and to search in them is to view them, and an agent is spawned by
# either of two tools.
_SHARED_ACTIONS: dict[str, tuple[str, ...]] = {
    "Glob": ("view",),
    "Grep": ("view",),
    "PersistentAgent": ("task", *_OTHER_NAMES["task"]),
    "task": ("PersistentAgent", *_OTHER_NAMES["PersistentAgent"]),
}

# Tools whose action is another tool's name and the beginning of its detail.
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
    """Return the tool that ``name`` is a spelling of; an unknown name is returned unchanged."""
    return _OURS.get(name, name)


def is_ours(name: str) -> bool:
    """Return whether a name is a spelling of one of our tools, and so reserved."""
    return name in META_TOOLS or name in _OTHER_NAMES or name in _OURS or name in _PARTS


def action_names(tool: str) -> tuple[str, ...]:
    """Return every name under which a profile may speak about ``tool``, ours first."""
    ours = canonical_tool(tool)
    return (ours, *_OTHER_NAMES.get(ours, ()), *_SHARED_ACTIONS.get(ours, ()))


def action_prefixes(tool: str) -> tuple[str, ...]:
    """Return the prefixes of action strings of ``tool``, in every spelling."""
    if tool in _PARTS:
        return (f"tool:{_PARTS[tool]}",)
    return tuple(f"tool:{name}:" for name in action_names(tool))


def join_patterns(allowed: Sequence[str]) -> str:
    """Return the first patterns of a list for a sentence, with how many more there are."""
    more = [f"{len(allowed) - _SHOWN_PATTERNS} more"] if len(allowed) > _SHOWN_PATTERNS else []
    return ", ".join([*allowed[:_SHOWN_PATTERNS], *more]) or "which is empty"


# The action: what is about to happen, and every way of writing it down.
#
# It is written ``tool:<name>:<detail>``. Profiles and grants are regular expressions about that text. They may use
# any name of the tool and, inside the workspace, the path relative to its root.

Kind = Literal["read", "write", "command", "net", "mcp", "self", "meta"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedPath:
    """A path in both its forms, absolute and without ``.`` or ``..``."""

    lexical: str  # as written
    resolved: str  # with every symbolic link followed; only this one is ever opened

    def __str__(self) -> str:
        same = self.lexical == self.resolved
        return self.lexical if same else f"{self.lexical} (really {self.resolved})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a call is about; a tool makes it of the arguments."""

    detail: str  # the last part of the action string: an absolute path, a command, a name
    paths: tuple[ResolvedPath, ...] = ()  # used as ``Action.kind`` says; of a command: what it is known to read
    writes: tuple[ResolvedPath, ...] = ()  # what a command is known to write
    command: str | None = None
    shell: ShellReading | None = None  # what the grammar makes of the command
    confined: bool = True  # something keeps the command inside its scope while it runs
    rule: str = ""  # of kind "mcp": the whole text of the action, ``mcp:<server>:<tool>``
    may_change_any_file: bool = False  # ... of the workspace, and nobody can tell which
    change: str | None = None  # of kind "self": what it was and what it would be, as JSON for the audit


@dataclass(frozen=True, slots=True, kw_only=True)
class Action(Target):
    """A call of a tool before it is made; as text ``tool:<name>:<detail>``, or ``rule``."""

    tool: str
    kind: Kind
    root: str = ""  # the workspace root, for what a profile says about paths relative to it

    def __str__(self) -> str:
        return self.rule or f"tool:{self.tool}:{self.detail}"

    @property
    def forms(self) -> tuple[str, ...]:
        """The action as written, and as it takes effect: the target of a link, each command of a line.

        A permission has to hold for all of them: a link that somebody makes must not borrow its name's rights, nor a
        command those of the one before it.
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
        """Yield every way of writing one of ``forms``."""
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
