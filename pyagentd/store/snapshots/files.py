"""One file as an entry of a tree: read without following a link, neither in its place nor on the way."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator

from pyagentd.store.snapshots.objects import Objects, id_of
from pyagentd.store.snapshots.tree import EMPTY, Entry, unkept

MOST_BYTES = 10_000_000  # of a file whose content is kept; the tools that write files have the same limit

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def looked_at(path: str, objects: Objects | None = None, *, content: bool = True) -> Entry | None:
    """Return what is at ``path`` now, None for nothing; sockets and the like are nothing.

    Below a link there is nothing either: what it leads to is another place, with a path of its own.

    Args:
        path: Absolute, and without links when it was recorded.
        objects: Where its content is stored; None only computes its id.
        content: Whether the content may be kept.
    """
    above = path.rpartition("/")[0] or "/"
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return entry_of(path, found, objects, content=content) if os.path.realpath(above) == above else None


def named(paths: Iterable[str], objects: Objects) -> Iterator[tuple[str, Entry]]:
    """Yield the entries of ``paths`` and, of what is not there, of the directory it would be in or below.

    A directory is there without what is in it: for this, name that too.
    """
    for path in paths:
        entry = looked_at(path, objects)
        while entry is None and path.strip("/"):
            path = path.rpartition("/")[0]
            entry = looked_at(path) if path else None
            if entry is not None and not entry.is_dir:
                entry = None
        if entry is not None:
            yield path, entry._replace(id=EMPTY) if entry.is_dir else entry


def entry_of(path: str, found: os.stat_result, objects: Objects | None, *, content: bool = True) -> Entry | None:
    """Return the entry of what ``lstat`` found at ``path``; None when it is of no kind that is kept."""
    mode = found.st_mode
    if stat.S_ISDIR(mode):
        return Entry(directory_mode(mode), "")
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        return None
    if not content or found.st_size > MOST_BYTES:
        return unkept(found.st_size, found.st_mtime_ns, found.st_mode)
    try:
        if stat.S_ISLNK(mode):
            return Entry(stat.S_IFLNK, _stored(objects, os.fsencode(os.readlink(path))))  # noqa: PTH115
        data = _content(path)
    except OSError:
        return unkept(found.st_size, found.st_mtime_ns, found.st_mode)
    return Entry(stat.S_IFREG | mode & 0o777, _stored(objects, data))


def directory_mode(mode: int) -> int:
    """Return the mode of a directory in a tree: the usual permissions are left out, as git does."""
    return stat.S_IFDIR | (0 if mode & 0o777 == 0o755 else mode & 0o777)


def _content(path: str) -> bytes:
    descriptor = os.open(path, _READ)
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise OSError("grows")
    return data


def _stored(objects: Objects | None, data: bytes) -> str:
    return id_of("blob", data) if objects is None else objects.put("blob", data)
