"""The open branches: opened on demand, closed when unused; and the branches in which a run still waits."""

import asyncio
import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from pyagentd.clock import Clock, Pulse, epoch_ms
from pyagentd.errors import Busy, NotASession, NotFound, PyagentdError, StoreError
from pyagentd.events import Event, Sink
from pyagentd.runtime.approvals import AskBoard
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.document_sync import settings_in_document, settings_of
from pyagentd.runtime.feature import BranchesRemoved, BranchWritten, Bus, ClientGone
from pyagentd.runtime.opening import refusal_of
from pyagentd.runtime.presets import Presets
from pyagentd.runtime.settings import LateArrival
from pyagentd.runtime.status import Outcome, Session
from pyagentd.store import paths
from pyagentd.store.db import tasks
from pyagentd.store.db.projection import Projection
from pyagentd.store.db.state import State
from pyagentd.store.db.tasks import Hint
from pyagentd.store.document.text import Settings
from pyagentd.store.paths import BranchRef
from pyagentd.store.registry import SuspendedRun, suspended_runs, unfinished_agents

# Remembering, for the next daemon, in which branches something waits (``store.index.pending``).
#
# Nobody waits for it and nothing depends on it: changes are gathered while the last ones are written, and what cannot
# be written is logged.


log = logging.getLogger(__name__)


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


# The branches that are open: opened for whoever needs them, closed when nobody does.
#
# There is one ``LiveBranch`` for a branch, however many work with it. One that the disk refused to open for writing
# is opened anew for the next who comes once the disk does not refuse any more, and so is one whose log was replaced,
# as by ``git checkout``. What is being deleted is not opened.
#
# Of the branches that were closed the last few stay in memory for a while: for an editor that comes back, after a
# broken connection or because a buffer was killed, no file is read. They count as closed for everybody, and one whose
# files changed meanwhile is forgotten.

_RESTING = 4  # branches that are kept, ...
_RESTING_BYTES = 32 << 20  # ... with logs of so many bytes together, ...
_RESTING_S = 10 * 60.0  # ... and for how long

# What an earlier daemon left waiting: found once for each tree, and gone on with where it was left.
#
# Opening a branch whose run waits resumes the run; whoever opens any branch of a tree has the tree looked at first,
# so nobody ever sees a run that is neither in flight nor over. The branch at the root is opened with it, and its run
# opens the agents it waits for.

ASKED_AGAIN_S = 10.0  # to wait for questions of an earlier daemon before saying that there are no others


class SessionTrees:
    """The trees of sessions this daemon has looked at.

    Args:
        owner: The kernel.
        knows: Returns whether this daemon asked a question with this id: a copied session must not go on with it.

    Attributes:
        suspended: The runs that wait, by the key of their branch; whoever opens that goes on with it.
        late: What clients brought for the resumed runs of a tree, by its root's key.
    """

    def __init__(self, owner: "OpenBranches", knows: Callable[[str], bool]) -> None:
        self._owner = owner
        self._knows = knows
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
        self._waking = self._owner.spawn(self._wake_all())

    async def wake(self, ref: BranchRef) -> None:
        """Return when the tree of a branch has been looked at."""
        root = paths.root_of(ref)
        if root.key in self._looked:
            return
        if (task := self._looks.get(root.key)) is None:
            task = self._looks[root.key] = self._owner.spawn(self._look(root))
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
        owed, hints = {}, self._owner.hints
        for ref, kind, id in await asyncio.to_thread(hints.found):
            await self.wake(ref)
            if kind in ("background", "queue"):
                owed[ref.key] = ref
            elif id not in self._found:
                hints.note(ref, kind, id, waits=False)
        for ref in owed.values():  # results that are owed and queued messages are delivered when it is opened
            self._owner.spawn(self._owner.hold(ref))

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
        if not found or any(self._knows(ask) for each in found for ask in (*each.asks, *each.answered)):
            return
        self.suspended.update(tree)
        asks = {ask: each.run_id for each in found for ask in each.asks}
        self._expected.update(asks)
        self._found.update(asks, *(each.answered for each in found))
        log.info("%s: %d runs resumed, %d questions open", root.name, len(tree), len(asks))
        for each in found:
            if each.is_first:
                self._owner.spawn(self._owner.hold(each.ref))

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


_T = TypeVar("_T")

