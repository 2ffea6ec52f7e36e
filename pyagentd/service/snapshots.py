"""Operations on what agents did to files: what changed since a turn, and putting it back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, cast, get_args

from pyagentd.agent.files.restoring import Conflicts
from pyagentd.errors import BadRequest, Busy
from pyagentd.service.group import Client, Group
from pyagentd.store import paths
from pyagentd.store.paths import BranchRef

_SHOWN = 400_000  # characters of all differences in one answer


class SnapshotOperations(Group):
    """Files before and after."""

    async def changes(
        self, client: Client, *, branch: str, message: str | None = None, paths: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """Return what restoring files to before a message of the user's would do.

        ``message`` None means all of the session, ``last`` the last message. The answer is ``{files: ({path, change,
        reason, diff}…)}``. ``change`` is restore, create, delete, conflict (it was changed since by somebody else:
        kept unless said otherwise) or unkept (there is no old version). A ``diff`` leads from what is there now to
        what would be; where there is no room for it any more it is None.
        """
        ref = self._ref(branch)
        found = await self._host.snapshots.preview(ref, await self._message(ref, message), paths)
        room = _SHOWN
        for row in found:
            room -= len(row["diff"])
            if room < 0:
                row["diff"] = None
        return {"files": found}

    async def restore(
        self,
        client: Client,
        *,
        branch: str,
        message: str | None = None,
        paths: Sequence[str] | None = None,
        conflicts: str = "keep",
    ) -> dict[str, Any]:
        """Put files back as they were before a message of the user's.

        ``paths`` are those of files and directories, None all; ``conflicts`` says what becomes of files that somebody
        else changed since: keep, copy (the old version is put beside) or overwrite. The answer is ``{id, restored,
        kept: ({path, reason}…), copies}``; ``undo-restore`` takes the ``id``.
        """
        if conflicts not in get_args(Conflicts):
            raise BadRequest(f"conflicts is {conflicts!r}", mend=f"Known: {', '.join(get_args(Conflicts))}")
        ref = self._ref(branch)
        self._require_quiet(ref)
        return await self._host.snapshots.restore(
            ref, await self._message(ref, message), paths, cast(Conflicts, conflicts)
        )

    async def undo_restore(self, client: Client, *, branch: str, id: str) -> dict[str, Any]:
        """Take a restoring back; the answer is as of ``restore``."""
        ref = self._ref(branch)
        self._require_quiet(ref)
        return await self._host.snapshots.undo(ref, id)

    async def prune_snapshots(self, client: Client) -> dict[str, Any]:
        """Forget old snapshots now; the answer counts what went and what is left."""
        return asdict(await self._host.snapshots.upkeep.prune())

    async def _message(self, ref: BranchRef, message: str | None) -> str | None:
        """Return the id that ``message`` means: itself, or of "last" the last message of the user's."""
        return await self._host.snapshots.last_turn(ref) if message == "last" else message

    def _require_quiet(self, ref: BranchRef) -> None:
        """Raise ``Busy`` while an agent of the session may change files."""
        for live in self._host.inside(paths.root_of(ref).branch_dir):
            if live.run is not None:
                raise Busy(f"{live.ref.name} is answering", mend="Wait for the answer, or abort it first")
