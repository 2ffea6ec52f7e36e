"""A server with a handful of operations on real sockets, and a raw peer that speaks frames by hand."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pyagentd.clock import Pulse
from pyagentd.errors import Busy
from pyagentd.wire.connection import Client, Server
from pyagentd.wire.frames import call
from pyagentd.wire.lifecycle import Instance, Runtime
from pyagentd.wire.sexp import decode

TOKEN = "a-token"
EMACS = ("emacs", "-Q", "--batch")
ELPA = {path.name.split("-")[0]: str(path) for path in Path("/usr/share/emacs/site-lisp/elpa").glob("*-[0-9]*")}


class Operations:
    """What the test server offers."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.release = asyncio.Event()
        self.finished: list[str] = []

    async def echo(self, client: Client, *, value: Any = None) -> Any:
        """Answer with what was given.

        The second paragraph is not told.
        """
        return {"value": value}

    async def fails(self, client: Client, *, how: str) -> Any:
        if how == "busy":
            raise Busy("A run is in flight", hint="Wait or abort it")
        if how == "exit":
            sys.exit(3)
        if how == "cancel":
            raise asyncio.CancelledError
        raise ZeroDivisionError("by zero")

    async def returns(self, client: Client, *, what: str) -> Any:
        return {
            "bytes": b"\xff",
            "object": object(),
            "huge": "x" * 0x1000000,
            "empty": {"list": [], "map": {}, "false": False, "nil": None, "path": Path("/a"), "text": 'é "\n\\'},
        }[what]

    async def waits(self, client: Client) -> Any:
        self.started.set()
        await self.release.wait()
        self.finished.append("waits")
        return "released"

    async def flags(
        self, client: Client, *, deep_flag: bool = False, names: tuple[str, ...] = (), env: Any = None
    ) -> Any:
        return {"deep_flag": deep_flag, "kind": type(names).__name__, "env": env, "who": client.name}

    def table(self) -> dict[str, Callable[..., Awaitable[Any]]]:
        return {name: getattr(self, name) for name in ("echo", "fails", "returns", "waits", "flags")}


@dataclass
class Daemon:
    """A running test server."""

    server: Server
    operations: Operations
    runtime: Runtime
    runtime_dir: Path
    log: list[str] = field(default_factory=list)

    @property
    def client(self) -> Client:
        (client,) = self.server.clients
        return client


class Recording(Server):
    """Notes who comes and goes."""

    def opened(self, client: Client) -> None:
        super().opened(client)
        self.log.append(f"+{client.name}")

    def offer_and_note(self, operations: Operations, log: list[str]) -> None:
        self.log = log
        self.offer(operations.table(), on_disconnect=lambda client: log.append(f"-{client.name}"))


@asynccontextmanager
async def serving(base: Path, *, hello_timeout_s: float = 5.0) -> AsyncIterator[Daemon]:
    operations = Operations()
    log: list[str] = []
    server = Recording(
        pulse=Pulse(asyncio.get_running_loop(), 0.005),
        greeting={"pid": os.getpid(), "version": "test", "sessions_dir": base / "sessions"},
        token=TOKEN,
        hello_timeout_s=hello_timeout_s,
    )
    server.offer_and_note(operations, log)
    with Instance(base / "run", base / "sessions") as instance:
        await server.listen(instance.bind_unix())
        listener = instance.bind_tcp()
        port = listener.getsockname()[1]
        await server.listen(listener)
        runtime = instance.publish(version="test", port=port, token=TOKEN)
        try:
            yield Daemon(server, operations, runtime, base / "run", log)
        finally:
            await server.close(grace_s=0.5)


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Daemon]:
    async with serving(tmp_path) as running:
        yield running


class Peer:
    """The other end of a connection, frame by frame."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def send_text(self, text: str) -> None:
        payload = text.encode()
        self.writer.write(b"%06x%b" % (len(payload), payload))

    async def payload(self) -> bytes:
        async with asyncio.timeout(10):
            length = int(await self.reader.readexactly(6), 16)
            return await self.reader.readexactly(length)

    async def receive(self) -> Any:
        return decode(await self.payload())

    async def call(self, method: str, *arguments: object, uid: int = 7) -> Any:
        self.send(call(uid, method, *arguments))
        return await self.receive()

    async def ended(self) -> bytes:
        """Wait for the end of the connection; return what came before it."""
        async with asyncio.timeout(10):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""

    def close(self) -> None:
        self.writer.close()


@pytest.fixture
async def strangers(daemon: Daemon) -> AsyncIterator[Callable[..., Awaitable[Peer]]]:
    """Connects peers that have not said hello, by unix socket or TCP."""
    peers: list[Peer] = []

    async def connect(*, tcp: bool = False, to: Daemon = daemon) -> Peer:
        if tcp:
            streams = await asyncio.open_connection("127.0.0.1", to.runtime.port)
        else:
            assert to.runtime.socket is not None
            streams = await asyncio.open_unix_connection(to.runtime.socket)
        peers.append(Peer(*streams))
        return peers[-1]

    yield connect
    for peer in peers:
        peer.close()


@pytest.fixture
async def peer(strangers: Callable[..., Awaitable[Peer]]) -> Peer:
    """A peer that has said hello by unix socket."""
    peer = await strangers()
    await peer.call("hello", {"proto": 1, "human": True, "client": "peer"})
    return peer


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until ``condition`` holds."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - a state of asyncio's transport announces itself to nobody
            await asyncio.sleep(0)


async def run_emacs(script: str, *, load: tuple[str, ...] = ()) -> str:
    """Return what a real Emacs prints for ``script``."""
    paths = [option for package in load for option in ("-L", ELPA[package])]
    process = await asyncio.create_subprocess_exec(
        *EMACS, *paths, "--eval", f"(progn {script})", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(60):
            out, err = await process.communicate()
    except BaseException:
        process.kill()
        raise
    assert process.returncode == 0, err.decode(errors="replace")
    return out.decode()


def without_socket(daemon: Daemon) -> None:
    path = daemon.runtime_dir / "daemon.eld"
    path.write_text(path.read_text().replace("daemon.sock", "nothing"))
