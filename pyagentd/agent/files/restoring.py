"""Putting files back as they were before changes of agents: shown first, each file in one step, and itself undoable.

What somebody else changed since stays as it is unless the user says otherwise. Files are opened by walking directory
descriptors, so that a link that an agent left in the place of a directory leads nowhere; nothing is written to what
no tool may touch.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from pyagentd.agent.files.putback import Proposal, creations, put, removals, remove, sweep_beside
from pyagentd.agent.files.snapshots import Snapshots
from pyagentd.agent.running.settings import protected_paths
from pyagentd.clock import epoch_ms
from pyagentd.errors import NotFound, PyagentdError, StoreError, ToolError
from pyagentd.events import Event
from pyagentd.policy.guard import CREDENTIALS, SESSION_RECORDS
from pyagentd.policy.patterns import first_match_folded
from pyagentd.store import paths
from pyagentd.store.paths import BranchRef
from pyagentd.store.snapshots import objects as tree
from pyagentd.store.snapshots.objects import Entry, looked_at, named, required
from pyagentd.store.snapshots.records import Change, Undo, new_change_id, same, undoing
from pyagentd.tools.files import is_binary, parent
from pyagentd.tools.write import unified

if TYPE_CHECKING:  # the host has one of these
    from pyagentd.agent.host import Host

Conflicts = Literal["keep", "copy", "overwrite"]

CHANGED_SINCE = "it was changed since by somebody else"
NOT_KEPT = "its content was not kept: it is too large, may hold secrets, or could not be read"
PROTECTED = "no tool may write there"


@dataclass(slots=True)
class Restored:
    """What restoring did."""

    id: str = ""  # undoes it; "" when nothing was to do
    restored: list[str] = field(default_factory=list)
    kept: list[dict[str, str]] = field(default_factory=list)  # {path, reason}
    copies: list[str] = field(default_factory=list)

    def told(self) -> dict[str, Any]:
        """Return it for clients."""
        return {"id": self.id, "restored": self.restored, "kept": self.kept, "copies": self.copies}


class Restoring(Snapshots):
    """The snapshots of one daemon, and how files come back from them."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._forbidden = (*CREDENTIALS, *SESSION_RECORDS, *protected_paths(host.config))

    async def preview(
        self, ref: BranchRef, message_id: str | None, only: Collection[str] | None = None
    ) -> list[dict[str, Any]]:
        """Return what restoring to before ``message_id`` would change, ``{path, change, reason, diff}`` each.

        Raises:
            NotFound: There is no such message.
            StoreError: What was recorded is not there any more.
        """
        changes = await self.changes(ref, message_id)
        proposals = await asyncio.to_thread(self._proposals, changes, only)
        return await asyncio.to_thread(self._told, proposals)

    async def restore(
        self,
        ref: BranchRef,
        message_id: str | None,
        only: Collection[str] | None = None,
        conflicts: Conflicts = "keep",
    ) -> dict[str, Any]:
        """Put files back as they were when ``message_id`` was sent; see ``Restored``.

        Args:
            ref: The branch or agent whose changes are undone, those of its agents too.
            message_id: One of the user's messages in it; None is its beginning.
            only: Absolute paths of files and directories; None is all.
            conflicts: Keep what somebody else changed since; put the old version beside it; or overwrite it.

        Raises:
            NotFound: There is no such message.
            StoreError: The disk refused, or what was recorded is not there any more.
        """
        changes = await self.changes(ref, message_id)
        return await self._undo(ref, changes, only, conflicts)

    async def undo(self, ref: BranchRef, change_id: str) -> dict[str, Any]:
        """Take one change back, as a restoring; raises as ``restore``."""
        changes = await self.changes(paths.root_of(ref), None)
        found = [change for change in changes if change.id == change_id]
        if not found:
            raise NotFound(f"There is no change {change_id}", mend="Restoring tells the id that undoes it")
        return await self._undo(ref, found, None, "keep")

    async def _undo(
        self, ref: BranchRef, changes: Sequence[Change], only: Collection[str] | None, conflicts: Conflicts
    ) -> dict[str, Any]:
        turn = await self.last_turn(paths.root_of(ref))
        own = await self.last_turn(ref) if ref.is_agent else turn
        async with self.using():
            proposals = await asyncio.to_thread(self._proposals, changes, only)
            async with self.changing(each.path for each in proposals):
                done = await asyncio.to_thread(self._perform, ref, (turn, own), proposals, conflicts)
        for key in dict.fromkeys((ref.key, paths.root_of(ref).key)):
            if done.restored:
                self.publish(Event("files", key, 0, ({"paths": done.restored, "call_id": "", "more": False},)))
        return done.told()

    # -- what would become of files ------------------------------------------------------------------------------

    def _proposals(self, changes: Sequence[Change], only: Collection[str] | None) -> list[Proposal]:
        plan = undoing(self.objects, changes)
        chosen = (each for path, each in plan.items() if only is None or _named(path, only))
        return [found for each in chosen if (found := self._proposal(each)) is not None]

    def _proposal(self, undo: Undo) -> Proposal | None:
        now = looked_at(undo.path, content=_wants_content(undo))
        if same(now, undo.target):
            return None
        if undo.target is not None and not undo.target.is_kept:
            becomes, reason = "unkept", NOT_KEPT
        elif first_match_folded(self._forbidden, undo.path):
            becomes, reason = "unkept", PROTECTED
        elif undo.doubt or not same(now, undo.expected):
            becomes, reason = "conflict", undo.doubt or CHANGED_SINCE
        else:
            becomes, reason = "delete" if undo.target is None else "create" if now is None else "restore", ""
        return Proposal(path=undo.path, becomes=becomes, target=undo.target, now=now, reason=reason)  # type: ignore[arg-type]

    def _told(self, proposals: Iterable[Proposal]) -> list[dict[str, Any]]:
        return [
            {"path": each.path, "change": each.becomes, "reason": each.reason, "diff": self._diff(each)}
            for each in proposals
        ]

    def _diff(self, proposal: Proposal) -> str:
        """Return how the file would change, from what it is now, as a unified diff."""
        if (proposal.now and proposal.now.is_dir) or (proposal.target and proposal.target.is_dir):
            return ""
        if proposal.becomes == "unkept" or (proposal.now and not proposal.now.is_kept):
            return ""
        now = _content_now(proposal.path, proposal.now)
        target = None if proposal.target is None else self.objects.get("blob", proposal.target.id)
        if proposal.target is not None and target is None:
            return "[the old version is not in the store any more]"
        if is_binary(now or b"") or is_binary(target or b""):
            return f"Binary file: {len(now or b'')} bytes now, {len(target or b'')} bytes then"
        before = None if now is None else now.decode(errors="replace")
        shown = unified(before, (target or b"").decode(errors="replace"), proposal.path)
        if target is None:
            shown = shown.replace(f"+++ {proposal.path}", "+++ /dev/null", 1)
        return shown or _modes(proposal)

    # -- doing it ------------------------------------------------------------------------------------------------

    def _perform(
        self, ref: BranchRef, turns: tuple[str, ...], proposals: Sequence[Proposal], conflicts: Conflicts
    ) -> Restored:
        done = Restored()
        wanted = []
        for each in proposals:
            if each.becomes == "unkept" or (each.becomes == "conflict" and conflicts != "overwrite"):
                done.kept.append({"path": each.path, "reason": each.reason})
                if each.becomes == "conflict" and conflicts == "copy" and each.target is not None:
                    self._copy(each, done)
            else:
                wanted.append(each)
        if not wanted:
            return done
        now = epoch_ms(self.clock.now())
        files = [each.path for each in wanted]
        before = self._kept(files)
        change = Change(
            id=new_change_id(),
            turns=tuple(dict.fromkeys(filter(None, turns))),
            branch=ref.key,
            kind="restore",
            before=before,
            after=before,
            began=now,
            ended=now,
        )
        self.records.begin(paths.root_of(ref), change, tuple(files))
        sweep_beside(files)
        for each in removals(wanted):
            self._step(remove, each, done)
        for each in creations(wanted):
            self._step(self._create, each, done)
        failed = {row["path"] for row in done.kept}
        done.restored = [path for path in files if path not in failed]
        self._record(ref, change, files, done)
        return done

    def _record(self, ref: BranchRef, change: Change, files: Sequence[str], done: Restored) -> None:
        """Record what was done, so that it can be undone."""
        after = self._kept(files)
        if after == change.before:
            self.records.forget(change.id)
            return
        self.records.append(paths.root_of(ref), replace(change, after=after))
        done.id = change.id

    def _kept(self, files: Iterable[str]) -> str:
        """Store ``files`` as they are now and return the tree."""
        return tree.assemble(self.objects, named(files, self.objects))

    def _step(self, step: Callable[[Proposal], None], proposal: Proposal, done: Restored) -> None:
        try:
            step(proposal)
        except (OSError, PyagentdError) as error:
            reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
            done.kept.append({"path": proposal.path, "reason": reason})

    def _create(self, proposal: Proposal) -> None:
        entry = proposal.target
        assert entry is not None
        if entry.is_dir:
            with parent(proposal.path, create=True) as (directory, name), contextlib.suppress(FileExistsError):
                os.mkdir(name, stat.S_IMODE(entry.mode) or 0o755, dir_fd=directory)
            return
        content = required(self.objects.get("blob", entry.id), f"The old version of {proposal.path}")
        put(proposal.path, entry, content)

    def _copy(self, proposal: Proposal, done: Restored) -> None:
        """Put the old version beside a file that is kept."""
        assert proposal.target is not None
        number = 1
        while os.path.lexists(f"{proposal.path}.~{number}~"):
            number += 1
        path = f"{proposal.path}.~{number}~"
        try:
            content = required(self.objects.get("blob", proposal.target.id), f"The old version of {proposal.path}")
            put(path, proposal.target, content)
        except (OSError, StoreError, ToolError):
            return
        done.copies.append(path)


def _named(path: str, only: Collection[str]) -> bool:
    return any(path == each or path.startswith(each.rstrip("/") + "/") for each in only)


def _wants_content(undo: Undo) -> bool:
    """Return whether what is there now has to be read; what was never kept is compared by its stat."""
    return undo.expected is None or undo.expected.is_kept


def _content_now(path: str, now: Entry | None) -> bytes | None:
    if now is None:
        return None
    try:
        if now.is_link:
            return os.fsencode(os.readlink(path))  # noqa: PTH115
        with open(path, "rb") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return None


def _modes(proposal: Proposal) -> str:
    if proposal.now is None or proposal.target is None:
        return ""
    return f"mode {stat.S_IMODE(proposal.now.mode):o} now, {stat.S_IMODE(proposal.target.mode):o} then"
