"""Trees of the store: which files there are in a directory, with their permissions; and how two trees differ.

The topmost tree stands for ``/``, so that a snapshot may hold any files of the machine. An entry whose content is not
kept (too large, secret, unreadable) is there as a link to an object that does not exist: the id tells one state from
another, and nothing of the content.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from pyagentd.store.snapshots.objects import Objects, id_of, required

UNKEPT = 0o160000


class Entry(NamedTuple):
    """A file, link or directory: its mode with its type, and the id of its content."""

    mode: int
    id: str

    @property
    def is_dir(self) -> bool:
        """Whether it is a directory."""
        return stat.S_ISDIR(self.mode)

    @property
    def is_link(self) -> bool:
        """Whether it is a symbolic link."""
        return stat.S_ISLNK(self.mode)

    @property
    def is_kept(self) -> bool:
        """Whether its content is in the store."""
        return self.mode != UNKEPT


class Difference(NamedTuple):
    """What became of one path: None where there was or is nothing."""

    path: str  # absolute
    before: Entry | None
    after: Entry | None


EMPTY = id_of("tree", b"")

_Level = dict[str, "Entry | _Level"]


def unkept(*state: object) -> Entry:
    """Return the entry of a file whose content is not kept and whose ``state`` tells whether it changed."""
    return Entry(UNKEPT, id_of("blob", repr(state).encode(errors="surrogateescape")))


def write(objects: Objects, entries: Mapping[str, Entry]) -> str:
    """Store the tree of one directory, entries by name, and return its id."""
    # Git sorts a directory as if its name ended in a slash.
    named = sorted((os.fsencode(name) + b"/" * entry.is_dir, entry) for name, entry in entries.items())
    return objects.put(
        "tree", b"".join(b"%o %s\0%s" % (e.mode, name.rstrip(b"/"), bytes.fromhex(e.id)) for name, e in named)
    )


def read(objects: Objects, tree: str) -> dict[str, Entry]:
    """Return the entries of a tree by name; raises ``StoreError`` when it was lost."""
    return _parsed(b"" if tree == EMPTY else required(objects.get("tree", tree), f"The tree {tree}"))


@lru_cache(maxsize=256)
def _parsed(data: bytes) -> dict[str, Entry]:
    entries, at = {}, 0
    while at < len(data):
        space, end = data.index(b" ", at), data.index(b"\0", at)
        entries[os.fsdecode(data[space + 1 : end])] = Entry(int(data[at:space], 8), data[end + 1 : end + 21].hex())
        at = end + 21
    return entries


def assemble(objects: Objects, entries: Iterable[tuple[str, Entry]]) -> str:
    """Store a tree of ``/`` with ``entries`` at their absolute paths and return its id.

    An entry may be a whole directory, in which no other lies, or an empty one that others fill.
    """
    nested: _Level = {}
    for path, entry in entries:
        *above, name = path.split("/")[1:]
        place = nested
        for directory in above:
            inside = place.get(directory)
            if not isinstance(inside, dict):
                inside = place[directory] = {}
            place = inside
        if not (entry.is_dir and entry.id == EMPTY and name in place):
            place[name] = entry
    return _assembled(objects, nested)


def _assembled(objects: Objects, level: _Level) -> str:
    return write(
        objects,
        {
            name: Entry(stat.S_IFDIR, _assembled(objects, below)) if isinstance(below, dict) else below
            for name, below in level.items()
        },
    )


def difference(objects: Objects, before: str, after: str, above: str = "") -> Iterator[Difference]:
    """Yield what differs between two trees; a directory that came or went is told besides what is in it.

    Raises:
        StoreError: A tree was lost.
    """
    if before == after:
        return
    old, new = read(objects, before), read(objects, after)
    for name in sorted(old.keys() | new.keys()):
        was, now = old.get(name), new.get(name)
        if was == now:
            continue
        path = f"{above}/{name}"
        was_dir, now_dir = was is not None and was.is_dir, now is not None and now.is_dir
        if not (was_dir and now_dir):
            yield Difference(path, was, now)
        if was_dir or now_dir:
            inside = (
                was.id if was is not None and was_dir else EMPTY,
                now.id if now is not None and now_dir else EMPTY,
            )
            yield from difference(objects, *inside, path)


def objects_of(objects: Objects, tree: str, known: set[str]) -> None:
    """Add to ``known`` the ids of a tree and of all that is in it; what was lost has nothing in it."""
    if tree in known:
        return
    known.add(tree)
    data = objects.get("tree", tree)
    for entry in _parsed(data).values() if data else ():
        if entry.is_dir:
            objects_of(objects, entry.id, known)
        elif entry.is_kept:
            known.add(entry.id)
