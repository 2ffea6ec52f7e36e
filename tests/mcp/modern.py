"""A server made with the official SDK, which speaks the newest protocol: ``modern.py [PORT-FILE TOKEN]``.

With a file it is reached by streamable HTTP, at the port that it writes there, by who has the token; else over pipes.
"""

import asyncio
import socket
import sys
from pathlib import Path

from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

server = MCPServer("modern", instructions="Add things.")


class Sum(BaseModel):
    total: int


@server.tool()
def add(a: int, b: int) -> Sum:
    """Add two numbers."""
    return Sum(total=a + b)


@server.tool()
async def grow(ctx: Context) -> str:
    """Offer another tool from now on."""
    server.add_tool(add, name="grown")
    await ctx.notify_tools_changed()
    return "grown"


@server.tool()
def ask() -> str:
    """Fail."""
    raise ValueError("out of paper")


@server.resource("memo://today")
def today() -> str:
    return "Buy milk."


@server.prompt()
def greet(name: str) -> str:
    return f"Say hello to {name}."


class Guard:
    """Lets those through who have the token."""

    def __init__(self, app, token: str) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] == "http" and (b"authorization", f"Bearer {self._token}".encode()) not in scope["headers"]:
            is_other = any(name == b"authorization" and value == b"Bearer oauth" for name, value in scope["headers"])
            login = b'Bearer resource_metadata="https://example.org/.well-known/oauth-protected-resource"'
            headers = [(b"www-authenticate", login)] if is_other else []
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": b""})
            return
        await self._app(scope, receive, send)


async def serve(port_file: Path, token: str) -> None:
    import uvicorn

    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(Guard(server.streamable_http_app(), token), log_level="warning")
    port_file.with_suffix(".new").write_text(str(listener.getsockname()[1]))
    port_file.with_suffix(".new").rename(port_file)
    await uvicorn.Server(config).serve(sockets=[listener])


if len(sys.argv) > 2:
    asyncio.run(serve(Path(sys.argv[1]), sys.argv[2]))
else:
    server.run()
