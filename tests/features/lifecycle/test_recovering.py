"""A daemon that is killed at any point of making, renaming or destroying an agent leaves no half of one."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyagentd import installation
from pyagentd.api import Service
from pyagentd.errors import StoreError
from pyagentd.features import named_agents as creating
from pyagentd.features import named_agents as destroying
from pyagentd.features import named_agents as recovering
from pyagentd.runtime.status import Outcome
from pyagentd.store import atomic, named_agents, paths, sessions
from pyagentd.store.db import agents
from pyagentd.store.db.state import State
from tests.faults.disk import Died, FaultyDisk
from tests.runtime.world import Watcher, World


class _Names(FaultyDisk):
    """Dies before the n-th change of a name on disk, or of the database; afterwards nothing has an effect."""

    def __init__(self, at: int) -> None:
        super().__init__(at=at, how="die")
        self.commit = self._spoilable("commit", lambda place: None)

    def _counts(self, name: str, args: tuple[Any, ...]) -> bool:
        return self.hit or name in ("replace", "mkdir", "symlink", "commit")


@contextlib.contextmanager
def killed(at: int) -> Iterator[_Names]:
    """Have the daemon die at a point of what the block does."""
    disk, writing, discard = _Names(at), State.writing, atomic.discard

    @contextlib.contextmanager
    def committing(state: State) -> Iterator[Any]:
        if threading.current_thread().name != "audit":  # which nobody waits for
            disk.commit(state.path)
        with writing(state) as db:
            yield db

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(atomic, "system", disk)
        patch.setattr(State, "writing", committing)
        patch.setattr(atomic, "discard", lambda place: None if disk.hit else discard(place))
        with contextlib.suppress(Died):
            yield disk


async def afterwards(world: World) -> None:
    """Have the next daemon see to what the killed one left."""
    old = world.kernels.pop()
    for branch in old.all_opened:
        old.drop(branch, Outcome(reason="error", text="killed"))
    old.state.close()
    await recovering.recover(world.start())


def assert_whole(world: World, name: str, place: Path) -> agents.AgentRow | None:
    """Assert that there is all of an agent, or nothing that anybody could take for one; return its row."""
    row, root = agents.find(world.kernel.state, name), world.kernel.config.agents_dir
    assert not [entry.name for entry in root.iterdir() if entry.name.startswith(".")]
    if row is None or row.status == "destroyed":
        assert row is None or row.intent is None
        assert row is not None or not place.exists()
        return row
    assert (row.status, row.intent, row.dir) == ("idle", None, str(place))
    assert named_agents.read(place).name == name
    ref = paths.ref_of(place)
    assert not world.kernel.origins.foreign(ref) and world.kernel.presets.of_branch(ref).profile is not None
    return row


@pytest.fixture(autouse=True)
def quick(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """No git, and no trash."""
    world.preset(creating.DEFAULT_PRESET)
    monkeypatch.setattr(creating, "init_repository", lambda workspace, name: (workspace / ".git").mkdir())
    monkeypatch.setattr(sessions, "has_trash", lambda place: False)


async def made(service: Service, name: str) -> Path:
    return Path((await service.agent_init(Watcher(), name=name))["dir"])


async def test_making_one(world: World) -> None:
    await made(world.service(), "first")
    ends = set()
    for at in itertools.count(1):
        name = f"new-{at}"
        with killed(at) as disk:
            await made(world.service(), name)
        await afterwards(world)
        row = assert_whole(world, name, world.kernel.config.agents_dir.resolve() / name)
        ends.add(row is not None)
        if not disk.hit:
            break
    assert ends == {True, False}


async def test_taking_one_up(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    template = shutil.copytree(installation.shipped("template"), tmp_path / "template")
    (template / "docs/more").mkdir()
    (template / "docs/more/about.md").touch()
    monkeypatch.setattr(installation, "shipped", lambda name: template)
    ends = set()
    for at in itertools.count(1):
        name, service = f"old-{at}", world.service()
        place = await made(service, name)
        await service.agent_destroy(Watcher(), name=name, confirmed=True, keep_files=True)
        shutil.rmtree(place / "docs")
        shutil.rmtree(place / "branches")
        with killed(at) as disk:
            await service.agent_init(Watcher(), name=name, model="m-1")
        assert not (place / "docs").exists() or (place / "docs/more/about.md").exists()
        await afterwards(world)
        row = assert_whole(world, name, place)
        assert not list(place.glob(f"{sessions.DRAFT}*"))
        assert row is not None and (row.status == "destroyed" or row.model == "m-1")
        assert row.status == "idle" or place in world.kernel.departed
        ends.add(row.status)
        if not disk.hit:
            break
    assert ends == {"destroyed", "idle"}


@pytest.mark.parametrize("keep_files", [True, False])
async def test_destroying_one(world: World, keep_files: bool) -> None:
    ends = set()
    for at in itertools.count(1):
        name, service = f"old-{at}", world.service()
        place = await made(service, name)
        with killed(at) as disk:
            await service.agent_destroy(Watcher(), name=name, confirmed=True, keep_files=keep_files)
        await afterwards(world)
        row = assert_whole(world, name, place)
        assert row is not None and place.exists() == (row.status == "idle" or keep_files)
        ends.add(row.status)
        if not disk.hit:
            break
    assert ends == {"destroyed", "idle"}


@pytest.mark.parametrize("restored", ["moved back", "copied", "not at all"])
async def test_what_was_put_back_since_it_was_removed_stays(world: World, restored: str) -> None:
    place, state = await made(world.service(), "old"), world.kernel.state
    await world.service().agent_destroy(Watcher(), name="old", confirmed=True, keep_files=True)
    agents.intend(state, "old", f"remove {destroying.identity(place)}")
    match restored:
        case "moved back":
            place.rename(place.with_name("elsewhere"))
            place.with_name("elsewhere").rename(place)
        case "copied":
            shutil.copytree(place, place.with_name("elsewhere"), symlinks=True)
            shutil.rmtree(place)
            place.with_name("elsewhere").rename(place)
        case _:
            pass
    await afterwards(world)
    row = assert_whole(world, "old", place)
    assert row is not None and row.status == "destroyed" and place.exists() == (restored != "not at all")
    assert place in world.kernel.departed
    if place.exists():
        assert await made(world.service(), "old") == place


async def test_drafts_of_another_daemon_stay_until_nobody_can_be_making_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = await made(world.service(), "own")
    await world.service().agent_destroy(Watcher(), name="own", confirmed=True, keep_files=True)
    agents.intend(world.kernel.state, "own", f"remove {destroying.identity(place)}")
    own, other = (place.with_name(f".{name}.0123456789abcdef") for name in ("own", "other"))
    for draft in (own, other):
        draft.mkdir()
    await afterwards(world)
    assert not own.exists() and other.exists()
    monkeypatch.setattr(recovering, "_ABANDONED_S", -1.0)
    await afterwards(world)
    assert not other.exists()


async def test_giving_one_another_name(world: World) -> None:
    ends = set()
    for at in itertools.count(1):
        old, new, service = f"old-{at}", f"new-{at}", world.service()
        place = await made(service, old)
        with killed(at) as disk:
            await service.agent_rename(Watcher(), name=old, new_name=new)
        await afterwards(world)
        there = [name for name in (old, new) if assert_whole(world, name, place.with_name(name))]
        assert len(there) == 1
        ref = paths.ref_of(place.with_name(there[0]))
        async with world.kernel.using(ref) as branch:
            assert branch.conversation.session["workspace_root"] == str(ref.session_dir / "workspace")
        ends.add(there[0] == new)
        if not disk.hit:
            break
    assert ends == {True, False}


async def test_another_name_that_the_conversation_could_not_follow_is_followed_by_the_next_daemon(
    world: World,
) -> None:
    place = await made(world.service(), "old")

    async def refuse(*_: Any) -> None:
        raise StoreError("The disk is full")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pyagentd.runtime.system_prompt.renew_workplace", refuse)
        with pytest.raises(StoreError):
            await world.service().agent_rename(Watcher(), name="old", new_name="new")
    await afterwards(world)
    assert_whole(world, "new", place.with_name("new"))
