"""Operations on contexts: conversations that are saved, cleared, taken up again, listed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyagentd.agent.lifecycle.contexts import KEPT
from pyagentd.errors import BadRequest, NotFound
from pyagentd.service.group import Client, Group
from pyagentd.service.options import send_options
from pyagentd.store.db import agents
from pyagentd.store.db.agents import ContextRow


class ContextOperations(Group):
    """The conversations of a session or a named agent, one after the other."""

    async def context_save(
        self,
        client: Client,
        *,
        branch: str,
        description: str = "",
        env: Mapping[str, str] | Sequence[Any] = (),
        key: str | None = None,
    ) -> dict[str, Any]:
        """Save the conversation, which goes on; without ``description`` a model says what it is about."""
        options = send_options(client, env, key, ())
        async with self._host.using(self._ref(branch)) as live:
            return _told(await self._host.contexts.save(live, description, options=options))

    async def context_clear(self, client: Client, *, branch: str) -> dict[str, Any]:
        """Put the conversation behind a boundary without saving it: the next message begins another."""
        async with self._host.using(self._ref(branch)) as live:
            cleared = await self._host.contexts.clear(live)
        return {"messages": cleared.messages, "note": KEPT}

    async def context_restore(self, client: Client, *, branch: str, id: str) -> dict[str, Any]:
        """Let the saved conversation ``id``, or which begins like that, go on in the place of the present one."""
        async with self._host.using(self._ref(branch)) as live:
            return _told(await self._host.contexts.restore(live, id))

    async def context_get(self, client: Client, *, branch: str, id: str) -> dict[str, Any]:
        """Return the saved conversation of a branch's session or agent whose id is, or begins with, ``id``."""
        return _told(await self._host.contexts.archive.get(self._ref(branch), id))

    async def context_history(
        self, client: Client, *, branch: str | None = None, agent: str | None = None
    ) -> dict[str, Any]:
        """Return the saved conversations of a branch's session or agent, the last one first.

        ``agent`` names an agent that may be gone: the records of its conversations are kept. One whose ``gone`` is
        true has lost its file, and cannot be restored until that is put back.
        """
        if (branch is None) == (agent is None):
            raise BadRequest("Name a branch or an agent")
        archive = self._host.contexts.archive
        found = await archive.known(agent) if agent else await archive.history(self._ref(branch or ""))
        if agent and not found and await asyncio.to_thread(agents.find, self._host.state, agent) is None:
            raise NotFound(f"There is, and was, no agent called {agent[:80]!r}", mend="/agent list shows them")
        gone = await asyncio.to_thread(_gone, found)
        return {"contexts": [{**_told(row), "gone": row.file_path in gone} for row in found]}


def _gone(rows: Sequence[ContextRow]) -> set[str]:
    """Return the files that are not there; blocks."""
    return {row.file_path for row in rows if not Path(row.file_path).is_file()}


def _told(row: ContextRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "agent_name": row.agent_name,
        "description": row.description,
        "saved_at": row.saved_at,
        "trigger": row.trigger,
        "message_count": row.message_count,
        "file": row.file_path,
    }
