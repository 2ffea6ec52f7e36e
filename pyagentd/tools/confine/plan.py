"""From the rules for a command to what it sees: trees, and what inside them is hidden or cannot be changed.

A plan knows nothing of the mechanism. It errs to the strict side: what is protected or denied wins over any scope,
wherever it is, and a pattern that cannot be turned into something that exists gives nothing.

Rules:
    The system's directories and those of the programs on ``PATH`` are readable. ``/d/**`` of a scope is the directory
    ``/d``; other patterns are the entries that exist. A directory the pattern reaches through a link is none: what
    counts is the file that would be opened. What is writable is readable too; no mechanism here can tell them apart.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pyagentd.errors import ToolError
from pyagentd.policy.protected import CREDENTIALS
from pyagentd.tools.confine import git, places
from pyagentd.tools.confine.names import Effect, Rules, base_of, floats, literal, literal_prefix
from pyagentd.tools.confine.places import inside, parts
from pyagentd.tools.confine.scope import ShellScope
from pyagentd.tools.confine.walk import Found, find

MOST_PLACES = 2_000  # that are hidden or made read-only one by one
_ANY = "*"
_GIT = "/.git/"

# Denied by every agent's preset so that file tools leave them alone; the programs that keep them need them.
_USED_BY: Mapping[str, tuple[Effect, frozenset[str]]] = {
    "**/.git/**": ("git", frozenset({"git"})),
    "**/node_modules/**": ("leave", frozenset({"node", "npm", "npx", "pnpm", "yarn"})),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a command sees. Paths are absolute and resolved, parents come first, nothing is below what is hidden."""

    root: str  # where it starts, seen or not
    home: str
    trees: tuple[tuple[str, bool], ...]  # directories or files of the scope, and whether they are writable
    readonly: tuple[str, ...]  # inside the trees
    hidden: tuple[tuple[str, bool], ...]  # inside the trees and the system, and whether it is a directory
    git: frozenset[str]  # of those that are read-only: what decides which programs git runs
    pinned: tuple[str, ...]  # writable directories that stay where they are, so that what they hold does
    temporary: bool  # it has a /tmp of its own
    network: bool


class Trees:
    """Directories, and whether each is writable; the nearest one above a path says what holds for it."""

    def __init__(self, trees: Mapping[str, bool]) -> None:
        self._trees = trees

    def of(self, path: str) -> str | None:
        """Return the nearest tree that ``path`` is in."""
        while path not in self._trees:
            if path in ("", "/"):
                return None
            path = path.rpartition("/")[0] or "/"
        return path

    def writable(self, path: str) -> bool:
        """Return whether ``path`` is in a writable tree."""
        tree = self.of(path)
        return tree is not None and self._trees[tree]

    def above(self, path: str) -> Iterator[str]:
        """Yield the directories between a writable tree and ``path`` in it."""
        if self.writable(path):
            tree = self.of(path)
            while (path := path.rpartition("/")[0]) and path != tree and path not in self._trees:
                yield path


def plan(scope: ShellScope, *, root: Path, spool_dir: Path, env: Mapping[str, str]) -> Plan:
    """Return what a command of ``scope`` sees; looks at the disk.

    Raises:
        ToolError: There is too much to hide one by one.
    """
    rules = _rules(scope)
    writable = set(_expanded(scope.write, rules, root))
    readable = set(_expanded(scope.read, rules, root))
    programs = {path for path in places.program_trees(env) if not _refused(path, rules)}
    if (common := _repository(root, rules)) is not None:
        (writable if any(inside(str(root), tree) for tree in writable) else readable).add(common)
    seen = dict.fromkeys((*readable, *programs, *([str(spool_dir)] if spool_dir.is_dir() else ())), False)
    trees = dict(_needed(_allowed(seen | dict.fromkeys(writable, True), scope)))
    found = list(_found(rules, _looked_into({*readable, *writable}, writable, root), scope))
    git_found = {path for entry in found if entry.effect == "git" for path in git.decisive(entry.path)}
    hidden = {entry.path: entry.is_directory for entry in found if entry.effect in ("hide", "fixed")}
    hidden |= {path: True for path in scope.hidden if os.path.isdir(path)}  # noqa: PTH112
    hidden |= {path: os.path.isdir(path) for path in places.system_secrets()}  # noqa: PTH112
    hidden |= {path: False for tree in programs for path in places.program_secrets(tree)}
    fixed = {*scope.protected, *scope.hidden, *(entry.path for entry in found if entry.effect == "fixed")}
    return _made(scope, trees, hidden, git_found, fixed, root, env.get("HOME", ""))


