"""Load the provider's SDK once, off the event loop.

Importing it takes about a second and the first request through it builds its types, so a daemon runs ``warm`` in a
thread as soon as its socket listens. Whoever needs the SDK earlier awaits ``ready`` and shares that one import.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import threading

_once = threading.Lock()
_done = threading.Event()


def warm() -> None:
    """Import the SDK and send one request through it in process; blocks, is idempotent, never runs on the loop."""
    with _once:
        if _done.is_set():
            return
        _load()
        asyncio.run(_exercise())
        _done.set()


async def ready() -> None:
    """Return when the SDK is loaded, without blocking the loop."""
    if not _done.is_set():
        await asyncio.to_thread(warm)


def _load() -> None:
    # Three thousand modules of live objects: collecting garbage while they load costs a third of the time and finds
    # none, and scanning them later costs every full collection of a long-lived process.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        importlib.import_module("pyagentd.llm.offline")
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


async def _exercise() -> None:
    # Not at the top of the module: importing it is what this module puts off.
    from pyagentd.llm.backend import ModelRequest
    from pyagentd.llm.offline import offline_backend
    from pyagentd.messages import Message, Text

    backend = offline_backend(pace_s=0.0)
    hello = Message(role="user", parts=(Text(text="hello"),))
    async for _ in backend.stream(ModelRequest(model="warm", system="warm", messages=(hello,))):
        pass
    await backend.close()
