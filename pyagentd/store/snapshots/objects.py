"""The objects of a private store: what git calls loose objects, so that git can read them too.

An object is written beside its place and moved there, and its name is the hash of its content: a daemon that is
killed leaves a whole object or none. What a loss of power damaged is found when it is read and counts as lost.
"""

import hashlib
import os
import stat
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

from pyagentd.errors import StoreError
from pyagentd.store import atomic

Kind = Literal["blob", "tree"]

DIRECTORY = ".pyagentd-snapshots"
"""Below the sessions root; a scan for sessions leaves hidden names out, and no tool may look into it."""

_LEVEL = 1  # of compression: a command waits for it
_CONFIG = "[core]\n\trepositoryformatversion = 0\n\tbare = true\n"


class Objects:
    """The objects below one directory, which is made when the first is stored."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._place = str(directory / "objects")
        self._made: set[str] = set()

    def put(self, kind: Kind, content: bytes) -> str:
        """Store an object and return its id, 40 hexadecimal digits.

        Raises:
            StoreError: The disk refused.
        """
        named, name = _hashed(kind, content)
        path = f"{self._place}/{name[:2]}/{name[2:]}"
        try:
            os.utime(path)  # it is in use: see ``prune``
        except OSError:
            self._make(name[:2])
            atomic.write_bytes(Path(path), zlib.compress(named, _LEVEL), fsync=False)
        return name

    def get(self, kind: Kind, name: str) -> bytes | None:
        """Return the content of an object, or None when it is not there or damaged."""
        try:
            with open(f"{self._place}/{name[:2]}/{name[2:]}", "rb") as file:  # noqa: PTH123 - texts all the way
                data = zlib.decompress(file.read())
        except (OSError, zlib.error):
            return None
        head, _, content = data.partition(b"\0")
        whole = hashlib.sha1(data, usedforsecurity=False).hexdigest() == name
        return content if whole and head == b"%s %d" % (kind.encode(), len(content)) else None

    def names(self) -> list[tuple[str, Path]]:
        """Return the ids of all objects and where they are."""
        found = []
        for directory in Path(self._place).glob("[0-9a-f][0-9a-f]"):
            with os.scandir(directory) as entries:
                found += [
                    (directory.name + entry.name, Path(entry.path)) for entry in entries if len(entry.name) == 38
                ]
        return found

    def _make(self, prefix: str) -> None:
        if prefix in self._made:
            return
        if not self._made:
            self._begin()
        try:
            with suppress(FileExistsError):
                atomic.system.mkdir(f"{self._place}/{prefix}", atomic.DIR_MODE)  # not synced: there are many
        except OSError as error:
            raise StoreError(f"{self._place}/{prefix}: {error.strerror}") from error
        self._made.add(prefix)

    def _begin(self) -> None:
        """Make what git wants to see in a repository."""
        for name in ("refs", "objects"):
            atomic.make_dirs(self._directory / name)
        for name, text in (("config", _CONFIG), ("HEAD", "ref: refs/heads/none\n")):
            if not (self._directory / name).exists():
                atomic.write_text(self._directory / name, text, fsync=False)


def id_of(kind: Kind, content: bytes) -> str:
    """Return the id that an object has or would have."""
    return _hashed(kind, content)[1]


def _hashed(kind: Kind, content: bytes) -> tuple[bytes, str]:
    named = b"%s %d\0%s" % (kind.encode(), len(content), content)
    return named, hashlib.sha1(named, usedforsecurity=False).hexdigest()


def required(content: bytes | None, what: str) -> bytes:
    """Return ``content``; raises ``StoreError`` when it was lost."""
    if content is None:
        raise StoreError(f"{what} is not in the store of snapshots any more")
    return content


# Trees of the store: which files there are in a directory, with their permissions; and how two trees differ.
#
# The topmost tree stands for ``/``, so that a snapshot may hold any files of the machine. An entry whose content is
# not kept (too large, secret, unreadable) is there as a link to an object that does not exist: the id tells one
# state from another, and nothing of the content.

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


# One file as an entry of a tree: read without following a link, neither in its place nor on the way.

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
