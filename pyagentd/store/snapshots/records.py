"""Records which tool call changed which files: one file of lines for each top-level branch.

A line says for which turns (messages of the user, the root's first) a call or a restoring was made, and has the trees
before and after. A call that has begun has a file of its own until its line is there, so that one that the daemon
did not survive is known. Who reads takes no line for more than it is: a torn one is left out.
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from pyagentd import regularfile
from pyagentd.clock import new_id
from pyagentd.errors import StoreError
from pyagentd.store import atomic
from pyagentd.store.paths import BranchRef
from pyagentd.store.snapshots import objects as tree
from pyagentd.store.snapshots.objects import Difference, Entry, Objects, difference

_LINES = "changes"
_BEGUN = "begun"
_TAIL = 256 * 1024  # bytes that have the last line


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What one call, or one restoring, made of files."""

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


def new_change_id() -> str:
    """Return a fresh id."""
    return new_id("snp")


class Records:
    """The changes of all branches.

    Args:
        directory: Of the store of snapshots.
    """

    def __init__(self, directory: Path) -> None:
        self._lines = directory / _LINES
        self._begun = directory / _BEGUN

    def file(self, ref: BranchRef) -> Path:
        """Return where the changes of ``ref``, the root of a tree, are."""
        return self._lines / f"{_name(ref.session_id)}+{_name(ref.branch_name)}.jsonl"

    def of(self, ref: BranchRef) -> list[Change]:
        """Return the changes of the tree of agents whose root is ``ref``, in the order in which they ended."""
        return read_lines(self.file(ref))

    def head(self, ref: BranchRef) -> str:
        """Return the id of the last change, "" when there is none."""
        try:
            with regularfile.opened(self.file(ref), limit=regularfile.LOG) as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
                lines = file.read().split(b"\n")
        except OSError:
            return ""
        known = read_changes(lines)
        return known[-1].id if known else ""

    def append(self, ref: BranchRef, change: Change) -> None:
        """Add a change; it is no longer one that has only begun.

        Raises:
            StoreError: The disk refused.
        """
        file = self.file(ref)
        line = json.dumps(asdict(change), separators=(",", ":")).encode() + b"\n"
        atomic.make_dirs(file.parent)
        descriptor = atomic.open_append(file)
        try:
            size = os.fstat(descriptor).st_size
            torn = size and atomic.read_fd(descriptor, 1, size - 1, file) != b"\n"
            atomic.append_fd(descriptor, b"\n" + line if torn else line, file)
        finally:
            atomic.close_fd(descriptor)
        self.forget(change.id)

    def begin(self, ref: BranchRef, change: Change, paths: tuple[str, ...]) -> None:
        """Note that a call begins, which is about to change ``paths`` or, if it has a root, anything there.

        Raises:
            StoreError: The disk refused.
        """
        atomic.make_dirs(self._begun)
        told = {"session": ref.key, "paths": paths, "change": asdict(change)}
        atomic.write_text(self._begun / f"{change.id}.json", json.dumps(told), fsync=False)

    def forget(self, change_id: str) -> None:
        """Note that a call that began needs no line."""
        with suppress(OSError):
            (self._begun / f"{change_id}.json").unlink()

    def unfinished(self) -> list[tuple[str, tuple[str, ...], Change]]:
        """Return the calls that began and never ended: key of the root branch, paths, and what is known."""
        found = []
        for file in sorted(self._begun.glob("*.json")):
            try:
                told = json.loads(regularfile.read_text(file))
                found.append((str(told["session"]), tuple(map(str, told["paths"])), _change(told["change"])))
            except (OSError, ValueError, KeyError, TypeError):
                with suppress(OSError):
                    file.unlink()
        return found

    def rewrite(self, file: Path, kept: list[Change]) -> None:
        """Leave only ``kept`` of the changes in ``file``; raises ``StoreError``."""
        lines = "".join(json.dumps(asdict(change), separators=(",", ":")) + "\n" for change in kept)
        atomic.write_text(file, lines)

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
    """Return the changes that ``lines`` tell; what cannot be read is left out."""
    found = []
    for line in filter(None, lines):
        with suppress(ValueError, KeyError, TypeError):
            found.append(_change(json.loads(line)))
    return found


