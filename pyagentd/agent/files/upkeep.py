"""What becomes of snapshots in time: calls that nobody saw the end of, and what is old, too much or of nobody."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from pyagentd import regularfile
from pyagentd.agent.files.putback import sweep_beside
from pyagentd.clock import epoch_ms
from pyagentd.errors import PyagentdError
from pyagentd.store import atomic, paths
from pyagentd.store.snapshots.objects import DIRECTORY
from pyagentd.store.snapshots.records import Change, Pruned, prune

if TYPE_CHECKING:  # the host has the snapshots, and they have this
    from pyagentd.agent.files.snapshots import Snapshots
    from pyagentd.agent.host import Host

log = logging.getLogger(__name__)

_PRUNE_EVERY_MS = 86_400_000
_GONE_MS = 86_400_000  # a session's changes are kept so long after it is gone: it may come back from the trash


class Upkeep:
    """The upkeep of one daemon's snapshots."""

    def __init__(self, host: Host, snapshots: Snapshots) -> None:
        self._host = host
        self._snapshots = snapshots

    async def prune(self) -> Pruned:
        """Forget what is old, of sessions that are gone, or too much; waits until nothing is being kept.

        Raises:
            StoreError: The disk refused.
        """
        async with self._snapshots.alone():
            self._snapshots.workspaces.forget()
            now = epoch_ms(self._host.clock.now())
            return await asyncio.to_thread(
                prune,
                self._snapshots.records,
                self._snapshots.objects,
                now_ms=now,
                gone=lambda change: _is_gone(change, now),
            )

    async def recover(self) -> None:
        """See what became of the calls that an earlier daemon did not see the end of; then forget what is old."""
        try:
            async with self._snapshots.using():
                await asyncio.to_thread(self.close_unfinished)
            marker = self._host.config.sessions_dir / DIRECTORY / "pruned"
            now = epoch_ms(self._host.clock.now())
            if await asyncio.to_thread(_is_due, marker, now):
                log.info("snapshots: %s", asdict(await self.prune()))
        except (PyagentdError, OSError) as error:
            log.warning("snapshots: %s", error)

    def close_unfinished(self) -> None:
        """Note what calls that were not seen to end changed, as doubtful; blocks."""
        for key, files, begun in self._snapshots.records.unfinished():
            if begun.branch and begun.run and self._runs(begun):
                continue
            sweep_beside(files)
            try:
                top = paths.ref_of(Path(key))
                root = Path(begun.root) if begun.root else None
                after = self._snapshots.tree_of(files, root, self._snapshots.denies(top))
                ended = epoch_ms(self._host.clock.now())
                if after == begun.before:
                    self._snapshots.records.forget(begun.id)
                else:
                    given = asdict(begun) | {"after": after, "ended": ended, "doubtful": True}
                    self._snapshots.records.append(top, Change(**given))
            except (PyagentdError, OSError) as error:
                log.warning("what %s changed before the daemon ended is not known: %s", begun.detail, error)
                self._snapshots.records.forget(begun.id)

    def _runs(self, change: Change) -> bool:
        """Return whether a call is one of this daemon's."""
        live = self._host.opened(change.branch)
        return live is not None and live.run is not None and live.run.id == change.run


def _is_gone(change: Change, now_ms: int) -> bool:
    return change.ended < now_ms - _GONE_MS and not Path(change.branch).is_dir()


def _is_due(marker: Path, now_ms: int) -> bool:
    """Return whether it is time to prune, and note that it is done."""
    if not marker.parent.is_dir():
        return False
    try:
        last = int(regularfile.read_text(marker))
    except (OSError, ValueError):
        last = 0
    if now_ms - last < _PRUNE_EVERY_MS:
        return False
    atomic.write_text(marker, str(now_ms), fsync=False)
    return True
