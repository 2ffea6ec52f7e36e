"""The objects of a private store: what git calls loose objects, so that git can read them too.

An object is written beside its place and moved there, and its name is the hash of its content: a daemon that is
killed leaves a whole object or none. What a loss of power damaged is found when it is read and counts as lost.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Literal

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
