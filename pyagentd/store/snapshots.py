"""Snapshots of a directory: which files count, and git objects that hold them."""

import hashlib
import json
import os
import stat
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict
from urllib.parse import quote

from pyagentd import regularfile
from pyagentd.errors import StoreError
from pyagentd.reader import parse
from pyagentd.store import atomic
from pyagentd.store.gitignore import Rules, ignores, rules_file, with_rules
from pyagentd.store.paths import BranchRef

# The private object store, in the format of git's loose objects, so that git can read them.
#
# An object is written to a draft and renamed, and its name is the hash of its content: a killed daemon leaves a whole
# object or none. Damage by a power failure is found when an object is read; it counts as lost until the same content
# is stored again.


Kind = Literal["blob", "tree"]

DIRECTORY = ".pyagentd-snapshots"
"""The directory below the sessions root; hidden, so that scans for sessions skip it; closed to tools."""

_LEVEL = 1  # of compression: a command waits for it
_CONFIG = "[core]\n\trepositoryformatversion = 0\n\tbare = true\n"


class Objects:
    """The objects below one directory, which is made when the first is stored."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._place = str(directory / "objects")
        self._made: set[str] = set()
        self._whole: set[str] = set()  # those that were written or read since the daemon began

    def put(self, kind: Kind, content: bytes) -> str:
        """Store an object and return its id, 40 hexadecimal digits.

        Raises:
            StoreError: The disk refused.
        """
        named, name = _hash_object(kind, content)
        path = f"{self._place}/{name[:2]}/{name[2:]}"
        try:
            os.utime(path)  # it is in use: see ``prune``
            is_there = name in self._whole or self.get(kind, name) is not None
        except OSError:
            is_there = False
        if not is_there:
            self._make(name[:2])
            atomic.write_bytes(Path(path), zlib.compress(named, _LEVEL), fsync=False)
        self._whole.add(name)
        return name

    def get(self, kind: Kind, name: str) -> bytes | None:
        """Return the content of an object, or None if it is missing or damaged."""
        try:
            with open(f"{self._place}/{name[:2]}/{name[2:]}", "rb") as file:  # noqa: PTH123 - texts all the way
                data = zlib.decompress(file.read())
        except (OSError, zlib.error):
            return None
        head, _, content = data.partition(b"\0")
        whole = hashlib.sha1(data, usedforsecurity=False).hexdigest() == name
        return content if whole and head == b"%s %d" % (kind.encode(), len(content)) else None

    def names(self) -> list[tuple[str, Path]]:
        """Return the ids and paths of all objects."""
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
        """Make the files that git needs to recognise a repository."""
        for name in ("refs", "objects"):
            atomic.make_dirs(self._directory / name)
        for name, text in (("config", _CONFIG), ("HEAD", "ref: refs/heads/none\n")):
            if not (self._directory / name).exists():
                atomic.write_text(self._directory / name, text, fsync=False)


def id_of(kind: Kind, content: bytes) -> str:
    """Return the id of an object, stored or not."""
    return _hash_object(kind, content)[1]


def _hash_object(kind: Kind, content: bytes) -> tuple[bytes, str]:
    named = b"%s %d\0%s" % (kind.encode(), len(content), content)
    return named, hashlib.sha1(named, usedforsecurity=False).hexdigest()


def require_content(content: bytes | None, what: str) -> bytes:
    """Return ``content``; raises ``StoreError`` if it was lost."""
    if content is None:
        raise StoreError(f"{what} is not in the store of snapshots any more")
    return content


# Trees: the files of a directory with their permissions; and the difference of two trees.
#
# The topmost tree stands for ``/``, so that a snapshot may hold any files of the machine. An entry whose content is
# not kept (too large, secret, unreadable) has the id of an object that does not exist: the id differs between states
# and reveals nothing of the content.

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
    """The change of one path; None where nothing existed before or exists after."""

    path: str  # absolute
    before: Entry | None
    after: Entry | None


EMPTY = id_of("tree", b"")

_Level = dict[str, "Entry | _Level"]


def unkept_entry(*state: object) -> Entry:
    """Return the entry of a file whose content is not kept; ``state`` changes with the file."""
    return Entry(UNKEPT, id_of("blob", repr(state).encode(errors="surrogateescape")))


def write(objects: Objects, entries: Mapping[str, Entry]) -> str:
    """Store the tree of one directory, entries by name, and return its id."""
    # Git sorts directories as if their names ended in a slash.
    named = sorted((os.fsencode(name) + b"/" * entry.is_dir, entry) for name, entry in entries.items())
    return objects.put(
        "tree", b"".join(b"%o %s\0%s" % (e.mode, name.rstrip(b"/"), bytes.fromhex(e.id)) for name, e in named)
    )


def read(objects: Objects, tree: str) -> dict[str, Entry]:
    """Return the entries of a tree by name; raises ``StoreError`` when it was lost."""
    return _parse_tree(b"" if tree == EMPTY else require_content(objects.get("tree", tree), f"The tree {tree}"))


@lru_cache(maxsize=256)
def _parse_tree(data: bytes) -> dict[str, Entry]:
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
    return _store_level(objects, nested)


def _store_level(objects: Objects, level: _Level) -> str:
    return write(
        objects,
        {
            name: Entry(stat.S_IFDIR, _store_level(objects, below)) if isinstance(below, dict) else below
            for name, below in level.items()
        },
    )


def difference(
    objects: Objects, before: str, after: str, *, root: str = "", above: str = "", rules: Rules | None = None
) -> Iterator[Difference]:
    """Yield the differences of two trees; an added or removed directory comes in addition to its entries.

    What was ignored ``before`` in the workspace ``root`` is not in that tree, so it did not come when it is in the
    other: a command that changes ``.gitignore`` must not make the user's files its own.

    Raises:
        StoreError: A tree was lost.
    """
    if before == after:
        return
    old, new = read(objects, before), read(objects, after)
    if root and f"{above}/".startswith(f"{root}/") and (ignored := old.get(".gitignore")) is not None:
        rules = with_rules(f"{above}/", objects.get("blob", ignored.id) or b"", rules)
    for name in sorted(old.keys() | new.keys()):
        was, now = old.get(name), new.get(name)
        if was == now:
            continue
        path = f"{above}/{name}"
        was_dir, now_dir = was is not None and was.is_dir, now is not None and now.is_dir
        if was is None and ignores(rules, path, now_dir):
            continue
        if not (was_dir and now_dir):
            yield Difference(path, was, now)
        if was_dir or now_dir:
            inside = (
                was.id if was is not None and was_dir else EMPTY,
                now.id if now is not None and now_dir else EMPTY,
            )
            yield from difference(objects, *inside, root=root, above=path, rules=rules)


def objects_of(objects: Objects, tree: str, known: set[str]) -> None:
    """Add the ids of a tree and of everything in it to ``known``; a lost tree counts as empty."""
    if tree in known:
        return
    known.add(tree)
    data = objects.get("tree", tree)
    for entry in _parse_tree(data).values() if data else ():
        if entry.is_dir:
            objects_of(objects, entry.id, known)
        elif entry.is_kept:
            known.add(entry.id)


# Reading one file as an entry of a tree, without following links at the end or on the way.

MOST_BYTES = 10_000_000  # of a file whose content is kept; the tools that write files have the same limit

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def entry_at(path: str, objects: Objects | None = None, *, content: bool = True) -> Entry | None:
    """Return the present entry at ``path``; None for nothing, for sockets and the like, and below a link.

    Args:
        path: Absolute, and without links when it was recorded.
        objects: Stores its content; None only computes its id.
        content: Whether the content may be kept.
    """
    above = path.rpartition("/")[0] or "/"
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return entry_of(path, found, objects, content=content) if os.path.realpath(above) == above else None


def entries_with_parents(paths: Iterable[str], objects: Objects) -> Iterator[tuple[str, Entry]]:
    """Yield the entries of ``paths`` and, for missing ones, of the nearest existing directory above.

    A directory comes without its content, which must be named as well.
    """
    for path in paths:
        entry = entry_at(path, objects)
        while entry is None and path.strip("/"):
            path = path.rpartition("/")[0]
            entry = entry_at(path) if path else None
            if entry is not None and not entry.is_dir:
                entry = None
        if entry is not None:
            yield path, entry._replace(id=EMPTY) if entry.is_dir else entry


def entry_of(path: str, found: os.stat_result, objects: Objects | None, *, content: bool = True) -> Entry | None:
    """Return the entry for the result of ``lstat`` at ``path``; None if this kind of file is not kept."""
    mode = found.st_mode
    if stat.S_ISDIR(mode):
        return Entry(directory_mode(mode), "")
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        return None
    if not content or found.st_size > MOST_BYTES:
        return unkept_entry(found.st_size, found.st_mtime_ns, found.st_mode)
    try:
        if stat.S_ISLNK(mode):
            return Entry(stat.S_IFLNK, _store_blob(objects, os.fsencode(os.readlink(path))))  # noqa: PTH115
        with os.fdopen(os.open(path, _READ), "rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise OSError("grows")
    except OSError:
        return unkept_entry(found.st_size, found.st_mtime_ns, found.st_mode)
    return Entry(stat.S_IFREG | mode & 0o777, _store_blob(objects, data))


def directory_mode(mode: int) -> int:
    """Return the mode of a directory in a tree, without the usual permissions, as in git."""
    return stat.S_IFDIR | (0 if mode & 0o777 == 0o755 else mode & 0o777)


def _store_blob(objects: Objects | None, data: bytes) -> str:
    return id_of("blob", data) if objects is None else objects.put("blob", data)


# The tree of a workspace, made again before and after every command: an unchanged file costs one ``lstat``.
#
# Left out are ``.git``, files ignored by ``.gitignore``, and those that the caller names; of secret files only the
# existence is kept. A workspace with too many files is refused early, before any file is read.
#
# A file with the same stat counts as unchanged, unless it was changed just before it was read: then the next change
# may leave the stat equal, and the file is read again. The same holds for the names in a directory.

MOST_FILES = 20_000
MOST_NEW_BYTES = 500_000_000  # of contents read for one snapshot
_MOST_DIRECTORIES = 20_000
_DEPTH = 100
_MOMENT_NS = 100_000_000  # coarser than the clock of any local file system

Signature = tuple[int, int, int, int, int]


class TooMuch(StoreError):
    """The workspace is too large for a snapshot."""


@dataclass(slots=True)
class _Node:
    """A directory, as last scanned."""

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
    """One scan of the workspace."""

    settled_ns: int  # what changed before this cannot have changed since without showing it
    files: int = 0
    directories: int = 0
    bytes: int = 0
    todo: list[tuple[_Node, str, os.stat_result]] = field(default_factory=list)


class Scan:
    """The workspace ``root``, as last scanned; used by one thread at a time.

    Args:
        root: The workspace, absolute and resolved.
        objects: Stores the contents.
        left_out: Returns whether a file or directory is left out.
        secret: Returns whether the content of a file must not be kept.
        known: Stat and entry of files from an earlier daemon, by path.
    """

    def __init__(
        self,
        root: str,
        objects: Objects,
        *,
        left_out: Callable[[str, bool], bool] = lambda path, is_directory: False,
        secret: Callable[[str], bool] = lambda path: False,
        known: dict[str, tuple[Signature, Entry]] | None = None,
    ) -> None:
        self._root = root
        self._objects = objects
        self._left_out = left_out
        self._secret = secret
        self._known = known or {}
        self._top = _Node(root)
        self._above = _rules_above(root)  # those above the workspace are read once
        self.read = 0  # files of the last snapshot that had to be read

    def snapshot(self) -> Entry:
        """Store the present state of the workspace, and return its entry.

        Raises:
            TooMuch: It has too many files, or too large ones.
            StoreError: The disk refused to store it.
            OSError: There is no such directory.
        """
        made = _Pass(settled_ns=time.time_ns() - _MOMENT_NS)
        found = os.stat(self._root)  # noqa: PTH116
        try:
            self._look(self._top, found, self._above, made, 0)
            if made.bytes > MOST_NEW_BYTES:
                raise TooMuch(f"{self._root} has more than {MOST_NEW_BYTES // 1_000_000} MB of files")
            self._read(made)
            self.read = len(made.todo)
            return Entry(directory_mode(found.st_mode), self._store_tree(self._top))
        except BaseException:
            self._top = _Node(self._root)  # what was half done is done anew
            raise

    def known(self) -> Iterator[tuple[str, Signature, Entry]]:
        """Yield the files that a later daemon need not read: those whose stat will show the next change."""
        waiting = [self._top]
        while waiting:
            node = waiting.pop()
            waiting += node.directories.values()
            for name, (signature, entry) in node.files.items():
                if signature is not None and entry is not None:
                    yield f"{node.path}/{name}", signature, entry

    # -- what is there -------------------------------------------------------------------------------------------

    def _look(self, node: _Node, found: os.stat_result, above: Rules | None, made: _Pass, depth: int) -> None:
        """Update a directory's names, and note the files to read."""
        made.directories += 1
        if made.directories > _MOST_DIRECTORIES:
            raise TooMuch(f"{self._root} has more than {_MOST_DIRECTORIES:,} directories")
        node.mode = directory_mode(found.st_mode)
        self._look_at_rules(node, above)
        if node.signature != _signature(found) or node.above is not above:
            self._list(node, found, above, made, depth)
        made.files += len(node.files)
        if made.files > MOST_FILES:
            raise TooMuch(f"{self._root} has more than {MOST_FILES:,} files")
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
        room = MOST_FILES - made.files
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

    def _store_tree(self, node: _Node) -> str:
        """Store the trees that changed, and return the id of this one."""
        below = {name: Entry(each.mode, self._store_tree(each)) for name, each in node.directories.items()}
        if node.tree is None or node.below != below:
            files = {name: entry for name, (_, entry) in node.files.items() if entry is not None}
            node.tree, node.below = write(self._objects, files | below), below
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
    """Return the ignore rules of the directories above ``root``, up to its repository; none outside of one.

    They do not count if ``root`` itself is ignored, because its files are to be kept.
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


# Stats of a workspace's files from an earlier daemon, so that the first command need not read them all again.

_PLACE = "stats"
_MOST = 8  # workspaces; the one not used for longest goes first


class Stats:
    """Stat and entry of the files of some workspaces, below the directory of the snapshots."""

    def __init__(self, directory: Path) -> None:
        self._place = directory / _PLACE

    def load(self, key: str) -> dict[str, tuple[Signature, Entry]]:
        """Return stat and entry of the files of the workspace ``key``, by path."""
        try:
            rows = json.loads(regularfile.read_text(self._file(key), limit=regularfile.DOCUMENT))
            return {path: ((a, b, c, d, e), Entry(mode, name)) for path, a, b, c, d, e, mode, name in rows}
        except (OSError, ValueError, TypeError, RecursionError):
            return {}

    def save(self, key: str, known: Iterable[tuple[str, Signature, Entry]]) -> None:
        """Save stat and entry of the files of the workspace ``key``; if the disk fails, they are read again later."""
        rows = [(path, *signature, *entry) for path, signature, entry in known]
        with suppress(StoreError, OSError):
            atomic.make_dirs(self._place)
            atomic.write_text(self._file(key), json.dumps(rows), fsync=False)
            files = sorted(self._place.glob("*.json"), key=lambda file: file.stat().st_mtime)
            for file in files[:-_MOST]:
                file.unlink()

    def clear(self) -> None:
        """Remove everything, because objects may be gone."""
        for file in self._place.glob("*.json"):
            with suppress(OSError):
                file.unlink()

    def _file(self, key: str) -> Path:
        return self._place / f"{hashlib.sha256(key.encode(errors='surrogateescape')).hexdigest()[:32]}.json"


# Records of the files that each tool call changed: one file of lines for each top-level branch.
#
# A line has the turns (messages of the user, the root's first) of a call or a restoring, and the trees before and
# after. A call that has begun has its own file until its line is written, so that a call during which the daemon was
# killed is known. Torn lines are left out when reading.

_LINES = "changes"
_BEGUN = "begun"
_LONGEST_NAME = 249  # characters; with its ending a name has at most 255
_TAIL = 256 * 1024  # bytes that have the last line


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The files changed by one call or one restoring."""

    id: str
    turns: tuple[str, ...]  # ids of the user's messages: of the root first, of the agent that acted last
    branch: str  # key of the branch or agent that acted
    kind: Literal["call", "restore"] = "call"
    tool: str = ""
    detail: str = ""  # the command, or the file
    call: str = ""  # the model's id of the call
    run: str = ""
    before: str  # trees of ``/``
    after: str
    began: int  # epoch ms
    ended: int
    root: str = ""  # of a command: the workspace
    others: tuple[str, ...] = ()  # paths that somebody else is known to have changed meanwhile
    doubtful: bool = False  # the daemon ended while it ran: what changed since may be somebody else's