def _made(
    scope: ShellScope,
    trees: Mapping[str, bool],
    hidden: Mapping[str, bool],
    git_found: Collection[str],
    fixed: Collection[str],
    root: Path,
    home: str,
) -> Plan:
    """Return the plan of all that, each list without what another makes needless.

    Raises:
        ToolError: There is too much of it.
    """
    near = Trees(trees)
    _make_missing(path for path in scope.protected if near.writable(path))
    gone = list(_outermost((p, d) for p, d in hidden.items() if near.of(p) is not None or places.is_system(p)))
    shut = [path for path, is_directory in gone if is_directory]
    kept = [path for path in scope.protected if near.of(path) is not None]
    decisive = [path for path in git_found if near.writable(path) and not any(inside(path, place) for place in kept)]
    readonly = sorted({p for p in (*kept, *decisive) if not any(inside(p, place) for place in shut)}, key=parts)
    pinned = {above for path in fixed for above in near.above(path)}
    pinned |= {above for path in decisive for above in near.above(path) if _GIT in f"{above}/"}
    if len(gone) + len(readonly) + len(pinned) > MOST_PLACES:
        raise ToolError(
            f"More than {MOST_PLACES:,} files have to be kept from the command one by one. Ask the user to deny "
            f"directories in `paths.deny` of preset.md, not what is in them"
        )
    return Plan(
        root=str(root),
        home=home,
        trees=tuple(trees.items()),
        readonly=tuple(readonly),
        hidden=tuple(gone),
        git=frozenset(decisive),
        pinned=tuple(p for p in sorted(pinned, key=parts) if not any(inside(p, place) for place in (*shut, *kept))),
        temporary=not any(trees.get(path, False) for path in ("/tmp", "/")),
        network=scope.network,
    )


def _make_missing(protected: Iterable[str]) -> None:
    """Make what is protected and not there yet, empty: a command must not be the one who makes it."""
    for path in map(Path, protected):
        with suppress(OSError):  # where we may not, a command of ours may not either
            is_file = path.suffix != "" and not path.is_dir()
            (path.parent if is_file else path).mkdir(mode=0o700, parents=True, exist_ok=True)
            if is_file:
                path.touch(mode=0o600)


def _rules(scope: ShellScope) -> Rules:
    """Return what is done with entries inside the scope."""
    hidden = list(CREDENTIALS)
    used: list[tuple[str, Effect]] = [("**/.git/**", "git")]
    for pattern in scope.deny:
        effect, users = _USED_BY.get(pattern, ("hide", frozenset()))
        if effect != "hide" and (_ANY in scope.commands or users & _programs(scope.commands)):
            used.append((pattern, effect))
        else:
            hidden.append(pattern)
    return Rules([*((pattern, "hide" if floats(pattern) else "fixed") for pattern in hidden), *used])


def _programs(commands: Iterable[str]) -> set[str]:
    return {command.split()[0] for command in commands if command.split()}


# -- trees ---------------------------------------------------------------------------------------------------------


def _repository(root: Path, rules: Rules) -> str | None:
    """Return the git directory of a linked work tree, where git is used and nothing denies it."""
    common = git.of_worktree(root)
    return common if common is not None and rules.effect(*_split(common), True) == "git" else None


def _allowed(trees: Mapping[str, bool], scope: ShellScope) -> dict[str, bool]:
    """Return ``trees`` without what nobody sees; what is protected is read at most, whoever named it."""
    return {
        path: write and not any(inside(path, place) for place in scope.protected)
        for path, write in trees.items()
        if not any(inside(path, place) for place in scope.hidden) and (write or path not in places.TEMPORARY)
    }


