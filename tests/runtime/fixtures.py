"""The ``world`` fixture: a daemon's parts in this process, which leave nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pyagentd.llm.factory import close_backends
from tests.runtime.world import World
from tests.server import ModelServer


@pytest.fixture
async def world(tmp_path: Path, model_server: ModelServer) -> AsyncIterator[World]:
    """A kernel that at the end has nothing left: no run, no question, no branch, no task."""
    made = World(tmp_path, model_server)
    yield made
    for kernel in made.kernels:
        await kernel.shutdown()
        assert not kernel.runs and not kernel.asks.all()
    await close_backends()
    for _ in range(3):  # what was cancelled has its last word
        await asyncio.sleep(0)
    left = [task for task in asyncio.all_tasks() - {asyncio.current_task()} if not task.done()]
    assert not left, left
