"""Agents that a client spawns instead of a model (SPEC 000, ``jf/gptel-persistent-agent--task``)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pyagentd.errors import BadRequest, NotASession, NotFound, PresetError, PyagentdError
from pyagentd.features.agents import MAX_DEPTH, AgentSpawner
from pyagentd.store import paths, presetfile
from pyagentd.store.paths import BranchRef
from tests.runtime.delegation import agent_of, agents_of
from tests.runtime.world import Watcher, World, assert_closed, attached, body
from tests.server import answer, refusal, text, tool_use


@pytest.fixture
def helper(world: World) -> World:
    world.preset("helper", model="model-helper", tools="Read, PersistentAgent")
    return world


async def spawned(world: World, ref: BranchRef, **more: Any) -> str:
    wanted = {"preset": "helper", "description": "find it", "prompt": "Find it.", "env": world.options.env} | more
    told = await world.service().spawn(Watcher(), branch=ref.key, **wanted)
    return str(told["branch"])


async def result(world: World, agent: str) -> dict[str, Any]:
    return await world.service().agent_result(Watcher(), branch=agent)


async def test_an_agent_of_a_client_runs_under_a_session_that_has_no_run(helper: World) -> None:
    helper.server.say("found")
    ref = helper.session()
    agent = await spawned(helper, ref)
    assert agent_of(ref).key == agent
    assert await result(helper, agent) == {"ok": True, "text": "found"}
    assert body(agent_of(ref)) == "Find it.\n\nfound\n\n### "
    assert body(ref) == "", "its result is the client's"
    assert_closed(agent_of(ref))


async def test_the_session_shows_its_progress(helper: World) -> None:
    helper.server.say(answer(tool_use("Read", file_path=str(helper.project / "a"))), "found")
    ref, watcher = helper.session(), Watcher()
    async with helper.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await result(helper, await spawned(helper, ref))
        await watcher.until(lambda: any(event.args[0]["state"] == "finished" for event in watcher.of("agent")))
        branch.detach(watcher)
    told = [(event.args[0]["state"], event.args[0]["count"]) for event in watcher.of("agent", ref.key)]
    assert list(dict.fromkeys(told)) == [("wait", 0), ("tool", 1), ("wait", 1), ("finished", 1)]
    assert [state for state, _ in told].count("finished") == 1


@pytest.mark.parametrize(
    ("more", "read"),
    [({}, "{project}/**"), ({"unrestricted": True}, "/**"), ({"allowed_paths": ["/a/**"]}, "/a/**")],
    ids=["nil", "empty", "list"],
)
async def test_what_it_may_read_is_inherited_everything_or_exactly_what_is_named(
    helper: World, more: dict[str, Any], read: str
) -> None:
    helper.server.say("found")
    ref = helper.session()
    await result(helper, await spawned(helper, ref, denied_paths=["/b"], **more))
    found = presetfile.read(paths.preset_file(agent_of(ref).branch_dir)).front["paths"]
    assert list(found["read"]) == [read.format(project=helper.project)] and "/b" in found["deny"]


@pytest.mark.parametrize(
    ("more", "error", "said"),
    [
        ({"preset": "nobody"}, PresetError, "preset: there is none called 'nobody'"),
        ({"prompt": ""}, BadRequest, "prompt is empty"),
        ({"prompt": " \n\t"}, BadRequest, "prompt is empty"),
        ({"description": ""}, BadRequest, "description is empty"),
        ({"allowed_paths": ["src/**"]}, BadRequest, "allowed_paths: .* not absolute"),
        ({"denied_paths": ["/a", ""]}, BadRequest, "denied_paths: .* not absolute"),
        ({"env": {"PYAGENTD_BACKEND": "moon"}}, PyagentdError, "moon"),
    ],
)
async def test_what_cannot_be_spawned_is_said_and_leaves_nothing(
    helper: World, more: dict[str, Any], error: type[PyagentdError], said: str
) -> None:
    ref = helper.session()
    with pytest.raises(error, match=said):
        await spawned(helper, ref, **more)
    assert agents_of(ref) == [] and not helper.kernel.feature(AgentSpawner).running(ref.key)


async def test_only_a_session_may_spawn_and_only_so_deep(helper: World) -> None:
    with pytest.raises(NotASession):
        await helper.service().spawn(
            Watcher(), branch=str(helper.project), preset="helper", description="d", prompt="p"
        )
    deepest = helper.session()
    helper.server.rule = lambda request: answer("found")
    for _ in range(MAX_DEPTH):
        await result(helper, await spawned(helper, deepest))
        deepest = agent_of(deepest)
    with pytest.raises(BadRequest, match="nested"):
        await spawned(helper, deepest)


async def test_a_result_is_told_again_after_a_restart_and_an_agent_without_a_run_has_none(helper: World) -> None:
    helper.server.say(refusal(400, "invalid_request_error", "no such model"))
    ref = helper.session()
    agent = await spawned(helper, ref)
    told = await result(helper, agent)
    assert not told["ok"] and told["text"].startswith("Error: API failure\n(:error (:code ")
    await helper.kernel.shutdown()
    helper.start()
    assert await result(helper, agent) == told
    with pytest.raises(NotFound, match="has not run"):
        await result(helper, ref.key)


async def test_an_agent_of_a_client_can_be_stopped(helper: World) -> None:
    helper.server.say(answer(text("Hello", chunks=2), hang_after=4))
    ref = helper.session()
    agent = await spawned(helper, ref)
    waiting = asyncio.create_task(result(helper, agent))
    await asyncio.to_thread(helper.server.wait_until, lambda: len(helper.server.requests) == 1)
    assert (await helper.service().abort(Watcher(), branch=agent))["aborted"]
    assert await waiting == {"ok": False, "text": "Error: User aborted agent"}
    assert helper.kernel.feature(AgentSpawner).running(ref.key) == []
