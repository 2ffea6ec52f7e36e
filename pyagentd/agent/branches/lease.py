"""Who may edit a branch: asking the present editor to leave, and telling everybody when nobody edits (DESIGN §3).

The keeper knows who is the editor; here is how that changes. Who wants to take over waits for its turn, the present
editor is asked first and has time to save and let go, and one that stays silent loses the lease. It may wake up any
time later with text that it never saved: the file is written anew before the next editor reads it, so that Emacs
finds a file that changed and leaves it alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping

from pyagentd.agent.branches.keeper import Keeper
from pyagentd.agent.branches.persist import Version
from pyagentd.errors import StoreError
from pyagentd.events import Sink

log = logging.getLogger(__name__)

SILENT_S = 10.0  # how long an editor may take to let go (DESIGN §3, rule 4)


class Lease:
    """Gives the right to edit to one client at a time.

    Args:
        keeper: Who writes when nobody edits.
        tell: Tells one client what happened to the lease: the argument of event ``lease``.
        tell_others: Tells all clients but one.
    """

    def __init__(
        self,
        keeper: Keeper,
        *,
        tell: Callable[[Sink, Mapping[str, str]], None],
        tell_others: Callable[[Sink, Mapping[str, str]], None],
    ) -> None:
        self._keeper = keeper
        self._tell = tell
        self._tell_others = tell_others
        self._turn = asyncio.Lock()  # of several that take over, one after the other
        self._taking: list[Sink] = []
        self._left = asyncio.Event()

    def offer(self, sink: Sink, version: Version | None) -> bool:
        """Make ``sink`` the editor if nobody else is, and nobody else is about to be."""
        if self._keeper.editor is None and self._taking and self._taking[0] is not sink:
            return False
        return self._keeper.lease(sink, version)

    async def take(self, sink: Sink, by: str) -> bool:
        """Make ``sink``, which people know as ``by``, the editor in place of whoever is; False when it went away.

        The file then holds all that the daemon and the editor before had to write; ``sink`` reads it anew.
        """
        self._taking.append(sink)
        try:
            async with self._turn:
                await self._clear_for(sink, by)
                return sink in self._taking and self._keeper.lease(sink, None)
        finally:
            if sink in self._taking:
                self._taking.remove(sink)
            self._tell_if_free(sink)

    def release(self, sink: Sink) -> None:
        """Take the lease back from ``sink``, or its wish to have it."""
        if sink in self._taking:
            self._taking.remove(sink)
        if self._keeper.editor is sink:
            self._keeper.release(sink)
            self._left.set()
            self._tell_if_free(sink)

    async def _clear_for(self, sink: Sink, by: str) -> None:
        """Return when nobody but ``sink`` edits, and the file is complete."""
        present = self._keeper.editor
        if present is None or present is sink:
            return
        self._tell(present, {"state": "wanted", "by": by})
        if not await self._let_go(present):
            log.info("an editor was silent for %g s and lost the lease", SILENT_S)
            self._keeper.release(present)
            self._keeper.renew()
            self._tell(present, {"state": "lost", "by": by})
        with contextlib.suppress(StoreError):  # it is said where the file is written next
            await self._keeper.flush()

    async def _let_go(self, present: Sink) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SILENT_S):
                while self._keeper.editor is present:
                    self._left.clear()
                    await self._left.wait()
        return self._keeper.editor is not present

    def _tell_if_free(self, last: Sink) -> None:
        if self._keeper.editor is None and not self._taking:
            self._tell_others(last, {"state": "free"})
