"""``/model`` and ``/models``: which model answers here, and which there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from pyagentd.agent.commands.command import Answer, Argument, Call, Command
from pyagentd.service.commands.asking import Asking, run_options


def commands(ask: Asking) -> tuple[Command, ...]:
    """Return the commands."""
    return (
        Command(
            name="model",
            summary="Show which model answers here, or have another one answer from now on",
            arguments=(Argument(name="model", summary="a model, [BACKEND/]NAME", values="models"),),
            changed_by=("model",),
            run=partial(_model, ask),
        ),
        Command(
            name="models",
            summary="List the models that can be had",
            arguments=(Argument(name="refresh", summary="ask the providers anew", takes="flag"),),
            changed_by=(),
            run=partial(_models, ask),
        ),
    )


async def _model(ask: Asking, call: Call) -> Answer:
    told = await ask(call, "model", branch=call.ref.key, **call.arguments, **run_options(call))
    name = f"{told['model'] or 'the default model'} of {told['backend']}"
    if "model" not in call.arguments:
        return Answer(text=f"{name} answers here", data=told)
    text = f"{name} answers from now on"
    return Answer(text=f"{text}\n{told['note']}" if told["note"] else text, data=told)


async def _models(ask: Asking, call: Call) -> Answer:
    told = await ask(call, "models", **call.arguments, **run_options(call))
    return Answer(text=listing(told["providers"]), data=told)


def listing(providers: Sequence[Mapping[str, Any]]) -> str:
    """Return the lines that people read of what the operation ``models`` answers."""
    lines: list[str] = []
    for each in providers:
        at = f", listed {each['checked_at']}" if each["checked_at"] else ""
        trouble = f": {each['trouble']}" if each["trouble"] else ""
        usable = f"{'usable' if each['valid'] else 'not usable'}{at}"
        if each.get("stand_in"):
            usable = "a stand-in that answers without a model; chosen by PYAGENTD_BACKEND=offline or offline/NAME"
        lines += ["", f"{each['name']} ({usable}){trouble}"]
        lines += [f"  {name}" for name in each["models"] or ()]
    return "\n".join(lines[1:])