class Records:
    """The changes of all branches, below the directory of the snapshots."""

    def __init__(self, directory: Path) -> None:
        self._lines = directory / _LINES
        self._begun = directory / _BEGUN
        self._heads: dict[str, str] = {}  # the last change of each branch that was asked for, by its key

    def file(self, ref: BranchRef) -> Path:
        """Return the file with the changes of ``ref``, the root of a tree."""
        name = f"{_name(ref.session_id)}+{_name(ref.branch_name)}"
        if len(name) > _LONGEST_NAME:  # three characters for each byte that is not ASCII
            name = f"{name[: _LONGEST_NAME // 2]}+{hashlib.sha256(name.encode()).hexdigest()}"
        return self._lines / f"{name}.jsonl"

    def of(self, ref: BranchRef) -> list[Change]:
        """Return the changes of the tree of agents whose root is ``ref``, in the order in which they ended."""
        return read_lines(self.file(ref))

    def head(self, ref: BranchRef) -> str:
        """Return the id of the last change, "" when there is none."""
        if (head := self._heads.get(ref.key)) is not None:
            return head
        try:
            lines = regularfile.read_end(self.file(ref), _TAIL, limit=regularfile.LOG).split(b"\n")
        except OSError:
            lines = []
        known = read_changes(lines)
        return self._heads.setdefault(ref.key, known[-1].id if known else "")  # one may be appended meanwhile

    def append(self, ref: BranchRef, change: Change) -> None:
        """Add a change, and remove the file of its begun call.

        Raises:
            StoreError: The disk refused.
        """
        file = self.file(ref)
        line = json.dumps(asdict(change), separators=(",", ":")).encode() + b"\n"
        atomic.make_dirs(file.parent)
        atomic.append_lines(file, line)
        self._heads[ref.key] = change.id
        self.forget(change.id)

    def begin(self, ref: BranchRef, change: Change, paths: tuple[str, ...]) -> None:
        """Record the begin of a call that may change ``paths`` or, if it has a root, anything there.

        Raises:
            StoreError: The disk refused.
        """
        atomic.make_dirs(self._begun)
        record = {"session": ref.key, "paths": paths, "change": asdict(change)}
        atomic.write_text(self._begun / f"{change.id}.json", json.dumps(record), fsync=False)

    def forget(self, change_id: str) -> None:
        """Remove the record of a begun call that changed nothing."""
        with suppress(OSError):
            (self._begun / f"{change_id}.json").unlink()

    def unfinished(self) -> list[tuple[str, tuple[str, ...], Change]]:
        """Return the calls that began and never ended: key of the root branch, paths, and known facts."""
        found = []
        for file in sorted(self._begun.glob("*.json")):
            try:
                record = parse(regularfile.read_text(file))
                found.append((str(record["session"]), tuple(map(str, record["paths"])), _change(record["change"])))
            except (OSError, ValueError, KeyError, TypeError, AttributeError):
                with suppress(OSError):
                    file.unlink()
        return found

    def rewrite(self, file: Path, kept: list[Change]) -> None:
        """Replace the changes in ``file`` by ``kept``; raises ``StoreError``."""
        try:
            if kept:
                lines = "".join(json.dumps(asdict(change), separators=(",", ":")) + "\n" for change in kept)
                atomic.write_text(file, lines)
            else:
                with suppress(OSError):
                    file.unlink()
        finally:
            self._heads.clear()

    def files(self) -> list[Path]:
        """Return the files of all branches."""
        return sorted(self._lines.glob("*.jsonl"))


