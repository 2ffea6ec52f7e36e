"""Background commands ("tasks"): starting them, watching them, and the message that wakes their agent at the end.

A task is recorded before its command begins, and its end is recorded after the agent was told, if it asked for that.
So after a crash the next daemon finds the running tasks, those that ended meanwhile, and those whose end cannot be
known.
"""

import asyncio
import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyagentd import regularfile
from pyagentd.clock import iso8601
from pyagentd.errors import Busy, NotFound, PyagentdError, StoreError, ToolError
from pyagentd.events import Event, one_line
from pyagentd.policy.action import Target
from pyagentd.runtime.feature import Feature
from pyagentd.runtime.queue import Submission
from pyagentd.runtime.settings import SendOptions
from pyagentd.store import named_agents, paths
from pyagentd.store.db import tasks
from pyagentd.store.db.tasks import Status, Task
from pyagentd.store.paths import BranchRef
from pyagentd.tools import invoke
from pyagentd.tools.spec import Args, BackgroundCommand, Output, ToolContext, ToolSpec, object_schema

if TYPE_CHECKING:
    from pyagentd.runtime.kernel import Kernel
    from pyagentd.runtime.run_setup import RunBuilder

log = logging.getLogger(__name__)


# Whether a task still runs, and how it ended: from process id, start time and the file that its runner writes.
#
# A process id alone is ambiguous, since the kernel reuses it. Together with the process's start time, and the path
# that only this runner has in its command line, it is unique.

_STARTED = 19  # index in /proc/<pid>/stat behind the name: 0 is the state, this is the start time


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """The end of a command."""

    exit_code: int | None  # None: unknown
    reason: str = ""  # "killed", "timeout", or why it could not be run
    ended_at: float | None = None  # seconds since the epoch

    @property
    def status(self) -> Status:
        """The status of its task."""
        if self.exit_code is None:
            return "lost"
        if self.reason == "killed":
            return "killed"
        return "completed" if self.exit_code == 0 and not self.reason else "failed"


def ending_file(output: Path) -> Path:
    """Return the file in which the runner of the task with this ``output`` records the command's end."""
    return output.with_suffix(".exit")


