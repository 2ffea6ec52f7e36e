"""What an earlier daemon left waiting: remembered, found once, and gone on with where it was left."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple

from pyagentd.clock import Clock, epoch_ms
from pyagentd.errors import NotASession, StoreError
from pyagentd.runtime.settings import LateArrival
from pyagentd.store import paths
from pyagentd.store.db import tasks
from pyagentd.store.db.projection import Projection
from pyagentd.store.db.state import State
from pyagentd.store.db.tasks import Hint
from pyagentd.store.paths import BranchRef
from pyagentd.store.registry import SuspendedRun, suspended_runs

if TYPE_CHECKING:
    from pyagentd.runtime.kernel import Kernel

log = logging.getLogger(__name__)

# Remembering, for the next daemon, in which branches something waits (``store.db.tasks``).
#
# Nobody waits for it and nothing depends on it: changes are gathered while the last ones are written, and what cannot
# be written is logged.


class WaitingRun(NamedTuple):
    """Something that an earlier daemon left waiting."""

    ref: BranchRef
    kind: str
    id: str


class PendingHints:
    """The hints of one sessions root; ``note`` neither blocks nor raises.

    Args:
        state: The database.
        projection: Names branches as the database does.
        clock: For when it was.
        own: Runs an errand that is waited for before the daemon ends.
    """

    def __init__(
        self,
        state: State,
        projection: Projection,
        clock: Clock,
        own: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._state = state
        self._projection = projection
        self._clock = clock
        self._own = own
        self._changes: dict[Hint, bool] = {}  # True: to be noted
        self._writing = False

    def note(self, branch: BranchRef, kind: str, id: str, *, waits: bool = True) -> None:
        """Remember that something waits in a branch, or that it does not any more."""
        self._changes[Hint(self._projection.key(branch.branch_dir), kind, id)] = waits
        if not self._writing:
            self._writing = True
            self._own(self._write())

    def found(self) -> list[WaitingRun]:
        """Return what waits, and forget what waited in branches that are gone; blocks, for a thread."""
        waiting = []
        try:
            for hint in tasks.found(self._state):
                try:
                    ref = paths.ref_of(self._projection.directory(hint.branch_dir))
                except NotASession:
                    tasks.forget_branch(self._state, hint.branch_dir)
                else:
                    waiting.append(WaitingRun(ref, hint.kind, hint.id))
        except StoreError as error:
            log.warning(
                "cannot look for waiting questions and queues; sessions do so when they are opened: %s", error
            )
        return waiting

    async def _write(self) -> None:
        while self._changes:
            changes, self._changes = self._changes, {}
            noted = [hint for hint, new in changes.items() if new]
            forgotten = [hint for hint, new in changes.items() if not new]
            now_ms = epoch_ms(self._clock.now())
            try:
                await asyncio.to_thread(tasks.change, self._state, noted, forgotten, now_ms=now_ms)
            except StoreError as error:
                log.warning("%s", error)
        self._writing = False


# What an earlier daemon left waiting: found once for each tree, and gone on with where it was left.
#
# Opening a branch whose run waits resumes the run; whoever opens any branch of a tree has the tree looked at first,
# so nobody ever sees a run that is neither in flight nor over. The branch at the root is opened with it, and its run
# opens the agents it waits for.

ASKED_AGAIN_S = 10.0  # to wait for questions of an earlier daemon before saying that there are no others


class SessionTrees:
    """The trees of sessions this daemon has looked at.

    Args:
        kernel: Opens the branches.

    Attributes:
        suspended: The runs that wait, by the key of their branch; whoever opens that goes on with it.
        late: What clients brought for the resumed runs of a tree, by its root's key.
    """

    def __init__(self, kernel: "Kernel") -> None:
        self._kernel = kernel
        self._looks: dict[str, asyncio.Task[None]] = {}  # going on now, by the root's key
        self._looked: set[str] = set()  # keys of roots; a finished task would keep the client it began for
        self.suspended: dict[str, SuspendedRun] = {}
        self.late: defaultdict[str, LateArrival] = defaultdict(LateArrival)
        self._expected: dict[str, str] = {}  # ids of questions that will be asked again, with their runs
        self._found: set[str] = set()  # ids of all questions that were
        self._moved = asyncio.Event()
        self._waking: asyncio.Task[None] | None = None

    # -- finding -----------------------------------------------------------------------------------------------

    def wake_all(self) -> None:
        """Look at the trees in which something waited, and have what goes on in them go on."""
        self._waking = self._kernel.spawn(self._wake_all())

    async def wake(self, ref: BranchRef) -> None:
        """Return when the tree of a branch has been looked at."""
        root = paths.root_of(ref)
        if root.key in self._looked:
            return
        if (task := self._looks.get(root.key)) is None:
            task = self._looks[root.key] = self._kernel.spawn(self._look(root))
        await asyncio.shield(task)

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

    async def _wake_all(self) -> None:
        owed, hints = {}, self._kernel.hints
        for ref, kind, id in await asyncio.to_thread(hints.found):
            await self.wake(ref)
            if kind in ("background", "queue"):
                owed[ref.key] = ref
            elif id not in self._found:
                hints.note(ref, kind, id, waits=False)
        for ref in owed.values():  # results that are owed and queued messages are delivered when it is opened
            self._kernel.spawn(self._kernel.hold(ref))

    async def _look(self, root: BranchRef) -> None:
        try:
            tree = await asyncio.to_thread(suspended_runs, root)
        except StoreError as error:  # whoever opens it is told
            log.warning("%s", error)
            return
        finally:
            self._looked.add(root.key)
            del self._looks[root.key]
        found = tree.values()
        asked = [ask for each in found for ask in (*each.asks, *each.answered)]
        if not found or any(map(self._kernel.asks.knows, asked)):  # a copied session must not go on with them
            return
        self.suspended.update(tree)
        asks = {ask: each.run_id for each in found for ask in each.asks}
        self._expected.update(asks)
        self._found.update(asks, *(each.answered for each in found))
        log.info("%s: %d runs resumed, %d questions open", root.name, len(tree), len(asks))
        for each in found:
            if each.is_first:
                self._kernel.spawn(self._kernel.hold(each.ref))

    # -- going on ----------------------------------------------------------------------------------------------

    def below(self, ref: BranchRef) -> list[BranchRef]:
        """Return the agents under a branch that runs wait for and nobody has opened yet, the nearest first."""
        awaited = (each.ref for each in self.suspended.values() if not each.is_first)
        return [agent for agent in awaited if agent.branch_dir.is_relative_to(ref.branch_dir)]

    def on_asked(self, ask_id: str) -> None:
        """Note that a question is asked again."""
        if self._expected.pop(ask_id, None) is not None:
            self._moved.set()

    def on_run_ended(self, run_id: str) -> None:
        """Note that a run asks nothing any more."""
        for ask_id in [ask for ask, run in self._expected.items() if run == run_id]:
            self.on_asked(ask_id)
