"""The servers of tools that an editor lends, and a daemon that does not know of lending."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pyagentd.acp.conversation import Conversation
from pyagentd.errors import Unreachable, WireError

SERVER = {"name": "notes", "command": ["notes"]}


class Older:
    """A daemon of the time before."""

    def __init__(self, error: WireError) -> None:
        self.error = error

    async def call(self, method: str, **arguments: Any) -> Any:
        raise self.error


def conversation(tmp_path: Path, error: WireError) -> Conversation:
    daemon: Any = Older(error)
    editor: Any = None
    return Conversation("s", tmp_path, daemon, editor)


async def test_an_editor_without_servers_opens_sessions_of_an_older_daemon(tmp_path: Path) -> None:
    opened = conversation(tmp_path, WireError("No such method: lend-mcp"))
    await opened.lend([])
    with pytest.raises(WireError, match="lend-mcp"):
        await opened.lend([SERVER])


async def test_a_daemon_that_is_gone_is_told(tmp_path: Path) -> None:
    with pytest.raises(Unreachable):
        await conversation(tmp_path, Unreachable("The daemon has ended")).lend([])
