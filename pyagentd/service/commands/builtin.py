"""All commands that come with pyagentd, and ``/help``, which tells of these and all others."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from pyagentd.agent.commands.command import Answer, Argument, Call, Command, Commands
from pyagentd.errors import NotFound, did_you_mean
from pyagentd.service.commands import agents, contexts, models, session
from pyagentd.service.commands.asking import Asking, Operations, columns

if TYPE_CHECKING:
    from pyagentd.store.paths import BranchRef


class Builtin:
    """The source of these commands.

    Args:
        operations: What clients can ask for.
        known: All commands of all sources, of which ``/help`` tells.
    """

    def __init__(self, operations: Operations, known: Commands) -> None:
        ask = Asking(operations)
        self._commands = (
            Command(
                name="help",
                summary="List the commands, or tell of one",
                arguments=(Argument(name="command", summary="a command", takes="rest", values="commands"),),
                changed_by=(),
                run=partial(_help, known),
            ),
            *agents.commands(ask),
            *contexts.commands(ask),
            *session.commands(ask),
            *models.commands(ask),
            *agents.settings_commands(ask),
        )

    async def commands(self, ref: BranchRef | None) -> Sequence[Command]:
        """Return them; they are the same everywhere."""
        return self._commands


async def _help(known: Commands, call: Call) -> Answer:
    found = await known.of(call.ref)
    wanted = " ".join(str(call.arguments.get("command") or "").removeprefix("/").split())
    if not wanted:
        rows = [(command.synopsis, command.summary) for command in found.values()]
        return Answer(text=columns(rows), data={"commands": [told(command) for command in found.values()]})
    own = [command for name, command in found.items() if name == wanted or name.startswith(f"{wanted} ")]
    if not own:
        raise NotFound(f"There is no command /{wanted[:60]}", mend=did_you_mean(wanted, found))
    return Answer(text="\n\n".join(map(_told_whole, own)), data={"commands": [told(command) for command in own]})


def _told_whole(command: Command) -> str:
    rows = [(f"  {each.hint}", each.summary or ", ".join(each.choices)) for each in command.arguments]
    return "\n".join(filter(None, (command.synopsis, command.summary, columns(rows))))


def told(command: Command) -> dict[str, object]:
    """Return a command as clients are told of it, see ``commands``."""
    return {
        "name": command.name,
        "summary": command.summary,
        "synopsis": command.synopsis,
        "origin": command.origin,
        "arguments": [
            {
                "name": each.name,
                "hint": each.hint,
                "summary": each.summary,
                "required": each.required,
                "takes": each.takes,
                "values": each.values,
                "choices": list(each.choices),
            }
            for each in command.arguments
        ],
    }
