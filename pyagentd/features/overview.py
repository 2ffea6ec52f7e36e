"""Keeps lists of sessions live: sends the rows that changed, a few times a second.

The row of an open branch shows its current state and cost; that of a closed one is read from its files. Changes are
collected for a moment, so that a run of many steps sends few events; without a watching client nothing is done.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pyagentd.events import Event, Sink
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.feature import BranchChanged, BranchWritten, ClientGone, Feature, RunEnded
from pyagentd.runtime.status import Session
from pyagentd.runtime.usage import Expense
from pyagentd.store.db.listing import single_entry
from pyagentd.store.paths import BranchRef

if TYPE_CHECKING:
    from pyagentd.runtime.kernel import Kernel

PAUSE_S = 0.15

_RUN = ("phase", "tools", "started_at", "message", "attempt", "max_attempts", "retry_at")


class Overview(Feature):
    """Sends changed rows to the clients that watch lists of sessions."""

    def __init__(self, kernel: "Kernel") -> None:
        super().__init__(kernel)
        self.watchers: set[Sink] = set()
        kernel.bus.on(BranchChanged, self._note_live)
        kernel.bus.on(RunEnded, self._note_live)
        kernel.bus.on(BranchWritten, self._written)
        kernel.bus.on(ClientGone, lambda gone: self.watchers.discard(gone.client))
        self._changed: dict[str, LiveBranch | BranchRef] = {}
        self._timer: asyncio.TimerHandle | None = None

    def _note_live(self, event: BranchChanged | RunEnded) -> None:
        if self.watchers:
            self._note(event.branch.key, event.branch)

    def _written(self, written: BranchWritten) -> None:
        """Note that files of a branch changed or were deleted."""
        ref = written.ref
        live = self.kernel.opened(ref.key)
        if live is not None or not isinstance(self._changed.get(ref.key), LiveBranch):
            self._note(ref.key, live or ref)

    async def stop(self) -> None:
        """Stop sending events."""
        self.watchers.clear()
        self._changed.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _note(self, key: str, branch: LiveBranch | BranchRef) -> None:
        if not self.watchers:
            return
        self._changed[key] = branch
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PAUSE_S, self._tell)

    def _tell(self) -> None:
        changed, self._changed, self._timer = self._changed.values(), {}, None
        live = [branch for branch in changed if isinstance(branch, LiveBranch)]
        closed = [branch for branch in changed if isinstance(branch, BranchRef)]
        rows = {branch.key: self.row(branch) for branch in live}
        self._push([row for row in rows.values() if row], [key for key, row in rows.items() if not row])
        if closed:
            self.kernel.spawn(self._tell_closed(closed))

    async def _tell_closed(self, refs: Iterable[BranchRef]) -> None:
        found = await asyncio.to_thread(lambda: {ref.key: single_entry(ref) for ref in refs})
        states = {key: {"state": self.kernel.state_of(key)} for key in found}
        rows = [each | activity(states[key]) for key, each in found.items() if each is not None]
        # Branches that were opened meanwhile send their own rows.
        self._push(
            [row for row in rows if self.kernel.opened(row["branch"]) is None],
            [key for key, each in found.items() if each is None],
        )

    def _push(self, rows: list[dict[str, Any]], gone: list[str]) -> None:
        if rows or gone:
            for sink in self.watchers:
                sink.push(Event("sessions", "", 0, ({"rows": rows, "gone": gone},)))

    def running(self) -> list[dict[str, Any]]:
        """Return the rows of all running branches."""
        return list(filter(None, map(self.row, self.kernel.runs)))

    def row(self, branch: LiveBranch) -> dict[str, Any]:
        """Return the row of an open branch for a ``sessions`` event; {} if its files are gone."""
        session = branch.conversation.session
        listed = single_entry(branch.ref, session)
        if listed is None:
            return {}
        # Values that the log lacks stay unchanged.
        known = {key: value for key, value in listed.items() if value or key not in ("preset", "created")}
        return {
            **known,
            **spent_row(branch.meter.own if branch.meter is not None else Expense()),
            **activity(
                branch.status
                if self.kernel.opened(branch.key) is branch
                else {"state": self.kernel.state_of(branch.key)}
            ),
        }


def spent_row(spent: Expense) -> dict[str, Any]:
    """Return the cost of a branch itself: ``tokens``, ``usd`` where known, ``unpriced`` if some is not."""
    return {"tokens": spent.tokens.total, "usd": spent.known_usd, "unpriced": bool(spent.unpriced)}


def activity(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return the activity of a branch: ``state``, ``queued``, and keys of its run's status, nil without a run."""
    state = status.get("state", Session.IDLE.value)
    return {"state": state, "queued": status.get("queued", 0), **{name: status.get(name) for name in _RUN}}