def started_of(pid: int) -> int:
    """Return the start time of a process, in ticks since boot; 0 if it has ended, or the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return 0 if fields[0] in (b"Z", b"X") else int(fields[_STARTED])
    except (OSError, ValueError, IndexError):
        return 0


def is_runner(pid: int, pid_started: int, output: Path) -> bool:
    """Return whether the process ``pid`` is the runner that was started at ``pid_started`` for this output."""
    if not Path("/proc/self/stat").exists():  # a system without /proc
        return not ending_file(output).exists() and _lives(pid)
    if not pid_started or started_of(pid) != pid_started:
        return False
    with suppress(OSError):
        return os.fsencode(ending_file(output)) in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return False


def ending_of(output: Path) -> CommandEnd:
    """Return the end of the command with this ``output``, as its runner recorded it."""
    try:
        ending = json.loads(regularfile.read_text(ending_file(output)))
        return CommandEnd(int(ending["exit_code"]), str(ending["reason"]), float(ending["ended_at"]))
    except (OSError, ValueError, KeyError, TypeError):
        return CommandEnd(exit_code=None)


def signal_runner(pid: int, pid_started: int, output: Path, number: signal.Signals) -> bool:
    """Send a signal to a runner, never to another process with its id; return whether it was running."""
    try:
        descriptor = os.pidfd_open(pid)
    except (OSError, AttributeError):
        descriptor = -1
    try:
        if not is_runner(pid, pid_started, output):
            return False
        with suppress(ProcessLookupError):
            if descriptor >= 0:
                signal.pidfd_send_signal(descriptor, number)
            else:
                os.kill(pid, number)
            return True
        return False
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _lives(pid: int) -> bool:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, 0)
        return True
    return False


# Waits for the end of a process that need not be a child of the daemon.

POLL_S = 0.5


async def runner_gone(pid: int, pid_started: int, output: Path, tick: Callable[[], None]) -> None:
    """Wait until the runner of the task with this ``output`` has ended; call ``tick`` periodically."""
    try:
        descriptor = os.pidfd_open(pid)
    except (OSError, AttributeError):  # it has ended, or the system has no pidfd
        while is_runner(pid, pid_started, output):
            await asyncio.sleep(POLL_S)
            tick()
        return
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        if not is_runner(pid, pid_started, output):  # the id may have been reused meanwhile
            return
        while not ended.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await ended.wait()
            tick()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


# Starts the runner of a task: first the process, then, once that is recorded, the command.

LONGEST_S = 24 * 3600.0  # of a task
MOST_BYTES = 10_000_000  # of output that are kept
GRACE_S = 3.0  # between SIGTERM and SIGKILL

_RUNNER = str(Path(__file__).with_name("task_runner.py"))


def start(command: BackgroundCommand, directory: Path) -> tuple[subprocess.Popen[bytes], Path]:
    """Start the runner of a command; return it and the output file in ``directory``. Blocks.

    It runs the command when it reads a byte, and exits at end of file. The runner takes over the enclosure's files.

    Raises:
        OSError: It cannot be started.
    """
    enclosure = command.enclosure
    descriptor, output = invoke.create(directory, "task")
    os.close(descriptor)
    try:
        spec = {
            "argv": list(enclosure.argv),
            "leader": enclosure.leader,
            "files": list(enclosure.files),
            "output": str(output),
            "most": MOST_BYTES,
            "timeout_s": min(command.timeout_s or LONGEST_S, LONGEST_S),
            "grace_s": GRACE_S,
            "temporary": enclosure.temporary,
        }
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", _RUNNER, str(ending_file(output))],
            cwd=command.cwd,
            env=dict(enclosure.env),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=enclosure.files,
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(spec).encode() + b"\n")
        process.stdin.flush()
    except BaseException:
        output.unlink(missing_ok=True)
        raise
    finally:
        enclosure.close_inherited()
    enclosure.temporary = None  # the runner removes it
    return process, output


# Tasks as text: for their model, for people, and for ``agent.json``.

SHOWN_BYTES = 30_000  # of the output, for ``TaskOutput``
TOLD_BYTES = 4_000  # of the output, in the message that wakes the agent
RECENT = 5  # ended tasks that a list shows

_LONGEST = 120  # characters of a command in a line


def task_record(task: Task) -> dict[str, Any]:
    """Return a task as an element of ``running_tasks``."""
    facts = {"id": task.id, "command": task.command, "started_at": task.started_at, "pid": task.pid}
    ended = {} if task.status == "running" else {"exit_code": task.exit_code, "ended_at": task.ended_at}
    return {**facts, "status": task.status, **ended}


def task_outcome(task: Task) -> str:
    """Describe the status of a task in a few words."""
    match task.status:
        case "completed":
            return "completed (exit 0)"
        case "failed":
            return f"failed (exit {task.exit_code})"
        case "lost":
            return "lost: it ended while nobody saw it, and how is not known"
    return task.status


def task_for_model(task: Task) -> str:
    """Describe a task to the model, with the end of its output."""
    head = f"{task.id} ({one_line(task.command, _LONGEST)}): {task_outcome(task)}"
    text, whole = tail(Path(task.output_path), SHOWN_BYTES)
    if not text:
        return f"{head}\n[no output{' yet' if task.status == 'running' else ''}]"
    more = "" if whole else f"[Only the end is shown. The whole output is in {task.output_path}.]\n"
    return f"{head}\n{more}{text}"


def completion(task: Task) -> str:
    """Return the message that wakes the agent when its task has ended."""
    text, whole = tail(Path(task.output_path), TOLD_BYTES)
    head = f"Background task {task.id} ({one_line(task.command, _LONGEST)}): {task_outcome(task)}."
    if not text:
        return f"{head} It printed nothing."
    return f"{head} {'Its output' if whole else f'The end of its output (all of it: {task.output_path})'}:\n\n{text}"


def tail(file: Path, most: int) -> tuple[str, bool]:
    """Return the last whole lines of a file that fit into ``most`` bytes, and whether these are all; blocks."""
    try:
        with regularfile.open_binary(file, limit=sys.maxsize) as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - most))
            data = stream.read(most)
    except OSError:
        return "", True
    if size > most:
        data = data[data.find(b"\n") + 1 :] if b"\n" in data[:-1] else data
    return data.decode(errors="replace"), size <= most


def task_lines(name: str | None, tasks: Sequence[Task], now: datetime) -> str:
    """Return the output of ``/tasks``; without a name, the tasks of all agents, each with its agent's name."""
    whose = max((len(task.agent_name) for task in tasks), default=0) if name is None else 0
    running = [task for task in tasks if task.status == "running"]
    over = sorted((task for task in tasks if task.status != "running"), key=lambda task: task.ended_at or "")
    of = f" for {name}" if name else ""
    lines = [f"Running tasks{of}:", *(_line(task, now, whose) for task in running)]
    if not running:
        lines = [f"No running tasks{of}."]
    if over:
        lines += ["", "Recently completed:", *(_line(task, now, whose) for task in reversed(over[-RECENT:]))]
    return "\n".join(lines)


