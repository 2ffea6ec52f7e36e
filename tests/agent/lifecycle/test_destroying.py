"""Destroying a named agent, and making it again: SPEC 003 Teardown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from send2trash import plat_other

from pyagentd.agent.lifecycle import creating
from pyagentd.errors import NotFound, Unconfirmed
from pyagentd.service import Service
from pyagentd.store import paths
from pyagentd.store.index import agents, contexts
from tests.agent.world import Watcher, World, attached
from tests.server import answer

NAME = "my-agent"


@pytest.fixture
def service(world: World) -> Service:
    world.preset(creating.DEFAULT_PRESET)
    return world.service()


@pytest.fixture(autouse=True)
def trash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A trash of its own, below the test's directory."""
    place = tmp_path / "Trash"
    monkeypatch.setattr(plat_other, "HOMETRASH_B", bytes(place))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(plat_other, "get_dev", lambda path: 1)
    return place


async def made(service: Service, **given: Any) -> Path:
    return Path((await service.agent_init(Watcher(), name=NAME, **given))["dir"])


async def destroyed(service: Service, **given: Any) -> dict[str, Any]:
    return await service.agent_destroy(Watcher(), name=NAME, confirmed=True, **given)


async def said(world: World, place: Path, text: str = "Hello") -> None:
    """Have one turn with an agent."""
    watcher = Watcher()
    world.server.say(answer("Hello from here"))
    async with world.host.using(paths.ref_of(place)) as branch:
        await attached(branch, watcher)
        await world.host.prompt(branch, text=text, options=world.options)
        await watcher.finished(branch)
        branch.detach(watcher)


@pytest.mark.spec("003", "Destruction Flow 1: the active session is saved")
@pytest.mark.spec("003", "Destruction Flow 4: files are deleted")
async def test_its_conversation_is_saved_and_its_files_go_to_the_trash(
    world: World, service: Service, trash: Path
) -> None:
    place = await made(service)
    await said(world, place)
    done = await destroyed(service)
    assert (done["files"], place.exists()) == ("trashed", False)
    (row,) = contexts.of(world.host.state, NAME)
    assert ([row.id], row.trigger, row.message_count) == (done["saved"], "destroy", 2)
    assert (trash / "files" / NAME / "sessions" / Path(row.file_path).name).is_file()


async def test_without_a_confirmation_it_says_what_is_lost_and_does_nothing(world: World, service: Service) -> None:
    place = await made(service)
    (place / "workspace/new.txt").write_text("new")
    with pytest.raises(Unconfirmed, match="1 file in its workspace not committed"):
        await service.agent_destroy(Watcher(), name=NAME)
    assert place.is_dir()
    row = agents.find(world.host.state, NAME)
    assert row is not None and row.status == "idle"


async def test_nobody_reaches_a_destroyed_agent_whose_files_are_kept(world: World, service: Service) -> None:
    place = await made(service)
    ref = paths.ref_of(place)
    done = await destroyed(service, keep_files=True)
    assert done["files"] == "kept" and (place / "agent.json").is_file()
    with pytest.raises(NotFound):
        await service.resolve(Watcher(), name=NAME)
    with pytest.raises(NotFound, match="was destroyed"):
        async with world.host.using(ref):
            pass
    await made(service)
    assert (await service.resolve(Watcher(), name=NAME))["branch"] == ref.key
