"""Agents that nobody waits for: their results reach the parent as a message, exactly once (DD-11).

The parent's log says of whom a result is still owed (``agent`` rows, ``Conversation.agents``); so nothing is lost
when the daemon ends in between. A result is submitted like any other message, and queued while the parent is busy;
several that wait behind each other are one message. What the parent's user stopped with the parent is not told: it
would start the parent again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from pyagentd.agent.branches.branch import LiveBranch
from pyagentd.agent.branches.opening import RESTARTED
from pyagentd.agent.delegating.completion import Completion, agents_in
from pyagentd.agent.delegating.results import outcome_of
from pyagentd.agent.delegating.spawn import Assignment
from pyagentd.agent.running.hints import Hints
from pyagentd.agent.running.outcome import BY_PARENT, Outcome
from pyagentd.agent.running.settings import SendOptions
from pyagentd.agent.turns.queue import Submission
from pyagentd.errors import PyagentdError, StoreError
from pyagentd.store import paths
from pyagentd.store.paths import BranchRef

if TYPE_CHECKING:  # the host owns them; they wake branches through the host
    from pyagentd.agent.host import Host

log = logging.getLogger(__name__)

Debt = Literal["running", "delivered", "dropped"]


class Background:
    """The background agents of all branches; a listener of the host.

    Attributes:
        hints: Told of every result that is owed, if anybody remembers that.
    """

    def __init__(self, host: Host) -> None:
        self.hints: Hints | None = None
        self._host = host
        # By the parent's key:
        self._alive: dict[str, set[str]] = {}  # ids of agents whose end is awaited
        self._options: dict[str, SendOptions] = {}  # of the run that spawned one last
        # By the agent's key:
        self._dropped: set[str] = set()  # those that are stopped with their parent
        self._waiters: dict[str, asyncio.Event] = {}  # of those whose result waits for what is below them
        self._woken: dict[str, list[asyncio.Task[Outcome]]] = {}  # runs of these that began meanwhile

    def begin(
        self, parent: LiveBranch, child: BranchRef, wanted: Assignment, run_id: str, options: SendOptions
    ) -> None:
        """Record that a result is owed, before the agent's run begins.

        Raises:
            StoreError: The disk refused.
        """
        facts = {"call_id": wanted.call_id, "run_id": run_id, "description": wanted.description}
        parent.recorder.record("agent", {"id": child.session_id, "state": "running", **facts})
        self._alive.setdefault(parent.key, set()).add(child.session_id)
        self._options[parent.key] = options
        if self.hints is not None:
            self.hints.note(parent.ref, "background", child.session_id)

    def cancel(self, parent: LiveBranch, child: BranchRef) -> None:
        """Take back ``begin``: the agent could not be started, which its call tells."""
        self._forget(parent.key, child.session_id)
        with contextlib.suppress(StoreError):
            self._note(parent, child.session_id, "dropped")

    def has(self, branch: LiveBranch) -> bool:
        """Return whether results are owed to a branch that may still come."""
        queued = not branch.paused and any(agents_in(message.row) for message in branch.queue.waiting)
        return queued or bool(self._alive.get(branch.key))

    async def settled(self, branch: LiveBranch, outcome: Outcome) -> Outcome:
        """Return what an agent's run came to, once what it left running in the background has come to an end too."""
        key = branch.key
        if outcome.reason != "done" or not self.has(branch):
            return outcome
        moved = self._waiters[key] = asyncio.Event()
        woken = self._woken[key] = []
        try:
            while outcome.reason == "done" and not self._host.closing and (woken or self.has(branch)):
                if woken:
                    later = await asyncio.shield(woken.pop(0))
                    outcome = replace(later, text="\n\n".join(filter(None, (outcome.text, later.text))))
                else:
                    moved.clear()
                    await moved.wait()
            return outcome
        finally:
            del self._waiters[key], self._woken[key]

    async def abort(self, parent: LiveBranch) -> bool:
        """Stop the background agents of a branch and tell it nothing of them; return whether there were any."""
        alive = sorted(self._alive.get(parent.key, ()))
        children = [_child(parent.ref, agent).key for agent in alive]
        for agent, key in zip(alive, children, strict=True):
            if key not in self._dropped:
                self._dropped.add(key)
                with contextlib.suppress(StoreError):
                    self._note(parent, agent, "dropped")
        branches = [branch for branch in map(self._host.opened, children) if branch is not None]
        stopped = (self._host.abort(branch, why=BY_PARENT) for branch in branches)
        await asyncio.gather(*stopped)  # one that is being stopped already is waited for
        for agent, key in zip(alive, children, strict=True):
            self._forget(parent.key, agent)
            self._dropped.discard(key)
        return bool(alive)

    def recover(self, parent: LiveBranch) -> None:
        """Find the results that were owed to a branch when its daemon ended."""
        if parent.refusal:
            return
        conversation = parent.conversation
        messages = (*conversation.messages.values(), *conversation.queued.values())
        known = {agent for message in messages for agent in agents_in(message.row)}
        for agent, row in parent.conversation.agents.items():
            if row["state"] != "running" or agent in self._alive.get(parent.key, ()):
                continue
            if agent in known:  # the message was recorded, that it was not
                self._note(parent, agent, "delivered")
                continue
            self._alive.setdefault(parent.key, set()).add(agent)
            self._host.own(self._recover(parent.ref, agent, str(row.get("description") or "")))

    def close(self) -> None:
        """Let nobody wait any more: what goes on is stopped, and found again when the branch is opened."""
        for key in self._waiters:
            self.moved(key)

    # -- what the host tells -----------------------------------------------------------------------------------

    def run_started(self, branch: LiveBranch) -> None:
        """Note the run that answers a result, for an agent that is not over before that is."""
        run = branch.conversation.last_run
        message = branch.conversation.messages.get(run.data["message_id"]) if run else None
        if message is not None and agents_in(message.row) and branch.key in self._woken and branch.task is not None:
            self._woken[branch.key].append(branch.task)
            self.moved(branch.key)

    def moved(self, key: str) -> None:
        """Have who waits for the results of a branch look again."""
        if (waiter := self._waiters.get(key)) is not None:
            waiter.set()

    def run_ended(self, branch: LiveBranch, outcome: Outcome, options: SendOptions) -> None:
        """Pass on the end of a background agent, and stop those of a run that was stopped."""
        if self._host.closing:
            return
        session = branch.conversation.session
        if session.get("background") and len(branch.conversation.runs) == 1:  # later ones are the user's
            self._host.own(self._complete(branch.ref, str(session.get("description") or ""), outcome))
        if outcome.reason == "aborted" and self._alive.get(branch.key):
            self._host.own(self._abort(branch.ref))

    def branch_written(self, ref: BranchRef) -> None:
        """Do nothing: files do not matter here."""

    # -- inside ------------------------------------------------------------------------------------------------

    async def _abort(self, ref: BranchRef) -> None:
        async with self._host.using(ref) as parent:
            await self.abort(parent)

    async def _complete(self, ref: BranchRef, description: str, outcome: Outcome) -> None:
        """Take the end of an agent's run: its parent is told when nothing below it goes on."""
        async with self._host.using(ref) as branch:
            outcome = await self.settled(branch, outcome)
        parent = paths.parent_of(ref)
        if parent is not None and not self._host.closing:
            await self._owe(parent, Completion(id=ref.session_id, description=description, outcome=outcome))

    async def _recover(self, parent: BranchRef, agent: str, description: str) -> None:
        """Tell how an agent ended that was running when the daemon ended; one that goes on tells it itself."""
        outcome: Outcome | None = Outcome(reason="error", text="", code="restart", message=RESTARTED)
        ref = _child(parent, agent)
        try:
            async with self._host.using(ref) as child:
                if child.task is not None:
                    await self._watch(parent, child, child.task)
                    return
                run = next(iter(child.conversation.runs.values()), None)
                if run is not None:
                    outcome = outcome_of(child.conversation, run, self._host.presets.of_branch(ref).result)
        except PyagentdError as error:
            outcome = Outcome(reason="error", text="", code=error.code, message=str(error))
        if outcome is not None and outcome.reason == "aborted":  # nobody but the daemon's end did that
            outcome = replace(outcome, reason="error", code="restart", message=RESTARTED)
        if outcome is not None:
            await self._owe(parent, Completion(id=agent, description=description, outcome=outcome))

    async def _watch(self, parent: BranchRef, child: LiveBranch, run: asyncio.Task[Outcome]) -> None:
        """Show an agent that goes on where the daemon's end had stopped it; its end is told as any other."""
        async with self._host.using(parent) as shown:
            self._host.agents.begin(shown, child)
            try:
                await asyncio.wait([run])
            finally:
                self._host.agents.end(child)

    async def _owe(self, parent: BranchRef, completion: Completion) -> None:
        if completion.id not in self._alive.get(parent.key, ()) or _child(parent, completion.id).key in self._dropped:
            return  # it was stopped with its parent
        with contextlib.suppress(PyagentdError):  # its row says that it is owed: whoever opens it next finds that
            async with self._host.using(parent) as branch:
                await self._deliver(branch, completion)
        self._forget(parent.key, completion.id)

    async def _deliver(self, parent: LiveBranch, completion: Completion) -> None:
        """Submit a result, or add it to one that waits at the queue's end."""
        async with parent.starting:
            last = parent.queue.waiting[-1:]
            if last and (agents := agents_in(last[0].row)):
                text = f"{last[0].text}\n\n{completion.text}"
                parent.queue.edit(last[0].id, text, {"agents": [*agents, completion.id]})
                self._host.queue.changed(parent)
                self._note(parent, completion.id, "delivered")
                return
        metadata = {"origin": "agent", "agents": [completion.id]}
        options = self._options.get(parent.key, SendOptions())
        await self._host.submit(parent, Submission(text=completion.text, options=options, metadata=metadata))
        self._note(parent, completion.id, "delivered")

    def _note(self, parent: LiveBranch, agent: str, state: Debt) -> None:
        known = parent.conversation.agents.get(agent, {"id": agent})
        parent.recorder.record("agent", {**known, "state": state})
        if self.hints is not None and state != "running":
            self.hints.forget(parent.ref, "background", agent)

    def _forget(self, parent: str, agent: str) -> None:
        if (alive := self._alive.get(parent)) is not None:
            alive.discard(agent)
            if not alive:
                del self._alive[parent]
        self.moved(parent)


def _child(parent: BranchRef, agent: str) -> BranchRef:
    return paths.agent_ref(paths.agents_dir(parent.branch_dir) / agent)
