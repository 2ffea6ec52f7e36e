"""What agents did to files: kept around their calls, shown since any turn, undone on request.

The store is below the sessions root and for its owner alone; nothing of a project's own repository is read or written
for it. A turn is a message of the user's at the root of a tree of agents: what its agents changed belongs to it,
however long they worked. Restoring is a change like any other, so it can be undone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from pyagentd.agent.branches.branch import LiveBranch
from pyagentd.agent.delegating import kin
from pyagentd.agent.files.keeping import RunKeeper
from pyagentd.agent.files.recent import Recent
from pyagentd.agent.files.upkeep import Upkeep
from pyagentd.agent.files.userturns import last_turn, turns_from
from pyagentd.agent.files.workspaces import Workspaces
from pyagentd.agent.turns.turn import Prompt
from pyagentd.clock import Clock
from pyagentd.errors import PresetError, StoreError
from pyagentd.events import Event
from pyagentd.store import paths
from pyagentd.store.paths import BranchRef
from pyagentd.store.snapshots import objects as tree
from pyagentd.store.snapshots.objects import DIRECTORY, Objects, named
from pyagentd.store.snapshots.records import Change, Records, since
from pyagentd.store.snapshots.scan import Stats

if TYPE_CHECKING:  # the host has one of these
    from pyagentd.agent.host import Host

log = logging.getLogger(__name__)


class Snapshots:
    """The snapshots of one daemon.

    Attributes:
        objects: Contents.
        records: Which call changed what.
        workspaces: Whole directories.
        recent: What tools wrote a moment ago.
        upkeep: Who prunes them.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        directory = host.config.sessions_dir / DIRECTORY
        self.objects = Objects(directory)
        self.records = Records(directory)
        self.workspaces = Workspaces(host.config, self.objects, Stats(directory))
        self.recent = Recent()
        self.upkeep = Upkeep(host, self)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._users = 0
        self._free = asyncio.Condition()
        self._pruning = False
        self._begun = False

    @property
    def clock(self) -> Clock:
        """The host's clock."""
        return self._host.clock

    def publish(self, event: Event) -> None:
        """Tell whoever watches the event's branch."""
        self._host.publish(event)

    def own(self, errand: Coroutine[Any, Any, None]) -> None:
        """Have the daemon not stop before ``errand`` is done."""
        self._host.own(errand)

    # -- runs ----------------------------------------------------------------------------------------------------

    def of_run(self, branch: LiveBranch, run_id: str, root: Path, *, commands: bool = False) -> RunKeeper:
        """Return who keeps files for a run in the workspace ``root``; with ``commands`` it is looked at now."""
        if not self._begun:
            self._begun = True
            self._host.own(self.upkeep.recover())
        top, root = paths.root_of(branch.ref), root.resolve()
        keeper = RunKeeper(snapshots=self, branch=branch, top=top, run_id=run_id, root=root)
        if commands and not self.workspaces.is_known(root, self.denies(top)):
            self._host.own(keeper.warm())
        return keeper

    def marked(self, ref: BranchRef, prompt: Prompt) -> Prompt:
        """Return ``prompt`` with the id of the last change before it, for the message's metadata."""
        head = "" if prompt.message_id else self.head(ref)
        return replace(prompt, metadata={**prompt.metadata, "snapshot_id": head}) if head else prompt

    def head(self, ref: BranchRef) -> str:
        """Return the id of the last change of a tree of agents: the ``snapshot_id`` of a message of the user's."""
        return self.records.head(paths.root_of(ref))

    def turns(self, branch: LiveBranch, run_id: str) -> tuple[str, ...]:
        """Return the messages of the user that a run works for, that at the root first."""
        run = branch.conversation.runs.get(run_id)
        found = [] if run is None else [str(run.data["message_id"])]
        if (last := last_turn(branch.conversation)) and last not in found:
            found.insert(0, last)  # it was read while the run went on
        ref, session = branch.ref, branch.conversation.session
        while ref.is_agent:
            if above := session.get("parent_message_id"):
                found.append(str(above))
            parent = paths.parent_of(ref)
            if parent is None:
                break
            live = self._host.opened(parent.key)
            ref, session = parent, live.conversation.session if live is not None else dict(kin.session_row(parent))
        return tuple(reversed(found))

    def denies(self, ref: BranchRef) -> tuple[str, ...]:
        """Return what a session denies its tools: it is not kept."""
        try:
            return self._host.presets.of_branch(ref).paths.deny
        except (PresetError, StoreError):
            return ()

    def tree_of(self, files: Iterable[str], root: Path | None, denies: tuple[str, ...]) -> str:
        """Store ``files`` and all of ``root`` as they are now, and return the tree of ``/``; blocks.

        Raises:
            TooMuch: There is too much in ``root``.
            StoreError: The disk refused.
        """
        outside = (path for path in files if root is None or not Path(path).is_relative_to(root))
        entries = list(named(outside, self.objects))
        if root is not None:
            entries.append((str(root), self.workspaces.snapshot(root, denies)))
        return tree.assemble(self.objects, entries)

    @contextlib.asynccontextmanager
    async def using(self) -> AsyncIterator[None]:
        """Let nothing be pruned during the block."""
        async with self._free:
            await self._free.wait_for(lambda: not self._pruning)
            self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            async with self._free:
                self._free.notify_all()

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Wait until nothing is being kept, and let nothing be during the block."""
        async with self._free:
            await self._free.wait_for(lambda: not self._pruning and not self._users)
            self._pruning = True
        try:
            yield
        finally:
            self._pruning = False
            async with self._free:
                self._free.notify_all()

    @contextlib.asynccontextmanager
    async def changing(self, files: Iterable[str]) -> AsyncIterator[None]:
        """Let nobody else change ``files`` through a tool during the block."""
        async with contextlib.AsyncExitStack() as stack:
            for path in sorted(set(files)):
                await stack.enter_async_context(self._locks.setdefault(path, asyncio.Lock()))
            yield

    # -- what was changed ----------------------------------------------------------------------------------------

    async def changes(self, ref: BranchRef, message_id: str | None) -> list[Change]:
        """Return what was changed since a message of the user's in a branch or agent; of None: in all of it.

        Raises:
            NotFound: It has no such message.
            StoreError: Nothing can be read.
        """
        known = await asyncio.to_thread(self.records.of, paths.root_of(ref))
        if message_id is None:
            below = ref.key if ref.is_agent else ""
            return [change for change in known if not below or change.branch.startswith(below)]
        async with self._host.using(ref) as branch:
            return since(known, turns_from(branch.conversation, message_id))

    async def last_turn(self, ref: BranchRef) -> str:
        """Return the last message of the user's, "" when there is none."""
        async with self._host.using(ref) as branch:
            return last_turn(branch.conversation)
