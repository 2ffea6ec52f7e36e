"""All branches that are open and all runs in flight: who starts them, who ends them, who is told.

The host opens branches on demand, turns prompts into supervised runs, and sees to it that every run ends with exactly
one ``run`` fact, whatever happened (DESIGN §6). Sub-agents are runs like any other; ``agents.py`` starts them here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyagentd.agent.agents import AgentSpawner
from pyagentd.agent.asks import Answer, AskBoard
from pyagentd.agent.authority import Authority
from pyagentd.agent.branch import LiveBranch, Prompt
from pyagentd.agent.prompt import environment, system_prompt
from pyagentd.agent.run import Outcome, Run, RunSettings, new_run_id
from pyagentd.agent.settings import (
    DEFAULT_MAX_TOKENS,
    Presets,
    SendOptions,
    backend_for,
    document_settings,
    policy_context,
)
from pyagentd.agent.spawn import persistent_agent
from pyagentd.clock import Clock
from pyagentd.config import Config
from pyagentd.errors import Busy, StoreError
from pyagentd.events import Event, Sink
from pyagentd.ids import new_id
from pyagentd.pulse import Pulse
from pyagentd.store import paths
from pyagentd.store.paths import BranchRef
from pyagentd.tools.builtin import builtin_tools
from pyagentd.tools.spec import ToolContext, ToolSpec

log = logging.getLogger(__name__)


class Host:
    """What lives in the daemon."""

    def __init__(self, *, config: Config, presets: Presets, clock: Clock, pulse: Pulse) -> None:
        self.config = config
        self.presets = presets
        self.clock = clock
        self.pulse = pulse
        self.asks = AskBoard(self.publish)
        self.agents = AgentSpawner(self)
        self._branches: dict[str, LiveBranch] = {}
        self._errands: set[asyncio.Task[None]] = set()
        self._closing = False

    # -- branches ----------------------------------------------------------------------------------------------

    def opened(self, key: str) -> LiveBranch | None:
        """Return the branch with this key if it is open."""
        return self._branches.get(key)

    @contextlib.asynccontextmanager
    async def using(self, ref: BranchRef) -> AsyncIterator[LiveBranch]:
        """Have a branch open, and healed if need be; it is closed afterwards unless somebody else needs it.

        Raises:
            StoreError: The disk refused.
        """
        branch = self._branches.get(ref.key)
        if branch is None:
            branch = self._branches[ref.key] = LiveBranch(ref, pulse=self.pulse, clock=self.clock)
        branch.users += 1
        try:
            yield branch
        finally:
            branch.users -= 1
            if branch.idle:
                await asyncio.shield(self._own(self._close_if_idle(branch)))

    def forget(self, sink: Sink) -> None:
        """Let a client go from every branch it watched."""
        for branch in list(self._branches.values()):
            branch.detach(sink)
            if branch.idle:
                self._own(self._close_if_idle(branch))

    def publish(self, event: Event) -> None:
        """Tell whoever watches the event's branch."""
        if (branch := self._branches.get(event.branch)) is not None:
            branch.publish(event)

    @property
    def runs(self) -> list[LiveBranch]:
        """The branches with a run in flight."""
        return [branch for branch in self._branches.values() if branch.run is not None]

    # -- runs --------------------------------------------------------------------------------------------------

    async def send(self, branch: LiveBranch, *, sha256: str, end: int, options: SendOptions) -> str:
        """Start a run for the prompt that ends at ``end`` of the saved document; return the run's id."""
        return await self._start(branch, lambda: branch.prompt_from_document(sha256=sha256, end=end), options)

    async def prompt(self, branch: LiveBranch, *, text: str, options: SendOptions) -> str:
        """Start a run for a message sent as text, which is put at the document's end; return the run's id."""
        return await self._start(branch, lambda: branch.prompt_from_client(text), options)

    async def abort(self, branch: LiveBranch) -> bool:
        """Stop the branch's run and, with it, the agents it waits for; return whether there was one."""
        async with branch.starting:  # a run that is being started is stopped too
            task = branch.task
        if task is None:
            return False
        branch.stop()
        await asyncio.wait([task])
        return True

    async def shutdown(self) -> None:
        """Stop every run, start no other, and close every branch."""
        self._closing = True
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

    async def _start(self, branch: LiveBranch, read: Callable[[], Prompt], options: SendOptions) -> str:
        """Start a run for the prompt that ``read`` returns.

        Raises:
            Busy: The branch has a run, or the daemon stops.
            PyagentdError: The prompt, the preset or the backend is no good; nothing of a run was recorded.
        """
        async with branch.starting:
            branch.require_idle()
            await branch.keeper.settle()
            run_id, prompt = new_run_id(), read()
            settings = await self._settings(branch, run_id, options)
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
            branch.task = asyncio.create_task(self._supervise(branch, run), name=run_id)
            branch.publish(Event("run", branch.key, seq, ({"id": run_id, "phase": "started"},)))
            return run_id

    async def _supervise(self, branch: LiveBranch, run: Run) -> Outcome:
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

    async def _close_if_idle(self, branch: LiveBranch) -> None:
        """Forget a branch that nobody needs any more; its files hold everything."""
        with contextlib.suppress(StoreError):  # the log has the text; the document gets it when it is opened again
            await branch.keeper.flush()
        if branch.idle and self._branches.get(branch.key) is branch:
            del self._branches[branch.key]
            with contextlib.suppress(StoreError):
                branch.close_now()

    def _own(self, errand: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(errand)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)
        return task

    def _observe(self, branch: LiveBranch, status: Mapping[str, Any]) -> None:
        branch.set_status(status)
        self.agents.progress(branch, status)

    # -- what a run needs --------------------------------------------------------------------------------------

    async def _settings(self, branch: LiveBranch, run_id: str, options: SendOptions) -> RunSettings:
        preset = self.presets.of_branch(branch.ref)
        branch.keeper.settings = document_settings(preset)
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
        spawner = self.agents.spawner(branch, options)
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
        """Record a question, show it on the asking branch and on the root of its tree, and wait."""
        row = {
            "id": new_id("ask"),
            "branch": branch.key,
            "agent": branch.ref.session_id if branch.ref.is_agent else None,
            "run_id": run_id,
            **fields,
            "decision": None,
            "created_at": branch.recorder.now_ms(),
        }
        seq = branch.recorder.record("ask", row)
        shown = (branch.key, ancestors[-1].key) if ancestors else (branch.key,)
        answer = Answer(decision="abort")
        try:
            await branch.recorder.commit()
            ask = self.asks.post(seq=seq, run_id=run_id, branches=shown, row=row)
            with branch.asking():
                answer = await ask.future
        finally:
            branch.recorder.record("ask", {**row, "decision": answer.decision, "decided_reason": answer.reason})
        return answer
