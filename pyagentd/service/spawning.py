"""Agents spawned by a client instead of a model: ``jf/gptel-persistent-agent--task`` called from Lisp (SPEC 000).

Such an agent is one like any other but that its result goes to the client who asks for it, and not to its parent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from pyagentd.agent.delegating.results import outcome_of
from pyagentd.agent.delegating.spawn import MAX_DEPTH, Assignment, result_of
from pyagentd.agent.prompting.surroundings import workspace_root
from pyagentd.errors import BadRequest, NotFound, PyagentdError
from pyagentd.log import of_session
from pyagentd.service.group import Client, Group, described
from pyagentd.service.options import send_options
from pyagentd.store import paths

_log = logging.getLogger(__name__)


class Spawning(Group):
    """Agents for whoever wants one."""

    async def spawn(
        self,
        client: Client,
        *,
        branch: str,
        preset: str,
        description: str,
        prompt: str,
        allowed_paths: Sequence[str] = (),
        unrestricted: bool = False,
        denied_paths: Sequence[str] = (),
        env: Mapping[str, str] | Sequence[Any] = (),
        key: str | None = None,
        allow: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Start an agent under a branch or agent and say which; ``agent_result`` waits for its end.

        It may read what its parent may, or ``allowed_paths``, or with ``unrestricted`` everything.
        """
        parent = self._ref(branch)
        if len(paths.ancestors_of(parent)) >= MAX_DEPTH:
            raise BadRequest(f"Agents may be nested {MAX_DEPTH} deep", mend="Spawn it further up")
        options = send_options(client, env, key, allow)
        wanted = Assignment(
            preset=preset,
            description=description,
            prompt=prompt,
            read=() if unrestricted else tuple(allowed_paths) or None,
            deny=tuple(denied_paths),
        )
        async with self._host.using(parent) as live:
            await workspace_root(self._host, live)
            spawner = self._host.agents.spawner(live, options, run_id="")
            try:
                ref, _ = await spawner.launch(wanted)
            except PyagentdError as error:
                _log.error("agent %s: %s", preset, error, extra=of_session(parent.session_dir))
                raise
        return described(ref)

    async def agent_result(self, client: Client, *, branch: str) -> dict[str, Any]:
        """Wait until an agent has no run any more; return what its parent would be told: ``{ok, text}``."""
        async with self._host.using(self._ref(branch)) as live:
            while (task := live.task) is not None:
                await asyncio.wait([task])
            outcome = outcome_of(
                live.conversation, live.conversation.last_run, self._host.presets.of_branch(live.ref).result
            )
        if outcome is None:
            raise NotFound(f"{live.ref.session_id} has not run yet", mend="Send it something")
        result = result_of(outcome)
        return {"ok": result.ok, "text": result.text}
