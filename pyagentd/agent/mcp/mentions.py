"""Resources of servers in a message: ``@server:uri`` in what a person wrote has the model read what that holds.

The document keeps what was written; the message's row says what the model saw, so it sees the same ever after. Only
what a person typed is looked at: a trigger, an agent, a hook or a server must not have resources read that nobody
asked for, and what a server says links none of the branch's files.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import quoteattr

from pyagentd.agent.branches.branch import LiveBranch
from pyagentd.agent.hooking.hooks import with_text
from pyagentd.agent.mcp.servers import Server, by_name
from pyagentd.agent.running.settings import SendOptions
from pyagentd.agent.turns.queue import is_persons
from pyagentd.agent.turns.turn import Prompt
from pyagentd.errors import ToolError
from pyagentd.store import paths
from pyagentd.store.attachments import unlinked
from pyagentd.tools import spool
from pyagentd.tools.mcp.toolspecs import told

if TYPE_CHECKING:
    from pyagentd.agent.host import Host

MOST = 10  # in one message
SERVERS = "server"
"""The ``origin`` of a message that a server wrote and a person sent: all of it is text."""
_WAIT_S = 8.0  # for all of them: whoever sends waits
_SHOWN_BYTES = 100_000  # of each

_MENTION = re.compile(r"(?<![\w@/.])@([A-Za-z0-9][\w-]{0,31}):([^\s\"'<>`]+)")
_BEHIND = ".,;:!?)]}*_"  # what ends a sentence and not an address


def mentioned(text: str, known: Sequence[str]) -> list[tuple[str, str]]:
    """Return what a text mentions of the servers ``known``: names and addresses, each once, in its order."""
    found = ((name, uri.rstrip(_BEHIND)) for name, uri in _MENTION.findall(text))
    return list(dict.fromkeys((name, uri) for name, uri in found if name in known and ":" in uri))[:MOST]


async def included(host: Host, branch: LiveBranch, prompt: Prompt, options: SendOptions) -> Prompt:
    """Return a prompt with what it mentions, for the model to see."""
    is_typed = is_persons(prompt.metadata) and prompt.metadata.get("origin") != SERVERS
    if prompt.message_id or branch.ref.is_agent or not is_typed or not _MENTION.search(prompt.text):
        return prompt
    servers = by_name(await host.servers.of_branch(branch, options))
    found = mentioned(prompt.text, list(servers))
    if not found:
        return prompt
    directory = paths.files_dir(branch.ref.branch_dir)
    reading = [asyncio.ensure_future(_read(servers[name], uri, directory)) for name, uri in found]
    _, late = await asyncio.wait(reading, timeout=_WAIT_S)
    for task in late:
        task.cancel()
    parts = [
        _part(name, uri, None if task in late else task) for (name, uri), task in zip(found, reading, strict=True)
    ]
    for _, problem in parts:
        if problem:
            host.servers.notice(branch.key, problem)
    text = str(prompt.metadata.get("model_text") or prompt.text)
    whole = "\n\n".join([text, *(part for part, _ in parts)])
    view = with_text(prompt.view, text, whole)
    if view is None:
        return prompt
    return replace(prompt, view=view, metadata={**prompt.metadata, "model_text": whole})


def _part(name: str, uri: str, task: asyncio.Task[str] | None) -> tuple[str, str]:
    """Return what the model sees of a mention, and what the user is told where it could not be read."""
    try:
        if task is None:
            raise ToolError(f"it was not there within {_WAIT_S:g} s; send the message again in a moment")
        return f"<resource server={quoteattr(name)} uri={quoteattr(uri)}>\n{task.result()}\n</resource>", ""
    except (ToolError, OSError) as error:
        problem = f"@{name}:{uri} could not be read: {error}"
        return f"[{problem}]", problem


async def _read(server: Server, uri: str, directory: Path) -> str:
    pieces = await server.connection.read(uri)

    def text() -> str:
        whole = "\n".join(told([replace(piece, uri="") for piece in pieces], directory, server.name))
        shown = spool.head(whole, _SHOWN_BYTES)
        kept = "" if shown == whole else spool.notice(shown, spool.save(directory, server.name, whole))
        return unlinked(shown) + kept

    return await asyncio.to_thread(text)
