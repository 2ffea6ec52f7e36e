"""All runs in flight, on branches that are open: who starts them, who ends them, who is told.

The host turns prompts into supervised runs and sees to it that every run ends with exactly one ``run`` fact, whatever
happened (DESIGN §6). Sub-agents are runs like any other; ``agents.py`` starts them here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyagentd.agent.agents import AgentSpawner
from pyagentd.agent.asks import Answer, AskBoard
from pyagentd.agent.authority import Authority
from pyagentd.agent.branch import LiveBranch
from pyagentd.agent.budget import limits_of
from pyagentd.agent.openbranches import Listener as Listener
from pyagentd.agent.openbranches import OpenBranches
from pyagentd.agent.override import overridden, settings_of
from pyagentd.agent.prompt import environment, system_prompt
from pyagentd.agent.run import Outcome, Run, RunSettings, new_run_id
from pyagentd.agent.settings import (
    DEFAULT_MAX_TOKENS,
    Presets,
    SendOptions,
    backend_for,
    policy_context,
)
from pyagentd.agent.spawn import persistent_agent
from pyagentd.agent.turn import Prompt
from pyagentd.clock import Clock
from pyagentd.config import Config
from pyagentd.errors import Busy, StoreError
from pyagentd.events import Event
from pyagentd.ids import new_id
from pyagentd.pulse import Pulse
from pyagentd.store import paths
from pyagentd.store.paths import BranchRef
from pyagentd.tools.builtin import builtin_tools
from pyagentd.tools.spec import ToolContext, ToolSpec

log = logging.getLogger(__name__)


class Host(OpenBranches):
    """What lives in the daemon.

    Attributes:
        asks: Questions to humans that are open.
        agents: The agents that runs wait for.
    """

    def __init__(self, *, config: Config, presets: Presets, clock: Clock, pulse: Pulse) -> None:
        super().__init__(clock=clock, pulse=pulse)
        self.config = config
        self.presets = presets
        self.asks = AskBoard(self.publish)
        self.agents = AgentSpawner(self)
        self.listeners.append(self.agents.background)
        self._closing = False

    @property
    def closing(self) -> bool:
        """Whether the daemon stops: nothing new begins."""
        return self._closing

    def branch_opened(self, branch: LiveBranch) -> None:
        """See what was owed to a branch when its daemon ended."""
        self.agents.background.recover(branch)

    # -- runs --------------------------------------------------------------------------------------------------

    async def send(self, branch: LiveBranch, *, sha256: str, end: int, options: SendOptions) -> str:
        """Start a run for the prompt that ends at ``end`` of the saved document; return the run's id."""
        return await self._start(branch, lambda: branch.prompt_from_document(sha256=sha256, end=end), options)

    async def prompt(
        self, branch: LiveBranch, *, text: str, options: SendOptions, metadata: Mapping[str, Any] | None = None
    ) -> str:
        """Start a run for a message sent as text, which is put at the document's end; return the run's id.

        ``metadata`` is of the message, when it is not a client's.
        """

        async def read() -> Prompt:
            return replace(await branch.prompt_from_client(text), metadata=metadata or {})

        return await self._start(branch, read, options)

    async def abort(self, branch: LiveBranch) -> bool:
        """Stop the branch's run and all agents below it; return whether anything was running."""
        async with branch.starting:  # a run that is being started is stopped too
            task = branch.task
        if task is not None:
            branch.stop()
            await asyncio.wait([task])
        return await self.agents.background.abort(branch) or task is not None

    async def shutdown(self) -> None:
        """Stop every run, start no other, and close every branch."""
        self._closing = True
        self.agents.background.close()
        while runs := self.runs:
            for branch in runs:
                branch.stop()
            await asyncio.wait([branch.task for branch in runs if branch.task is not None])
        while self._errands:
            await asyncio.wait(self._errands)
        for branch in list(self._branches.values()):
            with contextlib.suppress(StoreError):
                await branch.close()
        self._branches.clear()

    async def _start(self, branch: LiveBranch, read: Callable[[], Awaitable[Prompt]], options: SendOptions) -> str:
        """Start a run for the prompt that ``read`` returns.

        Raises:
            Busy: The branch has a run, or the daemon stops.
            PyagentdError: The prompt, the preset or the backend is no good; nothing of a run was recorded.
        """
        async with branch.starting:
            branch.require_idle()
            branch.require_writable()
            await branch.keeper.settle()
            await branch.look_once()
            run_id, prompt = new_run_id(), await read()
            settings = await self._settings(branch, run_id, prompt, options)
            if self._closing:
                raise Busy("The daemon is stopping", mend="Send it again in a moment")
            run = Run(
                run_id=run_id,
                session_id=branch.ref.session_id,
                recorder=branch.recorder,
                view=prompt.view,
                settings=settings,
                prepare=branch.secure,
                observe=lambda run, status: self._observe(branch, status),
            )
            # No await from here on: what is started is supervised.
            seq = branch.start_run(prompt, run_id=run_id, interactive=options.interactive)
            branch.run = run
            branch.task = asyncio.create_task(self._supervise(branch, run, options), name=run_id)
            branch.publish(Event("run", branch.key, seq, ({"id": run_id, "phase": "started"},)))
            if self._unfinished:
                self.own(self._finish_agents())
            return run_id

    async def _supervise(self, branch: LiveBranch, run: Run, options: SendOptions) -> Outcome:
        """Execute a run, then record and tell its end; the one place a run can end."""
        outcome = await run.execute()
        self.asks.abort_run(run.id)
        trouble = ""
        try:
            branch.finish_run(run.id, outcome)
        except StoreError as failure:  # the log has no end of this run; it gets one when it is opened anew
            log.exception("run %s: its end could not be recorded", run.id)
            outcome = replace(outcome, reason="error", code=failure.code, message=str(failure))
        else:
            trouble = await self._secure(branch)
        branch.run = branch.task = None
        end = {"id": run.id, "phase": "finished", "reason": outcome.reason, "message": outcome.message or trouble}
        branch.publish(Event("run", branch.key, branch.recorder.last_seq, (end,)))
        failed = {"state": "error", "message": outcome.message or trouble, "code": outcome.code or StoreError.code}
        branch.set_status(failed if outcome.reason == "error" or trouble else {"state": "idle"})
        for listener in self.listeners:
            listener.run_ended(branch, outcome, options)
            listener.branch_written(branch.ref)
        if branch.ref.is_agent and not branch.settled:
            self._unfinished[branch.key] = branch.ref
        if branch.has_open_run:
            self._branches.pop(branch.key, None)
            branch.abandon()
        elif branch.idle:
            await self._close_if_idle(branch)
        return outcome

    async def _secure(self, branch: LiveBranch) -> str:
        """Bring what was recorded to disk and into the document; return what went wrong, or ""."""
        try:
            await branch.secure()
            branch.note_complete()
        except Exception as failure:  # part of the run's supervisor: it ends whatever happens
            log.exception("%s could not be written", branch.file)
            return str(failure)
        return ""

    def _observe(self, branch: LiveBranch, status: Mapping[str, Any]) -> None:
        branch.set_status(status)
        self.agents.progress(branch, status)

    # -- what a run needs --------------------------------------------------------------------------------------

    async def _settings(self, branch: LiveBranch, run_id: str, prompt: Prompt, options: SendOptions) -> RunSettings:
        own = self.presets.of_branch(branch.ref)
        preset = overridden(own, branch.override(own, prompt.settings))
        branch.write_settings(given=settings_of(own), effective=settings_of(preset), seen=prompt.settings)
        backend, model = backend_for(preset, self.config, options)
        ancestors = paths.ancestors_of(branch.ref)
        authority = Authority(
            context=policy_context(self.presets, branch.ref, ancestors, options, self.config),
            ask_human=lambda fields: self._ask_human(branch, run_id, ancestors, fields),
            stop=branch.stop,
        )
        context = ToolContext(
            root=await self._root(branch),
            branch_dir=branch.ref.branch_dir,
            spool_dir=paths.files_dir(branch.ref.branch_dir),
            readable=authority.readable,
            env=options.env,
        )
        offered: dict[str, ToolSpec] = builtin_tools()
        spawner = self.agents.spawner(branch, options, run_id)
        offered["PersistentAgent"] = persistent_agent(spawner, depth=len(ancestors))
        return RunSettings(
            backend=backend,
            model=model,
            system=system_prompt(preset.body, branch.conversation.session["metadata_json"]["environment"]),
            tools={name: offered[name] for name in preset.tools if name in offered},
            context=context,
            authority=authority,
            max_tokens=preset.max_tokens or DEFAULT_MAX_TOKENS,
            temperature=preset.temperature,
            result=preset.result,
            limits=limits_of(preset),
        )

    async def _root(self, branch: LiveBranch) -> Path:
        """Return the session's workspace root; recorded, with the environment, when the first run needs it."""
        session = branch.conversation.session
        if "environment" not in session.get("metadata_json", {}):  # {}: a session that was made without us
            root = Path(session.get("workspace_root") or Path.home())
            text = await asyncio.to_thread(environment, root, self.clock.now())
            branch.record_session(workspace_root=root, metadata={"environment": text})
            session = branch.conversation.session
        return Path(session["workspace_root"])

    async def _ask_human(
        self, branch: LiveBranch, run_id: str, ancestors: tuple[BranchRef, ...], fields: Mapping[str, Any]
    ) -> Answer:
        """Record a question, show it on the asking branch and on the root of its tree, and wait.

        Args:
            branch: Who asks.
            run_id: Its run.
            ancestors: The branches above, the parent first.
            fields: Of the ``ask`` row; what is not given has a default (``_ASK``).
        """
        row = {
            "id": new_id("ask"),
            "branch": branch.key,
            "agent": branch.ref.session_id if branch.ref.is_agent else None,
            "run_id": run_id,
            **_ASK,
            **fields,
            "decision": None,
            "created_at": branch.recorder.now_ms(),
        }
        seq = branch.recorder.record("ask", row)
        await branch.recorder.commit()
        ask = self.asks.post(
            seq=seq,
            run_id=run_id,
            branches=(branch.key, ancestors[-1].key) if ancestors else (branch.key,),
            row=row,
            record=lambda answer: _record_answer(branch, row, answer),
        )
        try:
            with branch.asking(), self._unhurried(branch, ancestors):
                return await ask.future
        finally:
            self.asks.drop(ask)

    @contextlib.contextmanager
    def _unhurried(self, branch: LiveBranch, ancestors: tuple[BranchRef, ...]) -> Iterator[None]:
        """Stop the clock of a branch's run and of those that wait for it, while a human is asked."""
        above = (self.opened(ref.key) for ref in ancestors)
        with contextlib.ExitStack() as stack:
            for each in (branch, *above):
                if each is not None and each.run is not None:
                    stack.enter_context(each.run.stopwatch.paused())
            yield


_ASK: Mapping[str, Any] = {
    "kind": "tool",
    "choices": ["allow", "deny"],
    "remember": [],
    "commands": [],
    "input": None,
    "path": None,
}


def _record_answer(branch: LiveBranch, row: Mapping[str, Any], answer: Answer) -> None:
    """Record how a question was settled."""
    decided = {
        "decision": answer.decision,
        "decided_reason": answer.reason,
        "decided_by": answer.by or None,
        "decided_at": branch.recorder.now_ms(),
        "input": answer.input or row["input"],
    }
    branch.recorder.record("ask", {**row, **decided})
