"""Resumes suspended runs, open questions and queues of an earlier daemon."""

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

# Hints for the next daemon: the branches in which something waits (``store.db.tasks``).
#
# Writing them is asynchronous and best effort: changes are gathered while earlier ones are written, and a failure is
# only logged.


class WaitingRun(NamedTuple):
    """A question, queued message or background result that an earlier daemon left waiting."""

    ref: BranchRef
    kind: str
    id: str


class PendingHints:
    """The hints of one sessions root; ``note`` neither blocks nor raises.

    Args:
        state: The database.
        projection: Maps branches to their names in the database.
        clock: Gives the time of a hint.
        own: Runs a coroutine in a task that the daemon awaits before it ends.
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
        """Record that something waits in a branch, or, without ``waits``, that it does not any more."""
        self._changes[Hint(self._projection.key(branch.branch_dir), kind, id)] = waits
        if not self._writing:
            self._writing = True
            self._own(self._write())

    def found(self) -> list[WaitingRun]:
        """Return what waits, and delete the hints of branches that are gone; blocks, for a thread."""
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


# Finding and resuming suspended runs, once for each tree of sessions.
#
# Opening a branch with a suspended run resumes the run. The tree of a branch is scanned before any of its branches is
# opened, so no client sees a run that is neither in flight nor over. The topmost branches with a suspended run are
# opened at once, and their runs open the agents that they wait for.

ASKED_AGAIN_S = 10.0  # how long to wait until questions of an earlier daemon are asked again


class SessionTrees:
    """Finds the suspended runs of earlier daemons in trees of sessions.

    Args:
        kernel: Opens the branches.

    Attributes:
        suspended: The suspended runs by the key of their branch; opening the branch resumes the run.
        late: The environment of clients for the resumed runs of a tree, by its root's key.
    """

    def __init__(self, kernel: "Kernel") -> None:
        self._kernel = kernel
        self._looks: dict[str, asyncio.Task[None]] = {}  # scans in progress, by the root's key
        self._looked: set[str] = set()  # keys of scanned roots; a finished task would keep its client in memory
        self.suspended: dict[str, SuspendedRun] = {}
        self.late: defaultdict[str, LateArrival] = defaultdict(LateArrival)
        self._expected: dict[str, str] = {}  # ids of questions that will be asked again, with their runs
        self._found: set[str] = set()  # ids of all questions found
        self._moved = asyncio.Event()
        self._waking: asyncio.Task[None] | None = None

    # -- finding -----------------------------------------------------------------------------------------------

    def wake_all(self) -> None:
        """Scan the trees in which something waits, and resume their runs and queues, in the background."""
        self._waking = self._kernel.spawn(self._wake_all())

    async def wake(self, ref: BranchRef) -> None:
        """Scan the tree of a branch, or wait until it is scanned."""
        root = paths.root_of(ref)
        if root.key in self._looked:
            return
        if (task := self._looks.get(root.key)) is None:
            task = self._looks[root.key] = self._kernel.spawn(self._look(root))
        await asyncio.shield(task)

    async def awake(self) -> None:
        """Wait until the known open questions of an earlier daemon are asked again, with a time limit."""
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
        for ref in owed.values():  # opening it delivers results and queued messages
            self._kernel.spawn(self._kernel.hold(ref))

    async def _look(self, root: BranchRef) -> None:
        try:
            tree = await asyncio.to_thread(suspended_runs, root)
        except StoreError as error:  # reported to the client that opens it
            log.warning("%s", error)
            return
        finally:
            self._looked.add(root.key)
            del self._looks[root.key]
        found = tree.values()
        asked = [ask for each in found for ask in (*each.asks, *each.answered)]
        if not found or any(map(self._kernel.asks.knows, asked)):  # a copied session must not resume them
            return
        self.suspended.update(tree)
        asks = {ask: each.run_id for each in found for ask in each.asks}
        self._expected.update(asks)
        self._found.update(asks, *(each.answered for each in found))
        log.info("%s: %d runs resumed, %d questions open", root.name, len(tree), len(asks))
        for each in found:
            if each.is_first:
                self._kernel.spawn(self._kernel.hold(each.ref))

    # -- resuming ----------------------------------------------------------------------------------------------

    def below(self, ref: BranchRef) -> list[BranchRef]:
        """Return the agents below a branch with suspended runs that other runs wait for, nearest first."""
        awaited = (each.ref for each in self.suspended.values() if not each.is_first)
        return [agent for agent in awaited if agent.branch_dir.is_relative_to(ref.branch_dir)]

    def on_asked(self, ask_id: str) -> None:
        """Handle a question that is asked again."""
        if self._expected.pop(ask_id, None) is not None:
            self._moved.set()

    def on_run_ended(self, run_id: str) -> None:
        """Stop expecting questions of a run."""
        for ask_id in [ask for ask, run in self._expected.items() if run == run_id]:
            self.on_asked(ask_id)
