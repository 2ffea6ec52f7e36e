"""Commands in the background: they outlive turn and daemon, and their end is told once (SPEC 003 Running Tasks)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pyagentd.api.background import status_lines
from pyagentd.features.named_agents import create
from pyagentd.features.tasks import Tasks, is_runner, started_of, tail, task_lines, task_record
from pyagentd.policy.presets import DEFAULT_PRESET
from pyagentd.runtime.kernel import Kernel
from pyagentd.store import named_agents
from pyagentd.store.db import tasks as table
from pyagentd.store.db.tasks import Task
from pyagentd.store.paths import BranchRef
from tests.runtime.world import World, assert_closed, body, last_of, rows
from tests.server import answer, tool_use

GRANT = ("tool:Bash:.*",)


def bash(command: str, **more: Any) -> Any:
    return tool_use("Bash", command=command, run_in_background=True, **more)


async def run(world: World, ref: BranchRef, *said: Any) -> list[str]:
    """Have the model say ``said``, in this turn and later ones; return what its calls returned."""
    left = [answer(each) for each in said]
    world.server.rule = lambda request: left.pop(0)
    async with world.kernel.using(ref) as branch:
        await world.kernel.prompt(branch, text="Go.", options=world.granted(*GRANT))
        assert branch.task is not None
        await asyncio.wait([branch.task])
    parts = [row["data_json"] for row in last_of(rows(ref), "part").values()]
    return [json.dumps(part) for part in parts if part["type"].startswith("tool-")]


async def over(kernel: Kernel, name: str) -> list[Task]:
    """Wait until nothing runs and return the tasks of a session."""
    async with asyncio.timeout(60):
        while kernel.feature(Tasks).pending:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return await kernel.feature(Tasks).of(name)


def started(task: Task) -> bool:
    return is_runner(task.pid, task.pid_started, Path(task.output_path))


def woken(ref: BranchRef) -> list[str]:
    messages = last_of(rows(ref), "message").values()
    return [json.dumps(message) for message in messages if message["metadata_json"].get("task")]


def pipe(world: World) -> Path:
    """Return what a command reads until something is written to it."""
    os.mkfifo(world.project / "pipe")
    return world.project / "pipe"


@pytest.mark.spec("003", "Task Tracking")
async def test_a_task_goes_on_when_its_turn_is_over_and_its_end_is_recorded(world: World) -> None:
    ref, fifo = world.session(), pipe(world)
    await run(world, ref, bash(f"cat {fifo} {fifo}-missing"), "Started.")
    (task,) = await world.kernel.feature(Tasks).of(ref.session_id)
    assert (task.id, task.status, task.agent_name) == ("task_001", "running", ref.session_id)
    assert is_runner(task.pid, task.pid_started, Path(task.output_path))
    fifo.write_text("built\n")
    (task,) = await over(world.kernel, ref.session_id)
    assert (task.status, task.exit_code) == ("failed", 1)
    assert tail(Path(task.output_path), 1000)[0].startswith("built\n")
    assert woken(ref) == []


@pytest.mark.spec("003", "Task Tracking: completed or failed with its exit code")
async def test_the_file_of_a_named_agent_says_how_each_ended(world: World) -> None:
    world.preset(DEFAULT_PRESET)
    ref = await create(world.kernel, "bob", permissions="open")
    await run(world, ref, bash("true"), bash("exit 3"), "Started.")
    await over(world.kernel, "bob")
    ended = named_agents.read(ref.session_dir).values["running_tasks"]
    assert [(each["command"], each["status"], each["exit_code"]) for each in ended] == [
        ("true", "completed", 0),
        ("exit 3", "failed", 3),
    ]


async def test_its_end_begins_a_turn_when_it_was_asked_for(world: World) -> None:
    ref, fifo = world.session(), pipe(world)
    await run(world, ref, bash(f"cat {fifo}", wake=True), "Started.", "I see.")
    fifo.write_text("all done\n")
    await over(world.kernel, ref.session_id)
    async with world.kernel.using(ref) as branch:
        if branch.task is not None:
            await asyncio.wait([branch.task])
    assert len(woken(ref)) == 1
    assert "all done" in body(ref) and "I see." in body(ref)
    assert_closed(ref)


async def test_another_daemon_takes_it_over_and_tells_its_end(world: World) -> None:
    ref, fifo = world.session(), pipe(world)
    await run(world, ref, bash(f"cat {fifo}", wake=True), "Started.", "I see.")
    await world.kernel.shutdown()
    kernel = world.start()
    await kernel.feature(Tasks).start()
    assert kernel.feature(Tasks).pending == 1
    fifo.write_text("all done\n")
    (task,) = await over(kernel, ref.session_id)
    assert (task.status, task.exit_code) == ("completed", 0)
    assert len(woken(ref)) == 1


async def test_what_ended_while_no_daemon_ran_is_known_and_what_left_nothing_is_lost(world: World) -> None:
    ref, fifo = world.session(), pipe(world)
    await run(world, ref, bash(f"cat {fifo}"), bash("sleep 600"), "Started.")
    ends, dies = await world.kernel.feature(Tasks).of(ref.session_id)
    await world.kernel.shutdown()
    fifo.write_text("all done\n")
    os.killpg(dies.pid, signal.SIGKILL)
    async with asyncio.timeout(60):
        while any(map(started, (ends, dies))):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await world.start().feature(Tasks).start()
    ends, dies = await over(world.kernel, ref.session_id)
    assert (ends.status, ends.exit_code) == ("completed", 0)
    assert (dies.status, dies.exit_code) == ("lost", None)


async def test_one_is_killed_with_all_it_started(world: World) -> None:
    ref = world.session()
    await run(world, ref, bash("sleep 600 | cat"), "Started.", "Not told.")
    (task,) = await world.kernel.feature(Tasks).of(ref.session_id)
    task = await world.kernel.feature(Tasks).kill(task)
    assert task.status == "killed"
    assert not is_runner(task.pid, task.pid_started, Path(task.output_path))
    assert await world.kernel.feature(Tasks).kill(task) == task


async def test_a_process_with_the_same_id_is_not_taken_for_it(world: World) -> None:
    ref = world.session()
    await run(world, ref, bash("sleep 600"), "Started.")
    (task,) = await world.kernel.feature(Tasks).of(ref.session_id)
    output = Path(task.output_path)
    assert is_runner(task.pid, task.pid_started, output)
    assert not is_runner(task.pid, task.pid_started + 1, output)
    assert not is_runner(task.pid, task.pid_started, output.with_name("task-other.txt"))
    assert not is_runner(os.getpid(), started_of(os.getpid()), output)
    await world.kernel.feature(Tasks).kill(task)


async def test_the_model_looks_at_it_and_ends_it(world: World) -> None:
    ref = world.session()
    calls = tool_use("TaskOutput", task_id="task_001", block=False), tool_use("KillTask", task_id="task_001")
    told = await run(world, ref, bash("sleep 600"), *calls, tool_use("TaskOutput", task_id="task_009"), "Bye.")
    assert "Started in the background as task_001" in told[0]
    assert "task_001 (sleep 600): running" in told[1] and "task_001 (sleep 600): killed" in told[2]
    assert "has no task task_009" in told[3]


async def test_it_ends_with_its_session(world: World) -> None:
    ref = world.session()
    await run(world, ref, bash("sleep 600"), "Started.")
    await world.kernel.feature(Tasks).end_within(ref.session_dir)
    (task,) = await world.kernel.feature(Tasks).of(ref.session_id)
    assert task.status == "killed"


def test_ids_are_counted_for_each_agent_and_only_so_many_run(world: World) -> None:
    task = Task(
        branch_dir="a/branches/main", id="", agent_name="a", command="make", cwd="/",
        started_at="2026-02-12T10:00:00Z", pid=1, pid_started=1, output_path="/x",
    )  # fmt: skip
    world.session()  # there is a place for the table
    state = world.kernel.state
    assert [table.put(state, task, most=2).id for _ in range(2)] == ["task_001", "task_002"]
    assert table.put(state, replace(task, agent_name="b"), most=2).id == "task_001"
    with pytest.raises(table.TooMany):
        table.put(state, task, most=2)


@pytest.mark.spec("003", "Viewing Tasks: /tasks")
def test_tasks_are_listed_as_specified() -> None:
    build = Task(
        branch_dir="", id="task_001", agent_name="frontend-agent", command="npm run build", cwd="/", pid=12345,
        started_at="2026-02-12T10:00:00Z", pid_started=1, output_path="/x",
    )  # fmt: skip
    test = replace(
        build, id="task_003", command="npm test", status="completed", exit_code=0, ended_at="2026-02-12T10:04:30Z"
    )
    shown = task_lines("frontend-agent", [build, test], datetime(2026, 2, 12, 10, 5, tzinfo=UTC))
    assert shown.splitlines() == [
        "Running tasks for frontend-agent:",
        "  [task_001] npm run build        running   (started 5 min ago, PID 12345)",
        "",
        "Recently completed:",
        "  [task_003] npm test             completed (exit 0, 30 sec ago)",
    ]
    assert task_record(build) == {
        "id": "task_001", "command": "npm run build", "started_at": "2026-02-12T10:00:00Z", "pid": 12345,
        "status": "running",
    }  # fmt: skip


@pytest.mark.spec("003", "Viewing Tasks: /status")
def test_an_agents_status_is_told_as_specified() -> None:
    build = Task(
        branch_dir="", id="task_001", agent_name="frontend-agent", command="npm run build", cwd="/", pid=12345,
        started_at="2026-02-12T10:00:00Z", pid_started=1, output_path="/x",
    )  # fmt: skip
    facts = {
        "agent": "frontend-agent", "model": "claude-sonnet-4-20250514", "permissions": "standard", "status": "active",
        "messages": 37, "last_at": "2026-02-12T10:00:00Z",
        "saved": {"saved_at": "2026-02-12T09:00:00Z", "description": "Initial project setup"},
    }  # fmt: skip
    assert status_lines(facts, [build], datetime(2026, 2, 12, 10, 5, tzinfo=UTC)).splitlines() == [
        "Agent: frontend-agent",
        "Model: claude-sonnet-4-20250514",
        "Permissions: standard",
        "Status: active",
        "Session: active (37 messages, idle 5 min)",
        "",
        "Running tasks:",
        "  [task_001] npm run build (running, 5 min)",
        "",
        "Last session saved: 2026-02-12 09:00 - Initial project setup",
    ]


def test_a_sessions_status_calls_it_a_session_and_says_when_no_model_answers() -> None:
    facts = {
        "agent": "tea-20260212090000", "title": "Tea", "model": "claude-opus-4-5", "stand_in": True,
        "permissions": "", "status": "idle", "messages": 0, "last_at": None, "saved": None,
    }  # fmt: skip
    lines = status_lines(facts, [], datetime(2026, 2, 12, 10, 5, tzinfo=UTC)).splitlines()
    assert lines[:2] == [
        "Session: Tea (tea-20260212090000)",
        "Model: none: the offline stand-in answers (PYAGENTD_BACKEND=offline)",
    ]
    assert lines[4] == "Conversation: none"
