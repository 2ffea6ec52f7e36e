"""The tree of agents as clients see it, stopping one of them, and many at once."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pyagentd.errors import Ambiguous, NotFound
from pyagentd.store import paths, sessions
from tests.features.test_agents import GRANT, agents_of, converse, results, spawn
from tests.runtime.world import FixedClock, Watcher, World, assert_closed, attached, last_of, rows
from tests.server import Request, answer, refusal, tool_use


@pytest.fixture
def helper(world: World) -> World:
    world.preset("helper", model="model-helper", tools="Read, PersistentAgent")
    return world


async def tree(world: World, branch: str, **options: Any) -> list[dict[str, Any]]:
    answer: list[dict[str, Any]] = (await world.service().agents(Watcher(), branch=branch, **options))["agents"]
    return answer


async def test_the_tree_says_of_every_agent_what_became_of_it(helper: World) -> None:
    def reply(request: Request) -> Any:
        said = json.dumps(request.messages[0])
        if "Delegate" in said:
            done = len(request.messages) > 1
            return answer("Done" if done else "", *([] if done else [spawn(prompt="Deep"), spawn(prompt="Bad")]))
        if "Deep" in said:
            return answer("deeply") if len(request.messages) > 1 else answer(spawn(prompt="Leaf", description="leaf"))
        return answer("a leaf") if "Leaf" in said else refusal(400, "invalid_request_error", "no such model")

    helper.server.rule = reply
    ref = helper.session()
    await converse(helper, ref)
    found = await tree(helper, ref.key)
    by_result = {agent["result"]: agent for agent in found}
    deep = by_result.pop("deeply")
    (bad,) = by_result.values()
    assert (deep["state"], deep["preset"], deep["description"]) == ("finished", "helper", "find it")
    assert deep["tokens"] > 0 and deep["background"] is False
    assert [leaf["result"] for leaf in deep["agents"]] == ["a leaf"]
    assert bad["state"] == "error" and bad["result"].startswith("Error: API failure") and bad["agents"] == []
    assert {agent["branch_dir"] for agent in found} == {str(agent.branch_dir) for agent in agents_of(ref)}


async def test_one_that_works_and_one_that_asks_are_shown_so_and_can_be_stopped_alone(helper: World) -> None:
    helper.preset("helper", model="model-helper", tools="Bash")

    def reply(request: Request) -> Any:
        said = json.dumps(request.messages[0])
        if "Delegate" in said:
            more = [spawn(description="work", prompt="Hang"), spawn(description="ask", prompt="Ask")]
            return answer("Done") if len(request.messages) > 1 else answer(*more)
        return answer(hang_after=1) if "Hang" in said else answer(tool_use("Bash", command="true"))

    helper.server.rule = reply
    ref, watcher, service = helper.session(), Watcher(), helper.service()
    async with helper.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await helper.kernel.prompt(branch, text="Delegate.", options=helper.granted(*GRANT))
        await watcher.until(lambda: helper.kernel.asks.all())
        await asyncio.to_thread(helper.server.wait_until, lambda: len(helper.server.requests) == 3)
        found = {agent["description"]: agent for agent in await tree(helper, ref.key)}
        assert {what: agent["state"] for what, agent in found.items()} == {"work": "running", "ask": "waiting"}
        with pytest.raises(Ambiguous):
            await service.abort_agent(watcher, branch=ref.key, agent="helper-")
        with pytest.raises(NotFound):
            await service.abort_agent(watcher, branch=ref.key, agent="nobody")
        for agent in found.values():
            assert (await service.abort_agent(watcher, branch=ref.key, agent=agent["id"]))["aborted"]
        await watcher.until(lambda: any(e.args[0]["phase"] == "finished" for e in watcher.of("run", ref.key)))
        branch.detach(watcher)
    assert all("User aborted agent" in result for result in results(helper.server.last))
    assert {agent["state"] for agent in await tree(helper, ref.key)} == {"aborted"}
    assert not helper.kernel.asks.all()


async def test_a_tree_too_large_for_a_frame_comes_by_path(helper: World) -> None:
    helper.server.say(answer(spawn()), "x" * 600_000, "Done")
    ref = helper.session()
    await converse(helper, ref)
    told = await helper.service().agents(Watcher(), branch=ref.key)
    with open(told["path"]) as file:  # noqa: ASYNC230, PTH123 - a test
        (agent,) = json.load(file)["agents"]
    assert len(agent["result"]) == 600_000


async def test_the_agent_of_one_call_is_found_among_all(helper: World) -> None:
    helper.server.say(answer(spawn(id="call_1"), spawn(id="call_2")), "One", "Two", "Done")
    ref = helper.session()
    await converse(helper, ref)
    ((found,), other) = [
        (await helper.service().agents(Watcher(), branch=ref.key, call=call))["agents"]
        for call in ("call_2", "call_3")
    ]
    assert found["call_id"] == "call_2" and other == []


async def test_many_agents_at_once_give_each_result_to_its_call_once(helper: World) -> None:
    count = 24

    def reply(request: Request) -> Any:
        first = json.dumps(request.messages[0])
        if "Delegate" in first:
            spawns = [spawn(prompt=f"task {number}", id=f"call_{number}") for number in range(count)]
            return answer("Done") if len(request.messages) > 1 else answer(*spawns)
        if len(request.messages) < 5:
            return answer(tool_use("Read", file_path=str(helper.project / "a.txt")))
        return answer(request.messages[0]["content"][0]["text"].strip() + " done")

    (helper.project / "a.txt").write_text("alpha\n")
    helper.server.rule = reply
    ref = helper.session()
    await converse(helper, ref)
    final = [request for request in helper.server.requests if "Delegate" in json.dumps(request.messages[0])][-1]
    told = {block["tool_use_id"]: json.dumps(block["content"]) for block in final.messages[-1]["content"]}
    assert len(told) == len(final.messages[-1]["content"]) == count
    assert all(f'"task {call.removeprefix("call_")} done"' in text for call, text in told.items())
    assert len(agents_of(ref)) == count
    calls = Counter(last_of(rows(agent), "session")[agent.session_id]["parent_call_id"] for agent in agents_of(ref))
    assert set(calls.values()) == {1}
    for agent in agents_of(ref):
        assert assert_closed(agent)["reason"] == "done"
    assert not helper.kernel.runs


def test_two_hundred_agents_of_one_second_have_two_hundred_directories(tmp_path: Any) -> None:
    preset = "---\ndescription: d\nbackend: b\nmodel: m\n---\nYou help.\n"
    parent = sessions.create_session(tmp_path, "p", preset_name="p", preset_text=preset, clock=FixedClock())

    def make(_: int) -> str:
        made = sessions.create_agent(
            parent, preset_name="helper", preset_text=preset, description="find it", read=(), clock=FixedClock()
        )
        return made.session_id

    with ThreadPoolExecutor(16) as pool:
        made = list(pool.map(make, range(200)))
    assert len(set(made)) == 200
    home = paths.agents_dir(parent.branch_dir)
    assert sorted(place.name for place in home.iterdir()) == sorted(made)
    assert {f"{min(made, key=len)}-{number}" for number in range(2, 201)} | {min(made, key=len)} == set(made)
