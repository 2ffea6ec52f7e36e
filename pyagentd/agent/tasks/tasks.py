"""The tasks of one daemon: commands that run behind conversations, from their beginning to the message they end with.

A task is recorded before its command begins, and its end is recorded after the agent was told, if it asked for that;
so whenever the daemon dies, the next one finds what runs, what ended meanwhile, and what nobody can tell about.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import subprocess
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyagentd.agent.branches.branch import LiveBranch
from pyagentd.agent.running.settings import SendOptions
from pyagentd.agent.tasks import starting, telling
from pyagentd.agent.tasks.ends import gone
from pyagentd.agent.tasks.process import Ending, ending_of, is_runner, tell
from pyagentd.agent.turns.queue import Submission
from pyagentd.clock import iso8601
from pyagentd.errors import Busy, NotFound, PyagentdError, StoreError
from pyagentd.events import Event
from pyagentd.store import named_agents, paths
from pyagentd.store.db import tasks as table
from pyagentd.store.db.projection import Projection
from pyagentd.store.db.tasks import Task
from pyagentd.store.paths import BranchRef
from pyagentd.tools.spec import BackgroundCommand

if TYPE_CHECKING:  # the host has them
    from pyagentd.agent.host import Host

log = logging.getLogger(__name__)

MOST = 16  # tasks of one agent that run at a time
KEPT = 100  # that have ended, of one agent
TICK_S = 1.0  # between looks at what a task printed
_SHOWN_BYTES = 2_000  # of the output, in an event
_KILL_S = starting.GRACE_S + 4.0  # for a runner to end its command; then it is ended itself

Key = tuple[str, str]  # agent_name, id


@dataclass(slots=True)
class _Running:
    """A task whose end is awaited."""

    task: Task
    process: subprocess.Popen[bytes] | None = None  # None: an earlier daemon began it
    options: SendOptions = field(default_factory=SendOptions)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    watching: asyncio.Task[None] | None = None
    shown: str = ""
    killed: bool = False  # somebody wants its end


class Tasks:
    """All tasks of one host."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._names = Projection(host.state, host.config.sessions_dir)
        self._running: dict[Key, _Running] = {}

    @property
    def pending(self) -> int:
        """How many run; the daemon stays up while any does."""
        return len(self._running)

    def of_run(self, branch: LiveBranch, options: SendOptions) -> RunTasks:
        """Return what the tools of a run need."""
        return RunTasks(self, branch.ref, options)

    # -- what clients and tools do -----------------------------------------------------------------------------

    async def begin(self, ref: BranchRef, command: BackgroundCommand, options: SendOptions) -> Task:
        """Run a command behind a conversation.

        Raises:
            StoreError: As many run as may, or the disk refused; nothing was run.
            OSError: It cannot be started.
        """
        beginning = asyncio.ensure_future(self._begin(ref, command, options))
        try:
            return await asyncio.shield(beginning)
        except asyncio.CancelledError:
            self._host.own(self._take_back(beginning))
            raise

    async def of(self, agent_name: str | None = None) -> list[Task]:
        """Return the tasks of an agent (or of the session with this id), or all, in the order they began."""
        return await asyncio.to_thread(table.find, self._host.state, agent_name=agent_name)

    async def get(self, agent_name: str, id: str) -> Task:
        """Return one task; raises ``NotFound``."""
        if (running := self._running.get((agent_name, id))) is not None:
            return running.task
        found = await asyncio.to_thread(table.get, self._host.state, agent_name, id)
        if found is None:
            raise NotFound(f"{agent_name} has no task {id}", mend="`pyagentd tasks` lists those there are")
        return found

    async def wait(self, task: Task, seconds: float) -> Task:
        """Return the task when it has ended, or as it is after ``seconds``."""
        running = self._running.get((task.agent_name, task.id))
        if running is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(running.ended.wait(), seconds)
            return running.task
        return await self.get(task.agent_name, task.id)

    async def kill(self, task: Task) -> Task:
        """End a task, kindly first; return it as it is then. One that has ended stays as it is."""
        running = self._running.get((task.agent_name, task.id))
        if running is None:
            return await self.get(task.agent_name, task.id)
        task, output = running.task, Path(running.task.output_path)
        running.killed = True
        tell(task.pid, task.pid_started, output, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(running.ended.wait(), _KILL_S)
            return running.task
        tell(task.pid, task.pid_started, output, signal.SIGKILL)  # all it started ends with it
        await running.ended.wait()
        return running.task

    async def end_within(self, directory: Path) -> None:
        """Kill the tasks of what is deleted: a session, a branch or an agent with all below it."""
        place = self._names.key(directory)
        inside = [
            running.task
            for running in self._running.values()
            if running.task.branch_dir == place or running.task.branch_dir.startswith(f"{place}/")
        ]
        await asyncio.gather(*map(self.kill, inside))

    def directory(self, task: Task) -> Path:
        """Return where the branch of a task is."""
        return self._names.directory(task.branch_dir)

    def output(self, task: Task) -> Path:
        """Return the file with what a task printed; its session may have been moved meanwhile."""
        return Path(task.output_path)

    # -- the daemon's beginning and end -------------------------------------------------------------------------

    async def recover(self) -> None:
        """Take over what an earlier daemon left running, and tell the end of what ended meanwhile."""
        try:
            left = await asyncio.to_thread(table.find, self._host.state, status="running")
        except StoreError as error:
            log.warning("tasks: %s", error)
            return
        for task in left:
            if (task.agent_name, task.id) not in self._running:
                self._watch(_Running(task))

    async def close(self) -> None:
        """Watch no more; what runs goes on, and the next daemon finds it."""
        watching = [each.watching for each in self._running.values() if each.watching is not None]
        for each in watching:
            each.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
        self._running.clear()

    # -- inside ------------------------------------------------------------------------------------------------

    async def _take_back(self, beginning: asyncio.Future[Task]) -> None:
        """End a task whose call was cancelled while it began: nobody would know of it."""
        with contextlib.suppress(PyagentdError, OSError):
            await self.kill(await beginning)

    async def _begin(self, ref: BranchRef, command: BackgroundCommand, options: SendOptions) -> Task:
        try:
            if self._host.closing:
                raise Busy("The daemon is stopping", mend="Try again in a moment")
            directory = paths.files_dir(ref.branch_dir)
            started = await asyncio.to_thread(
                starting.start,
                command.enclosure,
                cwd=command.cwd,
                directory=directory,
                timeout_s=command.timeout_s,
            )
        finally:
            command.enclosure.close()
        task = Task(
            branch_dir=self._names.key(ref.branch_dir),
            id="",
            agent_name=paths.root_of(ref).session_id,
            command=command.command,
            cwd=str(command.cwd),
            started_at=iso8601(self._host.clock.now()),
            pid=started.process.pid,
            pid_started=started.pid_started,
            output_path=str(started.output),
            wake=command.wake,
            tool_call_id=command.call_id or None,
        )
        try:
            task = await asyncio.to_thread(table.put, self._host.state, task, most=MOST)
            started.begin()
            await asyncio.to_thread(self._write_agent_file, task)
        except BaseException:
            await asyncio.to_thread(started.cancel)
            raise
        self._watch(_Running(task, started.process, options))
        self._publish(task)
        return task

    def _watch(self, running: _Running) -> None:
        self._running[running.task.agent_name, running.task.id] = running
        running.watching = asyncio.create_task(self._until_ended(running), name=f"task {running.task.id}")

    async def _until_ended(self, running: _Running) -> None:
        task = running.task
        output = Path(task.output_path)
        try:
            if is_runner(task.pid, task.pid_started, output):
                tick = lambda: self._tick(running)  # noqa: E731
                await gone(task.pid, task.pid_started, output, every_s=TICK_S, tick=tick)
            if running.process is not None:
                await asyncio.to_thread(running.process.wait)
            await self._ended(running, await asyncio.to_thread(ending_of, output))
        except Exception:  # the edge of this task
            log.exception("task %s of %s", task.id, task.agent_name)
            running.ended.set()
            self._running.pop((task.agent_name, task.id), None)

    async def _ended(self, running: _Running, ending: Ending) -> None:
        """Tell the end of a task, then record it."""
        at = datetime.fromtimestamp(ending.ended_at, UTC) if ending.ended_at else self._host.clock.now()
        status = "killed" if running.killed and ending.status == "lost" else ending.status
        task = replace(running.task, status=status, exit_code=ending.exit_code, ended_at=iso8601(at))
        if task.wake and task.status != "killed":  # who killed it knows
            try:
                await self._tell(task, running.options)
            except Busy:
                if self._host.closing:  # the next daemon does
                    return
                raise
            except PyagentdError as error:
                log.warning("task %s of %s: nobody was told of its end: %s", task.id, task.agent_name, error)
        running.task = task
        try:
            await asyncio.to_thread(self._record, task)
        except StoreError as error:
            log.warning("task %s of %s: %s", task.id, task.agent_name, error)
        del self._running[task.agent_name, task.id]
        running.ended.set()
        self._publish(task)

    def _record(self, task: Task) -> None:
        table.end(self._host.state, task)
        table.remove_ended(self._host.state, task.agent_name, keep=KEPT)
        self._write_agent_file(task)

    def _write_agent_file(self, task: Task) -> None:
        """Write what runs and what ended lately to the agent's ``agent.json``, if it has one; never read again."""
        try:
            ref = paths.root_of(paths.ref_of(self.directory(task)))
            directory = named_agents.named_dir(self._host.config.agents_dir.resolve(), ref)
            if directory is None:
                return
            found = table.find(self._host.state, agent_name=task.agent_name)
            ended = [each for each in found if each.status != "running"][-telling.RECENT :]
            shown = [each for each in found if each.status == "running" or each in ended]
            named_agents.change(directory, {"running_tasks": list(map(telling.recorded, shown))})
        except PyagentdError as error:
            log.warning("task %s of %s: agent.json does not show it: %s", task.id, task.agent_name, error)

    async def _tell(self, task: Task, options: SendOptions) -> None:
        """Submit the message that wakes the agent, unless the log has it."""
        ref = paths.ref_of(self.directory(task))
        async with self._host.using(ref) as branch:
            known = (*branch.conversation.messages.values(), *branch.conversation.queued.values())
            if any((message.metadata.get("task") or {}).get("output") == task.output_path for message in known):
                return
            text = await asyncio.to_thread(telling.completion, task)
            given = Submission(
                text=text,
                options=options,
                metadata={"origin": "agent", "task": {"id": task.id, "output": task.output_path}},
            )
            await self._host.submit(branch, given)

    def _tick(self, running: _Running) -> None:
        """Show the end of what a task printed, to who watches its branch, or all tasks."""
        if self._host.opened(str(self.directory(running.task))) is None and not self._host.overseers:
            return
        text, _ = telling.tail(Path(running.task.output_path), _SHOWN_BYTES)
        if text != running.shown:
            running.shown = text
            self._publish(running.task, text)

    def _publish(self, task: Task, output: str | None = None) -> None:
        told: dict[str, Any] = {**telling.recorded(task), "agent": task.agent_name, "output": output}
        self._host.publish(Event("task", str(self.directory(task)), 0, (told,)))


class RunTasks:
    """The tasks that one run can begin, look at and end."""

    def __init__(self, tasks: Tasks, ref: BranchRef, options: SendOptions) -> None:
        self._tasks = tasks
        self._ref = ref
        self._options = options

    async def begin(self, command: BackgroundCommand) -> tuple[str, Path]:
        """Run a command in the background; see ``tools.around.Tasking``."""
        task = await self._tasks.begin(self._ref, command, self._options)
        return task.id, Path(task.output_path)

    async def get(self, id: str) -> Task:
        """Return a task of this conversation: of the whole session, or of an agent, its own and those below it.

        Raises:
            NotFound: There is none.
        """
        name = paths.root_of(self._ref).session_id
        task = await self._tasks.get(name, id)
        if self._ref.is_agent and not self._tasks.directory(task).is_relative_to(self._ref.branch_dir):
            raise NotFound(f"{id} is not a task of yours")
        return task

    async def wait(self, task: Task, seconds: float) -> Task:
        """Return the task when it has ended, or as it is after ``seconds``."""
        return await self._tasks.wait(task, seconds)

    async def kill(self, task: Task) -> Task:
        """End a task."""
        return await self._tasks.kill(task)
