"""The standard input and output of a server, as the SDK wants them: a message is a line of JSON.

In place of the SDK's own ``stdio_client``, for three things: a line has a bound, what a server says on its standard
error is kept to be told, and it gets exactly the environment it should. It has a process group of its own, which is
ended with the connection. Loaded when the first server is started.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from pyagentd.tools.mcp.launch import Launch, make_apart
from pyagentd.tools.process import Group

MOST_BYTES = 32 * 1024 * 1024  # of one message
TOO_LONG = f"it sent a message of more than {MOST_BYTES // 1024 // 1024} MB"
CHUNK = 65536
_TAIL = 4000  # bytes of standard error that are kept
_LEAVE_S = 1.0  # for ending by itself once its input is closed, as the protocol has it

_PIPE = asyncio.subprocess.PIPE

Incoming = MemoryObjectSendStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]

log = logging.getLogger(__name__)


class Program:
    """The program of one server while it runs.

    Attributes:
        problem: Why the connection ended, where that is not that the program did.
    """

    def __init__(self, launch: Launch, group: Group, ended: Callable[[], None]) -> None:
        self._launch = launch
        self._group = group
        self._process = group.process
        self._ended = ended
        self._said = bytearray()
        self.problem = ""

    def told(self) -> str:
        """Return how it ended and its last words, for people; "" while it runs and has said nothing."""
        words = bytes(self._said).decode(errors="replace").strip().splitlines()[-5:]
        code = self._process.returncode
        ended = "" if code is None else f"it ended with {code}" if code >= 0 else f"signal {-code} ended it"
        return ": ".join(filter(None, (self.problem or ended, " / ".join(words))))

    async def read(self, stream: Incoming) -> None:
        """Pass on what it says until it says no more; a message that is too long ends it."""
        out, pending = self._process.stdout, bytearray()
        assert out is not None
        try:
            async with stream:
                while chunk := await out.read(CHUNK):
                    first, *lines = chunk.split(b"\n")
                    pending += first
                    for line in lines:
                        await self._pass_on(bytes(pending), stream)
                        pending = bytearray(line)
                    if len(pending) > MOST_BYTES:
                        self.problem = TOO_LONG
                        return
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # nobody listens any more
        finally:
            self._ended()

    async def _pass_on(self, line: bytes, stream: Incoming) -> None:
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            if line.strip():  # a program that greets its user on its standard output, most likely
                log.debug("mcp server %s: no message: %r", self._launch.name, line[:200])
            return
        await stream.send(SessionMessage(message))

    async def write(self, stream: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """Send it what comes, until nothing more comes or it does not listen any more."""
        into = self._process.stdin
        assert into is not None
        with suppress(OSError):
            async with stream:
                async for message in stream:
                    into.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                    await into.drain()

    async def listen(self) -> None:
        """Keep the end of what it says on its standard error."""
        errors = self._process.stderr
        assert errors is not None
        while chunk := await errors.read(CHUNK):
            self._said += chunk
            del self._said[:-_TAIL]
            log.debug("mcp server %s: %s", self._launch.name, chunk.decode(errors="replace").rstrip())

    async def end(self) -> None:
        """Have it end, first by closing its input."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(_LEAVE_S):
                await self._process.wait()
        await self._group.stop()
        transport = getattr(self._process, "_transport", None)
        if transport is not None:  # a pipe that nobody reads to its end would stay open
            transport.close()


@asynccontextmanager
async def program(
    launch: Launch, ended: Callable[[], None]
) -> AsyncGenerator[tuple[Program, MemoryObjectReceiveStream[SessionMessage | Exception], Outgoing], None]:
    """Start a server's program; yield it and the streams of its messages, and end it with the block.

    ``ended`` is called when it says no more.

    Raises:
        OSError: It cannot be started.
    """
    if launch.is_apart:
        await asyncio.to_thread(make_apart, launch.cwd)
    group = await Group.start(
        *launch.command, cwd=launch.cwd, env=launch.environment, stdin=_PIPE, stdout=_PIPE, stderr=_PIPE
    )
    running = Program(launch, group, ended)
    incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    tasks = [
        asyncio.create_task(work) for work in (running.read(incoming), running.write(outgoing), running.listen())
    ]
    try:
        yield running, read, write
    finally:
        read.close()
        write.close()
        await _surely(running, tasks)


async def _surely(running: Program, tasks: list[asyncio.Task[None]]) -> None:
    """End the program whatever happens to the caller meanwhile."""
    with anyio.CancelScope(shield=True):
        try:
            await running.end()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
