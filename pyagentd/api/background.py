"""Operations on background commands, schedules and triggers, and on the status of a session."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from pyagentd.api.agents import profile_word
from pyagentd.api.group import NOTHING, Client, Env, Group, name_of, reply_of, send_options
from pyagentd.clock import iso8601
from pyagentd.config.tables import compile_action
from pyagentd.errors import BadRequest, NotFound, PyagentdError
from pyagentd.events import one_line
from pyagentd.features import named_agents
from pyagentd.features import schedules as occurrences
from pyagentd.features import tasks as telling
from pyagentd.features.contexts import Contexts
from pyagentd.features.schedules import (
    LIFETIME,
    OUTSIDE,
    DeliveryReply,
    Schedules,
    Trigger,
    Triggers,
    When,
)
from pyagentd.features.tasks import Tasks
from pyagentd.reader import object_in
from pyagentd.runtime.grants import local_subject
from pyagentd.runtime.presets import answers_next
from pyagentd.runtime.settings import provider_of
from pyagentd.store import contexts, paths
from pyagentd.store import named_agents as agent_files
from pyagentd.store.db import agents
from pyagentd.store.db.schedules import Kind, Schedule, Source
from pyagentd.store.db.tasks import Status, Task
from pyagentd.store.document import hidden
from pyagentd.words import quantity

_SHOWN_BYTES = 30_000
_STAND_IN = "none: the offline stand-in answers (PYAGENTD_BACKEND=offline)"


class TaskReply(TypedDict):
    """A background command."""

    id: str
    agent: str  # the name of its agent, or the id of its session
    session: str  # the displayed name of its branch; "" if that is deleted
    branch: str
    command: str
    cwd: str
    status: Status
    pid: int
    exit_code: int | None
    started_at: str  # ISO 8601
    ended_at: str | None
    wake: bool  # a turn begins when it ends
    output_path: str


class TaskOutput(TaskReply):
    """A background command with its output."""

    output: str  # the end of the output
    whole: bool  # ``output`` is complete


class TasksReply(TypedDict):
    """Background commands by start time."""

    tasks: list[TaskReply]
    text: str  # the same as text for people


class GitState(TypedDict):
    """The state of a repository."""

    branch: str  # "" if none is checked out
    uncommitted: int  # number of files


class LastSaved(TypedDict):
    """The last time that a conversation was saved."""

    saved_at: str  # ISO 8601
    description: str


class AgentStatus(TypedDict):
    """The status of a session or named agent."""

    agent: str
    title: NotRequired[str]  # of a session that is not a named agent
    model: str | None  # the model that would answer this client
    backend: str
    stand_in: bool  # the offline stand-in answers, no model
    permissions: str  # the name of a profile; "custom": its own rules
    status: str
    messages: int  # of the conversation
    asks: int  # open questions
    last_at: str | None  # ISO 8601, of the last message
    git: GitState | None  # of the repository of its workspace
    saved: LastSaved | None
    tasks: list[TaskReply]  # the running ones
    text: str  # all of this as text for people


class ScheduleRow(TypedDict):
    """A schedule; times in epoch ms."""

    id: str
    session: str  # the displayed name of its branch; "" if that is deleted
    branch: str
    source: Source
    when: str  # for people
    kind: Kind
    value: str  # for kind at: ISO 8601 in UTC; for every: seconds; for cron: the expression
    zone: str | None  # of a cron expression; nil: the machine's
    text: str
    reason: str | None  # why the model created it
    auth_subject: str  # who created it
    allow: list[str]
    created_at: int
    next_at: int
    expires_at: int | None
    fired: int  # number of times
    last_at: int | None
    last_error: str | None  # why the last firing failed


class SchedulesReply(TypedDict):
    """Schedules, the next one first."""

    schedules: list[ScheduleRow]


class Background(Group):
    """Background commands, schedules and triggers."""

    async def tasks(self, client: Client, *, branch: str | None = None, watch: bool = False) -> TasksReply:
        """Return the background commands of a session or named agent, or all, by start time.

        With ``watch`` the client receives events of all tasks and named agents, as with ``agent_list``.
        """
        if watch:
            self._follow(client, "tasks")
        ref, tasks = paths.root_of(self._ref(branch)) if branch else None, self._kernel.feature(Tasks)
        name, found = (ref.session_id, await tasks.own(ref)) if ref else (None, await tasks.of())
        text = telling.task_lines(name, found, self._kernel.clock.now())
        return {"tasks": [self._task(task) for task in found], "text": text}

    async def task_output(self, client: Client, *, branch: str, id: str) -> TaskOutput:
        """Return a task with the end of its output; raises ``NotFound`` if the output was deleted."""
        task = await self._kernel.feature(Tasks).get_own(self._ref(branch), id)
        file = Path(task.output_path)
        if not await asyncio.to_thread(file.is_file):
            raise NotFound(f"The output of {id} is gone: {file} does not exist", hint=f"It ended: {task.status}")
        return await self._output(task)

    async def task_kill(self, client: Client, *, branch: str, id: str) -> TaskOutput:
        """Kill a task and its child processes and return its new state; a task that has ended is unchanged."""
        task = await self._kernel.feature(Tasks).get_own(self._ref(branch), id)
        return await self._output(await self._kernel.feature(Tasks).kill(task))

    async def agent_status(self, client: Client, *, branch: str, env: Env = NOTHING) -> AgentStatus:
        """Return the status of a session or named agent: configuration, conversation, tasks."""
        kernel, ref, options = self._kernel, paths.root_of(self._ref(branch)), send_options(client, env, ())
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
            except PyagentdError:  # sending a message reports it
                answers, backend, stand_in = preset, preset.backend, False
            visible = hidden.visible(live.conversation)
            messages = await asyncio.to_thread(contexts.count, live.conversation.snapshot())
            last = max((message.row.get("created_at") or 0 for message in visible), default=0)
            state = live.status["state"]
            root = live.conversation.session.get("workspace_root")
            title = str(live.conversation.session.get("title") or "")
        git = await asyncio.to_thread(named_agents.repository_state, Path(root)) if root else None
        saved = (await kernel.feature(Contexts).history(ref))[:1]
        running = [task for task in await kernel.feature(Tasks).own(ref) if task.status == "running"]
        facts: AgentStatus = {
            "agent": ref.session_id,
            "model": answers.model,
            "backend": backend,
            "stand_in": stand_in,
            "permissions": profile_word(permissions),
            "status": life or state,
            "messages": messages,
            "asks": len(kernel.asks.within(str(ref.session_dir))),
            "last_at": iso8601(datetime.fromtimestamp(last / 1000, UTC)) if last else None,
            "git": reply_of(GitState, git) if git else None,
            "saved": {"saved_at": saved[0].saved_at, "description": saved[0].description} if saved else None,
            "tasks": [self._task(task) for task in running],
            "text": "",
        }
        if not named:
            facts["title"] = title
        return {**facts, "text": status_lines(facts, running, kernel.clock.now())}

    async def _output(self, task: Task) -> TaskOutput:
        file = Path(task.output_path)
        text, whole = await asyncio.to_thread(telling.tail, file, _SHOWN_BYTES)
        return {**self._task(task), "output": text, "whole": whole}

    def _task(self, task: Task) -> TaskReply:
        directory = self._kernel.feature(Tasks).directory(task)
        session = name_of(directory)
        return reply_of(TaskReply, task, agent=task.agent_name, session=session, branch=str(directory))

    async def schedule_add(
        self,
        client: Client,
        *,
        branch: str,
        text: str,
        cron: str | None = None,
        at: str | None = None,
        delay: str | None = None,
        every: str | None = None,
        zone: str = "",
        lifetime: str | None = None,
        env: Env = NOTHING,
        allow: Sequence[str] = (),
    ) -> ScheduleRow:
        """Schedule ``text`` as a message to a branch: at a time, after a delay, at intervals, or by cron expression.

        A repeating schedule expires after a week, or after ``lifetime``: a duration, or "never".
        """
        for pattern in allow:
            compile_action(pattern)
        if lifetime and (at or delay):
            raise BadRequest("A schedule for one time does not repeat", hint="Leave for out, or give cron or every")
        schedule = await self._kernel.feature(Schedules).add(
            self._ref(branch),
            self._when(cron=cron, at=at, delay=delay, every=every, zone=zone),
            text,
            auth_subject=local_subject(),
            options={"env": dict(send_options(client, env, ()).env), "allow": list(allow)},
            lifetime=None if lifetime == "never" else occurrences.duration(lifetime) if lifetime else LIFETIME,
        )
        return self._row(schedule)

    async def schedules(self, client: Client, *, branch: str | None = None) -> SchedulesReply:
        """Return the schedules of a branch, or all, the next one first."""
        found = await self._kernel.feature(Schedules).of(self._ref(branch) if branch else None)
        return {"schedules": [self._row(schedule) for schedule in found]}

    async def schedule_cancel(self, client: Client, *, id: str) -> ScheduleRow:
        """Cancel a schedule."""
        return self._row(await self._kernel.feature(Schedules).cancel(id))

    async def schedule_run(self, client: Client, *, id: str) -> DeliveryReply:
        """Deliver a schedule's message now; its next time is unchanged."""
        return await self._kernel.feature(Schedules).run(id)

    async def trigger(
        self,
        client: Client,
        *,
        branch: str,
        text: str,
        delivery_id: str,
        source: str = "api",
        headers: str | None = None,
        env: Env = NOTHING,
        allow: Sequence[str] = (),
    ) -> DeliveryReply:
        """Deliver another program's message to a branch; a repeated ``delivery_id`` is delivered once.

        ``headers`` is a JSON object of strings to record with the message.
        """
        if source not in OUTSIDE:
            raise BadRequest(f"{source!r} is not a source", hint=", ".join(OUTSIDE))
        trigger = Trigger(
            source=source,
            text=text,
            delivery_id=delivery_id,
            auth_subject=local_subject(),
            options=send_options(client, env, allow),
            # JSON keeps the names of headers unchanged.
            headers={name: str(value) for name, value in object_in(headers, "headers").items() if value is not None},
        )
        async with self._kernel.using(self._ref(branch)) as live:
            return await self._kernel.feature(Triggers).deliver(live, trigger)

    def _when(self, *, cron: str | None, at: str | None, delay: str | None, every: str | None, zone: str) -> When:
        now = self._kernel.clock.now()
        if zone and (delay or every):
            raise BadRequest("Only cron and at have a time zone", hint="Leave timezone out")
        match [cron, at, delay, every]:
            case [str(), None, None, None]:
                return occurrences.cron(cron or "", now=now, zone=zone)
            case [None, str(), None, None]:
                return occurrences.at(at or "", now=now, zone=zone)
            case [None, None, str(), None]:
                return occurrences.after(occurrences.duration(delay or ""), now=now)
            case [None, None, None, str()]:
                return occurrences.every(occurrences.duration(every or ""))
        raise BadRequest("A schedule needs one time", hint="One of cron, at, in and every")

    def _row(self, schedule: Schedule) -> ScheduleRow:
        directory = self._kernel.feature(Schedules).directory(schedule)
        when = When(kind=schedule.kind, value=schedule.value, zone=schedule.zone)
        return reply_of(
            ScheduleRow,
            schedule,
            session=name_of(directory),
            branch=str(directory),
            when=occurrences.describe_schedule(when),
            zone=schedule.zone or None,
            reason=schedule.reason or None,
            allow=schedule.options.get("allow") or [],
            last_error=schedule.last_error or None,
        )


