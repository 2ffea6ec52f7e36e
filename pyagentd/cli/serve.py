"""``pyagentd serve``: the daemon's process greets clients first, then imports the rest, serves, and ends in order.

Importing takes most of the time of a start, so the socket is opened first: a client is greeted at once, and its calls
are answered when everything is imported. Only then does the process that started the daemon in the background learn
that it is ready, or why it is not. No other command is imported for it.
"""

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module

import click

from pyagentd import __version__
from pyagentd.clock import Pulse
from pyagentd.config import Config, load_config, runtime_dir
from pyagentd.errors import PyagentdError, Unreachable, WireError
from pyagentd.installation import in_background
from pyagentd.log import setup_logging
from pyagentd.wire.connection import Server, new_token
from pyagentd.wire.lifecycle import LOG, Instance, read_runtime
from pyagentd.wire.sexp import encode

log = logging.getLogger(__name__)

# A thread that computes must not keep the loop from its clients for long (the default is 5 ms a turn).
SWITCH_INTERVAL_S = 0.0005
# Collecting cycles at the default pace costs several percent. Runs and clients leave cycles of about 150 objects
# behind, though: with the default of a large process, hundreds of ended runs would stay in memory.
COLLECT = (5_000, 5, 2)


def _serve(config: Config, tcp_port: int | None, ready: Callable[[], None]) -> None:
    with Instance(config.runtime_dir, config.sessions_dir) as instance:
        setup_logging(config.runtime_dir / LOG, config.log.level)
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        gc.set_threshold(*COLLECT)
        asyncio.run(_run(config, instance, tcp_port, ready))


async def _run(config: Config, instance: Instance, tcp_port: int | None, ready: Callable[[], None]) -> None:
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    token = new_token()
    greeting = {"pid": os.getpid(), "version": __version__, "sessions_dir": str(config.sessions_dir)}
    server = Server(pulse=Pulse(loop), greeting=greeting, token=token, own_children=False)
    await server.listen(instance.bind_unix())
    port = None
    if tcp_port is not None:
        listener = instance.bind_tcp(tcp_port)
        await server.listen(listener)
        port = int(listener.getsockname()[1])
    instance.publish(version=__version__, port=port, token=token)
    log.info("listening, sessions in %s", config.sessions_dir)
    try:
        module = await asyncio.to_thread(import_module, "pyagentd.daemon")
        daemon = module.Daemon(config, server, stop=stopped.set)
        await daemon.start()
    except Exception as error:
        log.exception("the daemon cannot be loaded")
        if not isinstance(error, PyagentdError):
            error = PyagentdError(f"The daemon cannot be loaded: {error}", hint="Look into `pyagentd logs`")
        server.refuse(error)
        await server.close()
        raise
    ready()
    await stopped.wait()
    log.info("stopping")
    await daemon.close()
    await server.close()
    await daemon.release()


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
    config = load_config()
    if detach:
        return in_background(lambda ready: _serve(config, tcp_port, ready), errors=config.runtime_dir / LOG)
    _serve(config, tcp_port, ready=lambda: None)
    return 0


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
