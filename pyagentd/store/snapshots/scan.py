"""The tree of a workspace, made again before and after every command: what did not change costs one ``lstat``.

Left out are ``.git``, what ``.gitignore`` files say, and what the caller says; of secret files is kept that they are
there, not what is in them. A workspace with too many files is found out early, before anything is read.

A file whose stat is as it was is taken for unchanged, unless it was changed in the moment it was looked at: then its
stat may not tell the next change, and it is read again. The same holds for the names in a directory.
"""

import hashlib
import json
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pyagentd import regularfile
from pyagentd.errors import StoreError
from pyagentd.store import atomic
from pyagentd.store.gitignore import Rules, ignores, rules_file, with_rules
from pyagentd.store.snapshots import objects
from pyagentd.store.snapshots.objects import MOST_BYTES, Entry, Objects, directory_mode, entry_of

MOST_FILES = 20_000
MOST_NEW_BYTES = 500_000_000  # of contents read for one snapshot
_MOST_DIRECTORIES = 20_000
_DEPTH = 100
_MOMENT_NS = 100_000_000  # coarser than the clock of any local file system

Signature = tuple[int, int, int, int, int]


class TooMuch(StoreError):
    """A workspace is too large to be kept whole."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a workspace is kept."""

    files: int = MOST_FILES
    new_bytes: int = MOST_NEW_BYTES


@dataclass(slots=True)
class _Node:
    """A directory as it was found last."""

    path: str
    mode: int = 0
    signature: Signature | None = None  # None: its names have to be read again
    ignore: Signature | None = None  # of its .gitignore
    rules: Rules | None = None
    above: Rules | None = None  # the rules it was listed under
    files: dict[str, tuple[Signature | None, Entry | None]] = field(default_factory=dict)
    directories: dict[str, "_Node"] = field(default_factory=dict)
    below: dict[str, Entry] = field(default_factory=dict)  # its directories when its tree was written
    tree: str | None = None  # None: it has to be written


@dataclass(slots=True)
class _Pass:
    """One walk over everything."""

    settled_ns: int  # what changed before this cannot have changed since without showing it
    files: int = 0
    directories: int = 0
    bytes: int = 0
    todo: list[tuple[_Node, str, os.stat_result]] = field(default_factory=list)


class Scan:
    """The workspace ``root`` as it was last seen; used by one thread at a time.

    Args:
        root: Absolute and resolved.
        objects: Where contents go.
        left_out: Whether a file or directory does not belong to the workspace at all.
        secret: Whether the content of a file must not be kept.
        limits: How much is kept.
        known: Stat and entry of files from an earlier daemon, by path.
    """

    def __init__(
        self,
        root: str,
        objects: Objects,
        *,
        left_out: Callable[[str, bool], bool] = lambda path, is_directory: False,
        secret: Callable[[str], bool] = lambda path: False,
        limits: Limits = Limits(),
        known: dict[str, tuple[Signature, Entry]] | None = None,
    ) -> None:
        self._root = root
        self._objects = objects
        self._left_out = left_out
        self._secret = secret
        self._limits = limits
        self._known = known or {}
        self._top = _Node(root)
        self._above = _rules_above(root)  # those above the workspace are read once
        self.read = 0  # files of the last snapshot that had to be read

    def snapshot(self) -> Entry:
        """Store the workspace as it is now and return its directory.

        Raises:
            TooMuch: It has too many files, or too large ones.
            StoreError: The disk refused to store it.
            OSError: There is no such directory.
        """
        made = _Pass(settled_ns=time.time_ns() - _MOMENT_NS)
        found = os.stat(self._root)  # noqa: PTH116
        try:
            self._look(self._top, found, self._above, made, 0)
            if made.bytes > self._limits.new_bytes:
                raise TooMuch(f"{self._root} has more than {self._limits.new_bytes // 1_000_000} MB of files")
            self._read(made)
            self.read = len(made.todo)
            return Entry(directory_mode(found.st_mode), self._written(self._top))
        except BaseException:
            self._top = _Node(self._root)  # what was half done is done anew
            raise

    def known(self) -> Iterator[tuple[str, Signature, Entry]]:
        """Yield what a later daemon may take for granted: files whose stat tells their next change."""
        waiting = [self._top]
        while waiting:
            node = waiting.pop()
            waiting += node.directories.values()
            for name, (signature, entry) in node.files.items():
                if signature is not None and entry is not None:
                    yield f"{node.path}/{name}", signature, entry

    # -- what is there -------------------------------------------------------------------------------------------

    def _look(self, node: _Node, found: os.stat_result, above: Rules | None, made: _Pass, depth: int) -> None:
        """Bring a directory's names up to date and note which files have to be read."""
        made.directories += 1
        if made.directories > _MOST_DIRECTORIES:
            raise TooMuch(f"{self._root} has more than {_MOST_DIRECTORIES:,} directories")
        node.mode = directory_mode(found.st_mode)
        self._look_at_rules(node, above)
        if node.signature != _signature(found) or node.above is not above:
            self._list(node, found, above, made, depth)
        made.files += len(node.files)
        if made.files > self._limits.files:
            raise TooMuch(f"{self._root} has more than {self._limits.files:,} files")
        base = node.path + "/"
        gone = []
        for name, (signature, _) in node.files.items():
            try:
                now = os.lstat(base + name)
            except OSError:
                gone.append(name)
                continue
            if signature is None or signature != _signature(now):
                made.todo.append((node, name, now))
                made.bytes += min(now.st_size, MOST_BYTES)
        for name in gone:
            del node.files[name]
            node.tree = None
        for name, below in list(node.directories.items()):
            beneath = _directory(base + name)
            if beneath is None:
                del node.directories[name]
                node.signature = None
                continue
            self._look(below, beneath, node.rules, made, depth + 1)

    def _look_at_rules(self, node: _Node, above: Rules | None) -> None:
        path = f"{node.path}/.gitignore"
        try:
            found = os.lstat(path)
            signature = _signature(found) if stat.S_ISREG(found.st_mode) else None
        except OSError:
            signature = None
        if node.above is above and node.ignore == signature and node.signature is not None:
            return
        node.signature, node.ignore = None, signature
        node.rules = with_rules(node.path + "/", rules_file(path) if signature else b"", above)

    def _list(self, node: _Node, found: os.stat_result, above: Rules | None, made: _Pass, depth: int) -> None:
        files: dict[str, tuple[Signature | None, Entry | None]] = {}
        directories: dict[str, _Node] = {}
        base = node.path + "/"
        room = self._limits.files - made.files
        try:
            with os.scandir(node.path) as entries:
                for entry in entries:
                    name, is_directory = entry.name, entry.is_dir(follow_symlinks=False)
                    if name == ".git" or self._left_out(base + name, is_directory):
                        continue
                    if ignores(node.rules, base + name, is_directory):
                        continue
                    if is_directory and depth < _DEPTH:
                        directories[name] = node.directories.get(name) or _Node(base + name)
                    elif entry.is_symlink() or entry.is_file(follow_symlinks=False):
                        files[name] = node.files.get(name) or self._known.get(base + name) or (None, None)
                        if len(files) > room:
                            break
        except OSError:  # not readable, or gone
            files, directories = {}, {}
        node.files, node.directories, node.above, node.tree = files, directories, above, None
        node.signature = _signature(found) if found.st_mtime_ns < made.settled_ns else None

    # -- what is in it -------------------------------------------------------------------------------------------

    def _read(self, made: _Pass) -> None:
        for node, name, found in made.todo:
            path = f"{node.path}/{name}"
            entry = entry_of(path, found, self._objects, content=not self._secret(path))
            settled = found.st_ctime_ns < made.settled_ns and found.st_mtime_ns < made.settled_ns
            if entry is None or entry.is_dir:
                node.files.pop(name, None)
                node.tree = None
                continue
            if node.files[name][1] != entry:
                node.tree = None
            node.files[name] = (_signature(found) if settled else None, entry)

    def _written(self, node: _Node) -> str:
        """Store the trees that changed, those above them too, and return the id of this one."""
        below = {name: Entry(each.mode, self._written(each)) for name, each in node.directories.items()}
        if node.tree is None or node.below != below:
            files = {name: entry for name, (_, entry) in node.files.items() if entry is not None}
            node.tree, node.below = objects.write(self._objects, files | below), below
        return node.tree


