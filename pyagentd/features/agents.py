"""Sub-agents of runs: created under the parent's branch, run to their end, watched from the parent.

The parent's clients get an ``agent`` event whenever a child's run moves, and one with state ``finished`` on every
terminal path; Emacs draws its overlay from these. What becomes of the result of an agent that nobody waits for is in
``background``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pyagentd.errors import PyagentdError, StoreError, ToolError
from pyagentd.events import Event
from pyagentd.features.spawning import (
    NAME,
    Assignment,
    Completion,
    agents_in,
    as_output,
    child_of_call,
    outcome_of,
    persistent_agent,
    result_of,
    task,
    validate,
)
from pyagentd.messages import ToolCall
from pyagentd.policy.presets import Preset
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.bus import BranchOpened, QueueStopped, RunEnded, RunStarted
from pyagentd.runtime.feature import Feature
from pyagentd.runtime.opening import RESTARTED
from pyagentd.runtime.presets import ProjectPresets
from pyagentd.runtime.queue import Submission
from pyagentd.runtime.settings import SendOptions, backend_for, provider_of
from pyagentd.runtime.status import BY_PARENT, Outcome
from pyagentd.runtime.turn_agent import answers_next, inherited
from pyagentd.store import paths, presetfile, sessions, trash
from pyagentd.store.paths import BranchRef
from pyagentd.tools.spec import Output, ToolSpec

if TYPE_CHECKING:
    from pyagentd.runtime.kernel import Kernel
    from pyagentd.runtime.run_setup import RunBuilder

log = logging.getLogger(__name__)


# Agents that nobody waits for: their results reach the parent as a message, exactly once.
#
# The parent's log says of whom a result is still owed (``agent`` rows, ``Conversation.agents``); so nothing is lost
# when the daemon ends in between. A result is submitted like any other message, and queued while the parent is busy;
# several that wait behind each other are one message. What the parent's user stopped with the parent is not told: it
# would start the parent again.

Debt = Literal["running", "delivered", "dropped"]


class Background:
    """The background agents of all branches: those that nobody waits for."""

    def __init__(self, kernel: Kernel, agents: AgentSpawner) -> None:
        self._agents = agents
        self._kernel = kernel
        kernel.bus.on(BranchOpened, self.recover)
        kernel.bus.on(RunStarted, self._run_started)
        kernel.bus.on(RunEnded, self._run_ended)
        kernel.bus.on(QueueStopped, lambda stopped: self.moved(stopped.branch.key))
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
        if self._kernel.hints is not None:
            self._kernel.hints.note(parent.ref, "background", child.session_id)

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
            while outcome.reason == "done" and not self._kernel.closing and (woken or self.has(branch)):
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
        branches = [branch for branch in map(self._kernel.opened, children) if branch is not None]
        stopped = (self._kernel.abort(branch, why=BY_PARENT) for branch in branches)
        await asyncio.gather(*stopped)  # one that is being stopped already is waited for
        for agent, key in zip(alive, children, strict=True):
            self._forget(parent.key, agent)
            self._dropped.discard(key)
        return bool(alive)

    def recover(self, opened: BranchOpened) -> None:
        """Find the results that were owed to a branch when its daemon ended."""
        parent = opened.branch
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
            self._kernel.own(self._recover(parent.ref, agent, str(row.get("description") or "")))

    def close(self) -> None:
        """Let nobody wait any more: what goes on is stopped, and found again when the branch is opened."""
        for key in self._waiters:
            self.moved(key)

    # -- what the runtime tells -----------------------------------------------------------------------------------

    def _run_started(self, started: RunStarted) -> None:
        """Note the run that answers a result, for an agent that is not over before that is."""
        branch = started.branch
        run = branch.conversation.last_run
        message = branch.conversation.messages.get(run.data["message_id"]) if run else None
        if message is not None and agents_in(message.row) and branch.key in self._woken and branch.task is not None:
            self._woken[branch.key].append(branch.task)
            self.moved(branch.key)

    def moved(self, key: str) -> None:
        """Have who waits for the results of a branch look again."""
        if (waiter := self._waiters.get(key)) is not None:
            waiter.set()

    def _run_ended(self, ended: RunEnded) -> None:
        """Pass on the end of a background agent, and stop those of a run that was stopped."""
        branch, outcome = ended.branch, ended.outcome
        if self._kernel.closing:
            return
        session = branch.conversation.session
        if session.get("background") and len(branch.conversation.runs) == 1:  # later ones are the user's
            self._kernel.own(self._complete(branch.ref, str(session.get("description") or ""), outcome))
        if outcome.reason == "aborted" and self._alive.get(branch.key):
            self._kernel.own(self._abort(branch.ref))

    # -- inside ------------------------------------------------------------------------------------------------

    async def _abort(self, ref: BranchRef) -> None:
        async with self._kernel.using(ref) as parent:
            await self.abort(parent)

    async def _complete(self, ref: BranchRef, description: str, outcome: Outcome) -> None:
        """Take the end of an agent's run: its parent is told when nothing below it goes on."""
        async with self._kernel.using(ref) as branch:
            outcome = await self.settled(branch, outcome)
        parent = paths.parent_of(ref)
        if parent is not None and not self._kernel.closing:
            await self._owe(parent, Completion(id=ref.session_id, description=description, outcome=outcome))

    async def _recover(self, parent: BranchRef, agent: str, description: str) -> None:
        """Tell how an agent ended that was running when the daemon ended; one that goes on tells it itself."""
        outcome: Outcome | None = Outcome(reason="error", text="", code="restart", message=RESTARTED)
        ref = _child(parent, agent)
        try:
            async with self._kernel.using(ref) as child:
                if child.task is not None:
                    await self._watch(parent, child, child.task)
                    return
                run = next(iter(child.conversation.runs.values()), None)
                if run is not None:
                    outcome = outcome_of(child.conversation, run, self._kernel.presets.of_branch(ref).result)
        except PyagentdError as error:
            outcome = Outcome(reason="error", text="", code=error.code, message=str(error))
        if outcome is not None and outcome.reason == "aborted":  # nobody but the daemon's end did that
            outcome = replace(outcome, reason="error", code="restart", message=RESTARTED)
        if outcome is not None:
            await self._owe(parent, Completion(id=agent, description=description, outcome=outcome))

    async def _watch(self, parent: BranchRef, child: LiveBranch, run: asyncio.Task[Outcome]) -> None:
        """Show an agent that goes on where the daemon's end had stopped it; its end is told as any other."""
        async with self._kernel.using(parent) as shown:
            self._agents.begin(shown, child)
            try:
                await asyncio.wait([run])
            finally:
                self._agents.end(child)

    async def _owe(self, parent: BranchRef, completion: Completion) -> None:
        if completion.id not in self._alive.get(parent.key, ()) or _child(parent, completion.id).key in self._dropped:
            return  # it was stopped with its parent
        with contextlib.suppress(PyagentdError):  # its row says that it is owed: whoever opens it next finds that
            async with self._kernel.using(parent) as branch:
                await self._deliver(branch, completion)
        self._forget(parent.key, completion.id)

    async def _deliver(self, parent: LiveBranch, completion: Completion) -> None:
        """Submit a result, or add it to one that waits at the queue's end."""
        async with parent.starting:
            last = parent.queue.waiting[-1:]
            if last and (agents := agents_in(last[0].row)):
                text = f"{last[0].text}\n\n{completion.text}"
                parent.queue.edit(last[0].id, text, {"agents": [*agents, completion.id]})
                self._kernel.queue.changed(parent)
                self._note(parent, completion.id, "delivered")
                return
        metadata = {"origin": "agent", "agents": [completion.id]}
        options = self._options.get(parent.key, SendOptions())
        await self._kernel.submit(parent, Submission(text=completion.text, options=options, metadata=metadata))
        self._note(parent, completion.id, "delivered")

    def _note(self, parent: LiveBranch, agent: str, state: Debt) -> None:
        known = parent.conversation.agents.get(agent, {"id": agent})
        parent.recorder.record("agent", {**known, "state": state})
        if self._kernel.hints is not None and state != "running":
            self._kernel.hints.forget(parent.ref, "background", agent)

    def _forget(self, parent: str, agent: str) -> None:
        if (alive := self._alive.get(parent)) is not None:
            alive.discard(agent)
            if not alive:
                del self._alive[parent]
        self.moved(parent)