def read_lines(file: Path) -> list[Change]:
    """Return the changes in ``file``; what cannot be read is left out.

    Raises:
        StoreError: The disk refused.
    """
    try:
        lines = regularfile.read_bytes(file, limit=regularfile.LOG).split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"{file}: {error.strerror}") from error
    return read_changes(lines)


def read_changes(lines: Iterable[bytes]) -> list[Change]:
    """Return the changes in ``lines`` without unreadable ones."""
    found = []
    for line in filter(None, lines):
        with suppress(ValueError, TypeError, AttributeError):
            found.append(_change(parse(line)))
    return found


def _change(data: Mapping[str, Any]) -> Change:
    known = {field.name for field in fields(Change)}
    given: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in data.items() if key in known
    }
    return Change(**given)


def _name(text: str) -> str:
    return quote(text, safe="").replace(".", "%2E").replace("+", "%2B")


# Undoing changes: for each path, its first state, and the state that is expected now. Pure.
#
# Between two of our changes that did not overlap another program may have changed a file; then only the user can
# choose a version.

BETWEEN = "somebody else changed it between two changes of the agent"
DOUBTFUL = "pyagentd ended while a command ran: what changed then may be somebody else's"


@dataclass(slots=True)
class Undo:
    """The undoing of changes for one path."""

    path: str
    target: Entry | None  # what was there before the first change; None: nothing
    expected: Entry | None  # what the last change left
    doubt: str = ""  # why it is not certain that this is right
    _began: int = 0
    _ended: int = 0


