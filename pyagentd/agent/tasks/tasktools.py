"""The tools TaskOutput and KillTask: look at a command in the background, and end it."""

from __future__ import annotations

import asyncio
from typing import Protocol

from pyagentd.agent.tasks import telling
from pyagentd.errors import PyagentdError, ToolError
from pyagentd.store.db.tasks import Task
from pyagentd.tools.spec import Args, Output, Target, ToolContext, ToolSpec

OUTPUT = "TaskOutput"
KILL = "KillTask"
NAMES = (OUTPUT, KILL)

_WAIT_MS = 30_000
_MOST_MS = 600_000

_ID = {"type": "string", "minLength": 1, "description": "As Bash returned it: task_001"}

_OUTPUT_SCHEMA = {
    "type": "object",
    "properties": {
        "task_id": _ID,
        "block": {"type": "boolean", "description": "Wait for its end (default true)"},
        "timeout_ms": {
            "type": "integer",
            "minimum": 0,
            "maximum": _MOST_MS,
            "description": "Wait no longer than this (default 30000)",
        },
    },
    "required": ["task_id"],
    "additionalProperties": False,
}

_KILL_SCHEMA = {
    "type": "object",
    "properties": {"task_id": _ID},
    "required": ["task_id"],
    "additionalProperties": False,
}


class Known(Protocol):
    """The tasks a run may look at."""

    async def get(self, id: str) -> Task:
        """Return a task; raises ``NotFound``."""
        ...

    async def wait(self, task: Task, seconds: float) -> Task:
        """Return the task when it has ended, or as it is after ``seconds``."""
        ...

    async def kill(self, task: Task) -> Task:
        """End a task."""
        ...


def task_tools(tasks: Known) -> dict[str, ToolSpec]:
    """Return both tools by name, for one run."""

    async def output(args: Args, ctx: ToolContext) -> Output:
        task = await _get(tasks, args["task_id"])
        if task.status == "running" and args.get("block", True):
            task = await tasks.wait(task, args.get("timeout_ms", _WAIT_MS) / 1000)
        return Output(text=await asyncio.to_thread(telling.shown, task))

    async def kill(args: Args, ctx: ToolContext) -> Output:
        task = await _get(tasks, args["task_id"])
        if task.status != "running":
            return Output(text=f"{task.id} has ended before: {telling.ended(task)}")
        return Output(text=await asyncio.to_thread(telling.shown, await tasks.kill(task)))

    return {
        OUTPUT: ToolSpec(
            name=OUTPUT,
            description="Look at a command that runs in the background: how it stands, and the end of its output.",
            input_schema=_OUTPUT_SCHEMA,
            kind="meta",
            run=output,
            describe=lambda args, ctx: Target(detail=args["task_id"]),
            parallel_safe=True,
            timeout_s=_MOST_MS / 1000 + 30,
        ),
        KILL: ToolSpec(
            name=KILL,
            description="End a command that runs in the background, with all it started.",
            input_schema=_KILL_SCHEMA,
            kind="meta",
            run=kill,
            describe=lambda args, ctx: Target(detail=args["task_id"]),
        ),
    }


async def _get(tasks: Known, id: str) -> Task:
    try:
        return await tasks.get(id)
    except PyagentdError as error:
        raise ToolError(f"{error}. Its id is what Bash returned.") from error
