"""The composition root: makes every part, joins them, and runs until told to stop or nobody needs it.

The socket listens before the provider's SDK is loaded; that happens in a thread (``llm.warm``), so that a client is
greeted within a few hundred milliseconds of a cold start.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pyagentd import __version__
from pyagentd.api import Service
from pyagentd.clock import SystemClock
from pyagentd.config import Config
from pyagentd.features.agents import AgentSpawner
from pyagentd.features.compaction import Compaction
from pyagentd.features.contexts import Contexts
from pyagentd.features.emacs import EmacsClients
from pyagentd.features.hooks import Hooks
from pyagentd.features.idling import Idling
from pyagentd.features.indexer import Indexer
from pyagentd.features.mcp import Servers
from pyagentd.features.meters import Meters
from pyagentd.features.mission_tool import Missions
from pyagentd.features.models import Models
from pyagentd.features.named_agents import NamedAgents
from pyagentd.features.overview import Overview
from pyagentd.features.questions import Question
from pyagentd.features.schedules import Schedules, Triggers
from pyagentd.features.scope_expansion import ScopeExpansion
from pyagentd.features.self_edit import SelfEditing
from pyagentd.features.slash_commands import Commands
from pyagentd.features.snapshots import Snapshots
from pyagentd.features.suggestions import Suggestions
from pyagentd.features.tasks import Tasks
from pyagentd.features.titles import Titles
from pyagentd.features.todo import Todo
from pyagentd.installation import in_background
from pyagentd.llm import factory as warm
from pyagentd.llm.factory import close_backends
from pyagentd.log import LOG_NAME, setup_logging
from pyagentd.pulse import Pulse
from pyagentd.runtime.bus import BranchWritten
from pyagentd.runtime.feature import Feature
from pyagentd.runtime.grants import Trust
from pyagentd.runtime.hints import PendingHints
from pyagentd.runtime.kernel import Kernel
from pyagentd.runtime.presets import Presets, configured_default, configured_profiles
from pyagentd.store import presetfile, sessions
from pyagentd.store.db.projection import Projection
from pyagentd.store.db.state import State
from pyagentd.store.document.files import document_cache as documents
from pyagentd.store.paths import BranchRef
from pyagentd.store.registry import Registry
from pyagentd.wire.connection import new_token
from pyagentd.wire.lifecycle import Instance
from pyagentd.wire.server import Server

log = logging.getLogger(__name__)

FEATURES: tuple[type[Feature], ...] = (
    NamedAgents,
    Meters,
    Hooks,  # before whatever else looks at a prompt
    Servers,
    Snapshots,
    AgentSpawner,
    Missions,
    Question,
    Todo,
    Suggestions,
    ScopeExpansion,
    Compaction,
    Tasks,
    EmacsClients,
    Triggers,
    Schedules,
    Models,
    SelfEditing,
    Contexts,
    Idling,
    Overview,
    Commands,
    Titles,
)
"""What users can name; a daemon without one of them lacks what it does, and nothing else."""

IDLE_S = 15 * 60.0
IDLE_CHECK_S = 30.0
# A thread that computes must not keep the loop from its clients for long (the default is 5 ms a turn).
SWITCH_INTERVAL_S = 0.0005
# Looking for cycles at the usual pace costs several percent. What runs and clients leave behind are cycles, though,
# about 150 objects each: left to the default of a large process, hundreds of ended runs would stay in memory.
COLLECT = (5_000, 5, 2)


_LARGE = 8 * 1024 * 1024
"""Bytes of memory that are worth giving back."""
_MANY = 8
"""So many branches that were closed are worth looking for what they left."""


def _resident() -> int:
    """Return how many bytes of memory this process takes; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _give_back(state: State) -> None:
    """Give memory back to the system that a large case took: the C library keeps what was freed otherwise."""
    state.shrink()
    documents.forget()
    gc.collect()
    with contextlib.suppress(AttributeError, OSError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)


def serve(config: Config, *, detach: bool, tcp_port: int | None) -> int:
    """Run the daemon until it is stopped; return its exit code.

    Args:
        config: The effective configuration.
        detach: Run it in the background, and return as soon as it listens.
        tcp_port: Also listen on 127.0.0.1 at this port; 0 chooses one.

    Raises:
        UserError: Another daemon serves this user, or a path or port cannot be used.
    """
    if detach:
        return in_background(lambda ready: _serve(config, tcp_port, ready), errors=config.runtime_dir / LOG_NAME)
    _serve(config, tcp_port, ready=lambda: None)
    return 0


