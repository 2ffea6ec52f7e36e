"""What undoing changes means for each path: what was there first, and what should be there now.

Pure. Between two changes of ours that did not overlap somebody else may have changed a file; then nobody but the user
can say which version is wanted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyagentd.store.snapshots.objects import Objects
from pyagentd.store.snapshots.records import Change
from pyagentd.store.snapshots.tree import Difference, Entry, difference

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
