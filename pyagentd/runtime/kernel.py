"""The kernel: the state that all features share, and the runs it starts and supervises."""

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from pyagentd.clock import Clock, Pulse
from pyagentd.config import Config
from pyagentd.errors import Busy, NotInstalled, PyagentdError, StoreError
from pyagentd.events import Event
from pyagentd.llm.catalog import ModelFacts, facts
from pyagentd.messages import Message
from pyagentd.runtime.asking import Questions
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.feature import (
    BranchChanged,
    BranchOpened,
    BranchWritten,
    Feature,
    RunEnded,
    RunStarted,
)
from pyagentd.runtime.grants import Grants, Ledger, Origins
from pyagentd.runtime.open_branches import OpenBranches, PendingHints
from pyagentd.runtime.opening import ResumedRun
from pyagentd.runtime.presets import NamedAgentOverlay, Presets
from pyagentd.runtime.queue import Receipt, Submission
from pyagentd.runtime.run import Run, RunPhase, RunSettings
from pyagentd.runtime.run_setup import find_continuation
from pyagentd.runtime.settings import SendOptions
from pyagentd.runtime.status import BY_PARENT, Outcome, told_of
from pyagentd.runtime.submitting import Queues
from pyagentd.runtime.turns import Prompt, record_start
from pyagentd.store import paths
from pyagentd.store.db.projection import Projection
from pyagentd.store.db.state import State as State_
from pyagentd.store.registry import SuspendedRun, answered_questions

log = logging.getLogger(__name__)


def _log_failure(what: str, failure: Exception) -> None:
    """Log what went wrong: a disk that refuses in one line, a mistake of ours with its trace."""
    log.error("%s: %s", what, failure, exc_info=None if isinstance(failure, StoreError) else failure)


@contextlib.contextmanager
def _whatever_happens(run: Run) -> Iterator[None]:
    """Log an exception where the end of a run is told: it has ended, whoever could not be told of it."""
    try:
        yield
    except Exception:  # part of the run's supervisor
        log.exception("run %s: a handler of its end failed", run.id)


# The runtime of one daemon: its facts, its runs, and the features that it asks.
#
# Runs are begun here and nowhere else, and it is seen to that each of them ends. The kernel knows no feature: what
# ``daemon.FEATURES`` lists is asked through ``feature.Feature``, and told by the bus.

F = TypeVar("F", bound=Feature)


