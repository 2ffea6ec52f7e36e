"""Prompts of servers as slash commands: ``/server:prompt ARGUMENTS`` puts what the server makes of it to the model.

Which there are is known since a server last said so, be it to an earlier daemon; none is started only to be asked.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyagentd.agent.commands.command import Answer, Argument, Call, Command
from pyagentd.agent.mcp.mentions import SERVERS
from pyagentd.agent.mcp.servers import Server
from pyagentd.agent.running.settings import SendOptions
from pyagentd.errors import BadRequest, ToolError
from pyagentd.store import paths
from pyagentd.store.attachments import unlinked
from pyagentd.store.paths import BranchRef
from pyagentd.tools.mcp.connection import ServerPrompt
from pyagentd.tools.mcp.toolspecs import told

if TYPE_CHECKING:
    from pyagentd.agent.host import Host

_NO_NAME = re.compile(r"[^\w.-]")
_SUMMARY = 200  # characters


class Prompts:
    """The prompts of all servers; a ``commands.Source``."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def commands(self, ref: BranchRef | None) -> Sequence[Command]:
        """Return the prompts of the servers of a session, those that are known."""
        branch = None if ref is None else self._host.opened(ref.key)
        if branch is None:
            return ()
        servers = await self._host.servers.of_branch(branch, SendOptions())
        return [_command(server, prompt) for server in servers for prompt in server.connection.prompts]


def _command(server: Server, prompt: ServerPrompt) -> Command:
    async def run(call: Call) -> Answer:
        args = {name: str(value) for name, value in _given(prompt, call)}
        try:
            messages = await server.connection.prompt(prompt.name, args)
            directory = paths.files_dir(call.ref.branch_dir)
            texts = await asyncio.to_thread(told, [piece for _, piece in messages], directory, server.name)
        except ToolError as error:
            raise BadRequest(str(error)) from error
        said = "\n\n".join(
            text if role == "user" else f"[You said:]\n{text}"
            for (role, _), text in zip(messages, texts, strict=True)
        )
        if not said.strip():
            raise BadRequest(f"The MCP server {server.name} made nothing of its prompt {prompt.name}")
        text = f"The prompt {prompt.name} of the MCP server {server.name}"
        return Answer(text=text, prompt=unlinked(said), prompt_origin=SERVERS)

    return Command(
        name=f"{server.name}:{_NO_NAME.sub('_', prompt.name)}",
        summary=" ".join(prompt.description.split())[:_SUMMARY] or f"A prompt of {server.name}",
        run=run,
        arguments=tuple(_arguments(prompt)),
        changed_by=(),
        origin=server.name,
    )


def _arguments(prompt: ServerPrompt) -> Iterator[Argument]:
    last = len(prompt.arguments) - 1
    for index, (name, required) in enumerate(prompt.arguments):
        yield Argument(name=name, required=required, takes="rest" if index == last else "word")


def _given(prompt: ServerPrompt, call: Call) -> Iterator[tuple[str, object]]:
    for name, _ in prompt.arguments:
        if (value := call.arguments.get(name)) not in (None, ""):
            yield name, value
