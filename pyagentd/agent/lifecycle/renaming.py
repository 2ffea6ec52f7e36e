"""Giving a named agent another name: its directory, its session's id and what was recorded of it follow.

Nothing may go on in it meanwhile: no run, no task, no schedule. What the disk refuses half-way is taken back.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from pyagentd import regularfile
from pyagentd.agent.lifecycle import configuring, creating
from pyagentd.agent.prompting import surroundings
from pyagentd.errors import Busy, Conflict
from pyagentd.store import atomic, metadata, named_agents, paths
from pyagentd.store import metadata as lineage
from pyagentd.store.db import agents
from pyagentd.store.db.state import State
from pyagentd.store.paths import BranchRef

if TYPE_CHECKING:
    from pyagentd.agent.host import Host


RENAME, RENAMED = "rename", "renamed"
"""Intents, followed by a name: that an agent is to get, and that it had."""


async def rename(host: Host, name: str, new_name: str, *, user: str) -> BranchRef:
    """Call the agent ``name`` ``new_name`` and return its active branch.

    Raises:
        BadRequest, NotFound: As ``creating.agent_dir``.
        Conflict: There is something of that name.
        Busy: It is answering, a task of it runs, or turns of it are scheduled.
        StoreError: The disk refused; it has its old name.
    """
    named_agents.checked(new_name)
    old = await asyncio.to_thread(creating.agent_dir, host, name)
    new = old.parent / new_name
    if name == new_name:
        return paths.ref_of(old)
    await asyncio.to_thread(_require_rest, host.state, name, old)
    async with creating.naming, host.removing(old, to=new):
        await asyncio.to_thread(creating.require_other_letters, host, new_name, besides=name)
        await asyncio.to_thread(_require_free, host, new)
        await asyncio.to_thread(_move, host, old, new)
    return await follow(host, old, new, user=user)


async def follow(host: Host, old: Path, new: Path, *, user: str) -> BranchRef:
    """Have what knows an agent by its directory follow, when that has moved; return its active branch."""
    ref = paths.ref_of(new)
    host.departed.discard(new)
    host.origins.made(ref)
    for timeline in lineage.branches(new):
        for each in lineage.with_agents(timeline):
            async with host.using(each) as branch:
                root = str(branch.conversation.session.get("workspace_root") or named_agents.workspace_dir(new))
                branch.record_session(workspace_root=Path(_moved(root, old, new)))
                await surroundings.renew(host, branch)
    host.idling.moved(old, new)
    configuring.note(host, new.name, "config:name", old=old.name, new=new.name, user=user)
    await asyncio.to_thread(host.ledger.flush)  # a daemon that is killed from here on has it audited
    await asyncio.to_thread(agents.intend, host.state, new.name, None)
    return ref


def _require_free(host: Host, new: Path) -> None:
    row = agents.find(host.state, new.name)
    taken = new.exists() or new.is_symlink() or (row is not None and row.status != "destroyed")
    if taken or (host.config.sessions_dir / new.name / paths.BRANCHES_DIR).is_dir():
        raise Conflict(f"Something is called {new.name!r} already", mend="Take another name")


def _require_rest(state: State, name: str, directory: Path) -> None:
    with state.reading() as db:
        running = db.execute("SELECT count(*) FROM tasks WHERE agent_name = ? AND status = 'running'", (name,))
        tasks = running.fetchone()[0]
        below = (str(directory), len(str(directory)) + 1, f"{directory}/")
        due = db.execute("SELECT count(*) FROM schedules WHERE branch_dir = ? OR substr(branch_dir, 1, ?) = ?", below)
        schedules = due.fetchone()[0]
    if tasks:
        raise Busy(f"{name} has {tasks} running task{'' if tasks == 1 else 's'}", mend="Wait for them, or kill them")
    if schedules:
        raise Busy(
            f"{name} has {schedules} scheduled turn{'' if schedules == 1 else 's'}",
            mend="Remove them first: pyagentd schedule",
        )


def _move(host: Host, old: Path, new: Path) -> None:
    """Move everything; blocks."""
    agents.intend(host.state, old.name, f"{RENAME} {new.name}")
    try:
        atomic.move(old, new)
        try:
            adapt(host, old, new)
        except BaseException:
            _rewrite(new, old=new, new=old)
            atomic.move(new, old)
            raise
    except BaseException:
        agents.intend(host.state, old.name, None)
        raise


def adapt(host: Host, old: Path, new: Path) -> None:
    """Have the files of an agent whose directory has moved, and the database, say so; blocks."""
    row = agents.find(host.state, old.name)
    _rewrite(new, old=old, new=new)
    status = row.status if row is not None else "idle"
    made = creating.row_of(
        host, named_agents.read(new), paths.ref_of(new), status=status, intent=f"{RENAMED} {old.name}"
    )
    agents.rename(host.state, old.name, made, old_dir=str(old))


def _rewrite(place: Path, *, old: Path, new: Path) -> None:
    """Have the files in ``place`` say ``new`` where they say ``old``."""
    named_agents.change(place, {"name": new.name})
    for branch in sorted(paths.branches_dir(place).iterdir()):
        if not branch.is_dir() or branch.is_symlink():
            continue
        metadata.set_scope_plan_values(branch, {"session_id": new.name})
        for plan in branch.glob(f"{paths.AGENTS_DIR}/*/{paths.SCOPE_PLAN_FILE}"):
            metadata.set_scope_plan_values(plan.parent, {"parent_session_id": new.name})
        for preset in branch.rglob(paths.PRESET_FILE):
            text = regularfile.read_text(preset)
            if (changed := text.replace(f"{old}/", f"{new}/")) != text:
                atomic.write_text(preset, changed)


def _moved(path: str, old: Path, new: Path) -> str:
    return f"{new}{path[len(str(old)) :]}" if path == str(old) or path.startswith(f"{old}/") else path
