"""The servers of tools that an editor names, as tables of the daemon's configuration; pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from acp import schema

from pyagentd.errors import BadRequest

_LONGEST: Final = 32  # characters of a name
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_-]+")


def tables(given: Sequence[Any]) -> list[dict[str, Any]]:
    """Return what the daemon's operation ``lend-mcp`` takes; names are made such as rules can have.

    Raises:
        BadRequest: One is reached in a way that we do not know.
    """
    return [_table(each) for each in given]


def _table(server: Any) -> dict[str, Any]:
    name = _UNFIT.sub("-", server.name).strip("-_")[:_LONGEST] or "server"
    match server:
        case schema.McpServerStdio():
            env = {each.name: each.value for each in server.env or ()}
            return {"name": name, "command": [server.command, *(server.args or ())], "env": env}
        case schema.HttpMcpServer():
            headers = {each.name: each.value for each in server.headers or ()}
            return {"name": name, "url": server.url, "headers": headers}
    kind = str(getattr(server, "type", "") or "unknown")
    raise BadRequest(
        f"The MCP server {server.name} has the type {kind}, which cannot be reached",
        mend="Known: stdio, http (streamable HTTP)",
    )
