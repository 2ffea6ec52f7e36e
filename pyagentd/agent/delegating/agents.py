"""Sub-agents of runs: created under the parent's branch, run to their end, watched from the parent (SPEC 000).

The parent's clients get an ``agent`` event whenever a child's run moves, and one with state ``finished`` on every
terminal path; Emacs draws its overlay from these. What becomes of the result of an agent that nobody waits for is in
``background``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyagentd.agent.branches.branch import LiveBranch
from pyagentd.agent.delegating.background import Background
from pyagentd.agent.delegating.kin import child_of_call
from pyagentd.agent.delegating.results import outcome_of
from pyagentd.agent.delegating.spawn import Assignment, result_of, validate
from pyagentd.agent.delegating.task import NAME as TASK
from pyagentd.agent.delegating.task import as_output
from pyagentd.agent.missions.missiontool import NAME as MISSION
from pyagentd.agent.missions.missiontool import as_value
from pyagentd.agent.presets import ProjectPresets
from pyagentd.agent.running.outcome import BY_PARENT, Outcome
from pyagentd.agent.running.settings import SendOptions, backend_for, provider_of
from pyagentd.agent.turns.turnagent import answers_next, inherited
from pyagentd.errors import PyagentdError, ToolError
from pyagentd.events import Event
from pyagentd.messages import ToolCall
from pyagentd.policy.presets import Preset
from pyagentd.store import presetfile, sessions, trash
from pyagentd.store.paths import BranchRef
from pyagentd.tools.spec import Output

if TYPE_CHECKING:  # the host owns the spawner; the spawner starts runs through the host
    from pyagentd.agent.host import Host


@dataclass(slots=True)
class Child:
    """One agent whose parent is told how it moves."""

    parent: str  # branch key
    facts: dict[str, Any]
    calls: list[str] = field(default_factory=list)

    def event(self) -> Event:
        """Return what the parent's clients are told."""
        return Event("agent", self.parent, 0, ({**self.facts, "calls": list(self.calls)},))


