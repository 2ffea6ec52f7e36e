"""What tools wrote a moment ago, and for which session."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from pyagentd.store.paths import BranchRef
from pyagentd.store.snapshots.objects import Difference, Entry


class _Written(NamedTuple):
    ended: int
    session: str
    path: str
    after: Entry | None


class Recent:
    """What Write and Edit made of files a moment ago, and for which session: a command beside them did not."""

    def __init__(self) -> None:
        self._written: deque[_Written] = deque(maxlen=2000)

    def note(self, top: BranchRef, ended: int, found: Iterable[Difference]) -> None:
        """Note what a call of the session ``top`` made of files."""
        self._written.extend(_Written(ended, top.key, each.path, each.after) for each in found)

    def of_others(self, top: BranchRef, began: int, found: Iterable[Difference]) -> tuple[str, ...]:
        """Return the paths of ``found`` that other sessions made what they are since ``began``."""
        others = {
            (each.path, each.after) for each in self._written if each.session != top.key and each.ended >= began
        }
        return tuple(each.path for each in found if (each.path, each.after) in others) if others else ()
