"""Saves and clears the conversation of a named agent after it was idle for a while.

The timer of an agent restarts with each message and at the end of a run; it is stopped while a run is in flight. When
the daemon ends it saves the conversations that go on, and all agents begin idle in the next daemon; but a run that
waits for a human goes on there, and its conversation with it.

An agent is active in ``state.db`` while its log has rows that no boundary has put behind, and else idle; until its
creation is complete it is created, and once it is gone destroyed, whatever happens there.
"""

import asyncio
import contextlib
import logging
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pyagentd.clock import epoch_ms
from pyagentd.errors import BadRequest, NotASession, NotFound, PyagentdError
from pyagentd.events import Event
from pyagentd.features.contexts import Contexts
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.feature import ConversationCleared, ConversationRestored, Feature, RunEnded, RunStarted
from pyagentd.store import paths
from pyagentd.store.db import agents
from pyagentd.store.named_agents import agent_file
from pyagentd.store.paths import BranchRef

if TYPE_CHECKING:
    from pyagentd.runtime.kernel import Kernel

log = logging.getLogger(__name__)


IDLE_SETTING = "idle_timeout"
"""Key of ``state.settings``: seconds; the default is half an hour, and 0 is never."""

IDLE_S = 30 * 60
CHECK_S = 30.0
LEAST_S = 0.1