def plan_undo(objects: Objects, changes: Sequence[Change]) -> dict[str, Undo]:
    """Return by path the effect of undoing ``changes``, which are in the order in which they ended.

    Raises:
        StoreError: A recorded tree was lost.
    """
    plan: dict[str, Undo] = {}
    for change in changes:
        others = frozenset(change.others)
        for each in difference(objects, change.before, change.after, root=change.root):
            if each.path not in others:
                _add(plan, change, each)
    return {path: undo for path, undo in sorted(plan.items()) if undo.doubt or not same(undo.target, undo.expected)}


def _add(plan: dict[str, Undo], change: Change, each: Difference) -> None:
    known = plan.get(each.path)
    if known is None:
        known = Undo(each.path, each.before, each.after, "", change.began, change.ended)
        plan[each.path] = known
    else:
        if change.began >= known._ended and not same(known.expected, each.before):
            known.doubt = BETWEEN
        if change.began < known._began:
            known.target, known._began = each.before, change.began
        known.expected, known._ended = each.after, max(known._ended, change.ended)
    if change.doubtful:
        known.doubt = DOUBTFUL


def same(one: Entry | None, other: Entry | None) -> bool:
    """Return whether two entries are equal; directories are equal if both exist."""
    if one is not None and other is not None and one.is_dir and other.is_dir:
        return True
    return one == other


