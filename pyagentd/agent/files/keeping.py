"""Keeps the files that one run's calls change: from before and after each, recorded for the turn it belongs to.

Of Write and Edit these are the files they name, of a command all of the workspace and the files outside it that it
is known to write, of another program that runs here all of the workspace. What goes wrong here is said and never a
reason for a call to fail.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyagentd.agent.branches.branch import LiveBranch
from pyagentd.clock import epoch_ms
from pyagentd.errors import PyagentdError
from pyagentd.events import Event
from pyagentd.policy.action import Action
from pyagentd.store.paths import BranchRef
from pyagentd.store.snapshots import objects as tree
from pyagentd.store.snapshots.records import Change, new_change_id
from pyagentd.store.snapshots.scan import TooMuch
from pyagentd.tools.spec import Kept

if TYPE_CHECKING:  # who has the store makes the keepers
    from pyagentd.agent.files.snapshots import Snapshots

log = logging.getLogger(__name__)

_TOLD_PATHS = 500  # in one event
_SAID = "files_not_kept"  # in the metadata of a session: that it was said


@dataclass(slots=True)
class _Call:
    """A call around which files are kept."""

    change: Change
    files: tuple[str, ...]  # named ones
    root: Path | None  # of a command, while its workspace is kept


@dataclass(frozen=True, slots=True, kw_only=True)
class RunKeeper:
    """Keeps files for one run; see ``tools.around.Keeping``."""

    snapshots: Snapshots
    branch: LiveBranch
    top: BranchRef  # the root of its tree
    run_id: str
    root: Path  # the workspace
    _too_much: list[str] = field(default_factory=list)  # why its workspace is not kept

    @contextlib.asynccontextmanager
    async def around(self, action: Action, call_id: str) -> AsyncIterator[Kept]:
        """Keep what ``action`` may change from before and after the block."""
        kept = Kept()
        if action.kind not in ("write", "command") and not action.roams:
            yield kept
            return
        async with self.snapshots.using(), self.snapshots.changing(_files(action) if action.kind == "write" else ()):
            call = await self._begin(action, call_id)
            try:
                yield kept
            finally:
                if call is not None:
                    await _surely(self._end(call, kept))
                elif action.kind == "write":
                    self._tell(list(_files(action)), call_id)

    async def warm(self) -> None:
        """Look at the workspace beforehand, so that the first command need not wait for it."""
        async with self.snapshots.using():
            with contextlib.suppress(PyagentdError):  # said when a command comes
                await asyncio.to_thread(self.snapshots.workspaces.snapshot, self.root, self._denies())

    async def _begin(self, action: Action, call_id: str) -> _Call | None:
        root = self.root if (action.kind == "command" or action.roams) and not self._too_much else None
        change = Change(
            id=new_change_id(),
            turns=self.snapshots.turns(self.branch, self.run_id),
            branch=self.branch.key,
            tool=action.tool,
            detail=action.detail,
            call=call_id,
            run=self.run_id,
            before=tree.EMPTY,
            after=tree.EMPTY,
            began=self._now(),
            ended=0,
            root="" if root is None else str(root),
        )
        call = _Call(change, _files(action), root)
        beginning = asyncio.ensure_future(asyncio.to_thread(self._before, call))
        try:
            return await asyncio.shield(beginning)
        except TooMuch as error:
            self._say(f"{error.message}: what commands change there cannot be undone, only what Write and Edit do")
            self._too_much.append(error.message)
            return None if not call.files else await self._begin(action, call_id)
        except PyagentdError as error:
            self._say(f"The files could not be kept, so this cannot be undone: {error}")
            return None
        except asyncio.CancelledError:
            self.snapshots.own(self._forget(change.id, beginning))  # an abort need not wait for it
            raise

    async def _forget(self, change_id: str, beginning: asyncio.Future[_Call | None]) -> None:
        with contextlib.suppress(PyagentdError):
            await beginning
        self.snapshots.records.forget(change_id)

    def _before(self, call: _Call) -> _Call | None:
        if call.root is None and not call.files:
            return None
        before = self._tree(call)
        call.change = replace(call.change, before=before)
        self.snapshots.records.begin(self.top, call.change, call.files)
        return call

    def _tree(self, call: _Call) -> str:
        return self.snapshots.tree_of(call.files, call.root, self._denies())

    async def _end(self, call: _Call, kept: Kept) -> None:
        try:
            call.change, changed = await asyncio.to_thread(self._after, call)
        except PyagentdError as error:
            self._say(f"The files could not be kept, so this cannot be undone: {error}")
            return
        kept.before, kept.after = call.change.before, call.change.after
        self._tell(changed, call.change.call)

    def _after(self, call: _Call) -> tuple[Change, list[str]]:
        """Record what the call changed, and return it with the paths."""
        snapshots, records = self.snapshots, self.snapshots.records
        try:
            change = replace(call.change, after=self._tree(call), ended=self._now())
            if change.before == change.after:
                records.forget(change.id)
                return change, []
            found = list(tree.difference(snapshots.objects, change.before, change.after))
            if change.root:
                change = replace(change, others=snapshots.recent.of_others(self.top, change.began, found))
            else:
                snapshots.recent.note(self.top, change.ended, found)
            records.append(self.top, change)
        except BaseException:
            records.forget(call.change.id)
            raise
        return change, [each.path for each in found if each.path not in change.others]

    def _tell(self, changed: list[str], call_id: str) -> None:
        """Tell whoever watches the branch, or the session, which files are another by now."""
        if changed:
            facts = {"paths": changed[:_TOLD_PATHS], "call_id": call_id, "more": len(changed) > _TOLD_PATHS}
            for key in dict.fromkeys((self.branch.key, self.top.key)):
                self.snapshots.publish(Event("files", key, 0, (facts,)))

    def _say(self, text: str) -> None:
        """Tell the user, once for a session."""
        log.warning("%s: %s", self.branch.ref.name, text)
        if self.branch.conversation.session.get("metadata_json", {}).get(_SAID) != text:
            self.branch.note_metadata(**{_SAID: text})
            for key in dict.fromkeys((self.branch.key, self.top.key)):
                self.snapshots.publish(Event("notice", key, 0, ({"text": text},)))

    def _denies(self) -> tuple[str, ...]:
        return self.snapshots.denies(self.top)

    def _now(self) -> int:
        return epoch_ms(self.snapshots.clock.now())


def _files(action: Action) -> tuple[str, ...]:
    """Return the files that a call names and may write."""
    named = action.writes if action.kind == "command" else (*action.paths, *action.writes)
    return tuple(dict.fromkeys(path.resolved for path in named if not path.resolved.startswith("/dev/")))


async def _surely(work: Coroutine[Any, Any, None]) -> None:
    """Wait until ``work`` is done even when the run is stopped meanwhile; the cancellation comes after it."""
    task, cancelled = asyncio.ensure_future(work), False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
    task.result()
    if cancelled:
        raise asyncio.CancelledError
