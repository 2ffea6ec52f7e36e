"""Copies of branches, agents and whole sessions, while others may be writing in the originals.

A session's copy is a session of its own: it has another id, everywhere an id of the session stands in its metadata
and logs. Messages and agents keep theirs; messages say what they are copies of, so that what they cost counts once,
where it was spent.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from pyagentd import clock as ids
from pyagentd.clock import Clock, epoch_ms, iso8601, stamp
from pyagentd.log import of_session
from pyagentd.store import atomic, lineage, metadata, paths
from pyagentd.store.journal import Journal, Row, read_rows
from pyagentd.store.paths import BranchRef
from pyagentd.store.sessions import built

_ATTEMPTS = 5
_STAMP = re.compile(r"-\d{8,14}(-\d+)?$")

_log = logging.getLogger(__name__)


def duplicate_session(source: BranchRef, *, root: Path, name: str | None = None, clock: Clock) -> BranchRef:
    """Make a copy of the session that ``source`` belongs to: all branches, agents and files, lineage, active branch.

    Args:
        source: Any branch of it.
        root: The sessions root, where the copy will live.
        name: What the copy is called; without one it is "<title> copy".
        clock: For the id and the metadata.

    Returns:
        The copy of the active branch, or of ``source`` if none is active.

    Raises:
        StoreError: The disk refused; nothing is left behind.
    """
    now = clock.now()
    title = name or _title_of_copy(source)
    wanted = ids.session_id(title or f"{_STAMP.sub('', source.session_id)} copy", stamp(now))
    with built(root, wanted) as (draft, place):
        home = paths.branches_dir(draft)
        atomic.make_dirs(home)
        copied = [ref.branch_name for ref in lineage.branches(source.session_dir)]
        for branch in copied:
            copy_settled(paths.branch_dir(source.session_dir, branch), home / branch)
            _rename(home / branch, old=source.session_id, new=place.name, title=title, now=now)
        active = lineage.active(source.session_dir) or source.branch_name
        atomic.replace_link(paths.current_link(draft), f"{paths.BRANCHES_DIR}/{active}")
    _log.info("Created session directory: %s", place, extra=of_session(place))
    return BranchRef(
        session_id=place.name,
        session_dir=place,
        branch_name=active,
        branch_dir=paths.branch_dir(place, active),
    )


def copy_settled(source: Path, target: Path) -> None:
    """Copy an agent or a branch; if its documents change meanwhile, again, so that document and log agree.

    Raises:
        StoreError: The disk refused.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        known = _states(source)
        atomic.copy_tree(source, target, last=paths.JOURNAL_FILE)
        if _states(source) == known or attempt == _ATTEMPTS:
            return
        atomic.discard(target)


def _states(directory: Path) -> list[tuple[Path, int, int]]:
    """Return which documents there are below ``directory``, and in which state."""
    found = []
    for file in sorted(directory.rglob(paths.SESSION_FILE)):
        try:
            status = file.stat()
        except OSError:
            continue
        found.append((file, status.st_ino, status.st_mtime_ns))
    return found


def _title_of_copy(source: BranchRef) -> str:
    titles = [row.data.get("title") for row in _rows(source.branch_dir) if row.type == "session"]
    return f"{titles[-1]} copy" if titles and titles[-1] else ""


def _rename(branch_dir: Path, *, old: str, new: str, title: str, now: datetime) -> None:
    """Make a copied branch, and the agents in it, one of session ``new``."""
    times = {"created": iso8601(now), "updated": iso8601(now)}
    metadata.set_scope_plan_values(branch_dir, {"session_id": new, **times})
    facts = [(row.type, _renamed(row, old, new)) for row in _rows(branch_dir)]
    sessions = [data for type, data in facts if type == "session"]
    if sessions:
        at = epoch_ms(now)
        # What a human granted to a session is not granted to its copy.
        changed: dict[str, Any] = {"title": title, "archived_at": None, "permissions_json": []}
        facts.append(("session", {**sessions[-1], **changed, "created_at": at, "updated_at": at}))
    _write(branch_dir, facts)
    _adopt_all(branch_dir, old=old, new=new)


def _adopt_all(parent_dir: Path, *, old: str, new: str) -> None:
    for plan in paths.agents_dir(parent_dir).glob(f"*/{paths.SCOPE_PLAN_FILE}"):
        _adopt(plan.parent, old=old, new=new)
        _adopt_all(plan.parent, old=old, new=new)


def _adopt(agent_dir: Path, *, old: str, new: str) -> None:
    """Give an agent another parent; the agents below it have an agent for a parent."""
    if (metadata.read_session_metadata(agent_dir) or {}).get("parent_session_id") == old:
        metadata.set_scope_plan_values(agent_dir, {"parent_session_id": new})
    rows = _rows(agent_dir)
    _write(agent_dir, [(row.type, _renamed(row, old, new)) for row in rows])


def _renamed(row: Row, old: str, new: str) -> Mapping[str, Any]:
    keys = ("id", "session_id", "parent_id") if row.type == "session" else ("session_id",)
    data = {key: new if key in keys and value == old else value for key, value in row.data.items()}
    known = data.get("metadata_json") or {}
    if row.type == "message" and isinstance(known, Mapping):
        data["metadata_json"] = {"copied_from": data.get("id"), **known}  # the first one, of a copy of a copy
    return data


def _rows(branch_dir: Path) -> list[Row]:
    return read_rows(paths.journal_file(branch_dir))


def _write(branch_dir: Path, facts: list[tuple[str, Mapping[str, Any]]]) -> None:
    """Write a log anew, in place of the one that was copied."""
    file = paths.journal_file(branch_dir)
    if not facts:
        return
    atomic.write_bytes(file, b"")
    journal = Journal.open(file)
    try:
        journal.append_many(facts)
        journal.sync()
    finally:
        journal.close()
