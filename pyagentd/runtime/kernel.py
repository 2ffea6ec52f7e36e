"""The kernel: the state that all features share, and the runs it starts and supervises."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from pyagentd.clock import Clock, Pulse
from pyagentd.config import Config
from pyagentd.errors import Busy, NotASession, NotFound, NotInstalled, PyagentdError, StoreError
from pyagentd.events import Event, Sink
from pyagentd.llm.catalog import ModelFacts, facts
from pyagentd.messages import Message
from pyagentd.runtime.approvals import AskBoard, Questions
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.document_sync import settings_in_document, settings_of
from pyagentd.runtime.feature import (
    BranchChanged,
    BranchesRemoved,
    BranchOpened,
    BranchWritten,
    Bus,
    ClientGone,
    Feature,
    RunEnded,
    RunMoved,
    RunStarted,
)
from pyagentd.runtime.grants import Grants, Ledger, Origins
from pyagentd.runtime.opening import PendingHints, ResumedRun, SessionTrees, refusal_of
from pyagentd.runtime.presets import NamedAgentOverlay, Presets
from pyagentd.runtime.queue import Queues, Receipt, Submission
from pyagentd.runtime.run import Run, RunPhase, RunSettings
from pyagentd.runtime.run_setup import find_continuation
from pyagentd.runtime.settings import SendOptions
from pyagentd.runtime.status import BY_PARENT, Outcome, Session, told_of
from pyagentd.runtime.turns import Prompt, record_start
from pyagentd.store import paths
from pyagentd.store.db.projection import Projection
from pyagentd.store.db.state import State as State_
from pyagentd.store.document.text import Settings
from pyagentd.store.paths import BranchRef
from pyagentd.store.registry import SuspendedRun, answered_questions, unfinished_agents

log = logging.getLogger(__name__)


def _log_failure(what: str, failure: Exception) -> None:
    """Log a failure: a ``StoreError`` in one line, any other exception with its traceback."""
    log.error("%s: %s", what, failure, exc_info=None if isinstance(failure, StoreError) else failure)


@contextlib.contextmanager
def _whatever_happens(run: Run) -> Iterator[None]:
    """Log an exception of a handler that is notified of a run's end; the run has ended nevertheless."""
    try:
        yield
    except Exception:  # part of the run's supervisor
        log.exception("run %s: a handler of its end failed", run.id)


# The runtime of one daemon: its state, its runs, and the features that it calls.
#
# Only the kernel starts runs, and it ensures that each of them ends. It knows no particular feature: it calls those
# in ``daemon.FEATURES`` through ``feature.Feature``, and notifies them by the bus.

_RESTING = 4  # closed branches kept in memory
_RESTING_BYTES = 32 << 20  # total size of their logs
_RESTING_S = 10 * 60.0  # how long they are kept

_ASKED = ("ask", "answered")
_OVERSEEN = ("agents", "task")  # kinds of events that overseers get from all sessions

_T = TypeVar("_T")
F = TypeVar("F", bound=Feature)


