"""Assembles the daemon: the kernel, the list of features, and the operations.

``cli/serve.py`` imports this after the socket listens.
"""

import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pyagentd import installation
from pyagentd.api import Service
from pyagentd.clock import SystemClock
from pyagentd.config import Config
from pyagentd.features.agents import AgentSpawner
from pyagentd.features.compaction import Compaction
from pyagentd.features.contexts import Contexts
from pyagentd.features.emacs import EmacsClients
from pyagentd.features.hooks import Hooks
from pyagentd.features.indexer import Indexer
from pyagentd.features.mcp import Servers
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
from pyagentd.features.telemetry import Telemetry
from pyagentd.features.titles import Titles
from pyagentd.features.todo import Todo
from pyagentd.features.usage import Meters
from pyagentd.llm import factory
from pyagentd.llm.factory import close_backends
from pyagentd.runtime.feature import BranchOpened, BranchWritten, Feature
from pyagentd.runtime.grants import TRUST, KeptSet
from pyagentd.runtime.kernel import Kernel
from pyagentd.runtime.presets import Presets, configured_default, configured_profiles
from pyagentd.store import sessions
from pyagentd.store.db.state import State
from pyagentd.store.document.files import document_cache as documents
from pyagentd.store.paths import BranchRef
from pyagentd.store.registry import Registry
from pyagentd.wire.connection import Server

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
    Overview,
    Commands,
    Titles,
    Telemetry,  # last, so that it sees the backend and tools as the others made them
)
"""The features; the daemon works without any one of them, and only that feature is missing."""

IDLE_S = 15 * 60.0
IDLE_CHECK_S = 30.0

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # of <malloc.h>
_REUSED = 32 * 1024 * 1024
"""Blocks up to this many bytes come from the heap and not from ``mmap``; glibc allows no more."""
_LARGE = 8 * 1024 * 1024
"""Give memory back to the system above this many bytes."""
_MANY = 8
"""Look for garbage after this many branches were closed."""


def _resident() -> int:
    """Return the resident memory of this process in bytes; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _reuse_memory() -> None:
    """Tell the C library to reuse freed memory for the next copy of a document; fresh pages cost more."""
    with contextlib.suppress(AttributeError, OSError):  # not glibc
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, _REUSED)
        libc.mallopt(_M_TRIM_THRESHOLD, 2 * _REUSED)
        libc.mallopt(_M_ARENA_MAX, 1)  # else each thread keeps freed memory of its own


def _give_back(state: State) -> None:
    """Give freed memory back to the system after a large job; the C library would keep it."""
    state.shrink()
    documents.forget()
    gc.collect()
    with contextlib.suppress(AttributeError, OSError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)


class Daemon:
    """The running parts, but for the socket.

    Args:
        config: The effective configuration.
        server: Gets the operations.
        stop: Shuts the process down in order.

    Raises:
        UserError: The database, a profile or the default preset cannot be used.
    """

    def __init__(self, config: Config, server: Server, *, stop: Callable[[], None]) -> None:
        _reuse_memory()
        self._config = config
        self._server = server
        self._stop = stop
        state = State(config.sessions_dir)  # the indexer closes it, after the kernel's last decision
        presets = Presets(
            (installation.shipped("presets"), config.presets_dir),
            trust=KeptSet(state, TRUST),
            profiles=configured_profiles(config),
            default=configured_default(config),
        )
        self.kernel = Kernel(
            config=config,
            presets=presets,
            clock=SystemClock(),
            pulse=server.pulse,
            state=state,
            features=FEATURES,
        )
        registry = Registry(config.sessions_dir, agents=config.agents_dir, departed=self.kernel.departed)
        self._indexer = indexer = Indexer(state, registry)
        # The SDK takes 60 MB and a second, so it is loaded where a prompt is likely to come.
        self._is_warm = False
        self.kernel.bus.on(BranchOpened, self._warm)
        self.kernel.bus.on(BranchWritten, lambda written: indexer.branch_written(written.ref))
        self._service = Service(self.kernel, registry, indexer, stop=stop, clients=lambda: len(server.clients))

    async def start(self) -> None:
        """Resume the work that an earlier daemon left, then serve the clients.

        Raises:
            LaterVersion: A later version of this program wrote the database.
        """
        loop, kernel = asyncio.get_running_loop(), self.kernel
        await asyncio.to_thread(kernel.state.refuse_later)
        await kernel.start()
        # Resume runs that an earlier daemon left waiting; a request about one of them waits until it is resumed.
        kernel.trees.wake_all()
        self._indexer.unfinished = lambda ref: _soon(
            loop, lambda branch: kernel.spawn(kernel.trees.wake(branch)), ref
        )
        self._indexer.start()
        self._server.offer(self._service.operations(), on_disconnect=kernel.forget)
        _in_thread("sweep", partial(sessions.sweep_drafts, self._config.sessions_dir))
        self._watching = asyncio.create_task(self._stop_when_idle())

    async def close(self) -> None:
        """End every run and close every branch, while clients are still connected."""
        self._watching.cancel()
        await self.kernel.shutdown()
        await asyncio.to_thread(self._indexer.close)

    async def release(self) -> None:
        """Close the connections to models, after the clients have gone."""
        await close_backends()

    def _warm(self, _: BranchOpened) -> None:
        if not self._is_warm:
            self._is_warm = True
            _in_thread("warm", factory.warm)

    async def _stop_when_idle(self) -> None:
        idle_s = 0.0
        tidied, opened = _resident(), 0  # the memory after it was given back last, the most branches open since
        while idle_s < IDLE_S:
            await asyncio.sleep(IDLE_CHECK_S)
            self.kernel.forget_resting()
            now = len(self.kernel.all_opened)
            opened = max(opened, now)
            if not self.kernel.runs and (_resident() > tidied + _LARGE or now + _MANY <= opened):
                await asyncio.to_thread(_give_back, self.kernel.state)
                tidied, opened = _resident(), now
            idle_s = 0.0 if self._server.clients or self.kernel.pending else idle_s + IDLE_CHECK_S
        log.info("idle: the daemon stops")
        self._stop()


def _in_thread(name: str, work: Callable[[], None]) -> None:
    # Not the loop's own threads: a daemon that is stopped must not wait for work that it no longer needs.
    threading.Thread(target=work, name=name, daemon=True).start()


def _soon(loop: asyncio.AbstractEventLoop, tell: Callable[[BranchRef], object], ref: BranchRef) -> None:
    """Call ``tell`` in the loop, from another thread."""
    with contextlib.suppress(RuntimeError):  # it has ended
        loop.call_soon_threadsafe(tell, ref)