def _change(data: Mapping[str, Any]) -> Change:
    known = {field.name for field in fields(Change)}
    given: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in data.items() if key in known
    }
    return Change(**given)


def _name(text: str) -> str:
    return quote(text, safe="").replace(".", "%2E").replace("+", "%2B")


# What undoing changes means for each path: what was there first, and what should be there now.
#
# Pure. Between two changes of ours that did not overlap somebody else may have changed a file; then nobody but the
# user can say which version is wanted.

BETWEEN = "somebody else changed it between two changes of the agent"
DOUBTFUL = "pyagentd ended while a command ran: what changed then may be somebody else's"


@dataclass(slots=True)
class Undo:
    """What is to become of one path."""

    path: str
    target: Entry | None  # what was there before the first change; None: nothing
    expected: Entry | None  # what the last change left
    doubt: str = ""  # why it is not certain that this is right
    _began: int = 0
    _ended: int = 0


def undoing(objects: Objects, changes: Sequence[Change]) -> dict[str, Undo]:
    """Return by path what undoing ``changes``, in the order in which they ended, would do.

    Raises:
        StoreError: What was recorded is not there any more.
    """
    plan: dict[str, Undo] = {}
    for change in changes:
        others = frozenset(change.others)
        for each in difference(objects, change.before, change.after):
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
    """Return whether two entries are alike; of directories counts that they are there."""
    if one is not None and other is not None and one.is_dir and other.is_dir:
        return True
    return one == other


def since(changes: Iterable[Change], turns: frozenset[str]) -> list[Change]:
    """Return the changes that were made for any of ``turns``."""
    return [change for change in changes if not turns.isdisjoint(change.turns)]


# What the store forgets: changes that are old, of sessions that are gone, and what is too much; then their objects.
#
# Runs while no snapshot is being made. An object that was made or used a moment ago is kept whatever the records
# say.

KEEP_DAYS = 30
MOST_BYTES = 2_000_000_000  # of all objects, compressed
_FRESH_S = 3600.0
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What was forgotten and what is left."""

    changes: int
    objects: int
    left_changes: int
    left_bytes: int


def prune(
    records: Records,
    objects: Objects,
    *,
    now_ms: int,
    gone: Callable[[Change], bool],
    keep_days: int = KEEP_DAYS,
    most_bytes: int = MOST_BYTES,
) -> Pruned:
    """Forget what is old or of nobody any more; then the oldest until the rest is small enough.

    Args:
        records: All changes.
        objects: Their contents.
        now_ms: The time, epoch ms.
        gone: Whether the branch that made a change is not there any more.
        keep_days: How long a change is kept.
        most_bytes: How large the objects may be together.

    Raises:
        StoreError: The disk refused; what was forgotten stays forgotten.
    """
    oldest, forgotten, removed = now_ms - keep_days * _DAY_MS, 0, 0
    for _ in range(20):
        kept: list[Change] = []
        for file in records.files():
            known = read_lines(file)
            left = [change for change in known if change.ended >= oldest and not gone(change)]
            forgotten += len(known) - len(left)
            kept += left
            if not left:
                with suppress(OSError):
                    file.unlink()
            elif len(left) < len(known):
                records.rewrite(file, left)
        swept, size = _sweep(objects, kept)
        removed += swept
        if size <= most_bytes or not kept:
            break
        oldest = sorted(change.ended for change in kept)[len(kept) // 2] + 1  # half of them, the older ones
    return Pruned(changes=forgotten, objects=removed, left_changes=len(kept), left_bytes=size)


def _sweep(objects: Objects, kept: list[Change]) -> tuple[int, int]:
    """Remove the objects that no change needs; return how many, and the bytes of those that are left."""
    used: set[str] = set()
    for change in kept:
        for root in (change.before, change.after):
            tree.objects_of(objects, root, used)
    removed, size, fresh = 0, 0, time.time() - _FRESH_S
    for name, path in objects.names():
        found = _stat(path)
        if found is None:
            continue
        if name in used or found[0] > fresh:
            size += found[1]
        else:
            with suppress(OSError):
                path.unlink()
                removed += 1
    return removed, size


def _stat(path: Path) -> tuple[float, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime, found.st_size
