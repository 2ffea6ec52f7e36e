"""Operations on who answers: the agents there are for the next turn, and approving a plan (spec 002)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyagentd.agent.branches.branch import LiveBranch
from pyagentd.agent.host import Host
from pyagentd.agent.prompting.surroundings import skills_of
from pyagentd.agent.turns import turnagent
from pyagentd.agent.turns.queue import Submission
from pyagentd.errors import BadRequest
from pyagentd.service.group import Client, Group, directory
from pyagentd.service.options import send_options, told_submitted

APPROVED = "Approved, continue."
"""What the user's message says that approves a plan; the guide's words."""

BUILD = "build"

_DESCRIPTION = 300  # characters of one, as far as they are told


class TurnAgents(Group):
    """The agents of turns."""

    async def agents_available(self, client: Client, *, branch: str) -> dict[str, Any]:
        """Return which agents the next turn of a branch may have.

        The answer is ``{agent, opened_with, plan, agents: (A…)}``: the name of the next turn's and of the session's
        own, whether that turn can only look, and for each A ``{name, description, model, read_only, origin}``.
        """
        async with self._host.using(self._ref(branch)) as live:
            root = live.conversation.session.get("workspace_root")
            presets = await asyncio.to_thread(self._host.presets.for_project, Path(root) if root else None)
            agents = {} if live.ref.is_agent else await asyncio.to_thread(turnagent.available, presets)
            rows = [
                {
                    "name": name,
                    "description": preset.description[:_DESCRIPTION],
                    "model": preset.model or None,
                    "read_only": preset.read_only,
                    "origin": presets.usable[name].origin,
                }
                for name, preset in agents.items()
            ]
            return {**turnagent.told(self._host.presets, live.ref, live.conversation), "agents": rows}

    async def approve(
        self,
        client: Client,
        *,
        branch: str,
        agent: str = BUILD,
        env: Mapping[str, str] | Sequence[Any] = (),
        key: str | None = None,
        allow: Sequence[str] = (),
        id: str | None = None,
    ) -> dict[str, Any]:
        """Approve the plan in a branch: the user's message that says so, answered by ``agent``.

        It is a message like any that is typed: it waits for its turn while a run is in flight, and no trigger.
        """
        options = send_options(client, env, key, allow)
        async with self._host.using(self._ref(branch)) as live:
            _require_plan(self._host, live)
            given = Submission(text=APPROVED, options=options, id=id, metadata={"agent": agent})
            made = await self._host.submit(live, given)
        return told_submitted(made)

    async def skills(self, client: Client, *, root: str | None = None) -> dict[str, Any]:
        """Return the skills for sessions in the project ``root``.

        The answer is ``{skills: (S…), hidden: (H…), broken: (B…)}``: S is ``{name, description, file, origin}``, H
        ``{name, file, by}`` with the file that counts instead, B ``{file, error}``, which names the line.
        """
        found = await asyncio.to_thread(lambda: skills_of(self._host.config, directory(root) if root else None))
        return {
            "skills": [
                {"name": s.name, "description": s.description, "file": str(s.file), "origin": s.origin}
                for s in found.found.values()
            ],
            "hidden": [{"name": s.name, "file": str(s.file), "by": str(by.file)} for s, by in found.hidden],
            "broken": [{"file": str(file), "error": str(error)} for file, error in found.broken],
        }


def _require_plan(host: Host, live: LiveBranch) -> None:
    """Raise ``BadRequest`` where there is no plan to approve."""
    if not turnagent.told(host.presets, live.ref, live.conversation)["plan"]:
        raise BadRequest(
            f"{live.ref.session_id} is not in plan mode", mend="Say what is to be done in a message of your own"
        )
    if not any(each.role == "assistant" and not each.is_hidden for each in live.conversation.messages.values()):
        raise BadRequest(f"{live.ref.session_id} has no plan yet", mend="Ask for one first")
