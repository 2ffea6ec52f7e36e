"""Remembering, for the next daemon, in which branches something waits (``store.index.pending``).

Nobody waits for it and nothing depends on it: changes are gathered while the last ones are written, and what cannot
be written is logged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, Protocol

from pyagentd.clock import Clock, epoch_ms
from pyagentd.errors import NotASession, StoreError
from pyagentd.store import paths
from pyagentd.store.db import tasks
from pyagentd.store.db.projection import Projection
from pyagentd.store.db.state import State
from pyagentd.store.db.tasks import Hint
from pyagentd.store.paths import BranchRef

log = logging.getLogger(__name__)


class Waiting(NamedTuple):
    """Something that an earlier daemon left waiting."""

    ref: BranchRef
    kind: str
    id: str


class Hints(Protocol):
    """Who remembers where a later daemon has to look; neither method blocks or raises."""

    def note(self, branch: BranchRef, kind: str, id: str) -> None:
        """Remember that something waits in a branch."""
        ...

    def forget(self, branch: BranchRef, kind: str, id: str) -> None:
        """Forget that."""
        ...


class PendingHints:
    """The hints of one sessions root.

    Args:
        state: The database.
        projection: Names branches as the database does.
        clock: For when it was.
        own: Runs an errand that is waited for before the daemon ends.
    """

    def __init__(
        self,
        state: State,
        projection: Projection,
        clock: Clock,
        own: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._state = state
        self._projection = projection
        self._clock = clock
        self._own = own
        self._changes: dict[Hint, bool] = {}  # True: to be noted
        self._writing = False

    def note(self, branch: BranchRef, kind: str, id: str) -> None:
        """Remember that something waits in a branch."""
        self._change(branch, kind, id, True)

    def forget(self, branch: BranchRef, kind: str, id: str) -> None:
        """Forget that."""
        self._change(branch, kind, id, False)

    def found(self) -> list[Waiting]:
        """Return what waits, and forget what waited in branches that are gone; blocks, for a thread."""
        waiting = []
        try:
            for hint in tasks.found(self._state):
                try:
                    ref = paths.ref_of(self._projection.directory(hint.branch_dir))
                except NotASession:
                    tasks.forget_branch(self._state, hint.branch_dir)
                else:
                    waiting.append(Waiting(ref, hint.kind, hint.id))
        except StoreError as error:
            log.warning("what waits is found when its session is opened: %s", error)
        return waiting

    def _change(self, branch: BranchRef, kind: str, id: str, noted: bool) -> None:
        self._changes[Hint(self._projection.key(branch.branch_dir), kind, id)] = noted
        if not self._writing:
            self._writing = True
            self._own(self._write())

    async def _write(self) -> None:
        while self._changes:
            changes, self._changes = self._changes, {}
            noted = [hint for hint, new in changes.items() if new]
            forgotten = [hint for hint, new in changes.items() if not new]
            now_ms = epoch_ms(self._clock.now())
            try:
                await asyncio.to_thread(tasks.change, self._state, noted, forgotten, now_ms=now_ms)
            except StoreError as error:
                log.warning("%s", error)
        self._writing = False