def _line(task: Task, now: datetime, whose: int) -> str:
    agent = f"{task.agent_name:<{whose}} " if whose else ""
    head = f"  {agent}[{task.id}] {one_line(task.command, 40):<20} {task.status:<9}"
    if task.status == "running":
        return f"{head} (started {ago(task.started_at, now)}, PID {task.pid})"
    exit_code = f"exit {task.exit_code}, " if task.exit_code is not None else ""
    return f"{head} ({exit_code}{ago(task.ended_at, now)})"


def ago(at: str | None, now: datetime) -> str:
    """Return the time since ``at``, as ``30 sec ago``, ``5 min ago``."""
    try:
        seconds = max(0, int((now - datetime.fromisoformat(at or "")).total_seconds()))
    except ValueError:
        return "some time ago"
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} sec ago"


OUTPUT = "TaskOutput"
KILL = "KillTask"

MOST = 16  # running tasks of one agent
KEPT = 100  # ended tasks of one agent
TICK_S = 1.0  # between updates of a running task's output
_SHOWN_BYTES = 2_000  # of the output, in an event
_KILL_S = GRACE_S + 4.0  # for a runner to end its command; then the runner is killed

Key = tuple[str, str]  # agent_name, id


@dataclass(slots=True)
class _RunningTask:
    """The state of a running task."""

    task: Task
    process: subprocess.Popen[bytes] | None = None  # None: an earlier daemon began it
    options: SendOptions = field(default_factory=SendOptions)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    watching: asyncio.Task[None] | None = None
    shown: str = ""
    killed: bool = False  # somebody killed it through the daemon