_ASKED = ("ask", "answered")
_OVERSEEN = ("agents", "task")  # kinds of events that are about more than one conversation


class OpenBranches:
    """Opens and closes branches.

    Attributes:
        presets: Who answers, and with which rights.
        bus: Tells what happened.
        hints: Remembers for the next daemon where something waits.
        asks: Questions to humans that are open.
        trees: What earlier daemons left waiting.
        emptied: Keys of branches whose document was empty and was made anew, until somebody is asked about that.
        departed: Directories of agents that were destroyed; nobody opens what is in them.
        overseers: Clients that are told of named agents and tasks wherever they are.
        humans: Clients that are told of questions wherever they are.
    """

    hints: PendingHints

    def __init__(self, *, presets: Presets, clock: Clock, pulse: Pulse) -> None:
        self.presets = presets
        self.clock = clock
        self.pulse = pulse
        self.asks = AskBoard(self.publish)
        self.trees = SessionTrees(self, self.asks.knows)
        self.bus = Bus()
        self.emptied: set[str] = set()
        self.departed: set[Path] = set()
        self.overseers: set[Sink] = set()
        self.humans: set[Sink] = set()
        self._branches: dict[str, LiveBranch] = {}
        self._resting: dict[str, tuple[LiveBranch, float]] = {}  # closed ones and since when, oldest first
        self._opening: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._errands: set[asyncio.Task[Any]] = set()
        self._removing: set[Path] = set()
        self._unfinished: dict[str, BranchRef] = {}  # agents, by key
        self._resuming: dict[str, asyncio.Task[None]] = {}  # by key
        self._failed: dict[str, dict[str, str]] = {}  # the errors of closed branches that are in one, by key
        self._unrecorded: dict[str, Outcome] = {}  # how runs ended whose log could not say so, by key

    def opened(self, key: str) -> LiveBranch | None:
        """Return the branch with this key if it is open."""
        return self._branches.get(key)

    def state_of(self, key: str) -> str:
        """Return the state of a session, open or not; one that nobody opened since the daemon started is idle."""
        if (branch := self._branches.get(key)) is not None:
            return branch.state.state.value
        return (Session.ERROR if key in self._failed else Session.IDLE).value

    @contextlib.asynccontextmanager
    async def using(self, ref: BranchRef) -> AsyncIterator[LiveBranch]:
        """Have a branch open, and healed if need be; it is closed afterwards unless somebody else needs it.

        Raises:
            StoreError: The disk refused.
        """
        branch = await self._open(ref)
        try:
            yield branch
        finally:
            branch.users -= 1
            if branch.idle:
                await asyncio.shield(self.spawn(self.close_if_idle(branch)))

    async def _open(self, ref: BranchRef) -> LiveBranch:
        """Return the branch with one user more; opened if it is not, or if what is on disk is another by now."""
        if self._removing and self.is_going(ref):
            raise NotFound(f"{ref.name} is being deleted")
        if self.departed and any(ref.branch_dir.is_relative_to(directory) for directory in self.departed):
            name = ref.session_dir.name
            raise NotFound(f"The agent {name} was destroyed", hint=f"`pyagentd agent init {name}` makes it anew")
        key = ref.key
        if key not in self._branches:
            await self.trees.wake(ref)
        async with self._opening.setdefault(key, asyncio.Lock()):
            branch = self._branches.get(key)
            if branch is None:
                waiting = self.trees.suspended.get(key)
                branch = self._woken(ref) if waiting is None else None
                if branch is None:
                    await asyncio.to_thread(self.presets.warm, ref, None)  # reading it may take a while
                    branch = await self._read(ref, goes_on=waiting is not None)
                if not branch.has_open_run:
                    self._unrecorded.pop(key, None)
                if (failed := self._failed.pop(key, None)) is not None and waiting is None:
                    branch.paused = True
                    branch.state.on_run_failed(**failed)
                self._branches[key] = branch
                if branch.emptied:
                    self.emptied.add(key)
                if waiting is not None:
                    del self.trees.suspended[key]
                    self._resuming[key] = self.spawn(self._resume(branch, waiting))
                self.branch_opened(branch)
                self.spawn(self._find_unfinished(branch))
            elif branch.run is None and (
                branch.recorder.journal.is_replaced or (branch.refusal and not refusal_of(ref))
            ):
                branch = await self._opened_anew(branch)
            branch.users += 1
        resuming = self._resuming.get(key)
        if resuming is not None and resuming is not asyncio.current_task():  # what it needs it may open itself
            try:
                await asyncio.shield(resuming)
            except BaseException:
                branch.users -= 1
                raise
        return branch

    async def _read(self, ref: BranchRef, *, goes_on: bool = False) -> LiveBranch:
        """Return the branch as it is on disk."""
        return await LiveBranch.open(
            ref,
            pulse=self.pulse,
            clock=self.clock,
            settings=lambda: self._settings_in(ref),
            goes_on=goes_on,
            ended=self._unrecorded.get(ref.key),
        )

    def _woken(self, ref: BranchRef) -> LiveBranch | None:
        """Return the branch if it is kept in memory and its files are as it left them."""
        branch, _ = self._resting.pop(ref.key, (None, 0.0))
        if branch is not None and not branch.wake():
            branch.close_now()
            return None
        return branch

    def forget_resting(self, age_s: float = _RESTING_S, *, inside: Path | None = None) -> None:
        """Let go of branches that were closed at least so long ago, of the oldest where too many are kept, too.

        Args:
            age_s: So long.
            inside: Only those of this directory, however many there are.
        """
        now, size = time.monotonic(), sum(branch.recorder.journal.size for branch, _ in self._resting.values())
        for key, (branch, since) in list(self._resting.items()):
            is_too_much = inside is None and (len(self._resting) > _RESTING or size > _RESTING_BYTES)
            if is_too_much or (now - since >= age_s and (inside is None or Path(key).is_relative_to(inside))):
                size -= branch.recorder.journal.size
                del self._resting[key]
                branch.close_now()

    async def _resume(self, branch: LiveBranch, waiting: SuspendedRun) -> None:
        branch.users += 1
        try:
            await self.resume(branch, waiting)
        finally:
            branch.users -= 1
            del self._resuming[branch.key]

    async def resume(self, branch: LiveBranch, waiting: SuspendedRun) -> None:
        """Go on with the run that an earlier daemon left waiting in a branch; raises nothing."""

    async def hold(self, ref: BranchRef) -> None:
        """Open a branch, and close it if nothing goes on in it."""
        with contextlib.suppress(PyagentdError):  # whoever opens it is told
            async with self.using(ref):
                pass

    def _settings_in(self, ref: BranchRef) -> Settings:
        """Return what the Local Variables of a branch's document say where nobody changed them: its preset's."""
        try:
            return settings_in_document(settings_of(self.presets.of_branch(ref)))
        except PyagentdError as error:  # whoever sends is told
            log.warning("%s", error)
            return Settings()

    def branch_opened(self, branch: LiveBranch) -> None:
        """Note that a branch was opened that was not open."""

    async def _opened_anew(self, branch: LiveBranch) -> LiveBranch:
        """Return a branch that can be written in the place of one that cannot, or that one if nothing changed."""
        fresh = await self._read(branch.ref)
        if fresh.refusal or branch.users:
            fresh.close_now()
            return branch
        self._branches[branch.key] = fresh
        self._unrecorded.pop(branch.key, None)
        branch.abandon()
        return fresh

    @contextlib.asynccontextmanager
    async def removing(
        self,
        directory: Path,
        *,
        stop: Callable[[LiveBranch], Awaitable[object]] | None = None,
        to: Path | None = None,
    ) -> AsyncIterator[None]:
        """Let nobody open what is in ``directory`` while the block removes it; then tell who watched any of it.

        Args:
            directory: Where no run begins from now on.
            stop: Ends the run of a branch that has one.
            to: Where it is then, if it is moved.

        Raises:
            Busy: A run is in flight there, or it is being removed already.
        """
        if directory in self._removing:
            raise Busy(f"{directory} is being deleted")
        self._removing.add(directory)
        try:
            if stop is not None:
                for branch in self.inside(directory):
                    await stop(branch)
            for branch in self.inside(directory):
                if branch.run is not None or branch.starting.locked():
                    raise Busy(f"{branch.ref.name} is answering", hint="Wait for the answer, or abort it first")
                with contextlib.suppress(StoreError):  # the log has it
                    await branch.document.flush()
            self.forget_resting(0.0, inside=directory)
            yield
            for branch in self.inside(directory):
                del self._branches[branch.key]
                moved = None if to is None else to / Path(branch.key).relative_to(directory) / branch.file.name
                facts = () if moved is None else ({"to": str(moved)},)
                branch.publish(Event("deleted", branch.key, 0, facts))
                with contextlib.suppress(StoreError):
                    branch.close_now()
            self.bus.tell(BranchesRemoved(directory))
        finally:
            self._removing.discard(directory)

    def is_going(self, ref: BranchRef) -> bool:
        """Return whether the directory of a branch is being removed."""
        return any(ref.branch_dir.is_relative_to(directory) for directory in self._removing)

    def inside(self, directory: Path) -> list[LiveBranch]:
        """Return the branches and agents in ``directory`` that are open."""
        place = str(directory)  # keys are resolved directories; comparing paths would cost a crowd much
        return [branch for key, branch in self._branches.items() if key == place or key.startswith(f"{place}/")]

    def forget(self, sink: Sink) -> None:
        """Let a client go from every branch it watched."""
        self.overseers.discard(sink)
        self.humans.discard(sink)
        for branch in self.all_opened:
            branch.detach(sink)
            if branch.idle:
                self.spawn(self.close_if_idle(branch))
        self.bus.tell(ClientGone(sink))

    def publish(self, event: Event) -> None:
        """Tell whoever watches the event's branch, and of what is overseen, who does that."""
        if (branch := self._branches.get(event.branch)) is not None:
            branch.publish(event)
        others = self.humans if event.kind in _ASKED else self.overseers if event.kind in _OVERSEEN else ()
        for sink in others:
            if branch is None or sink not in branch.sinks:
                sink.push(event)

    def watchers_of(self, branch: LiveBranch) -> list[Sink]:
        """Return the clients that watch a branch or the session of an agent."""
        found = list(branch.sinks)
        if branch.ref.is_agent:
            try:
                top = self.opened(paths.root_of(branch.ref).key)
            except NotASession:
                top = None
            found += list(top.sinks) if top is not None else []
        return found

    @property
    def all_opened(self) -> list[LiveBranch]:
        """The branches that are open."""
        return list(self._branches.values())

    @property
    def runs(self) -> list[LiveBranch]:
        """The branches with a run in flight."""
        return [branch for branch in self._branches.values() if branch.run is not None]

    async def close_if_idle(self, branch: LiveBranch) -> None:
        """Forget a branch that nobody needs any more; its files hold everything."""
        with contextlib.suppress(StoreError):  # the log has the text; the document gets it when it is opened again
            await branch.document.flush()
        if branch.idle and self._branches.get(branch.key) is branch:
            del self._branches[branch.key]
            if (failure := branch.state.failure) is not None:
                self._failed[branch.key] = failure
            with contextlib.suppress(StoreError):
                if not branch.ref.is_agent and failure is None and branch.rest():
                    self._resting[branch.key] = branch, time.monotonic()
                    self.forget_resting()
                else:
                    branch.close_now()
            self.bus.tell(BranchWritten(branch.ref))

    def drop(self, branch: LiveBranch, outcome: Outcome) -> None:
        """Let a branch go whose log cannot say how its run ended; it gets its end when it is opened anew."""
        self._branches.pop(branch.key, None)
        self._unrecorded[branch.key] = outcome
        if (failure := branch.state.failure) is not None:
            self._failed[branch.key] = failure
        branch.abandon()

    async def _find_unfinished(self, branch: LiveBranch) -> None:
        """End what the agents of a branch were doing when their daemon was killed or their disk refused.

        Opening an agent does it; those of an agent are found from the branch above it.
        """
        if not branch.ref.is_agent and not branch.refusal:
            if paths.agents_dir(branch.ref.branch_dir).is_dir():
                found = await asyncio.to_thread(unfinished_agents, branch.ref.branch_dir)
                self._unfinished.update((ref.key, ref) for ref in found)
            await self._finish_agents()

    async def _finish_agents(self) -> None:
        """Have every agent that was left in the middle finished; what cannot be now waits for the next run."""
        unfinished, self._unfinished = self._unfinished, {}
        for ref in unfinished.values():
            with contextlib.suppress(PyagentdError):  # whoever opens it is told
                async with self.using(ref) as agent:
                    if agent.run is None and not agent.settled:
                        self._unfinished[ref.key] = ref

    def spawn(self, errand: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Run ``errand`` in a task that is kept until it is done; the daemon does not stop before."""
        task = asyncio.create_task(errand)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)
        return task