def since(changes: Iterable[Change], turns: frozenset[str]) -> list[Change]:
    """Return the changes that were made for any of ``turns``."""
    return [change for change in changes if not turns.isdisjoint(change.turns)]


# Pruning: old changes, changes of removed sessions, and the oldest beyond a size; then their objects.
#
# It runs while no snapshot is being made. Objects that were made or used recently are kept in any case.

KEEP_DAYS = 30
KEEP_BYTES = 2_000_000_000  # of all objects, compressed
_FRESH_S = 3600.0
_DAY_MS = 86_400_000


class Pruned(TypedDict):
    """The result of pruning: what was removed, and what is left."""

    changes: int
    objects: int
    left_changes: int
    left_bytes: int


def prune(records: Records, objects: Objects, *, now_ms: int, gone: Callable[[Change], bool]) -> Pruned:
    """Remove old changes and those of ``gone`` branches; then the oldest until the rest is small enough.

    A change is old compared with the newest one: a clock that jumped years ahead makes no change old.

    Raises:
        StoreError: The disk failed; what was removed stays removed.
    """
    newest = max((change.ended for file in records.files() for change in read_lines(file)), default=now_ms)
    oldest, forgotten, removed = min(now_ms, newest) - KEEP_DAYS * _DAY_MS, 0, 0
    for _ in range(20):
        kept: list[Change] = []
        for file in records.files():
            known = read_lines(file)
            left = [change for change in known if change.ended >= oldest and not gone(change)]
            forgotten += len(known) - len(left)
            kept += left
            if not left or len(left) < len(known):
                records.rewrite(file, left)
        swept, size = _remove_unneeded(objects, kept)
        removed += swept
        if size <= KEEP_BYTES or not kept:
            break
        oldest = sorted(change.ended for change in kept)[len(kept) // 2] + 1  # half of them, the older ones
    return Pruned(changes=forgotten, objects=removed, left_changes=len(kept), left_bytes=size)


def _remove_unneeded(objects: Objects, kept: list[Change]) -> tuple[int, int]:
    """Remove the objects that no change needs; return their number, and the bytes of the rest."""
    used: set[str] = set()
    for change in kept:
        for root in (change.before, change.after):
            objects_of(objects, root, used)
    removed, size, fresh = 0, 0, time.time() - _FRESH_S
    for name, path in objects.names():
        try:
            found = path.stat()
        except OSError:
            continue
        if name in used or found.st_mtime > fresh:
            size += found.st_size
        else:
            with suppress(OSError):
                path.unlink()
                removed += 1
    return removed, size
