"""Sub-agents of runs: created under the parent's branch, run to their end, watched from the parent (SPEC 000).

The parent's clients get an ``agent`` event whenever a child's run moves, and one with state ``finished`` on every
terminal path; Emacs draws its overlay from these.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyagentd.agent.branch import LiveBranch
from pyagentd.agent.run import Outcome
from pyagentd.agent.settings import SendOptions, backend_for
from pyagentd.agent.spawn import Assignment
from pyagentd.errors import ToolError
from pyagentd.events import Event
from pyagentd.policy.presets import Preset
from pyagentd.store import sessions
from pyagentd.store.paths import BranchRef

if TYPE_CHECKING:  # the host owns the spawner; the spawner starts runs through the host
    from pyagentd.agent.host import Host


@dataclass(slots=True)
class Child:
    """One agent that somebody waits for."""

    parent: str  # branch key
    facts: dict[str, Any]
    calls: list[str] = field(default_factory=list)

    def event(self) -> Event:
        """Return what the parent's clients are told."""
        return Event("agent", self.parent, 0, ({**self.facts, "calls": list(self.calls)},))


class AgentSpawner:
    """Keeps the running agents of all branches."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._children: dict[str, Child] = {}  # by the agent's branch key

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

    def begin(self, parent: LiveBranch, branch: LiveBranch, *, preset: str, description: str) -> None:
        """Start showing an agent to its parent's clients."""
        facts = {
            "id": branch.ref.session_id,
            "branch_dir": str(branch.ref.branch_dir),
            "preset": preset,
            "description": description,
            "state": "wait",
            "count": 0,
        }
        self._children[branch.key] = Child(parent.key, facts)
        self._host.publish(self._children[branch.key].event())

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
        return self._host.presets.for_agents()

    async def run_agent(self, wanted: Assignment) -> Outcome:
        """Create an agent under the parent's branch and run it to its end (see ``spawn.Spawner``)."""
        ref = self._create(wanted)
        async with self._host.using(ref) as branch:
            self._record(branch, wanted)
            self._agents.begin(self.parent, branch, preset=wanted.preset, description=wanted.description)
            try:
                return await self._run(branch, wanted.prompt)
            finally:
                self._agents.end(branch)

    def _create(self, wanted: Assignment) -> BranchRef:
        if wanted.read is not None and not wanted.read and not self.options.interactive:
            raise ToolError("An agent without path limits needs a human to confirm it; name allowed_paths")
        template, text = self._host.presets.template(wanted.preset)
        backend_for(template, self._host.config, self.options)  # raises before anything is made
        own = self._host.presets.of_branch(self.parent.ref).paths.read
        return sessions.create_agent(
            self.parent.ref,
            preset_name=wanted.preset,
            preset_text=text,
            description=wanted.description,
            read=own if wanted.read is None else (wanted.read or ["/**"]),
            deny=wanted.deny,
            clock=self._host.clock,
        )

    def _record(self, branch: LiveBranch, wanted: Assignment) -> None:
        """Record who spawned the agent and what for; from this a restart finds who waits for it."""
        conversation = self.parent.conversation
        run = conversation.runs.get(self.run_id)
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
        )

    async def _run(self, branch: LiveBranch, prompt: str) -> Outcome:
        """Run the agent; when the parent is stopped, stop it and wait until it has closed its files."""
        await self._host.prompt(branch, text=prompt, options=self.options)
        assert branch.task is not None, "nothing was awaited since the run began"
        task = branch.task
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await self._host.abort(branch)
            raise
