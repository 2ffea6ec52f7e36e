"""The state diagram of SPEC 003, each arrow gone for real by an agent, and what each leaves in the files it saves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from pyagentd.features.contexts import Contexts
from pyagentd.features.named_agents import destroy
from pyagentd.store import contexts as files
from pyagentd.store import sessions
from pyagentd.store.db import agents
from pyagentd.store.paths import BranchRef
from tests.features.lifecycle.test_idling import agent, clock, say, status
from tests.features.test_triggers import ManualClock, restarted
from tests.runtime.world import World

__all__ = ["clock"]


@pytest.fixture(autouse=True)
def no_trash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "has_trash", lambda place: False)


async def message(world: World, ref: BranchRef, clock: ManualClock) -> None:
    await say(world, ref, "Hello")


async def save(world: World, ref: BranchRef, clock: ManualClock) -> None:
    async with world.kernel.using(ref) as branch:
        await world.kernel.feature(Contexts).save(branch, "as it was", options=world.options)


async def restore(world: World, ref: BranchRef, clock: ManualClock) -> None:
    async with world.kernel.using(ref) as branch:
        (row,) = [row for row in await world.kernel.feature(Contexts).history(ref) if row.description == "as it was"]
        await world.kernel.feature(Contexts).restore(branch, row.id)


async def clear(world: World, ref: BranchRef, clock: ManualClock) -> None:
    async with world.kernel.using(ref) as branch:
        await world.kernel.feature(Contexts).clear(branch)


async def idle_timeout(world: World, ref: BranchRef, clock: ManualClock) -> None:
    clock.forward(minutes=30)
    await world.kernel.feature(Contexts).tick()


async def shutdown(world: World, ref: BranchRef, clock: ManualClock) -> None:
    await world.kernel.shutdown()
    restarted(world, clock)
    await world.kernel.feature(Contexts).load()


async def end(world: World, ref: BranchRef, clock: ManualClock) -> None:
    await destroy(world.kernel, "bob", keep_files=True, user="me")


DOING: dict[str, Callable[[World, BranchRef, ManualClock], Awaitable[None]]] = {
    "message": message,
    "save": save,
    "restore": restore,
    "clear": clear,
    "idle_timeout": idle_timeout,
    "shutdown": shutdown,
    "destroy": end,
}
# As the specification draws it, and not as the code has it.
ARROWS = [
    ("idle", "message", "active"),
    ("idle", "restore", "active"),
    ("idle", "shutdown", "idle"),
    ("idle", "destroy", "destroyed"),
    ("active", "message", "active"),
    ("active", "save", "active"),
    ("active", "restore", "active"),
    ("active", "clear", "idle"),
    ("active", "idle_timeout", "idle"),
    ("active", "shutdown", "idle"),
    ("active", "destroy", "destroyed"),
]
TRIGGER = {"save": "manual_save", "idle_timeout": "idle_timeout", "shutdown": "shutdown", "destroy": "destroy"}


@pytest.mark.spec("003", "State Diagram: ACTIVE to IDLE by the idle timeout")
@pytest.mark.spec("003", "Session File Format: triggers")
@pytest.mark.parametrize(("life", "happening", "after"), ARROWS)
async def test_every_arrow_is_gone_by_an_agent(
    world: World, clock: ManualClock, life: str, happening: str, after: str
) -> None:
    ref = await agent(world)
    await message(world, ref, clock)
    if happening == "restore":
        await save(world, ref, clock)
    if life == "idle":
        await clear(world, ref, clock)
    before = {row.id for row in agents.of(world.kernel.state, "bob")}
    assert await status(world) == life
    await DOING[happening](world, ref, clock)
    assert await status(world) == after
    new = [row for row in agents.of(world.kernel.state, "bob") if row.id not in before]
    wanted = [TRIGGER[happening]] if life == "active" and happening in TRIGGER else []
    assert [row.trigger for row in new] == wanted
    assert [await asyncio.to_thread(_trigger, row.file_path) for row in new] == wanted


def _trigger(path: str) -> str:
    return files.read(Path(path)).trigger
