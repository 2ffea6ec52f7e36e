"""What inside the directories of a scope is kept from a command: found by name, where such names are sought.

Below ``/`` not everything is looked at: names that float are sought in the workspace, in homes down to a few levels,
and near the root; sockets that somebody listens on are known to the kernel wherever they are.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from pyagentd.tools.confine import places
from pyagentd.tools.confine.names import Rules, base_of, literal, literal_prefix
from pyagentd.tools.confine.places import inside, parts
from pyagentd.tools.confine.scope import ShellScope
from pyagentd.tools.confine.trees import split
from pyagentd.tools.confine.walk import Found, find

_HOME_LEVELS = 3
_ROOT_LEVELS = 2
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


def found(rules: Rules, trees: dict[str, int | None], scope: ShellScope) -> Iterator[Found]:
    """Yield what the rules are about in ``trees`` and, where a rule names a place, elsewhere."""
    apart = {*scope.protected, *scope.hidden, *places.SYSTEM, *places.NEVER}
    for tree, levels in trees.items():
        if tree != "/" and (effect := rules.effect(*split(tree), True)) is not None:
            yield Found(tree, effect, True)
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


def outermost(hidden: Iterable[tuple[str, bool]]) -> Iterator[tuple[str, bool]]:
    """Yield what is not below another hidden directory, parents first."""
    last: str | None = None
    for path, is_directory in sorted(hidden, key=lambda entry: parts(entry[0])):
        if last is None or not inside(path, last):
            yield path, is_directory
            last = path if is_directory else last