class Tasks(Feature):
    """Runs background commands and watches them."""

    tool_names = (OUTPUT, KILL)

    def __init__(self, kernel: "Kernel") -> None:
        super().__init__(kernel)
        self._running: dict[Key, _RunningTask] = {}

    @property
    def pending(self) -> int:
        """The number of running tasks; the daemon stays up while there are any."""
        return len(self._running)

    def tools_for(self, run: "RunBuilder") -> Sequence[ToolSpec]:
        """Return the tools that show and kill tasks."""
        return task_tools(self, run.branch.ref)

    def granted(self, run: "RunBuilder", permitted: Sequence[str]) -> Sequence[str]:
        """Grant these tools to every agent that may run commands."""
        return self.tool_names if "Bash" in permitted else ()

    def context_for(self, run: "RunBuilder") -> Mapping[str, Any]:
        """Return the function that runs commands in the background."""

        async def begin(command: BackgroundCommand) -> tuple[str, str]:
            task = await self.begin(run.branch.ref, command, run.options)
            return task.id, task.output_path

        return {"tasks": begin}

    # -- what clients and tools do -----------------------------------------------------------------------------

    async def begin(self, ref: BranchRef, command: BackgroundCommand, options: SendOptions) -> Task:
        """Run a command in the background of a conversation.

        Raises:
            StoreError: The limit of running tasks is reached, or a write failed; nothing was run.
            OSError: It cannot be started.
        """
        beginning = asyncio.ensure_future(self._begin(ref, command, options))
        try:
            return await asyncio.shield(beginning)
        except asyncio.CancelledError:
            self.kernel.spawn(self._take_back(beginning))  # its caller does not learn its id
            raise

    async def of(self, agent_name: str | None = None) -> list[Task]:
        """Return the tasks of an agent (or of the session with this id), or all, in starting order."""
        return await asyncio.to_thread(tasks.find, self.kernel.state, agent_name=agent_name)

    async def own(self, ref: BranchRef) -> list[Task]:
        """Return the tasks of a branch's named agent or session; another session may have the same id."""
        root = paths.root_of(ref)
        found = await self.of(root.session_id)
        return [task for task in found if self.directory(task).is_relative_to(root.session_dir)]

    async def get_own(self, ref: BranchRef, id: str) -> Task:
        """Return a task of a branch's named agent or session; raises ``NotFound``."""
        for task in await self.own(ref):
            if task.id == id:
                return await self.get(task.agent_name, id)
        raise _no_task(paths.root_of(ref).session_id, id)

    async def get(self, agent_name: str, id: str) -> Task:
        """Return one task; raises ``NotFound``."""
        if (running := self._running.get((agent_name, id))) is not None:
            return running.task
        found = await asyncio.to_thread(tasks.get, self.kernel.state, agent_name, id)
        if found is None:
            raise _no_task(agent_name, id)
        return found

    async def wait(self, task: Task, seconds: float) -> Task:
        """Wait up to ``seconds`` for a task to end; return its current state."""
        running = self._running.get((task.agent_name, task.id))
        if running is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await running.ended.wait()
            return running.task
        return await self.get(task.agent_name, task.id)

    async def kill(self, task: Task) -> Task:
        """Kill a task, with SIGTERM first; return its new state. A task that has ended is returned unchanged."""
        running = self._running.get((task.agent_name, task.id))
        if running is None:
            return await self.get(task.agent_name, task.id)
        task, output = running.task, Path(running.task.output_path)
        running.killed = True
        signal_runner(task.pid, task.pid_started, output, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_KILL_S):
                await running.ended.wait()
            return running.task
        signal_runner(task.pid, task.pid_started, output, signal.SIGKILL)  # the whole group ends with the runner
        await running.ended.wait()
        return running.task

    async def end_within(self, directory: Path) -> None:
        """Kill the tasks of a directory to be deleted: of a session, a branch or an agent, with all below it."""
        place = self.kernel.projection.key(directory)
        inside = [
            running.task
            for running in self._running.values()
            if running.task.branch_dir == place or running.task.branch_dir.startswith(f"{place}/")
        ]
        await asyncio.gather(*map(self.kill, inside))

    def directory(self, task: Task) -> Path:
        """Return the directory of a task's branch."""
        return self.kernel.projection.directory(task.branch_dir)

    # -- start and stop of the daemon ---------------------------------------------------------------------------

    async def start(self) -> None:
        """Take over the running tasks of an earlier daemon, and report those that ended meanwhile."""
        try:
            left = await asyncio.to_thread(tasks.find, self.kernel.state, status="running")
        except StoreError as error:
            log.warning("tasks: %s", error)
            return
        for task in left:
            if (task.agent_name, task.id) not in self._running:
                self._watch(_RunningTask(task))

    async def stop(self) -> None:
        """Stop watching; running tasks continue, and the next daemon takes them over."""
        watching = [each.watching for each in self._running.values() if each.watching is not None]
        for each in watching:
            each.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
        self._running.clear()

    # -- inside ------------------------------------------------------------------------------------------------

    async def _take_back(self, beginning: asyncio.Future[Task]) -> None:
        with contextlib.suppress(PyagentdError, OSError):
            await self.kill(await beginning)

    async def _begin(self, ref: BranchRef, command: BackgroundCommand, options: SendOptions) -> Task:
        try:
            if self.kernel.closing:
                raise Busy("The daemon is stopping", hint="Try again in a moment")
            directory = paths.files_dir(ref.branch_dir)
            process, output = await asyncio.to_thread(start, command, directory)
        finally:
            command.enclosure.close()
        task = Task(
            branch_dir=self.kernel.projection.key(ref.branch_dir),
            id="",
            agent_name=paths.root_of(ref).session_id,
            command=command.command,
            cwd=str(command.cwd),
            started_at=iso8601(self.kernel.clock.now()),
            pid=process.pid,
            pid_started=started_of(process.pid),
            output_path=str(output),
            wake=command.wake,
            tool_call_id=command.call_id or None,
        )
        assert process.stdin is not None
        try:
            with process.stdin as word:
                task = await asyncio.to_thread(tasks.put, self.kernel.state, task, most=MOST)
                word.write(b"g")
            await asyncio.to_thread(self._write_agent_file, task)
        except BaseException:
            await asyncio.to_thread(process.wait)
            output.unlink(missing_ok=True)
            raise
        self._watch(_RunningTask(task, process, options))
        self._publish(task)
        return task

    def _watch(self, running: _RunningTask) -> None:
        self._running[running.task.agent_name, running.task.id] = running
        running.watching = asyncio.create_task(self._until_ended(running), name=f"task {running.task.id}")

    async def _until_ended(self, running: _RunningTask) -> None:
        task = running.task
        output = Path(task.output_path)
        try:
            if is_runner(task.pid, task.pid_started, output):
                await runner_gone(task.pid, task.pid_started, output, lambda: self._tick(running))
            if running.process is not None:
                await asyncio.to_thread(running.process.wait)
            await self._on_task_ended(running, await asyncio.to_thread(ending_of, output))
        except Exception:  # outermost handler of this task
            log.exception("task %s of %s", task.id, task.agent_name)
            running.ended.set()
            self._running.pop((task.agent_name, task.id), None)

    async def _on_task_ended(self, running: _RunningTask, ending: CommandEnd) -> None:
        """Report the end of a task to its agent, then record it."""
        at = datetime.fromtimestamp(ending.ended_at, UTC) if ending.ended_at else self.kernel.clock.now()
        status = "killed" if running.killed and ending.status == "lost" else ending.status
        task = replace(running.task, status=status, exit_code=ending.exit_code, ended_at=iso8601(at))
        if task.wake and task.status != "killed":  # whoever killed it knows
            try:
                await self._tell(task, running.options)
            except PyagentdError as error:
                if self.kernel.closing:  # the next daemon reports it
                    return
                log.warning(
                    "task %s of %s: its end could not be told to its session: %s", task.id, task.agent_name, error
                )
        running.task = task
        try:
            await asyncio.to_thread(self._record, task)
        except StoreError as error:
            log.warning("task %s of %s: %s", task.id, task.agent_name, error)
        del self._running[task.agent_name, task.id]
        running.ended.set()
        self._publish(task)

    def _record(self, task: Task) -> None:
        tasks.end(self.kernel.state, task)
        tasks.remove_ended(self.kernel.state, task.agent_name, keep=KEPT)
        self._write_agent_file(task)

    def _write_agent_file(self, task: Task) -> None:
        """Write running and recent tasks to the agent's ``agent.json``, if it has one, for other programs to read."""
        try:
            ref = paths.root_of(paths.ref_of(self.directory(task)))
            directory = named_agents.named_dir(self.kernel.config.agents_dir.resolve(), ref)
            if directory is None:
                return
            found = tasks.find(self.kernel.state, agent_name=task.agent_name)
            found = [each for each in found if self.directory(each).is_relative_to(directory)]
            ended = [each for each in found if each.status != "running"][-RECENT:]
            shown = [each for each in found if each.status == "running" or each in ended]
            named_agents.change(directory, {"running_tasks": list(map(task_record, shown))})
        except PyagentdError as error:
            log.warning("task %s of %s: agent.json does not show it: %s", task.id, task.agent_name, error)

    async def _tell(self, task: Task, options: SendOptions) -> None:
        """Submit the message that wakes the agent, unless the log has it already."""
        ref = paths.ref_of(self.directory(task))
        async with self.kernel.using(ref) as branch:
            known = (*branch.conversation.messages.values(), *branch.conversation.queued.values())
            if any((message.metadata.get("task") or {}).get("output") == task.output_path for message in known):
                return
            text = await asyncio.to_thread(completion, task)
            submission = Submission(
                text=text,
                options=options,
                metadata={"origin": "agent", "task": {"id": task.id, "output": task.output_path}},
            )
            await self.kernel.submit(branch, submission)

    def _tick(self, running: _RunningTask) -> None:
        """Publish the end of a task's output to the clients of its branch, and of all tasks."""
        if self.kernel.opened(str(self.directory(running.task))) is None and not self.kernel.overseers:
            return
        text, _ = tail(Path(running.task.output_path), _SHOWN_BYTES)
        if text != running.shown:
            running.shown = text
            self._publish(running.task, text)

    def _publish(self, task: Task, output: str | None = None) -> None:
        record: dict[str, Any] = {**task_record(task), "agent": task.agent_name, "output": output}
        self.kernel.publish(Event("task", str(self.directory(task)), 0, (record,)))


