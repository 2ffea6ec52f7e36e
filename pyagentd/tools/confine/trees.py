"""The directories and files of a scope: what its patterns come to on this disk, and what that says about a path."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from pyagentd.tools.confine import places
from pyagentd.tools.confine.names import Rules, base_of, literal, literal_prefix
from pyagentd.tools.confine.places import inside, parts
from pyagentd.tools.confine.scope import ShellScope
from pyagentd.tools.confine.walk import find


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

    def shows(self, path: str, place: str) -> bool:
        """Return whether ``path``, in the hidden directory ``place``, is seen: it is in a tree that begins there."""
        tree = self.of(path)
        return tree is not None and tree != place and inside(tree, place)

    def above(self, path: str) -> Iterator[str]:
        """Yield the directories between a writable tree and ``path`` in it."""
        if self.writable(path):
            tree = self.of(path)
            while (path := path.rpartition("/")[0]) and path != tree and path not in self._trees:
                yield path


def allowed(trees: Mapping[str, bool], scope: ShellScope) -> dict[str, bool]:
    """Return ``trees`` without what nobody sees; what is protected is read at most, whoever named it.

    Of what is closed nobody opens the whole, nor a file right in it or what begins with a dot: a database, snapshots.
    """
    return {
        path: write and not any(inside(path, place) for place in scope.protected)
        for path, write in trees.items()
        if not any(inside(path, place) for place in scope.hidden) and (write or path not in places.TEMPORARY)
        if all(_opens(path, place) for place in scope.closed)
    }


def _opens(path: str, closed: str) -> bool:
    """Return whether ``path`` may be a tree although ``closed`` is not seen."""
    if not inside(path, closed):
        return True
    name = path.removeprefix(closed).lstrip("/").partition("/")[0]
    return name != "" and not name.startswith(".") and os.path.isdir(f"{closed}/{name}")  # noqa: PTH112


def needed(trees: Mapping[str, bool], closed: Collection[str] = ()) -> Iterator[tuple[str, bool]]:
    """Yield the trees that say something, parents first: not those whose nearest tree above says as much.

    A readable tree inside a writable one stays writable: rights add up. What is around a ``closed`` directory says
    nothing about what is inside.
    """
    nearest: list[tuple[str, bool]] = []
    for path in sorted(trees, key=parts):
        while nearest and not inside(path, nearest[-1][0]):
            nearest.pop()
        above = nearest[-1][1] if nearest else (False if places.is_system(path) else None)
        around = nearest[-1][0] if nearest else "/"
        if any(inside(path, place) and not inside(around, place) for place in closed):
            above = None
        if above is None or trees[path] > above:
            nearest.append((path, trees[path]))
            yield path, trees[path]


def expanded(patterns: Iterable[str], rules: Rules, root: Path) -> Iterator[str]:
    """Yield what ``patterns`` come to on this disk, without what is denied, the kernel's, or reached by a link."""
    for pattern in patterns:
        for path in _existing(pattern, root):
            if not places.is_kernels(path) and os.path.realpath(path) == path and not refused(path, rules):
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


def refused(path: str, rules: Rules) -> bool:
    """Return whether ``path`` or a directory above is denied: a tree may not begin inside what is hidden."""
    while path != "/":
        parent, name = split(path)
        if rules.effect(parent, name, True) in ("hide", "fixed"):
            return True
        path = parent.rstrip("/") or "/"
    return False


def split(path: str) -> tuple[str, str]:
    """Return the directory of ``path``, with a slash at its end, and its name."""
    directory, _, name = path.rpartition("/")
    return directory + "/", name
