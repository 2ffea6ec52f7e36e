"""Destroying a named agent: SPEC 003 Destruction Flow, step by step.

Its conversation is saved before anything else, its row says that it is gone before its files are touched, and
whatever a daemon leaves half done the next one completes (``recovering``, which knows the intents ``remove`` and
``leave``, each with the directory's ``identity``). Records of it are kept: its row, those of its saved conversations,
the audit.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, assert_never

from pyagentd.agent.lifecycle import configuring, creating
from pyagentd.clock import epoch_ms
from pyagentd.errors import Busy, StoreError
from pyagentd.store import metadata, named_agents, paths, trash
from pyagentd.store.db import agents
from pyagentd.store.db.agents import AgentRow, ContextRow
from pyagentd.store.paths import BranchRef

if TYPE_CHECKING:
    from pyagentd.agent.host import Host

Files = Literal["kept", "trashed", "deleted"]
"""What became of an agent's directory; ``deleted``: there is no trash for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Destroyed:
    """What was done."""

    name: str
    directory: Path
    files: Files
    saved: tuple[ContextRow, ...]  # the conversations that went on, one a branch
    gone: tuple[BranchRef, ...]  # branches and sub-agents that there were

    @property
    def text(self) -> str:
        """What people are told."""
        match self.files:
            case "kept":
                where = f"Its files are kept in {self.directory}: `pyagentd agent init {self.name}` takes them up"
            case "trashed":
                where = f"{self.directory} is in the trash"
            case "deleted":
                where = f"{self.directory} was deleted: there is no trash for it"
            case _:
                assert_never(self.files)
        return f"Destroyed the agent {self.name}. {where}."


async def destroy(host: Host, name: str, *, keep_files: bool, user: str) -> Destroyed:
    """End an agent with all it does, and remove its directory or leave it.

    Args:
        host: Where it lives.
        name: Of the agent.
        keep_files: Leave its directory as it is, to be taken up again by another creation.
        user: Who wants that, for the audit.

    Raises:
        BadRequest, NotFound: As ``creating.agent_dir``.
        Busy: It is being destroyed already, or the daemon stops.
        StoreError: The disk refused; the agent is there, although what it was doing has ended.
    """
    return await asyncio.shield(host.own(_destroy(host, name, keep_files, user)))


async def _destroy(host: Host, name: str, keep_files: bool, user: str) -> Destroyed:
    place = await asyncio.to_thread(creating.agent_dir, host, name)
    if host.closing:
        raise Busy("The daemon is stopping", mend="Try again in a moment")
    timelines = metadata.branches(place)
    gone = tuple(each for timeline in timelines for each in metadata.with_agents(timeline))
    saved: list[ContextRow] = []
    async with AsyncExitStack() as held:
        branches = [await held.enter_async_context(host.using(timeline)) for timeline in timelines]
        async with host.removing(place, stop=host.abort):
            for branch in branches:
                if (kept := await host.contexts.keep(branch, "destroy")) is not None:
                    saved.append(kept)
            await host.tasks.end_within(place)
            await held.aclose()
            async with creating.naming:
                row = await _row(host, name, place)
                now_ms, intent = epoch_ms(host.clock.now()), "leave" if keep_files else "remove"
                noted = f"{intent} {await asyncio.to_thread(identity, place)}"
                await asyncio.to_thread(agents.set_status, host.state, name, "destroyed", now_ms=now_ms, intent=noted)
                files = await complete(host, row, intent, user=user)
    return Destroyed(name=name, directory=place, files=files, saved=tuple(saved), gone=gone)


async def complete(host: Host, row: AgentRow, intent: str, *, user: str) -> Files:
    """Do what is left of the end of an agent whose row says that it is gone.

    Args:
        host: Where it lived.
        row: Of it as it was.
        intent: ``remove`` its files, or ``leave`` them.
        user: Who wanted that.

    Raises:
        StoreError: The disk refused; its row is what it was.
    """
    place = Path(row.dir)
    host.departed.add(place)
    files: Files = "kept"
    if intent == "remove":
        try:
            files = await asyncio.to_thread(_removed, place)
        except StoreError:
            await asyncio.to_thread(agents.put, host.state, row)
            if row.status != "destroyed":
                host.departed.discard(place)
            raise
    host.idling.forget(place)
    await host.schedules.forget(place)
    configuring.note(host, row.name, "destroy", old=None, new={"files": files}, user=user)
    await asyncio.to_thread(host.ledger.flush)  # a daemon that is killed from here on has it audited
    await asyncio.to_thread(agents.intend, host.state, row.name, None)
    return files


def identity(place: Path) -> str:
    """Return what tells a directory from another one there, and from itself once it was moved away and back; blocks.

    It is "" where there is none. Moving a directory changes its ctime, on the same disk it stays the same inode.
    """
    try:
        found = place.lstat()
    except OSError:
        return ""
    return f"{found.st_dev}.{found.st_ino}.{found.st_ctime_ns}"


def _removed(place: Path) -> Files:
    """Move a directory to the trash, or delete it where there is none; blocks. Raises ``StoreError``: it is there."""
    has_trash = trash.has_trash(place.parent)
    if place.is_dir():  # a daemon that was killed may have come so far
        (trash.move_to_trash if has_trash else trash.delete)(place)
    return "trashed" if has_trash else "deleted"


async def _row(host: Host, name: str, place: Path) -> AgentRow:
    """Return the row of an agent; one whose directory is older than the database gets it."""
    row = await asyncio.to_thread(agents.find, host.state, name)
    if row is None:
        row = creating.row_of(host, named_agents.read(place), paths.ref_of(place), status="idle")
        await asyncio.to_thread(agents.put, host.state, row)
    return row