class Kernel(OpenBranches):
    """What every feature stands on.

    Attributes:
        config: What the user configured.
        state: The database.
        origins: Which sessions are from elsewhere and not trusted.
        named: What the configuration files of named agents say.
        ledger: The audit.
        projection: Names branches as the database does.
        grants: What humans allowed for more than once.
        questions: Asks humans on behalf of runs.
        queue: Takes messages in, and has those that wait for their turn.
        closing: Whether the daemon stops: nothing new begins.
        features: What ``daemon.FEATURES`` lists, in that order.
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
        super().__init__(presets=presets, clock=clock, pulse=pulse)
        self.config = config
        self.state = state or State_(config.sessions_dir, clock)
        self._closes_state = state is None
        self.origins = presets.origins = Origins(config.sessions_dir, self.state)
        self.named = presets.named = NamedAgentOverlay(config.agents_dir, presets.profiles)
        self.ledger = Ledger(self.state)
        self.projection = Projection(self.state, config.sessions_dir)
        self.hints = PendingHints(self.state, self.projection, clock, self.spawn)
        self.grants = Grants(self, self.state)
        self.questions = Questions(self)
        self.queue = Queues(self)
        self.closing = False
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
        """Return the features that do something at a moment: a method of ``Feature``, by its name."""
        if (found := self._having.get(moment)) is None:
            unused = getattr(Feature, moment)
            found = [each for each in self.features if getattr(type(each), moment) is not unused]
            self._having[moment] = found
        return found

    def model_facts(self, model: str, backend: str = "") -> ModelFacts:
        """Return what is known of a model, which a backend serves; looked up once for each configuration."""
        config, known = self._models
        if config is not self.config:
            self._models = config, known = self.config, {}
        if (model, backend) not in known:
            known[model, backend] = facts(model, config, backend=backend)
        return known[model, backend]

    async def start(self) -> None:
        """Have every feature begin to work."""
        for each in self.features:
            await each.start()

    @property
    def pending(self) -> int:
        """For how much the daemon stays up though nobody is connected."""
        return len(self.runs) + sum(each.pending for each in self.features)

    def branch_opened(self, branch: LiveBranch) -> None:
        """See what was owed to a branch when its daemon ended."""
        branch.noticed = partial(self.bus.tell, BranchChanged(branch))
        branch.conversation.as_sent = not self.origins.foreign(branch.ref)
        self.bus.tell(BranchOpened(branch))
        self.queue.recover(branch)

    async def submit(self, branch: LiveBranch, given: Submission) -> Receipt:
        """Start a run for a message, or queue it behind the run in flight; see ``Queues.submit``."""
        async with branch.starting:
            return await self.queue.submit(branch, given)

    async def prompt(
        self, branch: LiveBranch, *, text: str, options: SendOptions, metadata: Mapping[str, Any] | None = None
    ) -> str:
        """Submit a message as text, which is put at the document's end; return the id of the run that answers it."""
        given = Submission(text=text, options=options, metadata=metadata or {})
        return (await self.submit(branch, given)).run_id or ""

    async def abort(self, branch: LiveBranch, *, why: str = "") -> bool:
        """Stop the branch's run and all agents below it; return whether anything was running.

        ``why`` is what is said of a run that its user did not stop.
        """
        async with branch.starting:  # a run that is being started is stopped too
            task = branch.task
        if task is not None:
            branch.stop(why)
            await asyncio.wait([task])
        stopped = [await each.aborted(branch) for each in self.features]
        return any(stopped) or task is not None

    async def shutdown(self) -> None:
        """Stop every run, start no other, and close every branch.

        Runs that only wait for a human, or for agents that do, are left to the next daemon; others are aborted.
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
        """Suspend those runs that the next daemon goes on with.

        Those are the ones that only wait for a human, or for agents that do, and those with calls that have not begun
        while nothing has come yet of a human's answer.
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
        """Record that a run begins, and set it off; awaits nothing: what is started is supervised.

        Raises:
            Busy: The daemon stops.
            StoreError: The disk refused; nothing was recorded.
        """
        if self.closing:
            raise Busy("The daemon is stopping", hint="Send it again in a moment")
        if self.is_going(branch.ref):
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
        """Go on with the run that an earlier daemon left waiting in a branch; what prevents it ends the run."""
        try:
            found = await find_continuation(self, branch, waiting.run_id)
        except PyagentdError as error:
            log.error("%s cannot go on: %s", branch.ref.name, error)
            self.trees.on_run_ended(waiting.run_id)
            branch.finish_run(waiting.run_id, Outcome(reason="error", text="", code=error.code, message=str(error)))
            branch.paused = True
            branch.state.on_run_failed(message=str(error), code=error.code)
            return
        if found is None or self.closing:  # meanwhile; the next daemon finds it as it is
            self.trees.on_run_ended(waiting.run_id)
            return
        self.questions.go_on(waiting.run_id, found.asks)
        run = self._run(branch, waiting.run_id, found.view, found.settings, found.resumed)
        self.set_off(branch, run, found.options)

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
            prepare=branch.secure_prompt,
            observe=partial(self.observe, branch),
            steering=partial(self.queue.take_steering, branch, run_id),
            resumed=resumed,
        )

    # -- runs in flight: each ends with exactly one ``run`` fact, and everybody is told ------------------------------

    def set_off(self, branch: LiveBranch, run: Run, options: SendOptions) -> None:
        """Let a run that is in the log begin."""
        branch.run = run
        branch.task = asyncio.create_task(self._supervise(branch, run, options), name=run.id)
        message_id = str(branch.conversation.runs[run.id].data.get("message_id") or "")
        branch.state.on_run_started(run=run.id, message_id=message_id, started_at=branch.recorder.now_ms())

    async def _supervise(self, branch: LiveBranch, run: Run, options: SendOptions) -> Outcome:
        """Execute a run, then record and tell its end; the one place a run can end.

        Raises:
            asyncio.CancelledError: The run was suspended: it has no end.
        """
        try:
            outcome = await run.execute()
        except asyncio.CancelledError:
            self.asks.leave_run(run.id)  # it stays in the log as it is
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
        except Exception as failure:  # the log has no end of this run; it gets this one when it is opened anew
            _log_failure(f"{branch.ref.name}: the end of run {run.id} could not be recorded", failure)
            code, message = told_of(failure)
            outcome = replace(outcome, reason="error", code=code, message=message)
        else:
            trouble = await self._secure(branch)
        branch.run = branch.task = None
        end = {"id": run.id, "phase": "finished", "reason": outcome.recorded, "message": outcome.message or trouble}
        with _whatever_happens(run):
            if outcome.reason == "done" and outcome.message:  # the document has no word of it, as it has of an error
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
        """End the agents that an earlier daemon left waiting for a run that is over: it may not have met them yet."""
        self.trees.on_run_ended(run.id)
        refs = self.trees.below(branch.ref)
        for agent in self.inside(paths.agents_dir(branch.ref.branch_dir)):
            session, goes_on = agent.conversation.session, agent.run is not None or agent.key in self._resuming
            if goes_on and session.get("parent_run_id") == run.id and not session.get("background"):
                refs.append(agent.ref)
        for ref in refs:
            with contextlib.suppress(PyagentdError):  # whoever opens it is told
                async with self.using(ref) as agent:
                    await self.abort(agent, why=BY_PARENT)

    async def _secure(self, branch: LiveBranch) -> str:
        """Bring what was recorded to disk and into the document; return what went wrong, or ""."""
        try:
            await branch.secure()
            branch.note_complete()
        except Exception as failure:  # part of the run's supervisor: it ends whatever happens
            _log_failure(f"{branch.file} could not be written", failure)
            return str(failure)
        return ""

    def observe(self, branch: LiveBranch, run: Run, status: Mapping[str, Any]) -> None:
        """Tell what a run does to all who watch its branch or wait for it."""
        if run.state is RunPhase.TRET:  # its calls have ended
            self.questions.close_left(branch, run.id)
        match status:
            case {"state": "retrying", "attempt": attempt, "max_attempts": most, "delay_s": delay_s, "message": text}:
                retry_at = branch.recorder.now_ms() + round(1000 * delay_s)
                branch.state.set_retry(attempt=attempt, max_attempts=most, retry_at=retry_at, message=text)
            case {"state": "busy", "phase": phase, **details}:
                branch.state.set_phase(phase, **details)
        for each in self.features_with("run_moved"):
            each.run_moved(branch, status)
