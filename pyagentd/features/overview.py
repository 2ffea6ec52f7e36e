"""The list of all sessions: its rows, and keeping it live in clients by sending the rows that changed.

If the stamps of a branch's files are those that were indexed, its facts come from the tables; otherwise from the
files. System calls are kept few, because there may be thirty thousand branches. The row of an open branch shows its
current state and cost. Changes are collected for a moment, so that a run of many steps sends few events; without a
watching client nothing is done.
"""

import asyncio
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyagentd import regularfile
from pyagentd.events import Event, Sink
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.feature import BranchChanged, BranchWritten, ClientGone, Feature, RunEnded
from pyagentd.runtime.status import Session
from pyagentd.runtime.usage import Expense
from pyagentd.store import metadata, paths
from pyagentd.store.db.projection import Facts, Stamps, mtime_ns, stamps_of
from pyagentd.store.journal import row_of
from pyagentd.store.paths import BranchRef
from pyagentd.store.registry import Entry

if TYPE_CHECKING:
    from pyagentd.runtime.kernel import Kernel


_SESSION_ROW = b'"session"'  # its type, however it is spaced; inside a text the quotes are escaped


ListEntry = dict[str, Any]
"""The facts about a branch or an agent from files and tables; ``SessionRow`` of ``sessions`` describes them."""


def list_entries(entries: Iterable[Entry], facts: Mapping[str, Facts], *, archived: bool) -> Iterator[ListEntry]:
    """Yield the rows of ``entries``, agents after the branch they belong to.

    Args:
        entries: The result of a scan, with the branches of a session together.
        facts: The facts in the tables, by the branch's key.
        archived: Whether to include archived sessions with their agents.
    """
    for directory, branches in groupby(entries, key=lambda entry: entry.ref.session_dir):
        known = list(branches)
        active = _active_branch(directory, known)
        for entry in known:
            yield from _list_entry(entry, facts, None, entry.ref.branch_name == active, archived=archived)


def single_entry(ref: BranchRef, session: Mapping[str, Any] | None = None) -> ListEntry | None:
    """Return the row of one branch or agent, None if it is gone.

    Args:
        ref: The branch or agent.
        session: The last ``session`` row of its log; None reads it from the log.
    """
    stamps = stamps_of(ref.key)
    if not stamps.document and not stamps.journal:
        return None
    known = _from_files(ref, stamps) if session is None else _facts(stamps, session, session.get("agent"), None)
    is_current = not ref.is_agent and ref.branch_name == _linked_branch(ref.session_dir)
    return _entry(ref, known, stamps, is_current, str(ref.branch_dir.parent.parent) if ref.is_agent else None)


def _entry(ref: BranchRef, known: Facts, stamps: Stamps, is_current: bool, parent: str | None) -> ListEntry:
    written = max(mtime_ns(stamps.journal), mtime_ns(stamps.document))
    return {
        **paths.describe_branch(ref),
        "agent": ref.is_agent,
        "parent": parent,
        "title": known.title or None,
        "archived_at": known.archived_at,
        "preset": known.preset,
        "created": known.created,
        "updated": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(written // 1_000_000_000)),
        "current": is_current,
    }


def _list_entry(
    entry: Entry, facts: Mapping[str, Facts], parent: str | None, is_current: bool, *, archived: bool
) -> Iterator[ListEntry]:
    key = entry.ref.key
    stamps = stamps_of(key)
    known = facts.get(key)
    if known is None or known.stamps[:2] != stamps[:2]:
        known = _from_files(entry.ref, stamps)
    if known.archived_at is not None and not archived:
        return
    yield _entry(entry.ref, known, stamps, is_current, parent)
    for agent in entry.agents:
        yield from _list_entry(agent, facts, key, False, archived=archived)


def _active_branch(session_dir: Path, branches: list[Entry]) -> str:
    """Return the name of the active branch, by the rules of ``paths.ref_of``."""
    name = _linked_branch(session_dir)
    return name if any(entry.ref.branch_name == name for entry in branches) else paths.MAIN_BRANCH


def _linked_branch(session_dir: Path) -> str:
    """Return the name of the branch that a session's ``current`` link points to, even if that is missing."""
    try:
        target = os.readlink(f"{session_dir}/{paths.CURRENT_LINK}")  # noqa: PTH115 - a text is enough
    except OSError:
        return paths.MAIN_BRANCH
    home, _, name = target.rpartition("/")
    if home == paths.BRANCHES_DIR or paths.real(Path(session_dir, home)) == paths.branches_dir(session_dir):
        return name
    return paths.MAIN_BRANCH


def _from_files(ref: BranchRef, stamps: Stamps) -> Facts:
    plan = metadata.read_session_metadata(ref.branch_dir) or {}
    session = _session_row(paths.journal_file(ref.branch_dir))
    return _facts(stamps, session, plan.get("preset"), plan.get("created"))


def _facts(stamps: Stamps, session: Mapping[str, Any], preset: str | None, created: str | None) -> Facts:
    archived_at = session.get("archived_at")
    return Facts(
        stamps=stamps,
        title=str(session.get("title") or ""),
        archived_at=archived_at if isinstance(archived_at, int) else None,
        preset=preset or None,
        created=created,
    )


def _session_row(journal: Path) -> Mapping[str, object]:
    """Return the last ``session`` row of a log without reading its other rows."""
    try:
        content = regularfile.read_bytes(journal, limit=regularfile.LOG)
    except OSError:
        return {}
    end = len(content)
    while (found := content.rfind(_SESSION_ROW, 0, end)) >= 0:
        start = content.rfind(b"\n", 0, found) + 1
        row = row_of(content[start : (content.find(b"\n", found) + 1) or len(content)])
        if row is not None and row.type == "session":
            return row.data
        end = start  # a call may have thousands of such keys in its one row
    return {}


PAUSE_S = 0.15

_RUN = ("phase", "tools", "started_at", "message", "attempt", "max_attempts", "retry_at")


class Overview(Feature):
    """Sends changed rows to the clients that watch lists of sessions."""

    def __init__(self, kernel: "Kernel") -> None:
        super().__init__(kernel)
        self.watchers: set[Sink] = set()
        kernel.bus.on(BranchChanged, self._note_live, while_any=self.watchers)
        kernel.bus.on(RunEnded, self._note_live, while_any=self.watchers)
        kernel.bus.on(BranchWritten, self._written, while_any=self.watchers)
        kernel.bus.on(ClientGone, lambda gone: self.watchers.discard(gone.client))
        self._changed: dict[str, LiveBranch | BranchRef] = {}
        self._timer: asyncio.TimerHandle | None = None

    def _note_live(self, event: BranchChanged | RunEnded) -> None:
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
