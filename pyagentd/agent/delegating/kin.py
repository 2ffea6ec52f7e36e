"""Which agents live under a branch, and what their logs say of where they come from; reads, blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyagentd.errors import StoreError
from pyagentd.store import atomic, paths
from pyagentd.store.journal import row_of
from pyagentd.store.paths import BranchRef

_HEAD = 64 * 1024  # bytes; the session's row is among the first


def children(ref: BranchRef) -> list[BranchRef]:
    """Return the agents right under a branch, by name."""
    home = paths.agents_dir(ref.branch_dir)
    try:
        places = sorted(home.iterdir())
    except OSError:  # none
        return []
    return [paths.agent_ref(place) for place in places if paths.session_file(place).is_file()]


def child_of_call(ref: BranchRef, call_id: str) -> BranchRef | None:
    """Return the agent that the tool call ``call_id`` of a branch spawned."""
    return next((child for child in children(ref) if session_row(child).get("parent_call_id") == call_id), None)


def session_row(ref: BranchRef) -> Mapping[str, Any]:
    """Return the first ``session`` row of an agent's log: how it was made; {} when there is none."""
    return next(_session_rows(ref), {})


def _session_rows(ref: BranchRef) -> Iterator[Mapping[str, Any]]:
    log = paths.journal_file(ref.branch_dir)
    try:
        fd = atomic.open_read(log)
    except (FileNotFoundError, StoreError):
        return
    try:
        head = atomic.read_fd(fd, _HEAD, 0, log)
    finally:
        atomic.close_fd(fd)
    for line in head.split(b"\n"):
        if (row := row_of(line)) is not None and row.type == "session":
            yield row.data
