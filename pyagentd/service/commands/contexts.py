"""``/context …``: the conversation saved, put behind, taken up again (SPEC 003 Context Management)."""

from __future__ import annotations

from functools import partial

from pyagentd.agent.commands.command import Answer, Argument, Call, Command
from pyagentd.agent.lifecycle.telling import listing
from pyagentd.service.commands.asking import Asking, run_options
from pyagentd.store import paths

_ID = 8  # characters of an id that are shown


def commands(ask: Asking) -> tuple[Command, ...]:
    """Return the commands."""
    return (
        Command(
            name="context save",
            summary="Save the conversation, which goes on; without a description a model says what it is about",
            arguments=(Argument(name="description", summary="what it is about", takes="rest"),),
            run=partial(_save, ask),
        ),
        Command(
            name="context clear",
            summary="Begin anew without saving; the text stays in the document",
            run=partial(_clear, ask),
        ),
        Command(
            name="context restore",
            summary="Go on with a saved conversation in the place of the present one",
            arguments=(
                Argument(
                    name="id", summary="the id of a saved conversation, or how it begins", required=True,
                    values="contexts",
                ),
            ),
            run=partial(_restore, ask),
        ),
        Command(
            name="context history",
            summary="List the saved conversations, of this agent or another",
            arguments=(Argument(name="agent", summary="the name of an agent", values="agents"),),
            changed_by=(),
            run=partial(_history, ask),
        ),
    )  # fmt: skip


async def _save(ask: Asking, call: Call) -> Answer:
    made = await ask(call, "context-save", branch=call.ref.key, **call.arguments, **run_options(call))
    return Answer(text=f"Context saved: [{made['id'][:_ID]}] {made['description']}", data=made)


async def _clear(ask: Asking, call: Call) -> Answer:
    made = await ask(call, "context-clear", branch=call.ref.key)
    return Answer(text=f"Context cleared. {made['note']}", data=made)


async def _restore(ask: Asking, call: Call) -> Answer:
    """Restore once the command itself stands above what is restored."""
    found = await ask(call, "context-get", branch=call.ref.key, id=call.arguments["id"])

    async def restore() -> None:
        await ask(call, "context-restore", branch=call.ref.key, id=found["id"])

    text = f"Restoring the context [{found['id'][:_ID]}] {found['description']} ({found['message_count']} messages)"
    return Answer(text=text, data=found, then=restore)


async def _history(ask: Asking, call: Call) -> Answer:
    agent = call.arguments.get("agent")
    of = {"agent": agent} if agent else {"branch": call.ref.key}
    found = (await ask(call, "context-history", **of))["contexts"]
    return Answer(text=listing(agent or paths.root_of(call.ref).session_id, found), data={"contexts": found})
