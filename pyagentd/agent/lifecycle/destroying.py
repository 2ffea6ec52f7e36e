"""Destroying a named agent: SPEC 003 Destruction Flow, step by step.

Its conversation is saved before anything else, its row says that it is gone before its files are touched, and
whatever a daemon leaves half done the next one completes (``recovering``). Records of it are kept: its row, those of
its saved conversations, the audit.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, assert_never

from pyagentd.agent.lifecycle import configuring, creating
from pyagentd.clock import epoch_ms
from pyagentd.errors import StoreError
from pyagentd.store import lineage, paths, trash
from pyagentd.store.index import agents
from pyagentd.store.index.agents import AgentRow
from pyagentd.store.index.contexts import ContextRow
from pyagentd.store.namedagents import agentfile
from pyagentd.store.paths import BranchRef

if TYPE_CHECKING:
    from pyagentd.agent.host import Host

Files = Literal["kept", "trashed", "deleted"]
"""What became of an agent's directory; ``deleted``: there is no trash for it."""

REMOVE = "remove"
"""The intent of an agent whose files are to go."""


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
        Busy: It is being destroyed, or begins to answer just now.
        StoreError: The disk refused; the agent is there, although what it was doing has ended.
    """
    place = await asyncio.to_thread(creating.agent_dir, host, name)
    timelines = lineage.branches(place)
    gone = tuple(each for timeline in timelines for each in lineage.with_agents(timeline))
    saved: list[ContextRow] = []
    async with AsyncExitStack() as held:
        branches = [await held.enter_async_context(host.using(timeline)) for timeline in timelines]
        async with host.removing(place, stop=host.abort):
            for branch in branches:
                if (row := await host.contexts.keep(branch, "destroy")) is not None:
                    saved.append(row)
            await host.tasks.end_within(place)
            await held.aclose()
            files = await _leave(host, name, place, keep_files=keep_files)
    host.idling.forget(place)
    await host.schedules.forget(place)
    configuring.note(host, name, "destroy", old=None, new={"files": files}, user=user)
    return Destroyed(name=name, directory=place, files=files, saved=tuple(saved), gone=gone)


async def _leave(host: Host, name: str, place: Path, *, keep_files: bool) -> Files:
    """Have the table of agents say that one is gone, then see to its files."""
    row = await asyncio.to_thread(agents.find, host.state, name)
    now_ms = epoch_ms(host.clock.now())
    intent = None if keep_files else REMOVE
    if row is None:  # its directory is older than the database
        row = creating.row_of(host, agentfile.read(place), paths.ref_of(place), status="idle")
        await asyncio.to_thread(agents.put, host.state, row)
    await asyncio.to_thread(agents.set_status, host.state, name, "destroyed", now_ms=now_ms, intent=intent)
    if keep_files:
        host.departed.add(place)
        return "kept"
    return await asyncio.shield(host.own(_removed(host, row, place)))


async def _removed(host: Host, row: AgentRow, place: Path) -> Files:
    try:
        files = await asyncio.to_thread(remove, place)
    except StoreError:
        await asyncio.to_thread(agents.put, host.state, row)  # as it was
        raise
    await asyncio.to_thread(agents.intend, host.state, row.name, None)
    return files


def remove(place: Path) -> Files:
    """Move a directory to the trash, or delete it where there is none; blocks. Raises ``StoreError``: it is there."""
    if trash.has_trash(place):
        trash.move_to_trash(place)
        return "trashed"
    trash.delete(place)
    return "deleted"
