"""A daemon without one of its features: it starts, talks, and says what it cannot do."""

import asyncio
import json
from pathlib import Path

import pytest

from pyagentd.daemon import FEATURES
from pyagentd.errors import NotInstalled, PyagentdError
from pyagentd.llm.factory import close_backends
from pyagentd.runtime.feature import Feature
from tests.runtime.world import Watcher, World
from tests.server import ModelServer, answer, tool_use


@pytest.mark.parametrize("without", FEATURES, ids=lambda kind: kind.__name__)
async def test_a_conversation_runs_without(
    without: type[Feature], tmp_path: Path, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))  # the trash
    features = tuple(each for each in FEATURES if each is not without)
    world = World(tmp_path, model_server, features=features)
    kernel, service, watcher = world.kernel, world.service(), Watcher()
    await kernel.start()
    try:
        (world.project / "notes.txt").write_text("milk")
        ref = world.session()
        key = str(ref.branch_dir)
        await service.attach(watcher, branch=key)
        world.server.rule = lambda request: (
            answer("It says milk")
            if "tool_result" in str(request.body["messages"])
            else answer(tool_use("Read", file_path=str(world.project / "notes.txt")))
        )
        await service.prompt(watcher, branch=key, text="What do my notes say?", env=world.options.env)
        ended = await watcher.finished(key)
        assert ended["reason"] == "done", ended
        assert "It says milk" in json.dumps(await service.show(watcher, branch=key))
        await service.sessions(watcher, watch=True)
        await service.unwatch(watcher)
        await service.status(watcher)
        await service.abort(watcher, branch=key)
        kernel.forget(watcher)
        await service.delete(watcher, branch=key, what="session")
    finally:
        await kernel.shutdown()
        await close_backends()


async def test_what_a_daemon_cannot_do_is_said(tmp_path: Path, model_server: ModelServer) -> None:
    world = World(tmp_path, model_server, features=())
    try:
        with pytest.raises(NotInstalled, match="This daemon runs without Models"):
            await world.service().models(Watcher())
        with pytest.raises(PyagentdError, match="without"):
            await world.service().schedules(Watcher())
    finally:
        await world.kernel.shutdown()
        await asyncio.sleep(0)
