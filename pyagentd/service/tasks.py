"""Operations on commands in the background (SPEC 003 Running Tasks)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyagentd.agent.lifecycle import worktree
from pyagentd.agent.running.settings import provider_of
from pyagentd.agent.tasks import telling
from pyagentd.agent.tasks.standing import standing
from pyagentd.agent.turns.turnagent import answers_next
from pyagentd.clock import iso8601
from pyagentd.errors import NotFound, PyagentdError
from pyagentd.service.group import Client, Group, name_of
from pyagentd.service.options import send_options
from pyagentd.store import contexts, named_agents, paths
from pyagentd.store.db import agents
from pyagentd.store.db.tasks import Task
from pyagentd.store.document import hidden

_SHOWN_BYTES = 30_000


class TaskOperations(Group):
    """What runs behind conversations."""

    async def tasks(self, client: Client, *, branch: str | None = None, watch: bool = False) -> dict[str, Any]:
        """Return the tasks of a session or named agent, or all: {tasks, text}, in the order in which they began.

        With ``watch`` the client is told of all tasks and named agents from now on, as ``agent_list``.
        """
        if watch:
            self._host.overseers.add(client)
        name = paths.root_of(self._ref(branch)).session_id if branch else None
        found = await self._host.tasks.of(name)
        text = telling.listing(name, found, self._host.clock.now())
        return {"tasks": [self._task_told(task) for task in found], "text": text}

    async def task_output(self, client: Client, *, branch: str, id: str) -> dict[str, Any]:
        """Return a task with the end of what it printed, as ``output``; raises ``NotFound`` when that is gone."""
        task = await self._host.tasks.get(paths.root_of(self._ref(branch)).session_id, id)
        file = self._host.tasks.output(task)
        if not await asyncio.to_thread(file.is_file):
            raise NotFound(
                f"What {id} printed is not there any more: {file} is gone", mend=f"It ended: {task.status}"
            )
        return await self._task_shown(task)

    async def task_kill(self, client: Client, *, branch: str, id: str) -> dict[str, Any]:
        """End a task with all it started, and return it as it is then; one that has ended stays as it is."""
        task = await self._host.tasks.get(paths.root_of(self._ref(branch)).session_id, id)
        return await self._task_shown(await self._host.tasks.kill(task))

    async def agent_status(
        self, client: Client, *, branch: str, env: Mapping[str, str] | Sequence[Any] = (), key: str | None = None
    ) -> dict[str, Any]:
        """Return how a session or named agent stands: configuration, conversation, tasks; ``text`` says it all.

        ``model`` and ``backend`` are those that would answer a client with this ``env``.
        """
        host, ref, options = self._host, paths.root_of(self._ref(branch)), send_options(client, env, key, ())
        preset = host.presets.of_branch(ref)
        rows = await asyncio.to_thread(agents.known, host.state)
        life = next((row.status for row in rows if row.dir == str(ref.session_dir)), None)
        permissions: Any = preset.profile
        named = named_agents.named_dir(host.config.agents_dir.resolve(), ref) is not None
        if named:
            permissions = (await asyncio.to_thread(named_agents.read, ref.session_dir)).permissions or permissions
        async with host.using(ref) as live:
            try:
                answers = answers_next(host, live, options)
                backend = provider_of(answers, host.config, options)
                stand_in = host.config.backend(backend).kind == "offline"
            except PyagentdError:  # whoever sends is told
                answers, backend, stand_in = preset, preset.backend, False
            said = hidden.visible(live.conversation)
            messages = await asyncio.to_thread(contexts.count, live.conversation.snapshot())
            last = max((message.row.get("created_at") or 0 for message in said), default=0)
            state = live.status["state"]
            root = live.conversation.session.get("workspace_root")
            title = {} if named else {"title": str(live.conversation.session.get("title") or "")}
        saved = (await host.contexts.archive.history(ref))[:1]
        running = [task for task in await host.tasks.of(ref.session_id) if task.status == "running"]
        facts = {
            "agent": ref.session_id,
            **title,
            "model": answers.model,
            "backend": backend,
            "stand_in": stand_in,
            "permissions": permissions if isinstance(permissions, str) else "custom" if permissions else "",
            "status": life or state,
            "messages": messages,
            "asks": len(host.asks.within(str(ref.session_dir))),
            "last_at": iso8601(datetime.fromtimestamp(last / 1000, UTC)) if last else None,
            "git": await asyncio.to_thread(_git, Path(root)) if root else None,
            "saved": {"saved_at": saved[0].saved_at, "description": saved[0].description} if saved else None,
        }
        told = [self._task_told(task) for task in running]
        return {**facts, "tasks": told, "text": standing(facts, running, host.clock.now())}

    async def _task_shown(self, task: Task) -> dict[str, Any]:
        file = self._host.tasks.output(task)
        text, whole = await asyncio.to_thread(telling.tail, file, _SHOWN_BYTES)
        return {**self._task_told(task), "output": text, "whole": whole}

    def _task_told(self, task: Task) -> dict[str, Any]:
        directory = self._host.tasks.directory(task)
        return {
            "id": task.id,
            "agent": task.agent_name,
            "session": name_of(directory),
            "branch": str(directory),
            "command": task.command,
            "cwd": task.cwd,
            "status": task.status,
            "pid": task.pid,
            "exit_code": task.exit_code,
            "started_at": task.started_at,
            "ended_at": task.ended_at,
            "wake": task.wake,
            "output_path": task.output_path,
        }


def _git(directory: Path) -> dict[str, Any] | None:
    """Return branch and number of uncommitted files of a repository, None where there is none; blocks."""
    found = worktree.look(directory)
    return None if found is None else {"branch": found.branch, "uncommitted": found.uncommitted}
