"""Operations on branches: where one can begin, making, listing and switching them."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from pyagentd.agent.branches.branch import LiveBranch
from pyagentd.errors import Busy, StoreError
from pyagentd.service.group import Client, Group, described
from pyagentd.store import branching, metadata, paths
from pyagentd.store import metadata as lineage
from pyagentd.store.branching import BranchPoint
from pyagentd.store.metadata import Node

_SHOWN = 200  # characters of a prompt


class Branches(Group):
    """The timelines of a session."""

    async def branch_points(self, client: Client, *, branch: str) -> dict[str, Any]:
        """Return the user's prompts in the saved document, in order; positions as in Emacs, from 1."""
        ref = self._ref(branch)
        async with self._host.using(ref) as live:
            with contextlib.suppress(StoreError):  # what is saved can be looked at all the same
                live.recorder.flush()
                await live.keeper.flush()
            found = await asyncio.to_thread(branching.read_outline, ref)
        return {"points": [_told_point(point) for point in found.points]}

    async def branch(
        self,
        client: Client,
        *,
        branch: str,
        at: str | None = None,
        position: int | None = None,
        exclude: bool = False,
        name: str = branching.DEFAULT_NAME,
    ) -> dict[str, Any]:
        """Make a branch behind a prompt, or before it with ``exclude``; the prompt is the last one unless named.

        ``at`` names it by its message, ``position`` by an Emacs position inside it.
        """
        parent = self._ref(branch)
        async with self._host.using(parent) as live:
            missing_run = await _settled(live)
            made = await asyncio.to_thread(
                branching.create_branch,
                parent,
                message_id=at,
                offset=None if position is None else position - 1,
                include=not exclude,
                name=name,
                missing_run=missing_run,
                clock=self._host.clock,
            )
        self._touch(parent, made)
        self._registry.add(made)
        self._tell_written(*lineage.with_agents(made))
        told = metadata.read_branch_metadata(made.branch_dir) or {}
        return {**described(made), "parent": parent.branch_name, "position": told["branch_point_position"]}

    async def branches(self, client: Client, *, branch: str) -> dict[str, Any]:
        """Return the branches of a session as a tree: each after its parent, one level deeper."""
        nodes = await asyncio.to_thread(lineage.tree, self._ref(branch).session_dir)
        return {"branches": [_told_node(node) for node in nodes]}

    async def switch(self, client: Client, *, branch: str) -> dict[str, Any]:
        """Make a branch the active one of its session."""
        ref = self._ref(branch)
        branching.switch(ref)
        self._touch(ref)
        return described(ref)


async def _settled(live: LiveBranch) -> str | None:
    """Bring what was recorded into the document, and return the run whose text it lacks all the same.

    Raises:
        StoreError: The disk refused.
    """
    live.recorder.flush()
    await live.keeper.flush()
    if live.run is None and not live.keeper.complete:
        with contextlib.suppress(Busy):  # its editor does not save
            await live.keeper.settle()
    run = live.conversation.last_run
    return None if run is None or live.keeper.complete else str(run.data["id"])


def _told_point(point: BranchPoint) -> dict[str, Any]:
    return {
        "number": point.number,
        "message_id": point.message_id,
        "start": point.start + 1,
        "end": point.end + 1,
        "text": point.text[:_SHOWN],
    }


def _told_node(node: Node) -> dict[str, Any]:
    return {
        "name": node.ref.branch_name,
        "branch": node.ref.key,
        "branch_dir": str(node.ref.branch_dir),
        "file": str(paths.session_file(node.ref.branch_dir)),
        "parent": node.parent,
        "created": node.created,
        "position": node.position,
        "current": node.current,
        "depth": node.depth,
        "last": node.last,
        "agents": len(lineage.agents(node.ref)),
    }
