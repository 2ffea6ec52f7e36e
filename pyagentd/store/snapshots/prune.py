"""What the store forgets: changes that are old, of sessions that are gone, and what is too much; then their objects.

Runs while no snapshot is being made. An object that was made or used a moment ago is kept whatever the records say.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pyagentd.store.snapshots import tree
from pyagentd.store.snapshots.objects import Objects
from pyagentd.store.snapshots.records import Change, Records, read_lines

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
