"""Operations on the agents of a session: which there are, what they did, and stopping one."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from pyagentd.agent.delegating.tree import Open, agents_below
from pyagentd.errors import Ambiguous, NotFound, PyagentdError
from pyagentd.policy.presets import Result
from pyagentd.service.group import INLINE_LIMIT, Client, Group
from pyagentd.store.atomic import write_bytes
from pyagentd.store.paths import BranchRef
from pyagentd.wire.sexp import encode


class Agents(Group):
    """The tree below one branch."""

    async def agents(self, client: Client, *, branch: str, form: str = "sexp") -> dict[str, Any]:
        """Return the agents of a branch as a tree: ``{agents: (A…)}``, or a large one as ``{path: FILE}``.

        A has ``id``, ``branch``, ``branch_dir``, ``preset``, ``description``, ``state`` ("running", "waiting",
        "finished", "aborted", "error", "idle"), ``background``, ``call_id``, ``tokens``, ``result`` and ``agents``,
        its own. FILE is an s-expression or, with ``form`` "json", JSON.
        """
        ref = self._ref(branch)
        found = await self._tree(ref)
        data = json.dumps({"agents": found}).encode() if form == "json" else encode({"agents": found})
        if len(data) < INLINE_LIMIT:
            return {"agents": found}
        path = self._host.config.runtime_dir / f"agents-{ref.session_id}-{ref.branch_name}.{form}"
        await asyncio.to_thread(write_bytes, path, data, fsync=False)
        return {"path": str(path)}

    async def abort_agent(self, client: Client, *, branch: str, agent: str) -> dict[str, Any]:
        """Stop one agent below a branch, named by its id or the beginning of one, and all below it."""
        ids = {each["id"]: each["branch"] for each in _flat(await self._tree(self._ref(branch)))}
        meant = [agent] if agent in ids else [id for id in ids if id.startswith(agent)]
        if not meant:
            raise NotFound(f"{branch} has no agent {agent}", mend="See: pyagentd agents SESSION")
        if len(meant) > 1:
            raise Ambiguous(f"{agent} fits {', '.join(meant)}", mend="Give more of the id")
        live = self._host.opened(ids[meant[0]])
        return {"id": meant[0], "aborted": live is not None and await self._host.abort(live)}

    async def _tree(self, ref: BranchRef) -> list[dict[str, Any]]:
        opened = {
            live.key: Open(str(live.status["state"]), live.conversation.snapshot())
            for live in self._host.inside(ref.branch_dir)
        }
        return await asyncio.to_thread(agents_below, ref, opened, self._wanted)

    def _wanted(self, ref: BranchRef) -> Result:
        try:
            return self._host.presets.of_branch(ref).result
        except PyagentdError:
            return "all"


def _flat(agents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for agent in agents for each in (agent, *_flat(agent["agents"]))]
