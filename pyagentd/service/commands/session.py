"""Commands about the conversation in which they are typed: how it stands, what runs behind it, its length."""

from __future__ import annotations

from functools import partial

from pyagentd.agent.commands.command import Answer, Argument, Call, Command
from pyagentd.service.commands.asking import Asking, run_options

_TASK = Argument(name="id", summary="the id of a task", required=True, values="tasks")


def commands(ask: Asking) -> tuple[Command, ...]:
    """Return the commands."""
    return (
        Command(
            name="status",
            summary="Show how this agent or session stands: model, permissions, conversation, tasks",
            changed_by=(),
            run=partial(_status, ask),
        ),
        Command(
            name="tasks",
            summary="List the background commands of this agent or session",
            changed_by=(),
            run=partial(_tasks, ask),
        ),
        Command(
            name="tasks output",
            summary="Show the end of what a background command printed",
            arguments=(_TASK,),
            changed_by=(),
            run=partial(_output, ask),
        ),
        Command(
            name="tasks kill",
            summary="End a background command with all it started",
            arguments=(_TASK,),
            run=partial(_kill, ask),
        ),
        Command(
            name="compact",
            summary="Summarise everything said so far, so that there is room again",
            arguments=(Argument(name="instructions", summary="what to keep", takes="rest"),),
            run=partial(_compact, ask),
        ),
    )


async def _status(ask: Asking, call: Call) -> Answer:
    told = await ask(call, "agent-status", branch=call.ref.key, **run_options(call))
    return Answer(text=told["text"], data={key: value for key, value in told.items() if key != "text"})


async def _tasks(ask: Asking, call: Call) -> Answer:
    told = await ask(call, "tasks", branch=call.ref.key)
    return Answer(text=told["text"], data={"tasks": told["tasks"]})


async def _output(ask: Asking, call: Call) -> Answer:
    told = await ask(call, "task-output", branch=call.ref.key, id=call.arguments["id"])
    printed = told["output"].rstrip("\n")
    return Answer(text=printed or f"{told['id']} has printed nothing", data=told)


async def _kill(ask: Asking, call: Call) -> Answer:
    told = await ask(call, "task-kill", branch=call.ref.key, id=call.arguments["id"])
    return Answer(text=f"{told['id']} {told['status']}", data=told)


async def _compact(ask: Asking, call: Call) -> Answer:
    """Compact below the command, which is no part of what is summarised."""

    async def compact() -> str:
        begun = await ask(call, "compact", branch=call.ref.key, **call.arguments, **run_options(call))
        return str(begun["run"])

    return Answer(text="What was said above is summarised.", then=compact)
