"""What an earlier daemon left waiting: found once for each tree, and gone on with where it was left.

Opening a branch whose run waits resumes the run; whoever opens any branch of a tree has the tree looked at first,
so nobody ever sees a run that is neither in flight nor over. The branch at the root is opened with it, and its run
opens the agents it waits for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from pyagentd.agent.running.hints import PendingHints
from pyagentd.agent.running.settings import Late
from pyagentd.errors import StoreError
from pyagentd.store import paths
from pyagentd.store.paths import BranchRef
from pyagentd.store.unfinished import Suspended, look

log = logging.getLogger(__name__)

ASKED_AGAIN_S = 10.0  # to wait for questions of an earlier daemon before saying that there are no others


class Owner(Protocol):
    """What the host does for it."""

    def own(self, errand: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run an errand that the host waits for before it ends."""
        ...

    async def hold(self, ref: BranchRef) -> None:
        """Open a branch, and close it if nothing goes on in it."""
        ...


class Trees:
    """The trees of sessions this daemon has looked at.

    Args:
        owner: The host.
        knows: Returns whether this daemon asked a question with this id: a copied session must not go on with it.
    """

    def __init__(self, owner: Owner, knows: Callable[[str], bool]) -> None:
        self._owner = owner
        self._knows = knows
        self._looks: dict[str, asyncio.Task[None]] = {}  # going on now, by the root's key
        self._looked: set[str] = set()  # keys of roots; a finished task would keep the client it began for
        self._suspended: dict[str, Suspended] = {}  # by key, until it is opened
        self._late: dict[str, Late] = {}  # by the root's key
        self._expected: dict[str, str] = {}  # ids of questions that will be asked again, with their runs
        self._found: set[str] = set()  # ids of all questions that were
        self._moved = asyncio.Event()
        self._waking: asyncio.Task[None] | None = None

    # -- finding -----------------------------------------------------------------------------------------------

    def wake_all(self, hints: PendingHints) -> None:
        """Look at the trees in which something waited, and have what goes on in them go on."""
        self._waking = self._owner.own(self._wake_all(hints))

    def wake_soon(self, ref: BranchRef) -> None:
        """Look at the tree of a branch whose last run has no end, unless that was done."""
        self._owner.own(self.wake(ref))

    async def wake(self, ref: BranchRef) -> None:
        """Return when the tree of a branch has been looked at."""
        root = paths.root_of(ref)
        if root.key in self._looked:
            return
        if (task := self._looks.get(root.key)) is None:
            task = self._looks[root.key] = self._owner.own(self._look(root))
            task.add_done_callback(lambda _: self._note_looked(root.key))
        await asyncio.shield(task)

    def _note_looked(self, root: str) -> None:
        self._looked.add(root)
        del self._looks[root]

    async def awake(self) -> None:
        """Return when the questions that an earlier daemon left open are asked again, as far as that is known."""
        if self._waking is not None:
            await asyncio.shield(self._waking)
            self._waking = None
        if not self._expected:
            return
        try:
            async with asyncio.timeout(ASKED_AGAIN_S):
                while self._expected:
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            log.error("%d questions of an earlier daemon were not asked again", len(self._expected))
            self._expected.clear()

    async def _wake_all(self, hints: PendingHints) -> None:
        owed = {}
        for ref, kind, id in await asyncio.to_thread(hints.found):
            await self.wake(ref)
            if kind in ("background", "queue"):
                owed[ref.key] = ref
            elif id not in self._found:
                hints.forget(ref, kind, id)
        for ref in owed.values():  # results that are owed and queued messages are delivered when it is opened
            self._owner.own(self._owner.hold(ref))

    async def _look(self, root: BranchRef) -> None:
        try:
            tree = await asyncio.to_thread(look, root)
        except StoreError as error:  # whoever opens it is told
            log.warning("%s", error)
            return
        found = tree.values()
        if not found or any(self._knows(ask) for each in found for ask in (*each.asks, *each.answered)):
            return
        self._suspended.update(tree)
        asks = {ask: each.run_id for each in found for ask in each.asks}
        self._expected.update(asks)
        self._found.update(asks, *(each.answered for each in found))
        log.info("%s: %d runs go on, %d questions are open", root.name, len(tree), len(asks))
        for each in found:
            if each.is_first:
                self._owner.own(self._owner.hold(each.ref))

    # -- going on ----------------------------------------------------------------------------------------------

    def waiting(self, key: str) -> Suspended | None:
        """Return the run that waits in a branch, for whoever opens it to go on with."""
        return self._suspended.get(key)

    def took(self, key: str) -> None:
        """Note that the run that waited in a branch is being resumed."""
        del self._suspended[key]

    def below(self, ref: BranchRef) -> list[BranchRef]:
        """Return the agents under a branch that runs wait for and nobody has opened yet, the nearest first."""
        awaited = (each.ref for each in self._suspended.values() if not each.is_first)
        return [agent for agent in awaited if agent.branch_dir.is_relative_to(ref.branch_dir)]

    def late(self, root: str) -> Late:
        """Return what clients brought for the resumed runs of a tree."""
        return self._late.setdefault(root, Late())

    def known_late(self, root: str) -> Late | None:
        """Return it if anything of the tree was resumed."""
        return self._late.get(root)

    def asked(self, ask_id: str) -> None:
        """Note that a question is asked again."""
        if self._expected.pop(ask_id, None) is not None:
            self._moved.set()

    def ended(self, run_id: str) -> None:
        """Note that a run asks nothing any more."""
        for ask_id in [ask for ask, run in self._expected.items() if run == run_id]:
            self.asked(ask_id)