class Idling(Feature):
    """The idle timers of one daemon's named agents."""

    def __init__(self, kernel: "Kernel") -> None:
        super().__init__(kernel)
        self._last: dict[str, tuple[BranchRef, datetime]] = {}  # of conversations that go on: when it was last heard
        self._begun = asyncio.Event()  # a conversation; its timer may be shorter than what is slept
        self._task: asyncio.Task[None] | None = None
        if kernel.find(Contexts) is None:  # there is nothing to put conversations behind with
            return
        kernel.bus.on(ConversationCleared, lambda cleared: self.cleared(cleared.branch))
        kernel.bus.on(ConversationRestored, lambda restored: self._touch(restored.branch))
        kernel.bus.on(RunStarted, lambda started: self._touch(started.branch))
        kernel.bus.on(RunEnded, lambda ended: self._touch(ended.branch))

    @property
    def pending(self) -> int:
        """How many conversations go on; the daemon stays up for them."""
        return len(self._last)

    # -- what happens to agents --------------------------------------------------------------------------------

    def cleared(self, branch: LiveBranch) -> None:
        """Note that a conversation was put behind."""
        if self._last.pop(branch.key, None) is not None or self._name(branch.ref):
            self._note(branch.ref, "idle")

    def forget(self, directory: Path) -> None:
        """End the timers of what is deleted."""
        for key, (ref, _) in list(self._last.items()):
            if ref.branch_dir.is_relative_to(directory):
                del self._last[key]

    def moved(self, old: Path, new: Path) -> None:
        """Note that an agent's directory has another name: its timers go on."""
        for key, (ref, last) in list(self._last.items()):
            if ref.branch_dir.is_relative_to(old):
                del self._last[key]
                there = paths.ref_of(new / ref.branch_dir.relative_to(old))
                self._last[there.key] = there, last

    # -- time --------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Put behind what went on when the last daemon ended, and begin to look at the clock."""
        if self.kernel.find(Contexts) is None:
            return
        await self.load()
        self._task = asyncio.create_task(self._watch(), name="idling")

    async def stop(self) -> None:
        """Stop looking at the clock."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    async def tick(self) -> None:
        """Save and put behind what nobody has gone on with for long enough."""
        if not self._last:
            return
        idle_s, now = await asyncio.to_thread(self._idle_s), self.kernel.clock.now()
        for key in list(self._last):
            if (known := self._last.get(key)) is None:  # meanwhile it was cleared: saving another one takes time
                continue
            (ref, last), live = known, self.kernel.opened(key)
            if live is not None and live.run is not None:
                self._last[key] = ref, now
            elif idle_s and now - last >= timedelta(seconds=idle_s):
                await self._fire(ref, now, idle_s)

    async def load(self) -> None:
        """Begin with all agents idle: what went on when the last daemon ended is put behind, saved if it was not."""
        try:
            rows = await asyncio.to_thread(agents.known, self.kernel.state)
        except PyagentdError as error:  # as before there is any session
            log.info("the named agents cannot be read: %s", error)
            return
        contexts = self.kernel.feature(Contexts)
        for row in rows:
            if row.status != "active":
                continue
            try:
                async with self.kernel.using(paths.ref_of(Path(row.dir))) as branch:
                    if _goes_on(branch):
                        self._touch(branch)
                    else:
                        await contexts.put_behind(branch, "shutdown", when="when the daemon was started anew")
                        self.cleared(branch)
            except PyagentdError as error:  # whoever opens it is told
                log.warning("agent %s: %s", row.name, error)

    async def close(self) -> None:
        """Save every conversation that goes on, when the daemon ends; the next one puts them behind."""
        for ref, _ in list(self._last.values()):
            try:
                async with self.kernel.using(ref) as branch:
                    if not _goes_on(branch):
                        await self.kernel.feature(Contexts).keep(branch, "shutdown")
            except PyagentdError as error:
                log.warning("%s could not be saved: %s", ref.name, error)
        self._last.clear()

    # -- inside ------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            pause_s = await asyncio.to_thread(self._pause_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._begun.wait()
            self._begun.clear()
            try:
                await self.tick()
            except Exception:  # the edge of this task: one agent must not end all timers
                log.exception("idle timers")

    def _pause_s(self) -> float:
        """Return how long to wait until timers are looked at: shorter where they are short."""
        try:
            return min(CHECK_S, max(LEAST_S, self._idle_s() / 4)) if self._last else CHECK_S
        except PyagentdError:  # no database yet
            return CHECK_S

    def _idle_s(self) -> float:
        given = self.kernel.state.get(IDLE_SETTING, IDLE_S)
        return float(given) if isinstance(given, int | float) and given >= 0 else IDLE_S

    async def _fire(self, ref: BranchRef, now: datetime, idle_s: float) -> None:
        try:
            async with self.kernel.using(ref) as branch:
                if _goes_on(branch):
                    self._last[ref.key] = ref, now
                elif await self.kernel.feature(Contexts).idle_out(branch, seconds=idle_s):
                    self.cleared(branch)
        except (BadRequest, NotASession, NotFound):  # nothing goes on there any more
            self._last.pop(ref.key, None)
        except PyagentdError as error:  # the disk, or somebody was faster: it is tried again when it is time again
            log.warning("%s could not be saved and cleared: %s", ref.name, error)
            if ref.key in self._last:
                self._last[ref.key] = ref, now

    def _touch(self, branch: LiveBranch) -> None:
        if not self._name(branch.ref):
            return
        self._tell()
        is_new = branch.key not in self._last
        self._last[branch.key] = branch.ref, self.kernel.clock.now()
        if is_new:
            self._begun.set()
            self._note(branch.ref, "active")

    def _note(self, ref: BranchRef, status: Literal["idle", "active"]) -> None:
        """Have the table of agents say whether a conversation goes on with one."""
        now_ms, name = epoch_ms(self.kernel.clock.now()), self._name(ref)

        def note() -> None:
            row = agents.find(self.kernel.state, name)
            if row is not None and row.status in ("idle", "active") and row.status != status:
                agents.set_status(self.kernel.state, name, status, now_ms=now_ms)

        async def errand() -> None:
            try:
                await asyncio.to_thread(note)
            except PyagentdError as error:
                log.warning("agent %s: %s", name, error)
            self._tell()

        self.kernel.spawn(errand())

    def _tell(self) -> None:
        self.kernel.publish(Event("agents", "", 0))

    def _name(self, ref: BranchRef) -> str:
        """Return the name of the agent whose branch ``ref`` is, "" of other sessions."""
        return ref.session_id if self.kernel.named.is_named(ref) and agent_file(ref.session_dir).is_file() else ""


def _goes_on(branch: LiveBranch) -> bool:
    """Return whether something is to happen in a branch before its conversation can be put behind."""
    return branch.run is not None or branch.has_open_run or bool(branch.queue.waiting)