def _serve(config: Config, tcp_port: int | None, ready: Callable[[], None]) -> None:
    with Instance(config.runtime_dir, config.sessions_dir) as instance:
        setup_logging(config.runtime_dir / LOG_NAME, config.log_level)
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        gc.set_threshold(*COLLECT)
        asyncio.run(_Daemon(config, instance, tcp_port).run(ready))


class _Daemon:
    """The running parts."""

    def __init__(self, config: Config, instance: Instance, tcp_port: int | None) -> None:
        self._config = config
        self._instance = instance
        self._tcp_port = tcp_port
        self._stopped = asyncio.Event()

    async def run(self, ready: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopped.set)
        token = new_token()
        kernel, indexer, server = self._assemble(Pulse(loop), token)
        await kernel.start()
        self._wake(kernel)
        indexer.unfinished = lambda ref: _soon(loop, kernel.trees.wake_soon, ref)
        indexer.start()
        await server.listen(self._instance.bind_unix())
        port = await self._listen_tcp(server)
        self._instance.publish(version=__version__, port=port, token=token)
        log.info("listening, sessions in %s", self._config.sessions_dir)
        ready()
        # Not the loop's own thread: a daemon that is told to stop at once does not wait for what it will not need.
        threading.Thread(target=warm.warm, name="warm", daemon=True).start()
        sweep = partial(sessions.sweep_drafts, self._config.sessions_dir)
        threading.Thread(target=sweep, name="sweep", daemon=True).start()
        watching = asyncio.create_task(self._stop_when_idle(kernel, server))
        await self._stopped.wait()
        log.info("stopping")
        watching.cancel()
        await kernel.shutdown()
        await asyncio.to_thread(indexer.close)
        await server.close()
        await close_backends()

    def _wake(self, kernel: Kernel) -> None:
        """Have what an earlier daemon left waiting go on; who asks for it waits until it does."""
        projection = Projection(kernel.state, self._config.sessions_dir)
        hints = PendingHints(kernel.state, projection, kernel.clock, kernel.own)
        kernel.hints = hints
        kernel.trees.wake_all(hints)

    def _assemble(self, pulse: Pulse, token: str) -> tuple[Kernel, Indexer, Server]:
        state = State(self._config.sessions_dir)  # the indexer closes it, after the kernel's last decision
        presets = Presets(
            (presetfile.shipped_dir(), self._config.presets_dir),
            trust=Trust(state),
            profiles=configured_profiles(self._config),
            default=configured_default(self._config),
        )
        kernel = Kernel(
            config=self._config,
            presets=presets,
            clock=SystemClock(),
            pulse=pulse,
            state=state,
            features=FEATURES,
        )
        registry = Registry(self._config.sessions_dir, agents=self._config.agents_dir, departed=kernel.departed)
        indexer = Indexer(state, registry)
        kernel.bus.on(BranchWritten, lambda written: indexer.branch_written(written.ref))
        service = Service(
            kernel,
            registry,
            indexer,
            stop=self._stopped.set,
            clients=lambda: len(server.clients),
        )
        greeting = {"pid": os.getpid(), "version": __version__, "sessions_dir": str(self._config.sessions_dir)}
        server = Server(
            service.operations(),
            pulse=pulse,
            greeting=greeting,
            token=token,
            on_disconnect=kernel.forget,
            own_children=False,
        )
        return kernel, indexer, server

    async def _listen_tcp(self, server: Server) -> int | None:
        if self._tcp_port is None:
            return None
        listener = self._instance.bind_tcp(self._tcp_port)
        await server.listen(listener)
        return int(listener.getsockname()[1])

    async def _stop_when_idle(self, kernel: Kernel, server: Server) -> None:
        idle_s = 0.0
        tidied, opened = _resident(), 0  # the memory after it was given back last, the most branches open since
        while idle_s < IDLE_S:
            await asyncio.sleep(IDLE_CHECK_S)
            now = len(kernel.all_opened)
            opened = max(opened, now)
            if not kernel.runs and (_resident() > tidied + _LARGE or now + _MANY <= opened):
                await asyncio.to_thread(_give_back, kernel.state)
                tidied, opened = _resident(), now
            idle_s = 0.0 if server.clients or kernel.pending else idle_s + IDLE_CHECK_S
        log.info("nobody needs the daemon")
        self._stopped.set()


def _soon(loop: asyncio.AbstractEventLoop, tell: Callable[[BranchRef], None], ref: BranchRef) -> None:
    """Have the loop tell, from another thread."""
    with contextlib.suppress(RuntimeError):  # it has ended
        loop.call_soon_threadsafe(tell, ref)
