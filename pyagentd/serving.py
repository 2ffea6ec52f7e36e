"""The daemon's process: listens and greets first, then imports the rest, serves, and shuts down in order.

Importing takes most of the time of a start, so the socket is opened first: a client is greeted at once, and its calls
are answered when everything is imported. Only then does the process that started the daemon in the background learn
that it is ready, or why it is not.
"""

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module

from pyagentd import __version__
from pyagentd.clock import Pulse
from pyagentd.config import Config
from pyagentd.errors import PyagentdError
from pyagentd.installation import in_background
from pyagentd.log import setup_logging
from pyagentd.wire.connection import Server, new_token
from pyagentd.wire.lifecycle import LOG, Instance

log = logging.getLogger(__name__)

# A thread that computes must not keep the loop from its clients for long (the default is 5 ms a turn).
SWITCH_INTERVAL_S = 0.0005
# Collecting cycles at the default pace costs several percent. Runs and clients leave cycles of about 150 objects
# behind, though: with the default of a large process, hundreds of ended runs would stay in memory.
COLLECT = (5_000, 5, 2)


def serve(config: Config, *, detach: bool, tcp_port: int | None) -> int:
    """Run the daemon until it is stopped; return its exit code.

    Args:
        config: The effective configuration.
        detach: Run it in the background, and return as soon as it serves.
        tcp_port: Also listen on 127.0.0.1 at this port; 0 chooses one.

    Raises:
        UserError: Another daemon serves this user, or a path, a port or the database cannot be used.
    """
    if detach:
        return in_background(lambda ready: _serve(config, tcp_port, ready), errors=config.runtime_dir / LOG)
    _serve(config, tcp_port, ready=lambda: None)
    return 0


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