class AgentSpawner:
    """Keeps the running agents of all branches.

    Attributes:
        background: Those that nobody waits for.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._children: dict[str, Child] = {}  # by the agent's branch key
        self.background = Background(host)

    def spawner(self, parent: LiveBranch, options: SendOptions, run_id: str) -> ParentSpawner:
        """Return what the PersistentAgent tool of the run ``run_id`` needs."""
        return ParentSpawner(self, self._host, parent, options, run_id)

    def running(self, parent: str) -> list[dict[str, Any]]:
        """Return the agents a branch waits for, so that a client that attaches can draw them."""
        return [child.event().args[0] for child in self._children.values() if child.parent == parent]

    def progress(self, branch: LiveBranch, status: Mapping[str, Any]) -> None:
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
        self._host.publish(child.event())

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
        self._host.publish(self._children[branch.key].event())

    def tools_of(self, branch: LiveBranch) -> int:
        """Return how many calls of tools an agent that is shown has made."""
        child = self._children.get(branch.key)
        return int(child.facts["count"]) if child is not None else 0

    def end(self, branch: LiveBranch) -> None:
        """Stop showing an agent; on every path, exactly once."""
        child = self._children.pop(branch.key, None)
        if child is not None:
            child.facts["state"] = "finished"
            self._host.publish(child.event())


@dataclass(frozen=True, slots=True)
class ParentSpawner:
    """Spawns agents for one run of ``parent``."""

    _agents: AgentSpawner
    _host: Host
    parent: LiveBranch
    options: SendOptions
    run_id: str

    def templates(self) -> Mapping[str, Preset]:
        """Return the presets an agent may have."""
        return self._templates().for_agents()

    def _templates(self) -> ProjectPresets:
        return self._host.presets.for_project(self.parent.conversation.session.get("workspace_root"))

    def reads(self) -> tuple[str, ...]:
        """Return what the parent may read."""
        return self._host.presets.of_branch(self.parent.ref).paths.read

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
        told: Mapping[str, Callable[[Outcome], Output]] = {TASK: as_output, MISSION: as_value}
        return told.get(call.name, result_of)(outcome)

    async def _rejoined(self, call_id: str) -> Outcome | None:
        """Return what the agent that a call spawned came to, once it has."""
        ref = await asyncio.to_thread(child_of_call, self.parent.ref, call_id)
        if ref is None:
            return None
        stack = contextlib.AsyncExitStack()
        branch = await stack.enter_async_context(self._host.using(ref))
        run = branch.conversation.last_run
        if branch.task is None:
            async with stack:
                outcome = outcome_of(branch.conversation, run, self._host.presets.of_branch(ref).result)
            # Whom a human stopped, its parent was told of at once: this one the daemon's end stopped.
            return None if outcome is not None and outcome.reason == "aborted" else outcome
        self._show(stack, branch)
        return await self._result(ref, self._host.own(self._finish(stack, branch, branch.task)))

    async def launch(self, wanted: Assignment) -> tuple[BranchRef, asyncio.Task[Outcome]]:
        """Create an agent and start its run; return it and the task that has its outcome.

        Raises:
            PyagentdError: It could not be made or started; no run was begun.
        """
        ref = await self._create(wanted)
        stack = contextlib.AsyncExitStack()
        try:
            await stack.enter_async_context(self._host.using(self.parent.ref))
            branch = await stack.enter_async_context(self._host.using(ref))
            self._record(branch, wanted)
            self._show(stack, branch)
            if wanted.background:
                self._agents.background.begin(self.parent, ref, wanted, self.run_id, self.options)
            await self._host.prompt(branch, text=wanted.prompt, options=self.options, metadata=wanted.message)
        except BaseException:
            if wanted.background:
                self._agents.background.cancel(self.parent, ref)
            await stack.aclose()
            await self._discard(ref)
            raise
        assert branch.task is not None, "nothing was awaited since the run began"
        return ref, self._host.own(self._finish(stack, branch, branch.task))

    async def _discard(self, ref: BranchRef) -> None:
        """Remove an agent that could not be started: nothing was said there. What cannot be removed stays."""
        with contextlib.suppress(PyagentdError):
            async with self._host.using(ref) as branch:
                if branch.conversation.runs or branch.conversation.queued:
                    return
            async with self._host.removing(ref.branch_dir):
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
            if (branch := self._host.opened(ref.key)) is not None:
                await self._host.abort(branch, why=BY_PARENT)
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
            template = self._host.presets.of_content(text.encode(), Path(f"{wanted.preset}.md"), wanted.preset)
        backend_for(template, self._host.config, self.options)  # raises before anything is made
        own = self.reads()
        return await asyncio.to_thread(
            sessions.create_agent,
            self.parent.ref,
            preset_name=wanted.preset,
            preset_text=text,
            description=wanted.description,
            read=own if wanted.read is None else (wanted.read or ["/**"]),
            deny=wanted.deny,
            clock=self._host.clock,
        )

    def _served(self, template: Preset) -> dict[str, str]:
        """Return backend and model of the parent where its backend is not the one that a shipped preset names."""
        config, own = self._host.config, answers_next(self._host, self.parent, self.options)
        known = provider_of(own, config, self.options)
        if provider_of(template, config, self.options) == known:
            return {}
        return {"backend": own.backend, "model": own.model}

    def _record(self, branch: LiveBranch, wanted: Assignment) -> None:
        """Record who spawned the agent and what for; from this a restart finds who waits for it."""
        conversation = self.parent.conversation
        run = conversation.runs.get(self.run_id)
        metadata = conversation.session["metadata_json"]
        branch.record_session(
            workspace_root=conversation.session["workspace_root"],
            parent=self.parent.ref,
            agent=wanted.preset,
            spawned={
                "parent_run_id": self.run_id,
                "parent_call_id": wanted.call_id,
                "parent_message_id": run.data["message_id"] if run else None,
                "background": wanted.background,
                "description": wanted.description,
            },
            metadata={
                **inherited(self._host.presets, self.parent),
                **({"environment": metadata["environment"]} if "environment" in metadata else {}),
                **({"task": dict(wanted.metadata)} if wanted.metadata else {}),
            },
        )
