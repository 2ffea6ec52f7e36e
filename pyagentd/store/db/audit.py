"""The audit in ``state.db``: every decision about a tool call, appended and never changed.

The rows are the only copy: deleting a session keeps its rows, and a row that cannot be written now is written later
(``runtime/grants.py``).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from pyagentd.store.db.state import State, Table

Decided = Literal["allow", "ask_approved", "ask_denied", "deny"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One decision; the fields are the columns of ``audit``."""

    at_ms: int  # epoch
    session: str  # id of the session at the root of the tree
    branch_dir: str  # of the branch or agent that acted: below the sessions root, or absolute
    agent: str | None  # the agent's id; None: the session itself acted
    run_id: str
    tool: str
    action: str
    decision: Decided
    rule: str  # what decided: "scope", "grant REGEX", "protected"…; "human"
    reason: str = ""  # of a denial, as the model was told; of a human's decision, what they said
    by: str | None = None  # the client through which a human decided
    detail: str | None = None  # JSON: what was changed, old and new
    user: str | None = None  # who triggered or approved it, where that is known
    id: int | None = field(default=None, compare=False)  # its number, once it is written


_AUDIT = Table("audit", Entry)


def append(state: State, entries: Iterable[Entry]) -> None:
    """Write ``entries``, all or none; raises as ``State.writing``."""
    with state.writing() as db:
        _AUDIT.insert(db, entries)


def latest(
    state: State, *, within: str = "", session: str = "", limit: int, before: int | None = None
) -> list[Entry]:
    """Return the last entries, the newest first; raises as ``State.reading``.

    Args:
        state: The database.
        within: Only entries of the branch with this ``branch_dir`` and of the agents below; "" is all.
        session: Only entries of the session with this id and of the agents below; "" is all.
        limit: The most entries to return.
        before: Only entries with a smaller number.
    """
    conditions: list[str] = []
    values: list[str | int] = []
    if within:
        conditions.append("(branch_dir = ? OR substr(branch_dir, 1, ?) = ?)")
        values += [within, len(within) + 1, f"{within}/"]
    if session:
        conditions.append("session = ?")
        values.append(session)
    if before is not None:
        conditions.append("id < ?")
        values.append(before)
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    return _AUDIT.select(state, f"{where} ORDER BY id DESC LIMIT ?", (*values, limit))