def _directory(path: str) -> os.stat_result | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found if stat.S_ISDIR(found.st_mode) else None


def _signature(found: os.stat_result) -> Signature:
    return found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def _rules_above(root: str) -> Rules | None:
    """Return the rules of the directories above ``root``, up to its repository; none outside of one.

    Who works in an ignored directory wants it kept, so the rules from above do not count there.
    """
    above, directory = [], root
    while not os.path.lexists(f"{directory}/.git"):
        if directory in ("/", ""):
            return None
        directory = os.path.dirname(directory)  # noqa: PTH120
        above.append(directory)
    rules: Rules | None = None
    for directory in reversed(above):
        rules = with_rules(f"{directory.rstrip('/')}/", rules_file(f"{directory}/.gitignore"), rules)
    return None if ignores(rules, root, True) else rules


# What an earlier daemon knew of the files of a workspace, so that the first command need not read them all again.

_PLACE = "stats"
_MOST = 8  # workspaces; the one not used for longest goes first


class Stats:
    """Stat and entry of the files of some workspaces.

    Args:
        directory: Of the store of snapshots.
    """

    def __init__(self, directory: Path) -> None:
        self._place = directory / _PLACE

    def load(self, key: str) -> dict[str, tuple[Signature, Entry]]:
        """Return what is known of the workspace ``key`` by path; {} for nothing."""
        try:
            rows = json.loads(regularfile.read_text(self._file(key), limit=regularfile.DOCUMENT))
            return {path: ((a, b, c, d, e), Entry(mode, name)) for path, a, b, c, d, e, mode, name in rows}
        except (OSError, ValueError, TypeError):
            return {}

    def save(self, key: str, known: Iterable[tuple[str, Signature, Entry]]) -> None:
        """Keep what is known of the workspace ``key``; a disk that refuses costs time later and nothing else."""
        rows = [(path, *signature, *entry) for path, signature, entry in known]
        with suppress(StoreError, OSError):
            atomic.make_dirs(self._place)
            atomic.write_text(self._file(key), json.dumps(rows), fsync=False)
            files = sorted(self._place.glob("*.json"), key=lambda file: file.stat().st_mtime)
            for file in files[:-_MOST]:
                file.unlink()

    def clear(self) -> None:
        """Forget everything: objects may be gone."""
        for file in self._place.glob("*.json"):
            with suppress(OSError):
                file.unlink()

    def _file(self, key: str) -> Path:
        return self._place / f"{hashlib.sha256(key.encode(errors='surrogateescape')).hexdigest()[:32]}.json"