def _child(parent: BranchRef, agent: str) -> BranchRef:
    return paths.agent_ref(paths.agents_dir(parent.branch_dir) / agent)


@dataclass(slots=True)
class Child:
    """One agent whose parent is told how it moves."""

    parent: str  # branch key
    facts: dict[str, Any]
    calls: list[str] = field(default_factory=list)

    def event(self) -> Event:
        """Return what the parent's clients are told."""
        return Event("agent", self.parent, 0, ({**self.facts, "calls": list(self.calls)},))


class AgentSpawner(Feature):
    """Keeps the running agents of all branches.

    Attributes:
        background: Those that nobody waits for.
        outputs: Make the result of a call from what its agent came to, by the tool's name.
    """

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self._children: dict[str, Child] = {}  # by the agent's branch key
        self.background = Background(kernel, self)
        self.outputs: dict[str, Callable[[Outcome], Output]] = {NAME: as_output}

    def spawner(self, parent: LiveBranch, options: SendOptions, run_id: str) -> ParentSpawner:
        """Return what the PersistentAgent tool of the run ``run_id`` needs."""
        return ParentSpawner(self, self.kernel, parent, options, run_id)

    def running(self, parent: str) -> list[dict[str, Any]]:
        """Return the agents a branch waits for, so that a client that attaches can draw them."""
        return [child.event().args[0] for child in self._children.values() if child.parent == parent]

    def tools_for(self, run: RunBuilder) -> Sequence[ToolSpec]:
        """Return the tools that start agents."""
        spawner, depth = self.spawner(run.branch, run.options, run.run_id), len(run.ancestors)
        return [make(spawner, depth=depth) for make in (persistent_agent, task)]

    async def rejoin(self, branch: LiveBranch, options: SendOptions, run_id: str, call: ToolCall) -> Output | None:
        """Return the result of a call that was made before the daemon ended; None if it spawned no agent."""
        return await self.spawner(branch, options, run_id).rejoin(call)

    async def aborted(self, branch: LiveBranch) -> bool:
        """Stop the background agents of a branch."""
        return await self.background.abort(branch)

    async def stop(self) -> None:
        """Let nobody wait for background agents any more."""
        self.background.close()

    def run_moved(self, branch: LiveBranch, status: Mapping[str, Any]) -> None:
        """Tell the parent's clients how the run of an agent moved."""
        child = self._children.get(branch.key)
        if child is None:
            return
        match status.get("phase"):
            case "WAIT":
                child.facts["state"] = "wait"
            case "TOOL":
                tools = status.get("tools") or []
                child.facts["state"] = "tool"
                child.facts["count"] += len(tools)
                child.calls = list(tools)
            case _:
                return
        self.kernel.publish(child.event())

    def begin(self, parent: LiveBranch, branch: LiveBranch) -> None:
        """Start showing an agent, whose session row is recorded, to its parent's clients."""
        session = branch.conversation.session
        facts = {
            "id": branch.ref.session_id,
            "branch_dir": str(branch.ref.branch_dir),
            "preset": str(session.get("agent") or ""),
            "description": str(session.get("description") or ""),
            "background": bool(session.get("background")),
            "call_id": str(session.get("parent_call_id") or ""),
            "state": "wait",
            "count": 0,
        }
        self._children[branch.key] = Child(parent.key, facts)
        self.kernel.publish(self._children[branch.key].event())

    def tools_of(self, branch: LiveBranch) -> int:
        """Return how many calls of tools an agent that is shown has made."""
        child = self._children.get(branch.key)
        return int(child.facts["count"]) if child is not None else 0

    def end(self, branch: LiveBranch) -> None:
        """Stop showing an agent; on every path, exactly once."""
        child = self._children.pop(branch.key, None)
        if child is not None:
            child.facts["state"] = "finished"
            self.kernel.publish(child.event())


