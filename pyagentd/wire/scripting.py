"""Calls the daemon from a Python script through python-epc, as any EPC client can.

    with epc_client() as daemon:
        print(daemon.call_sync("status", [], timeout=10))

Values are those of ``sexpdata``: a plist is a flat list of symbols and values. The command line uses ``client``
instead, which turns plists into dicts and errors into those of ``errors``, and loads in a third of the time.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyagentd.config import runtime_dir
from pyagentd.installation import extra
from pyagentd.wire.client import open_socket
from pyagentd.wire.frames import PROTOCOL
from pyagentd.wire.lifecycle import read_runtime

with extra("epc", "A script's connection"):
    from epc.client import EPCClient


@contextmanager
def epc_client(directory: Path | None = None, *, timeout_s: float = 10.0) -> Iterator[EPCClient]:
    """Yield a connected client, after hello.

    Args:
        directory: The daemon's runtime directory; None is the user's.
        timeout_s: How long hello and closing may take.

    Raises:
        Unreachable: No daemon answers; this does not start one.
    """
    runtime = read_runtime(directory or runtime_dir())
    connection = open_socket(runtime, timeout_s)
    connection.settimeout(None)
    client = EPCClient()
    client.connect(connection)
    hello = {"proto": PROTOCOL, "client": "python-epc", "token": runtime.token}
    try:
        client.call_sync("hello", [hello], timeout=timeout_s)
        yield client
    finally:
        _close(client, connection, timeout_s)


def _close(client: EPCClient, connection: socket.socket, timeout_s: float) -> None:
    """Close the connection after python-epc's threads have ended; it answers each notification in its own thread."""
    for thread in threading.enumerate():
        if "EPCClientHandler" in thread.name and thread is not client.handler_thread:
            thread.join(timeout_s)
    connection.shutdown(socket.SHUT_RDWR)
    client.handler_thread.join(timeout_s)
    connection.close()