def status_lines(facts: AgentStatus, running: Sequence[Task], now: datetime) -> str:
    """Return the text that ``/status`` shows."""
    idle = f", idle {_for(facts['last_at'], now)}" if facts["last_at"] else ""
    count = facts["messages"]
    title, activity = facts.get("title"), f"active ({quantity(count, 'message')}{idle})"
    model = facts["model"] or "the default of its backend"
    called = f"{title} ({facts['agent']})" if title else facts["agent"]
    lines = [
        f"Agent: {called}" if title is None else f"Session: {called}",
        f"Model: {_STAND_IN if facts.get('stand_in') else model}",
        f"Permissions: {facts['permissions'] or 'those of its preset'}",
        f"Status: {facts['status']}",
        f"{'Session' if title is None else 'Conversation'}: {activity if count else 'none'}",
    ]
    if asks := facts.get("asks"):
        lines.append(f"Waiting: {quantity(asks, 'question')}; `pyagentd asks` lists what to answer")
    if git := facts.get("git"):
        lines.append(f"Git: {git['branch'] or 'no branch'} ({quantity(git['uncommitted'], 'uncommitted file')})")
    lines += ["", "Running tasks:" if running else "No running tasks."]
    for task in running:
        lines.append(f"  [{task.id}] {one_line(task.command, 60)} (running, {_for(task.started_at, now)})")
    if (saved := facts["saved"]) is not None:
        at = datetime.fromisoformat(saved["saved_at"])
        lines += ["", f"Last session saved: {at:%Y-%m-%d %H:%M} - {saved['description']}"]
    return "\n".join(lines)


def _for(at: str, now: datetime) -> str:
    return telling.ago(at, now).removesuffix(" ago")
