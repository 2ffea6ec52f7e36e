"""``pyagentd serve``; in its own module, so that the daemon starts without importing the other commands."""

import os
import sys
from importlib import import_module

import click

from pyagentd import serving
from pyagentd.config import load_config, runtime_dir
from pyagentd.errors import Unreachable, WireError
from pyagentd.wire.lifecycle import read_runtime
from pyagentd.wire.sexp import encode


@click.command()
@click.option("--detach/--foreground", default=False, help="Go into the background (default: stay here).")
@click.option(
    "--tcp", "tcp_port", type=click.IntRange(0, 65535), metavar="PORT", help="Also listen on 127.0.0.1:PORT."
)
@click.option("--link", type=click.Choice(("start", "find")), hidden=True)  # what Emacs runs here over SSH
def serve(detach: bool, tcp_port: int | None, link: str | None) -> int:
    """Run the daemon.

    Emacs and other commands start it when needed; use this to watch it, or in a container. With --tcp, clients must
    present the token in the runtime file; port 0 lets the system choose.
    """
    if link:
        _link(start=link == "start")
    return serving.serve(load_config(), detach=detach, tcp_port=tcp_port)


_CARRY = """
import os, socket, sys, threading
link = socket.socket(socket.AF_UNIX)
link.connect(sys.argv[1])
def out():
    while data := link.recv(1 << 16):
        while data:
            data = data[os.write(1, data):]
    os._exit(0)
threading.Thread(target=out, daemon=True).start()
while data := os.read(0, 1 << 16):
    link.sendall(data)
"""


def _link(*, start: bool) -> None:
    """Print which daemon runs, and relay frames between its socket and our standard streams; does not return.

    The line has a prefix to recognise it by, since a login shell may also print text.

    Args:
        start: Start the daemon if none runs.

    Raises:
        Unreachable: No daemon runs, or it could not be started.
    """
    client = import_module("pyagentd.cli.link")  # not needed to start the daemon
    try:
        with client.daemon(start=start, name="ssh"):
            pass
    except Unreachable:
        raise
    except WireError:  # a daemon of another version runs, which the line tells the other end
        pass
    runtime = read_runtime(runtime_dir())
    facts = encode({"proto": runtime.proto, "version": runtime.version, "sessions_dir": runtime.sessions_dir})
    sys.stdout.write(f"pyagentd-link {facts.decode()}\n")
    sys.stdout.flush()
    # Replace this process by a small one, which runs as long as the user's Emacs.
    os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", _CARRY, str(runtime.socket)])