class Kernel:
    """The state that all features share.

    Attributes:
        config: What the user configured.
        presets: The presets: models, tools and permissions.
        bus: Delivers events between features.
        asks: The open questions to humans.
        trees: Runs that earlier daemons left suspended.
        hints: Records for the next daemon which branches have something waiting.
        emptied: Keys of branches whose emptied document was restored from the log, until a client is asked about it.
        departed: Directories of destroyed agents; nothing in them can be opened.
        overseers: Clients subscribed to events of named agents and tasks in all sessions.
        humans: Clients subscribed to questions in all sessions.
        state: The database.
        origins: Which sessions came from elsewhere and are not trusted.
        named: The settings in the configuration files of named agents.
        ledger: The audit log.
        projection: Maps branches to their names in the database.
        grants: Permissions that humans granted for more than one call.
        questions: Asks humans on behalf of runs.
        queue: Accepts messages and queues those that cannot start a run yet.
        closing: Whether the daemon is stopping: no new run begins.
        features: Instances of ``daemon.FEATURES``, in that order.
    """

    def __init__(
        self,
        *,
        config: Config,
        presets: Presets,
        clock: Clock,
        pulse: Pulse,
        state: State_ | None = None,
        features: Sequence[type[Feature]] = (),
    ) -> None:
        self.config = config
        self.presets = presets
        self.clock = clock
        self.pulse = pulse
        self.bus = Bus()
        self.state = state or State_(config.sessions_dir, clock)
        self._closes_state = state is None
        self.origins = presets.origins = Origins(config.sessions_dir, self.state)
        self.named = presets.named = NamedAgentOverlay(config.agents_dir, presets.profiles)
        self.ledger = Ledger(self.state)
        self.projection = Projection(self.state, config.sessions_dir)
        self.hints = PendingHints(self.state, self.projection, clock, self.spawn)
        self.asks = AskBoard(self.publish)
        self.trees = SessionTrees(self)
        self.grants = Grants(self, self.state)
        self.questions = Questions(self)
        self.queue = Queues(self)
        self.closing = False
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
        self._failed: dict[str, dict[str, str]] = {}  # the errors of closed branches whose last run failed, by key
        self._unrecorded: dict[str, Outcome] = {}  # outcomes of runs that could not be logged, by key
        self._having: dict[str, Sequence[Feature]] = {}
        self._models: tuple[Config, dict[tuple[str, str], ModelFacts]] = config, {}
        self.features: list[Feature] = []
        for kind in features:
            self.features.append(kind(self))

    # -- features ------------------------------------------------------------------------------------------------

    def find(self, kind: type[F]) -> F | None:
        """Return the feature of this class; None in a daemon without it."""
        for each in self.features:
            if isinstance(each, kind):
                return each
        return None

    def feature(self, kind: type[F]) -> F:
        """Return the feature of this class.

        Raises:
            NotInstalled: The daemon has none.
        """
        if (found := self.find(kind)) is None:
            raise NotInstalled(f"This daemon runs without {kind.__name__}")
        return found

    def features_with(self, moment: str) -> Sequence[Feature]:
        """Return the features that override the method of ``Feature`` named ``moment``."""
        if (found := self._having.get(moment)) is None:
            unused = getattr(Feature, moment)
            found = [each for each in self.features if getattr(type(each), moment) is not unused]
            self._having[moment] = found
        return found

    def model_facts(self, model: str, backend: str = "") -> ModelFacts:
        """Return the facts about a model of a backend; cached until the configuration changes."""
        config, known = self._models
        if config is not self.config:
            self._models = config, known = self.config, {}
        if (model, backend) not in known:
            known[model, backend] = facts(model, config, backend=backend)
        return known[model, backend]

    async def start(self) -> None:
        """Start every feature."""
        for each in self.features:
            await each.start()

    @property
    def pending(self) -> int:
        """The number of runs and jobs that keep the daemon up without a connected client."""
        return len(self.runs) + sum(each.pending for each in self.features)

    async def submit(self, branch: LiveBranch, submission: Submission) -> Receipt:
        """Start a run for a message, or queue it behind the run in flight; see ``Queues.submit``."""
        async with branch.starting:
            return await self.queue.submit(branch, submission)

    async def prompt(
        self, branch: LiveBranch, *, text: str, options: SendOptions, metadata: Mapping[str, Any] | None = None
    ) -> str:
        """Submit a message, appended to the document; return the id of its run, "" if it is queued."""
        submission = Submission(text=text, options=options, metadata=metadata or {})
        return (await self.submit(branch, submission)).run_id or ""

    async def abort(self, branch: LiveBranch, *, why: str = "") -> bool:
        """Stop the branch's run and all agents below it; return whether anything was running.

        ``why`` is the recorded reason of a run that its user did not stop.
        """
        async with branch.starting:  # a run that is being started is stopped too
            task = branch.task
        if task is not None:
            branch.stop(why)
            await asyncio.wait([task])
        stopped = [await each.aborted(branch) for each in self.features]
        return any(stopped) or task is not None

    async def shutdown(self) -> None:
        """Stop every run, refuse new ones, and close every branch.

        Runs that only wait for a human, or for agents that do, are suspended for the next daemon; others are aborted.
        """
        self.closing = True
        for each in self.features:
            await each.stop()
        while runs := self.runs:
            self._suspend_waiting(runs)
            for branch in runs:
                if branch.run is not None:
                    branch.run.cut_off()
            await asyncio.wait([branch.task for branch in runs if branch.task is not None])
        for each in self.features:
            await each.close()
        while self._errands:
            await asyncio.wait(self._errands)
        for branch in self.all_opened:
            with contextlib.suppress(StoreError):
                await branch.close()
        self._branches.clear()
        self.forget_resting(0.0)
        await asyncio.to_thread(self.ledger.flush)
        if self._closes_state:
            self.state.close()

    def _suspend_waiting(self, runs: Sequence[LiveBranch]) -> None:
        """Suspend the runs that the next daemon can resume.

        These are runs that only wait for a human, or for agents that do, and runs with an answer from a human to
        calls that have not begun.
        """
        left: set[str] = set()
        for branch in runs:
            if branch.run is None or not (self.asks.of_run(branch.run.id) or answered_questions(branch.conversation)):
                continue
            above: LiveBranch | None = branch
            while above is not None and above.run is not None and above.key not in left:
                left.add(above.key)
                session, parent = above.conversation.session, self.opened(str(above.ref.branch_dir.parent.parent))
                is_awaited = above.ref.is_agent and not session.get("background")
                is_below = parent is not None and parent.run and session.get("parent_run_id") == parent.run.id
                above = parent if is_awaited and is_below else None
        for branch in runs:
            if branch.run is not None and branch.key in left:
                branch.run.suspend()

    def begin(
        self, branch: LiveBranch, prompt: Prompt, run_id: str, settings: RunSettings, options: SendOptions
    ) -> None:
        """Record the start of a run and start its supervised task; awaits nothing.

        Raises:
            Busy: The daemon is stopping, or the branch is being deleted.
            StoreError: The disk refused; nothing was recorded.
        """
        if self.closing:
            raise Busy("The daemon is stopping", hint="Send it again in a moment")
        if self._removing and self.is_going(branch.ref):
            raise Busy(f"{branch.ref.name} is being deleted")
        run = self._run(branch, run_id, prompt.view, settings)
        row: dict[str, Any] = {"id": run_id, "interactive": options.interactive}
        if options.grants:
            row["allow"] = [grant.pattern for grant in options.grants]
        if not settings.tool_results:
            row["tool_results"] = False
        record_start(branch, prompt, row)
        self.set_off(branch, run, options)
        branch.tell_start(run_id)
        self.bus.tell(RunStarted(branch))
        if self._unfinished:
            self.spawn(self._finish_agents())

    async def resume(self, branch: LiveBranch, waiting: SuspendedRun) -> None:
        """Resume the run that an earlier daemon suspended in a branch; an error on the way ends the run."""
        branch.users += 1
        try:
            found = await find_continuation(self, branch, waiting.run_id)
            if found is None or self.closing:  # ended meanwhile, or is left to the next daemon
                self.trees.on_run_ended(waiting.run_id)
                return
            run = self._run(branch, waiting.run_id, found.view, found.settings, found.resumed)
            self.set_off(branch, run, found.options)
        except PyagentdError as error:
            log.error("%s cannot go on: %s", branch.ref.name, error)
            self.trees.on_run_ended(waiting.run_id)
            branch.finish_run(waiting.run_id, Outcome(reason="error", text="", code=error.code, message=str(error)))
            branch.paused = True
            branch.state.on_run_failed(message=str(error), code=error.code)
        finally:
            branch.users -= 1
            del self._resuming[branch.key]

    def _run(
        self,
        branch: LiveBranch,
        run_id: str,
        view: tuple[Message, ...],
        settings: RunSettings,
        resumed: ResumedRun | None = None,
    ) -> Run:
        make = settings.make or Run
        return make(
            run_id=run_id,
            session_id=branch.ref.session_id,
            recorder=branch.recorder,
            view=view,
            settings=settings,
            prepare=branch.document.write_prompt,
            observe=partial(self.observe, branch),
            steering=partial(self.queue.take_steering, branch, run_id),
            resumed=resumed,
        )

    # -- runs in flight: each ends with exactly one ``run`` fact, and all clients are told ---------------------------

    def set_off(self, branch: LiveBranch, run: Run, options: SendOptions) -> None:
        """Start the task of a run whose start is in the log."""
        branch.run = run
        branch.task = asyncio.create_task(self._supervise(branch, run, options), name=run.id)
        message_id = str(branch.conversation.runs[run.id].data.get("message_id") or "")
        branch.state.on_run_started(run=run.id, message_id=message_id, started_at=branch.recorder.now_ms())

    async def _supervise(self, branch: LiveBranch, run: Run, options: SendOptions) -> Outcome:
        """Execute a run, then record and publish its end; the one place a run can end.

        Raises:
            asyncio.CancelledError: The run was suspended, so it has no end.
        """
        try:
            outcome = await run.execute()
        except asyncio.CancelledError:
            self.asks.leave_run(run.id)  # its questions stay open in the log
            await self._secure(branch)
            branch.run = branch.task = None
            raise
        with _whatever_happens(run):
            self.asks.abort_run(run.id)
            self.questions.forget(branch, run.id)
            await self._end_below(branch, run)
        trouble = ""
        try:
            branch.finish_run(run.id, outcome)
        except Exception as failure:  # the log lacks this run's end; it is written when the branch is reopened
            _log_failure(f"{branch.ref.name}: the end of run {run.id} could not be recorded", failure)
            code, message = told_of(failure)
            outcome = replace(outcome, reason="error", code=code, message=message)
        else:
            trouble = await self._secure(branch)
        branch.run = branch.task = None
        end = {"id": run.id, "phase": "finished", "reason": outcome.recorded, "message": outcome.message or trouble}
        with _whatever_happens(run):
            if outcome.reason == "done" and outcome.message:  # unlike an error, it is not in the document
                branch.say(outcome.message)
            branch.publish(Event("run", branch.key, branch.tell_end(run.id), (end,)))
            if outcome.reason == "error" or trouble:
                branch.state.on_run_failed(message=end["message"], code=outcome.code or StoreError.code)
            else:
                branch.state.on_run_ended()
        with _whatever_happens(run):
            self.queue.run_ended(branch, "error" if trouble else outcome.reason)
        self.bus.tell(RunEnded(branch, outcome, options))
        self.bus.tell(BranchWritten(branch.ref))
        if branch.ref.is_agent and not branch.settled:
            self._unfinished[branch.key] = branch.ref
        if branch.has_open_run:
            self.drop(branch, outcome)
        elif branch.idle:
            await self.close_if_idle(branch)
        return outcome

    async def _end_below(self, branch: LiveBranch, run: Run) -> None:
        """End the agents that an earlier daemon suspended below this run, which has ended and may not know them."""
        self.trees.on_run_ended(run.id)
        refs = self.trees.below(branch.ref)
        for agent in self.inside(paths.agents_dir(branch.ref.branch_dir)):
            session, goes_on = agent.conversation.session, agent.run is not None or agent.key in self._resuming
            if goes_on and session.get("parent_run_id") == run.id and not session.get("background"):
                refs.append(agent.ref)
        for ref in refs:
            with contextlib.suppress(PyagentdError):  # reported to the client that opens it
                async with self.using(ref) as agent:
                    await self.abort(agent, why=BY_PARENT)

    async def _secure(self, branch: LiveBranch) -> str:
        """Sync the log to disk and write the document; return the error message, or ""."""
        try:
            await branch.secure()
            branch.note_complete()
        except Exception as failure:  # part of the run's supervisor: it ends whatever happens
            _log_failure(f"{branch.file} could not be written", failure)
            return str(failure)
        return ""

    def observe(self, branch: LiveBranch, run: Run, status: Mapping[str, Any]) -> None:
        """Publish a run's status to the clients of its branch, and notify the features."""
        if run.state is RunPhase.TRET:  # its calls have ended
            self.questions.close_left(branch, run.id)
        match status:
            case {"state": "retrying", "attempt": attempt, "max_attempts": most, "delay_s": delay_s, "message": text}:
                retry_at = branch.recorder.now_ms() + round(1000 * delay_s)
                branch.state.set_retry(attempt=attempt, max_attempts=most, retry_at=retry_at, message=text)
            case {"state": "busy", "phase": phase, **details}:
                branch.state.set_phase(phase, **details)
        self.bus.tell(RunMoved(branch, status))

    # -- open branches: opened on demand, closed when unused -------------------------------------------------------
    #
    # A branch has one ``LiveBranch``, however many clients use it. One that could only be opened read-only is
    # reopened for the next user once the disk allows writing, and so is one whose log was replaced, as by
    # ``git checkout``. A branch that is being deleted cannot be opened.
    #
    # The last few closed branches stay in memory for a while, so that no file is read for an editor that reconnects
    # after a broken connection or a killed buffer. They count as closed, and one whose files changed is dropped.

    def opened(self, key: str) -> LiveBranch | None:
        """Return the branch with this key if it is open."""
        return self._branches.get(key)

    def state_of(self, key: str) -> str:
        """Return the state of a session, open or not; one not opened since the daemon started is idle."""
        if (branch := self._branches.get(key)) is not None:
            return branch.state.state.value
        return (Session.ERROR if key in self._failed else Session.IDLE).value

    @contextlib.asynccontextmanager
    async def using(self, ref: BranchRef) -> AsyncIterator[LiveBranch]:
        """Open a branch for the block, recovering it if needed; close it afterwards unless it is still in use.

        It is reopened if its log was replaced.

        Raises:
            NotFound: It is being deleted, or was destroyed.
            StoreError: The disk refused.
        """
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
                    self._resuming[key] = self.spawn(self.resume(branch, waiting))
                branch.noticed = partial(self.bus.tell, BranchChanged(branch))
                branch.conversation.as_sent = not self.origins.foreign(ref)
                self.bus.tell(BranchOpened(branch))
                self.queue.recover(branch)
                self.spawn(self._find_unfinished(branch))
            elif branch.run is None and (
                branch.recorder.journal.is_replaced or (branch.refusal and not refusal_of(ref))
            ):
                branch = await self._opened_anew(branch)
            branch.users += 1
        resuming = self._resuming.get(key)
        if resuming is not None and resuming is not asyncio.current_task():  # that task may open the branch
            try:
                await asyncio.shield(resuming)
            except BaseException:
                branch.users -= 1
                raise
        try:
            yield branch
        finally:
            branch.users -= 1
            if branch.idle:
                await asyncio.shield(self.spawn(self.close_if_idle(branch)))

    async def _read(self, ref: BranchRef, *, goes_on: bool = False) -> LiveBranch:
        """Read the branch from disk."""
        return await LiveBranch.open(
            ref,
            pulse=self.pulse,
            clock=self.clock,
            warm=partial(self.presets.warm, ref),
            settings=lambda: self._settings_in(ref),
            goes_on=goes_on,
            ended=self._unrecorded.get(ref.key),
        )

    def _woken(self, ref: BranchRef) -> LiveBranch | None:
        """Return the branch if it is kept in memory and its files are unchanged."""
        branch, _ = self._resting.pop(ref.key, (None, 0.0))
        if branch is not None and not branch.wake():
            branch.close_now()
            return None
        return branch

    def forget_resting(self, age_s: float = _RESTING_S, *, inside: Path | None = None) -> None:
        """Drop branches that were closed at least ``age_s`` ago, and the oldest while too many are kept.

        Args:
            age_s: The age in seconds.
            inside: Drop only those in this directory, and ignore how many are kept.
        """
        now, size = time.monotonic(), sum(branch.recorder.journal.size for branch, _ in self._resting.values())
        for key, (branch, since) in list(self._resting.items()):
            is_too_much = inside is None and (len(self._resting) > _RESTING or size > _RESTING_BYTES)
            if is_too_much or (now - since >= age_s and (inside is None or Path(key).is_relative_to(inside))):
                size -= branch.recorder.journal.size
                del self._resting[key]
                branch.close_now()

    async def hold(self, ref: BranchRef) -> None:
        """Open a branch, and close it again unless it is in use."""
        with contextlib.suppress(PyagentdError):  # reported to the client that opens it
            async with self.using(ref):
                pass

    def _settings_in(self, ref: BranchRef) -> Settings:
        """Return the default Local Variables of a branch's document: the settings of its preset."""
        try:
            return settings_in_document(settings_of(self.presets.of_branch(ref)))
        except PyagentdError as error:  # reported to the client that sends a prompt
            log.warning("%s", error)
            return Settings()

    async def _opened_anew(self, branch: LiveBranch) -> LiveBranch:
        """Reopen a branch that cannot be written; return it unchanged if it still cannot be, or is in use."""
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
        """Refuse to open branches in ``directory`` while the block removes it; then tell the clients that watch them.

        Args:
            directory: The directory to be removed.
            stop: Ends the run of a branch, if any.
            to: The new directory, if it is moved.

        Raises:
            Busy: A run is in flight there, or the directory is being removed already.
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
        place = str(directory)  # keys are resolved directories; comparing ``Path`` objects is slow for many
        return [branch for key, branch in self._branches.items() if key == place or key.startswith(f"{place}/")]

    def forget(self, sink: Sink) -> None:
        """Detach a client from every branch it watched."""
        self.overseers.discard(sink)
        self.humans.discard(sink)
        for branch in self.all_opened:
            branch.detach(sink)
            if branch.idle:
                self.spawn(self.close_if_idle(branch))
        self.bus.tell(ClientGone(sink))

    def publish(self, event: Event) -> None:
        """Send an event to the clients of its branch, and to the clients subscribed to its kind in all sessions."""
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
        """Close a branch if it is unused; its files hold everything."""
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
        """Drop a branch whose run's end could not be logged; it is logged when the branch is reopened."""
        self._branches.pop(branch.key, None)
        self._unrecorded[branch.key] = outcome
        if (failure := branch.state.failure) is not None:
            self._failed[branch.key] = failure
        branch.abandon()

    async def _find_unfinished(self, branch: LiveBranch) -> None:
        """End runs of a branch's agents that were cut off by a killed daemon or a disk error.

        Opening an agent ends its run; agents below an agent are found from the branch at the top.
        """
        if not branch.ref.is_agent and not branch.refusal:
            if paths.agents_dir(branch.ref.branch_dir).is_dir():
                found = await asyncio.to_thread(unfinished_agents, branch.ref.branch_dir)
                self._unfinished.update((ref.key, ref) for ref in found)
            await self._finish_agents()

    async def _finish_agents(self) -> None:
        """End the unfinished runs of agents; one that cannot be ended now is retried when the next run starts."""
        unfinished, self._unfinished = self._unfinished, {}
        for ref in unfinished.values():
            with contextlib.suppress(PyagentdError):  # reported to the client that opens it
                async with self.using(ref) as agent:
                    if agent.run is None and not agent.settled:
                        self._unfinished[ref.key] = ref

    def spawn(self, errand: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Run ``errand`` in a task that is kept until it is done; the daemon does not stop before."""
        task = asyncio.create_task(errand)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)
        return task
