"""What inside the directories of a scope is kept from a command: found by name, where such names are sought.

Below ``/`` not everything is looked at: names that float are sought in the workspace, in homes down to a few levels,
and near the root; sockets that somebody listens on are known to the kernel wherever they are.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from pyagentd.tools.confine import places
from pyagentd.tools.confine.names import Rules, base_of, literal, literal_prefix
from pyagentd.tools.confine.places import inside, parts
from pyagentd.tools.confine.scope import ShellScope
from pyagentd.tools.confine.trees import Trees, split
from pyagentd.tools.confine.walk import Found, TooMany, find

_HOME_LEVELS = 3
_ROOT_LEVELS = 2
_MOST_TEMPORARY = 30_000  # entries of one directory in /tmp; more of it is not seen at all
_MOST_EACH, _MOST_IN_ALL = 20, 200  # places kept one by one in such a directory, and in all of them
_BOUND = "/proc/net/unix"


def looked_into(scope: Collection[str], writable: Collection[str], root: Path, home: str) -> dict[str, int | None]:
    """Return the outermost directories of the scope in which rules that float hold, and how deep; None: all below."""
    chosen = [tree for tree in scope if not places.is_system(tree) or tree in writable or tree == str(root)]
    levels: dict[str, int | None] = dict.fromkeys(tree for tree in chosen if os.path.isdir(tree))  # noqa: PTH112
    if "/" in levels:
        levels |= {"/": _ROOT_LEVELS} | dict.fromkeys(places.homes(home), _HOME_LEVELS)
        levels |= dict.fromkeys(path for path in (str(root), "/tmp") if path == str(root) or "/tmp" in writable)
    whole = [tree for tree, depth in levels.items() if depth is None]
    return {tree: depth for tree, depth in levels.items() if not any(tree != w and inside(tree, w) for w in whole)}


def found(rules: Rules, trees: Mapping[str, int | None], scope: ShellScope, kept: Collection[str]) -> Iterator[Found]:
    """Yield what the rules are about in ``trees`` and, where a rule names a place, elsewhere.

    Args:
        rules: What is looked for.
        trees: Where, and how deep.
        scope: Whose protected places are left apart.
        kept: What a shared directory for temporary files is kept visible for: the workspace, trees of the scope.
    """
    apart = {*scope.protected, *scope.hidden, *places.SYSTEM, *places.NEVER}
    for tree, levels in trees.items():
        if tree != "/" and (effect := rules.effect(*split(tree), True)) is not None:
            yield Found(tree, effect, True)
        elif tree in places.TEMPORARY:
            yield from _in_temporary(tree, rules, apart, [path for path in kept if not inside(tree, path)])
        else:
            yield from find(tree, rules, apart - {tree}, levels)
    whole = [tree for tree, levels in trees.items() if levels is None]
    for pattern, effect in rules.rules:
        base, _ = base_of(pattern)
        start = literal_prefix(base)
        sought = start and not places.is_kernels(start)
        if not sought or (not places.is_system(start) and any(inside(start, tree) for tree in whole)):
            continue
        if (path := literal(base)) is not None:
            if os.path.lexists(path):
                yield Found(path, effect, os.path.isdir(path))  # noqa: PTH112
        elif os.path.isdir(start):  # noqa: PTH112
            yield from (each for each in find(start, Rules([(pattern, effect)])) if each.effect == effect)
    yield from (Found(path, "hide", False) for path in _listening())


def _in_temporary(tree: str, rules: Rules, apart: set[str], kept: Collection[str]) -> Iterator[Found]:
    """Yield what the rules are about in a directory that all programs share: where there is much of it, the whole.

    What others leave there must neither cost time nor keep a command from running.
    """
    yield from find(tree, rules, apart, levels=1)
    total = 0
    with os.scandir(tree) as entries:
        names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    for name in names:
        path = f"{tree}/{name}"
        if path in apart or rules.effect(f"{tree}/", name, True) is not None:
            continue
        if any(inside(path, each) for each in kept):
            yield from find(path, rules, apart)
            continue
        if any(inside(each, path) for each in kept):
            yield from _in_temporary(path, rules, apart, kept)
            continue
        try:
            here = list(find(path, rules, apart, most=_MOST_TEMPORARY))
            whole = len(here) > _MOST_EACH or (total > _MOST_IN_ALL and len(here) > 1)
        except TooMany:
            here, whole = [], True
        total += 1 if whole else len(here)
        yield from [Found(path, "hide", True)] if whole else here


def _listening() -> Iterator[str]:
    """Yield the sockets that somebody has bound to a path."""
    try:
        lines = Path(_BOUND).read_text(errors="surrogateescape").splitlines()
    except OSError:
        return
    for path in {line[line.index(" /") + 1 :] for line in lines if " /" in line}:
        try:
            if stat.S_ISSOCK(os.lstat(path).st_mode) and os.path.realpath(path) == path:
                yield path
        except OSError:
            continue


def outermost(hidden: Iterable[tuple[str, bool]], trees: Trees) -> Iterator[tuple[str, bool]]:
    """Yield what no other hidden directory hides, parents first: what is below one only where a tree shows it."""
    around: list[str] = []
    for path, is_directory in sorted(hidden, key=lambda entry: parts(entry[0])):
        while around and not inside(path, around[-1]):
            around.pop()
        if not around or trees.shows(path, around[-1]):
            yield path, is_directory
            around += [path] if is_directory else []
