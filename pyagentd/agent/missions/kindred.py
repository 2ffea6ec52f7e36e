"""Which missions run now, so that those below one share its budget of turns and know how deep they are (DD-28).

Between a mission and one below it may be any number of chats: an agent of a mission that itself starts a mission.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyagentd.store import paths
from pyagentd.store.paths import BranchRef

if TYPE_CHECKING:
    from pyagentd.mission.budget import Budget


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the tree a mission is: whose budget it spends, and how many missions are above it."""

    budget: Budget
    depth: int


class Kindred:
    """The missions of all branches that run now."""

    def __init__(self) -> None:
        self._running: dict[str, Place] = {}  # by branch key

    def above(self, ref: BranchRef) -> int:
        """Return how many missions a mission that is started from ``ref`` would have above it."""
        around = (ref, *paths.ancestors_of(ref))
        return next((place.depth + 1 for each in around if (place := self._running.get(each.key))), 0)

    @contextmanager
    def running(self, ref: BranchRef, max_turns: int) -> Iterator[Place]:
        """Have missions below ``ref`` know, as long as the block lasts, that one runs there; say where that is."""
        above = next((place for each in paths.ancestors_of(ref) if (place := self._running.get(each.key))), None)
        if above is None:
            from pyagentd.mission.budget import Budget  # the language is loaded when the first mission comes
            from pyagentd.mission.options import TURN_BUDGET

            place = Place(Budget(turns=max(TURN_BUDGET, max_turns)), 0)
        else:
            place = Place(above.budget, above.depth + 1)
        self._running[ref.key] = place
        try:
            yield place
        finally:
            del self._running[ref.key]