def _needed(trees: Mapping[str, bool]) -> Iterator[tuple[str, bool]]:
    """Yield the trees that say something, parents first: not those whose nearest tree above says as much.

    A readable tree inside a writable one stays writable: rights add up.
    """
    nearest: list[tuple[str, bool]] = []
    for path in sorted(trees, key=parts):
        while nearest and not inside(path, nearest[-1][0]):
            nearest.pop()
        above = nearest[-1][1] if nearest else (False if places.is_system(path) else None)
        if above is None or trees[path] > above:
            nearest.append((path, trees[path]))
            yield path, trees[path]


def _expanded(patterns: Iterable[str], rules: Rules, root: Path) -> Iterator[str]:
    for pattern in patterns:
        for path in _existing(pattern, root):
            if not _named_by_kernel(path) and os.path.realpath(path) == path and not _refused(path, rules):
                yield path


def _existing(pattern: str, root: Path) -> Iterator[str]:
    """Yield the entries that ``pattern`` comes to."""
    base, below = base_of(pattern)
    if not base:
        yield "/"
        return
    if (path := literal(base)) is not None:
        if os.path.isdir(path) if below else os.path.isfile(path):  # noqa: PTH112, PTH113
            yield path
        return
    # What floats is sought in the workspace: looking everywhere before each command would take minutes.
    start = literal_prefix(base) or str(root)
    found = (entry for entry in find(start, Rules([(base, "found")])) if entry.effect == "found")
    yield from (entry.path for entry in found if entry.is_directory == below)


def _named_by_kernel(path: str) -> bool:
    return any(inside(path, place) for place in places.NEVER)


def _refused(path: str, rules: Rules) -> bool:
    """Return whether ``path`` or a directory above is denied: a tree may not begin inside what is hidden."""
    while path != "/":
        parent, name = _split(path)
        if rules.effect(parent, name, True) in ("hide", "fixed"):
            return True
        path = parent.rstrip("/") or "/"
    return False


def _split(path: str) -> tuple[str, str]:
    directory, _, name = path.rpartition("/")
    return directory + "/", name


# -- what is in them -----------------------------------------------------------------------------------------------


def _looked_into(scope: Collection[str], writable: Collection[str], root: Path) -> list[str]:
    """Return the outermost directories of the scope in which rules that float hold."""
    chosen = [tree for tree in scope if not places.is_system(tree) or tree in writable or tree == str(root)]
    chosen = [tree for tree in chosen if os.path.isdir(tree)]  # noqa: PTH112
    return [tree for tree in chosen if not any(tree != other and inside(tree, other) for other in chosen)]


def _found(rules: Rules, trees: Collection[str], scope: ShellScope) -> Iterator[Found]:
    """Yield what the rules are about in ``trees`` and, where a rule names a place, elsewhere."""
    apart = {*scope.protected, *scope.hidden, *places.SYSTEM, *places.NEVER}
    for tree in trees:
        if tree != "/" and (effect := rules.effect(*_split(tree), True)) is not None:
            yield Found(tree, effect, True)
        else:
            yield from find(tree, rules, apart)
    for pattern, effect in rules.rules:
        base, _ = base_of(pattern)
        start = literal_prefix(base)
        if (
            not start
            or _named_by_kernel(start)
            or (not places.is_system(start) and any(inside(start, tree) for tree in trees))
        ):
            continue
        if (path := literal(base)) is not None:
            if os.path.lexists(path):
                yield Found(path, effect, os.path.isdir(path))  # noqa: PTH112
        elif os.path.isdir(start):  # noqa: PTH112
            yield from (each for each in find(start, Rules([(pattern, effect)])) if each.effect == effect)


def _outermost(hidden: Iterable[tuple[str, bool]]) -> Iterator[tuple[str, bool]]:
    """Yield what is not below another hidden directory, parents first."""
    last: str | None = None
    for path, is_directory in sorted(hidden, key=lambda entry: parts(entry[0])):
        if last is None or not inside(path, last):
            yield path, is_directory
            last = path if is_directory else last
