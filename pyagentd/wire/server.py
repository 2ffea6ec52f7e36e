"""The server: listens, authenticates, and routes calls to operations by name.

Everything happens in one event loop. An operation is ``async def name(client, *, key=…)``; it is offered under its
name in kebab-case, gets the call's plist as keyword arguments (see ``operations``), and answers with a value or an
error of our tree. Blocking work belongs into a thread or a process.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from pyagentd.clock import Pulse
from pyagentd.errors import PyagentdError
from pyagentd.wire.connection import Client, Connection
from pyagentd.wire.operations import Operation, operation

HELLO_TIMEOUT_S: Final = 5.0
GRACE_S: Final = 1.0

_log = logging.getLogger(__name__)


class Server:
    """Offers operations to clients.

    Args:
        operations: Name → ``async def (client, *, …)``; None: they come later, see ``offer``.
        pulse: The heartbeat events leave at.
        greeting: What ``hello`` is answered beside the protocol's number.
        token: What a peer on TCP must present.
        on_connect: Called with each client that has introduced itself.
        on_disconnect: Called with each of them when its connection has ended.
        hello_timeout_s: How long a peer may take to introduce itself.
        own_children: Whether a process that this one started may be a client.
    """

    def __init__(
        self,
        operations: Mapping[str, Callable[..., Awaitable[Any]]] | None = None,
        *,
        pulse: Pulse,
        greeting: Mapping[str, Any] | None = None,
        token: str = "",
        on_connect: Callable[[Client], None] | None = None,
        on_disconnect: Callable[[Client], None] | None = None,
        hello_timeout_s: float = HELLO_TIMEOUT_S,
        own_children: bool = True,
    ) -> None:
        self.operations: Mapping[str, Operation] | None = None
        self.offered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.pulse = pulse
        self.greeting: Mapping[str, Any] = greeting or {}
        self.hello_timeout_s = hello_timeout_s
        self.own_children = own_children  # whether a process that this one started may be a client
        self.clients: set[Client] = set()
        self._token = token
        self._on_connect = on_connect
        self._on_disconnect = on_disconnect
        self._listeners: list[asyncio.Server] = []
        self._connections: set[Connection] = set()
        if operations is not None:
            self.offer(operations, on_disconnect=on_disconnect)

    def offer(
        self,
        operations: Mapping[str, Callable[..., Awaitable[Any]]],
        *,
        on_disconnect: Callable[[Client], None] | None = None,
    ) -> None:
        """Begin to answer calls; those that came before are answered in their order."""
        offered = [operation(name, run) for name, run in operations.items()]
        self.operations = {each.name: each for each in offered}
        self._on_disconnect = on_disconnect
        self.offered.set_result(None)

    def refuse(self, error: PyagentdError) -> None:
        """Answer the calls that wait, and all others, with an error: there will be no operations."""
        self.offered.set_exception(error)
        self.offered.exception()  # it is no fault that nobody waits for it

    async def listen(self, listener: socket.socket) -> None:
        """Accept connections on a bound socket; on a unix socket from the same user, on TCP with the token."""
        loop = asyncio.get_running_loop()
        if listener.family == socket.AF_UNIX:
            server = await loop.create_unix_server(self._local, sock=listener)
        else:
            if not self._token:
                raise ValueError("TCP needs a token")
            server = await loop.create_server(self._remote, sock=listener)
        self._listeners.append(server)

    async def close(self, grace_s: float = GRACE_S) -> None:
        """Stop listening, let calls and answers finish for ``grace_s``, then end what is left.

        Not for use inside an operation, whose own answer it would wait for.
        """
        for listener in self._listeners:
            listener.close()
        await self._finish_calls(grace_s)
        ended = [connection.ended for connection in self._connections]
        for connection in self._connections:
            connection.close()
        if ended:
            await asyncio.wait(ended, timeout=grace_s)
        for connection in tuple(self._connections):
            connection.abort()

    async def _finish_calls(self, grace_s: float) -> None:
        calls = {task for connection in self._connections for task in connection.tasks}
        if not calls:
            return
        _, late = await asyncio.wait(calls, timeout=grace_s)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    def opened(self, client: Client) -> None:
        """Take note of a client that has introduced itself."""
        self.clients.add(client)
        _log.info("%r connected", client)
        if self._on_connect is not None:
            self._on_connect(client)

    def closed(self, connection: Connection, client: Client | None) -> None:
        """Take note of the end of a connection."""
        self._connections.discard(connection)
        if client is None:
            return
        self.clients.discard(client)
        _log.info("%r disconnected", client)
        if self._on_disconnect is not None:
            self._on_disconnect(client)

    def _local(self) -> Connection:
        return self._accept(Connection(self, None))

    def _remote(self) -> Connection:
        return self._accept(Connection(self, self._token))

    def _accept(self, connection: Connection) -> Connection:
        self._connections.add(connection)
        return connection
