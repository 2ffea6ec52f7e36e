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
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pyagentd.errors import ToolError
from pyagentd.policy.guard import CREDENTIALS
from pyagentd.tools.confine import closed, git, places
from pyagentd.tools.confine.names import Effect, Rules, floats
from pyagentd.tools.confine.places import inside, parts
from pyagentd.tools.confine.scope import ShellScope
from pyagentd.tools.confine.trees import Trees, allowed, expanded, needed, refused, split

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
    """What a command sees. Paths are absolute and resolved, parents first, below what is hidden are only trees."""

    root: str  # where it starts, seen or not
    home: str
    trees: tuple[tuple[str, bool], ...]  # directories or files of the scope, and whether they are writable
    readonly: tuple[str, ...]  # inside the trees
    hidden: tuple[tuple[str, bool], ...]  # inside the trees and the system, and whether it is a directory
    git: frozenset[str]  # of those that are read-only: what decides which programs git runs
    pinned: tuple[str, ...]  # writable directories that stay where they are, so that what they hold does
    temporary: bool  # it has a /tmp of its own
    network: bool


def plan(scope: ShellScope, *, root: Path, spool_dir: Path, env: Mapping[str, str]) -> Plan:
    """Return what a command of ``scope`` sees; looks at the disk.

    Raises:
        ToolError: There is too much to hide one by one.
    """
    rules = _rules(scope)
    writable = set(expanded(scope.write, rules, root))
    readable = set(expanded(scope.read, rules, root))
    programs = {path for path in places.program_trees(env, str(root), writable) if not refused(path, rules)}
    if (common := _repository(root, rules)) is not None:
        (writable if any(inside(str(root), tree) for tree in writable) else readable).add(common)
    own = [path for path in scope.own if any(inside(path, tree) for tree in (*readable, *writable))]
    own += [str(spool_dir)]
    seen = dict.fromkeys((*readable, *programs, *filter(os.path.isdir, own)), False)
    trees = dict(needed(allowed(seen | dict.fromkeys(writable, True), scope), scope.closed))
    sought = closed.looked_into({*readable, *writable}, writable, root, env.get("HOME", ""))
    found = list(closed.found(rules, sought, scope, {str(root), str(spool_dir), *readable, *writable}))
    git_found = {path for entry in found if entry.effect == "git" for path in git.decisive(entry.path)}
    hidden = {entry.path: entry.is_directory for entry in found if entry.effect in ("hide", "fixed")}
    hidden |= {path: True for path in (*scope.hidden, *scope.closed) if os.path.isdir(path)}  # noqa: PTH112
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
    within = ((p, d) for p, d in hidden.items() if near.of(p) is not None or places.is_system(p))
    gone = list(closed.outermost(within, near))

    def unseen(path: str) -> bool:
        return any(
            inside(path, place) and not near.shows(path, place) for place, is_directory in gone if is_directory
        )

    kept = [path for path in scope.protected if near.of(path) is not None]
    decisive = [path for path in git_found if near.writable(path) and not any(inside(path, place) for place in kept)]
    readonly = sorted((p for p in {*kept, *decisive} if not unseen(p)), key=parts)
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
        pinned=tuple(p for p in sorted(pinned, key=parts) if not unseen(p) and not any(inside(p, k) for k in kept)),
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


def _repository(root: Path, rules: Rules) -> str | None:
    """Return the git directory of a linked work tree, where git is used and nothing denies it."""
    common = git.of_worktree(root)
    return common if common is not None and rules.effect(*split(common), True) == "git" else None
