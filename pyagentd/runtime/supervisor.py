"""Runs in flight are supervised here: each ends with exactly one ``run`` fact, and everybody is told."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyagentd.errors import PyagentdError, StoreError
from pyagentd.events import Event
from pyagentd.runtime.approvals import AskBoard
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.bus import BranchWritten, RunEnded
from pyagentd.runtime.run import Run, State
from pyagentd.runtime.settings import SendOptions
from pyagentd.runtime.status import BY_PARENT, Outcome, told_of
from pyagentd.store import paths
from pyagentd.store.unfinished import answered

if TYPE_CHECKING:
    from pyagentd.runtime.kernel import Kernel

log = logging.getLogger(__name__)


class Supervisor:
    """Who sees to it that the runs of one daemon end."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def set_off(self, branch: LiveBranch, run: Run, options: SendOptions) -> None:
        """Let a run that is in the log begin."""
        branch.run = run
        branch.task = asyncio.create_task(self._supervise(branch, run, options), name=run.id)
        message_id = str(branch.conversation.runs[run.id].data.get("message_id") or "")
        branch.state.started(run=run.id, message_id=message_id, started_at=branch.recorder.now_ms())

    async def _supervise(self, branch: LiveBranch, run: Run, options: SendOptions) -> Outcome:
        """Execute a run, then record and tell its end; the one place a run can end.

        Raises:
            asyncio.CancelledError: The run was suspended: it has no end.
        """
        try:
            outcome = await run.execute()
        except asyncio.CancelledError:
            await self._leave(branch, run)
            raise
        with _whatever_happens(run):
            self._kernel.asks.abort_run(run.id)
            self._kernel.questions.forget(branch, run.id)
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
            branch.publish(Event("run", branch.key, branch.tell_end(run.id), (end,)))
            if outcome.reason == "error" or trouble:
                branch.state.failed(message=end["message"], code=outcome.code or StoreError.code)
            else:
                branch.state.ended()
        with _whatever_happens(run):
            self._kernel.queue.run_ended(branch, "error" if trouble else outcome.reason)
        self._kernel.bus.tell(RunEnded(branch, outcome, options))
        self._kernel.bus.tell(BranchWritten(branch.ref))
        if branch.ref.is_agent and not branch.settled:
            self._kernel.note_unfinished(branch.ref)
        if branch.has_open_run:
            self._kernel.drop(branch, outcome)
        elif branch.idle:
            await self._kernel.close_if_idle(branch)
        return outcome

    async def _leave(self, branch: LiveBranch, run: Run) -> None:
        """Leave a suspended run in the log as it is."""
        self._kernel.asks.leave_run(run.id)
        await self._secure(branch)
        branch.run = branch.task = None

    async def _end_below(self, branch: LiveBranch, run: Run) -> None:
        """End the agents that an earlier daemon left waiting for a run that is over: it may not have met them yet."""
        self._kernel.trees.ended(run.id)
        met = [
            agent.ref
            for agent in self._kernel.inside(paths.agents_dir(branch.ref.branch_dir))
            if self._awaited(agent, run)
        ]
        for ref in (*self._kernel.trees.below(branch.ref), *met):
            with contextlib.suppress(PyagentdError):  # whoever opens it is told
                async with self._kernel.using(ref) as agent:
                    await self._kernel.abort(agent, why=BY_PARENT)

    def _awaited(self, agent: LiveBranch, run: Run) -> bool:
        session, goes_on = agent.conversation.session, agent.run is not None or self._kernel.is_resuming(agent)
        return goes_on and session.get("parent_run_id") == run.id and not session.get("background")

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
        if run.state is not State.TOOL:
            self._kernel.questions.close_left(branch, run.id)
        match dict(status):
            case {"state": "retrying", "attempt": attempt, "max_attempts": most, "delay_s": delay_s, "message": text}:
                retry_at = branch.recorder.now_ms() + round(1000 * delay_s)
                branch.state.retrying(attempt=attempt, max_attempts=most, retry_at=retry_at, message=text)
            case {"state": "busy", "phase": phase, **details}:
                branch.state.moved(phase, **details)
        for each in self._kernel.features:
            each.run_moved(branch, status)


def _log_failure(what: str, failure: Exception) -> None:
    """Log what went wrong: a disk that refuses in one line, a mistake of ours with its trace."""
    log.error("%s: %s", what, failure, exc_info=None if isinstance(failure, StoreError) else failure)


@contextlib.contextmanager
def _whatever_happens(run: Run) -> Iterator[None]:
    """Log an exception where the end of a run is told: it has ended, whoever could not be told of it."""
    try:
        yield
    except Exception:  # part of the run's supervisor
        log.exception("run %s: not everybody was told of its end", run.id)


# Which runs a daemon that stops leaves to the next one.
#
# Those that only wait for a human, or for agents that do, and those with calls that have not begun while nothing has
# come yet of a human's answer.

Opened = Callable[[str], LiveBranch | None]


def waiting(runs: Sequence[LiveBranch], asks: AskBoard, opened: Opened) -> frozenset[str]:
    """Return the keys of those branches whose runs wait.

    Args:
        runs: The branches with a run in flight.
        asks: The open questions.
        opened: Returns the branch with a key if it is open.
    """
    found: set[str] = set()
    for branch in runs:
        if branch.run is not None and (asks.of_run(branch.run.id) or answered(branch.conversation)):
            above: LiveBranch | None = branch
            while above is not None and above.key not in found:
                found.add(above.key)
                above = _waiting_for(above, opened)
    return frozenset(found)


def _waiting_for(agent: LiveBranch, opened: Opened) -> LiveBranch | None:
    """Return the branch whose run waits for an agent's."""
    session, parent = agent.conversation.session, opened(str(agent.ref.branch_dir.parent.parent))
    if not agent.ref.is_agent or session.get("background") or parent is None or parent.run is None:
        return None
    return parent if session.get("parent_run_id") == parent.run.id else None
