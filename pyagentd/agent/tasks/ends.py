"""Waits for the end of a process that may be nobody's child."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pyagentd.agent.tasks.process import is_runner

POLL_S = 0.5


async def gone(pid: int, pid_started: int, output: Path, *, every_s: float, tick: Callable[[], None]) -> None:
    """Return when the runner of the task that prints to ``output`` is gone; call ``tick`` now and then."""
    try:
        descriptor = os.pidfd_open(pid)
    except (OSError, AttributeError):  # it is gone, or the system has none
        while is_runner(pid, pid_started, output):
            await asyncio.sleep(POLL_S)
            tick()
        return
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        if not is_runner(pid, pid_started, output):  # the id may have been given to another meanwhile
            return
        while not ended.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), every_s)
            tick()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