def _no_task(agent_name: str, id: str) -> NotFound:
    return NotFound(f"{agent_name} has no task {id}", hint="`pyagentd tasks` lists those there are")


# The tools TaskOutput and KillTask: show a background command, and kill it.


_WAIT_MS = 30_000
_MOST_MS = 600_000

_ID = {"type": "string", "minLength": 1, "description": "As Bash returned it: task_001"}

_OUTPUT_SCHEMA = object_schema(
    {"task_id": _ID},
    {
        "block": {"type": "boolean", "description": "Wait for its end (default true)"},
        "timeout_ms": {
            "type": "integer",
            "minimum": 0,
            "maximum": _MOST_MS,
            "description": "Wait no longer than this (default 30000)",
        },
    },
)

_KILL_SCHEMA = object_schema({"task_id": _ID})


def task_tools(tasks: Tasks, ref: BranchRef) -> tuple[ToolSpec, ToolSpec]:
    """Return both tools for the runs of one branch: of a whole session, or of an agent and those below it."""

    async def get(id: str) -> Task:
        try:
            task = await tasks.get_own(ref, id)
            if ref.is_agent and not tasks.directory(task).is_relative_to(ref.branch_dir):
                raise NotFound(f"{id} is not a task of yours")
        except PyagentdError as error:
            raise ToolError(f"{error}. Its id is what Bash returned.") from error
        return task

    async def output(args: Args, ctx: ToolContext) -> Output:
        task = await get(args["task_id"])
        if task.status == "running" and args.get("block", True):
            task = await tasks.wait(task, args.get("timeout_ms", _WAIT_MS) / 1000)
        return Output(text=await asyncio.to_thread(task_for_model, task))

    async def kill(args: Args, ctx: ToolContext) -> Output:
        task = await get(args["task_id"])
        if task.status != "running":
            return Output(text=f"{task.id} has ended before: {task_outcome(task)}")
        return Output(text=await asyncio.to_thread(task_for_model, await tasks.kill(task)))

    return (
        ToolSpec(
            name=OUTPUT,
            description="Look at a command that runs in the background: how it stands, and the end of its output.",
            input_schema=_OUTPUT_SCHEMA,
            kind="meta",
            run=output,
            describe=lambda args, ctx: Target(detail=args["task_id"]),
            parallel_safe=True,
            timeout_s=_MOST_MS / 1000 + 30,
        ),
        ToolSpec(
            name=KILL,
            description="End a command that runs in the background, with all it started.",
            input_schema=_KILL_SCHEMA,
            kind="meta",
            run=kill,
            describe=lambda args, ctx: Target(detail=args["task_id"]),
        ),
    )