@dataclass(frozen=True, slots=True)
class ParentSpawner:
    """Spawns agents for one run of ``parent``."""

    _agents: AgentSpawner
    _kernel: Kernel
    parent: LiveBranch
    options: SendOptions
    run_id: str

    def templates(self) -> Mapping[str, Preset]:
        """Return the presets an agent may have."""
        return self._templates().for_agents()

    def _templates(self) -> ProjectPresets:
        return self._kernel.presets.for_project(self.parent.conversation.session.get("workspace_root"))

    def reads(self) -> tuple[str, ...]:
        """Return what the parent may read."""
        return self._kernel.presets.of_branch(self.parent.ref).paths.read

    async def run_agent(self, wanted: Assignment) -> Outcome:
        """Create an agent under the parent's branch and run it to its end (see ``spawn.Spawner``)."""
        return await self._result(*await self.launch(wanted))

    async def start_agent(self, wanted: Assignment) -> str:
        """Create an agent that nobody waits for, start it, and return its session's id."""
        ref, _ = await self.launch(wanted)
        return ref.session_id

    async def rejoin(self, call: ToolCall) -> Output | None:
        """Return the result of a call that was made before the daemon's end; None if it spawned no agent."""
        outcome = await self._rejoined(call.id)
        if outcome is None:
            return None
        return self._agents.outputs.get(call.name, result_of)(outcome)

    async def _rejoined(self, call_id: str) -> Outcome | None:
        """Return what the agent that a call spawned came to, once it has."""
        ref = await asyncio.to_thread(child_of_call, self.parent.ref, call_id)
        if ref is None:
            return None
        stack = contextlib.AsyncExitStack()
        branch = await stack.enter_async_context(self._kernel.using(ref))
        run = branch.conversation.last_run
        if branch.task is None:
            async with stack:
                outcome = outcome_of(branch.conversation, run, self._kernel.presets.of_branch(ref).result)
            # Whom a human stopped, its parent was told of at once: this one the daemon's end stopped.
            return None if outcome is not None and outcome.reason == "aborted" else outcome
        self._show(stack, branch)
        return await self._result(ref, self._kernel.own(self._finish(stack, branch, branch.task)))

    async def launch(self, wanted: Assignment) -> tuple[BranchRef, asyncio.Task[Outcome]]:
        """Create an agent and start its run; return it and the task that has its outcome.

        Raises:
            PyagentdError: It could not be made or started; no run was begun.
        """
        ref = await self._create(wanted)
        stack = contextlib.AsyncExitStack()
        try:
            await stack.enter_async_context(self._kernel.using(self.parent.ref))
            branch = await stack.enter_async_context(self._kernel.using(ref))
            self._show(stack, branch)
            if wanted.background:
                self._agents.background.begin(self.parent, ref, wanted, self.run_id, self.options)
            await self._kernel.prompt(branch, text=wanted.prompt, options=self.options, metadata=wanted.message)
        except BaseException:
            if wanted.background:
                self._agents.background.cancel(self.parent, ref)
            await stack.aclose()
            await self._discard(ref)
            raise
        assert branch.task is not None, "nothing was awaited since the run began"
        return ref, self._kernel.own(self._finish(stack, branch, branch.task))

    async def _discard(self, ref: BranchRef) -> None:
        """Remove an agent that could not be started: nothing was said there. What cannot be removed stays."""
        with contextlib.suppress(PyagentdError):
            async with self._kernel.using(ref) as branch:
                if branch.conversation.runs or branch.conversation.queued:
                    return
            async with self._kernel.removing(ref.branch_dir):
                await asyncio.to_thread(trash.discard, ref.branch_dir)

    def _show(self, stack: contextlib.AsyncExitStack, branch: LiveBranch) -> None:
        self._agents.begin(self.parent, branch)
        stack.callback(self._agents.end, branch)

    async def _finish(
        self, stack: contextlib.AsyncExitStack, branch: LiveBranch, run: asyncio.Task[Outcome]
    ) -> Outcome:
        async with stack:
            outcome = await self._agents.background.settled(branch, await run)
            return replace(outcome, tools=self._agents.tools_of(branch))

    async def _result(self, ref: BranchRef, task: asyncio.Task[Outcome]) -> Outcome:
        """Wait for an agent; when the parent is stopped, stop it and wait until it has closed its files."""
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if (branch := self._kernel.opened(ref.key)) is not None:
                await self._kernel.abort(branch, why=BY_PARENT)
            await asyncio.wait([task])
            raise

    async def _create(self, wanted: Assignment) -> BranchRef:
        """Make the agent's directory, once all is known to be good."""
        presets = self._templates()
        validate(
            wanted, (wanted.preset,) if wanted.values else presets.for_agents()
        )  # a mission's need not be offered
        if wanted.read is not None and not wanted.read and not self.options.interactive:
            raise ToolError("An agent without path limits needs a human to confirm it; name allowed_paths")
        template, text = presets.template(wanted.preset)
        shipped = presets.usable[wanted.preset].origin == "shipped"
        if values := {**(self._served(template) if shipped else {}), **wanted.values}:
            text = presetfile.with_values(presetfile.parse(text, Path(f"{wanted.preset}.md")), values)
            template = self._kernel.presets.of_content(text.encode(), Path(f"{wanted.preset}.md"), wanted.preset)
        backend_for(template, self._kernel.config, self.options)  # raises before anything is made
        own = self.reads()
        return await asyncio.to_thread(
            sessions.create_agent,
            self.parent.ref,
            preset_name=wanted.preset,
            preset_text=text,
            description=wanted.description,
            read=own if wanted.read is None else (wanted.read or ["/**"]),
            deny=wanted.deny,
            clock=self._kernel.clock,
            facts=self._facts(wanted),
        )

    def _served(self, template: Preset) -> dict[str, str]:
        """Return backend and model of the parent where its backend is not the one that a shipped preset names."""
        config, own = self._kernel.config, answers_next(self._kernel, self.parent, self.options)
        known = provider_of(own, config, self.options)
        if provider_of(template, config, self.options) == known:
            return {}
        return {"backend": own.backend, "model": own.model}

    def _facts(self, wanted: Assignment) -> dict[str, Any]:
        """Return who spawns the agent and what for; from this a restart finds who waits for it."""
        conversation = self.parent.conversation
        run = conversation.runs.get(self.run_id)
        metadata = conversation.session["metadata_json"]
        return {
            "workspace_root": conversation.session["workspace_root"],
            "agent": wanted.preset,
            "parent_run_id": self.run_id,
            "parent_call_id": wanted.call_id,
            "parent_message_id": run.data["message_id"] if run else None,
            "background": wanted.background,
            "description": wanted.description,
            "metadata_json": {
                **inherited(self._kernel.presets, self.parent),
                **({"environment": metadata["environment"]} if "environment" in metadata else {}),
                **({"task": dict(wanted.metadata)} if wanted.metadata else {}),
            },
        }
