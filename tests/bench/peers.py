"""Raw sockets for Emacs to talk to, without a protocol: what the wire is measured against."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path


@contextlib.contextmanager
def listening(directory: Path, serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """Serve connections on a unix socket, one after the other, and yield its path."""
    path = directory / "peer"
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                link, _ = listener.accept()
                with link, contextlib.suppress(OSError):
                    serve(link)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield str(path)
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def echo(link: socket.socket) -> None:
    """Send back whatever comes."""
    while data := link.recv(65536):
        link.sendall(data)


def asyncio_echo(link: socket.socket) -> None:
    """Send back whatever comes, from a task of an event loop."""

    async def serve() -> None:
        reader, writer = await asyncio.open_unix_connection(sock=link)
        while data := await reader.read(65536):
            writer.write(data)

    asyncio.run(serve())


def flood(data: bytes) -> Callable[[socket.socket], None]:
    """Send ``data`` as fast as possible once something comes."""

    def serve(link: socket.socket) -> None:
        link.recv(64)
        link.sendall(data)
        link.recv(64)

    return serve


def trickle(pieces: Sequence[str], rate: float) -> Callable[[socket.socket], None]:
    """Send ``pieces`` at a rate, then close."""

    def serve(link: socket.socket) -> None:
        start = time.monotonic()
        for number, piece in enumerate(pieces):
            time.sleep(max(0.0, start + number / rate - time.monotonic()))
            link.sendall(piece.encode())

    return serve
