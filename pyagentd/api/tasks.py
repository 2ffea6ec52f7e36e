"""Operations on background commands: list, read and end them; and the status of the session or agent of theirs."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from pyagentd.api.group import Client, Env, Group, name_of, send_options
from pyagentd.clock import iso8601
from pyagentd.errors import NotFound, PyagentdError
from pyagentd.features import named_agents
from pyagentd.features import tasks as telling
from pyagentd.features.contexts import Contexts
from pyagentd.features.tasks import Tasks, status_lines
from pyagentd.runtime.settings import provider_of
from pyagentd.runtime.turn_agent import answers_next
from pyagentd.store import contexts, paths
from pyagentd.store import named_agents as agent_files
from pyagentd.store.db import agents
from pyagentd.store.db.tasks import Status, Task
from pyagentd.store.document import hidden
from pyagentd.wire.operations import command_line

_SHOWN_BYTES = 30_000


class TaskReply(TypedDict):
    """A background command."""

    id: str
    agent: str  # the name of its agent, or the id of its session
    session: str  # what people call that branch; "" when it is gone
    branch: str
    command: str
    cwd: str
    status: Status
    pid: int
    exit_code: int | None
    started_at: str  # ISO 8601
    ended_at: str | None
    wake: bool  # its end begins a turn
    output_path: str


class TaskOutput(TaskReply):
    """A background command with what it printed."""

    output: str  # the end of it
    whole: bool  # that is all


class TasksReply(TypedDict):
    """Background commands in the order in which they began."""

    tasks: list[TaskReply]
    text: str  # the same for people


class GitState(TypedDict):
    """How a repository stands."""

    branch: str  # "" when none is checked out
    uncommitted: int  # files


class LastSaved(TypedDict):
    """When a conversation was last saved."""

    saved_at: str  # ISO 8601
    description: str


class AgentStatus(TypedDict):
    """How a session or named agent stands."""

    agent: str
    title: NotRequired[str]  # of a session that is not a named agent
    model: str | None  # that would answer this client
    backend: str
    stand_in: bool  # no model is asked: the offline stand-in answers
    permissions: str  # the name of a profile; custom: rules of its own
    status: str
    messages: int  # of the conversation
    asks: int  # open questions
    last_at: str | None  # ISO 8601, of the last message
    git: GitState | None  # of the repository it works in
    saved: LastSaved | None
    tasks: list[TaskReply]  # that run
    text: str  # all of it for people


class TaskOperations(Group):
    """What runs behind conversations."""

    @command_line("tasks")
    async def tasks(self, client: Client, *, branch: str | None = None, watch: bool = False) -> TasksReply:
        """Return the background commands of a session or named agent, or all, in the order in which they began.

        With ``watch`` the client is told of all tasks and named agents from now on, as ``agent_list``.
        """
        if watch:
            self._kernel.overseers.add(client)
        name = paths.root_of(self._ref(branch)).session_id if branch else None
        found = await self._kernel.feature(Tasks).of(name)
        text = telling.listing(name, found, self._kernel.clock.now())
        return {"tasks": [self._task(task) for task in found], "text": text}

    async def task_output(self, client: Client, *, branch: str, id: str) -> TaskOutput:
        """Return a task with the end of its output; raises ``NotFound`` when that is gone."""
        task = await self._kernel.feature(Tasks).get(paths.root_of(self._ref(branch)).session_id, id)
        file = self._kernel.feature(Tasks).output(task)
        if not await asyncio.to_thread(file.is_file):
            raise NotFound(f"The output of {id} is gone: {file} does not exist", hint=f"It ended: {task.status}")
        return await self._output(task)

    async def task_kill(self, client: Client, *, branch: str, id: str) -> TaskOutput:
        """End a task with all it started, and return it as it is then; one that has ended stays as it is."""
        task = await self._kernel.feature(Tasks).get(paths.root_of(self._ref(branch)).session_id, id)
        return await self._output(await self._kernel.feature(Tasks).kill(task))

    @command_line("status")
    async def agent_status(
        self, client: Client, *, branch: str, env: Env = (), key: str | None = None
    ) -> AgentStatus:
        """Return the status of a session or named agent: configuration, conversation, tasks."""
        kernel, ref, options = self._kernel, paths.root_of(self._ref(branch)), send_options(client, env, key, ())
        preset = kernel.presets.of_branch(ref)
        rows = await asyncio.to_thread(agents.known, kernel.state)
        life = next((row.status for row in rows if row.dir == str(ref.session_dir)), None)
        permissions: Any = preset.profile
        named = agent_files.named_dir(kernel.config.agents_dir.resolve(), ref) is not None
        if named:
            permissions = (await asyncio.to_thread(agent_files.read, ref.session_dir)).permissions or permissions
        async with kernel.using(ref) as live:
            try:
                answers = answers_next(kernel, live, options)
                backend = provider_of(answers, kernel.config, options)
                stand_in = kernel.config.backend(backend).kind == "offline"
            except PyagentdError:  # whoever sends is told
                answers, backend, stand_in = preset, preset.backend, False
            said = hidden.visible(live.conversation)
            messages = await asyncio.to_thread(contexts.count, live.conversation.snapshot())
            last = max((message.row.get("created_at") or 0 for message in said), default=0)
            state = live.status["state"]
            root = live.conversation.session.get("workspace_root")
            title = str(live.conversation.session.get("title") or "")
        saved = (await kernel.feature(Contexts).archive.history(ref))[:1]
        running = [task for task in await kernel.feature(Tasks).of(ref.session_id) if task.status == "running"]
        facts: AgentStatus = {
            "agent": ref.session_id,
            "model": answers.model,
            "backend": backend,
            "stand_in": stand_in,
            "permissions": permissions if isinstance(permissions, str) else "custom" if permissions else "",
            "status": life or state,
            "messages": messages,
            "asks": len(kernel.asks.within(str(ref.session_dir))),
            "last_at": iso8601(datetime.fromtimestamp(last / 1000, UTC)) if last else None,
            "git": await asyncio.to_thread(_git, Path(root)) if root else None,
            "saved": {"saved_at": saved[0].saved_at, "description": saved[0].description} if saved else None,
            "tasks": [self._task(task) for task in running],
            "text": "",
        }
        if not named:
            facts["title"] = title
        return {**facts, "text": status_lines(facts, running, kernel.clock.now())}

    async def _output(self, task: Task) -> TaskOutput:
        file = self._kernel.feature(Tasks).output(task)
        text, whole = await asyncio.to_thread(telling.tail, file, _SHOWN_BYTES)
        return {**self._task(task), "output": text, "whole": whole}

    def _task(self, task: Task) -> TaskReply:
        directory = self._kernel.feature(Tasks).directory(task)
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


def _git(directory: Path) -> GitState | None:
    """Return branch and number of uncommitted files of a repository, None where there is none; blocks."""
    found = named_agents.repository_state(directory)
    return None if found is None else {"branch": found.branch, "uncommitted": found.uncommitted}
