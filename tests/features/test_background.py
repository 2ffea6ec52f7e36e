"""Agents that nobody waits for: their result comes as a message, once, whatever happened meanwhile."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from pyagentd.errors import StoreError
from pyagentd.features.agents import AgentSpawner
from pyagentd.runtime.approvals import Answer
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.status import Outcome
from pyagentd.store.paths import BranchRef
from tests.e2e.valve import Valve
from tests.features.test_agents import GRANT, agents_of, results, spawn
from tests.runtime.test_resume import until
from tests.runtime.world import Watcher, World, assert_closed, attached, body, last_of, rows
from tests.server import Request, answer, text, tool_use


@pytest.fixture
def helper(world: World) -> World:
    world.preset("helper", model="model-helper", tools="Read, PersistentAgent")
    return world


def by_model(world: World, *, agent: Any, main: list[Any]) -> None:
    """Have agents say ``agent``, and the others, one by one, ``main``, then "ok"."""

    def reply(request: Request) -> Any:
        if request.body["model"] == "model-helper":
            return answer(agent) if isinstance(agent, str) else agent
        said = main.pop(0) if main else "ok"
        return answer(said) if isinstance(said, str) else said

    world.server.rule = reply


def completions(ref: BranchRef) -> list[dict[str, Any]]:
    messages = last_of(rows(ref), "message").values()
    return [message for message in messages if message["metadata_json"].get("origin") == "agent"]


def debts(ref: BranchRef) -> list[str]:
    return [row["state"] for row in last_of(rows(ref), "agent").values()]


def ends(watcher: Watcher, ref: BranchRef) -> int:
    return sum(event.args[0]["phase"] == "finished" for event in watcher.of("run", ref.key))


async def run(world: World, ref: BranchRef, *, runs: int, prompt: str = "Delegate.") -> Watcher:
    """Send a prompt and wait until the branch had so many runs."""
    watcher = Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await world.kernel.prompt(branch, text=prompt, options=world.granted(*GRANT))
        await watcher.until(lambda: ends(watcher, ref) >= runs)
        branch.detach(watcher)
    return watcher


async def test_the_parent_goes_on_at_once_and_is_woken_by_the_result(helper: World) -> None:
    by_model(helper, agent="found it", main=[answer(spawn(background=True)), "I go on", "Thanks"])
    ref = helper.session()
    await run(helper, ref, runs=2)
    (agent,) = agents_of(ref)
    asked = [request for request in helper.server.requests if request.body["model"] != "model-helper"]
    told = json.loads(asked[1].messages[-1]["content"][0]["content"][0]["text"])
    assert told["session_id"] == agent.session_id
    (message,) = completions(ref)
    assert message["role"] == "user" and message["metadata_json"]["agents"] == [agent.session_id]
    heard = json.dumps(asked[2].messages[-1])
    assert agent.session_id in heard and "finished" in heard and "found it" in heard
    assert body(ref).count("found it") == 1 and "I go on" in body(ref) and "Thanks" in body(ref)
    assert debts(ref) == ["delivered"]
    assert last_of(rows(agent), "session")[agent.session_id]["background"] is True
    assert_closed(ref)
    assert_closed(agent)


async def test_the_result_comes_though_its_agent_cannot_be_opened(
    helper: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_model(helper, agent="found it", main=[answer(spawn(background=True)), "I go on", "Thanks"])
    settled = helper.kernel.feature(AgentSpawner).background.settled

    async def refused(branch: LiveBranch, outcome: Outcome) -> Outcome:
        if branch.ref.is_agent:
            raise StoreError("Input/output error")
        return await settled(branch, outcome)

    monkeypatch.setattr(helper.kernel.feature(AgentSpawner).background, "settled", refused)
    ref = helper.session()
    await run(helper, ref, runs=2)
    assert len(completions(ref)) == 1 and debts(ref) == ["delivered"]


async def test_results_wait_while_the_parent_is_busy_and_come_as_one_message(helper: World) -> None:
    spawns = answer(spawn(background=True), spawn(background=True))
    by_model(helper, agent="found it", main=[spawns, answer(tool_use("Bash", command="true")), "I was busy"])
    ref, watcher = helper.session(), Watcher()
    async with helper.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await helper.kernel.prompt(branch, text="Delegate.", options=helper.granted(*GRANT))
        await watcher.until(lambda: [e.args[0]["state"] for e in watcher.of("agent")].count("finished") == 2)
        await watcher.until(lambda: helper.kernel.asks.all())
        assert all("queued_at" in message["metadata_json"] for message in completions(ref))
        helper.kernel.asks.answer(str(helper.kernel.asks.all()[0]["id"]), Answer(decision="deny"))
        await watcher.until(lambda: ends(watcher, ref) >= 2)
        branch.detach(watcher)
    (message,) = completions(ref)
    assert sorted(message["metadata_json"]["agents"]) == [agent.session_id for agent in agents_of(ref)]
    assert body(ref).index("I was busy") < body(ref).index("found it")
    assert debts(ref) == ["delivered", "delivered"]


@pytest.mark.parametrize("when", ["busy", "idle"])
async def test_stopping_the_parent_stops_them_and_nothing_is_told(helper: World, when: str) -> None:
    hangs = answer(text("Hello", chunks=2), hang_after=4)
    by_model(helper, agent=hangs, main=[answer(spawn(background=True)), hangs if when == "busy" else "I go on"])
    ref, watcher = helper.session(), Watcher()
    async with helper.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await helper.kernel.prompt(branch, text="Delegate.", options=helper.granted(*GRANT))
        await asyncio.to_thread(helper.server.wait_until, lambda: len(helper.server.requests) == 3)
        if when == "idle":
            await watcher.until(lambda: ends(watcher, ref))
        assert await helper.kernel.abort(branch)
        assert not helper.kernel.runs
        branch.detach(watcher)
    (agent,) = agents_of(ref)
    assert assert_closed(agent)["reason"] == "aborted"
    assert completions(ref) == [] and debts(ref) == ["dropped"]
    assert [event.args[0]["state"] for event in watcher.of("agent")].count("finished") == 1


async def test_one_that_the_user_stops_is_told_as_aborted(helper: World) -> None:
    by_model(helper, agent=answer(hang_after=1), main=[answer(spawn(background=True)), "I go on", "A pity"])
    ref, watcher = helper.session(), Watcher()
    async with helper.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await helper.kernel.prompt(branch, text="Delegate.", options=helper.granted(*GRANT))
        await watcher.until(lambda: ends(watcher, ref))
        agent = helper.kernel.opened(agents_of(ref)[0].key)
        assert agent is not None and await helper.kernel.abort(agent)
        await watcher.until(lambda: ends(watcher, ref) == 2)
        branch.detach(watcher)
    assert "was aborted:\\n\\nError: User aborted agent" in json.dumps(helper.server.last.messages[-1])
    assert debts(ref) == ["delivered"]


async def test_after_a_restart_the_parent_hears_that_it_was_aborted(helper: World) -> None:
    by_model(helper, agent=answer(hang_after=1), main=[answer(spawn(background=True)), "I go on", "Hm", "A pity"])
    ref = helper.session()
    await run(helper, ref, runs=1)
    await helper.kernel.shutdown()
    assert debts(ref) == ["running"] and completions(ref) == []
    helper.start()
    await run(helper, ref, runs=2, prompt="And?")  # nobody gave the new daemon a key before
    assert len(completions(ref)) == 1
    # It comes before the prompt or behind it, whichever the new daemon begins first.
    assert json.dumps(helper.server.last.messages).count("The daemon ended before this was done") == 1
    assert debts(ref) == ["delivered"]
    helper.start()
    await run(helper, ref, runs=1, prompt="Again?")
    assert len(completions(ref)) == 1, "once"


async def test_an_agents_own_background_agents_belong_to_its_result(helper: World) -> None:
    helper.preset("deep", model="model-deep", tools="Read")

    below = Valve(answer("from below"))  # not before its parent has been asked to go on without it

    def reply(request: Request) -> Any:
        model, turns = request.body["model"], len(request.messages)
        if model == "model-deep":
            return below
        if model == "model-helper" and turns > 1:
            below.open()
        if model == "model-helper":
            return [answer(spawn("deep", background=True)), answer("first"), answer("second")][turns // 2]
        return answer(spawn()) if turns == 1 else answer("Done")

    helper.server.rule = reply
    ref = helper.session()
    await run(helper, ref, runs=1)
    (result,) = results(helper.server.last)
    assert "first" in result and "second" in result
    (agent,) = agents_of(ref)
    assert debts(agent) == ["delivered"] and debts(ref) == []
    assert "from below" in body(agent)


@pytest.mark.parametrize("background", [False, True])
async def test_an_answer_that_begins_right_behind_an_agents_first_run_belongs_to_its_result(
    helper: World, background: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper.preset("deep", model="model-deep", tools="Read")
    agents, second = helper.kernel.feature(AgentSpawner), Valve(answer("second"))
    settled = agents.background.settled

    async def late(branch: LiveBranch, outcome: Outcome) -> Outcome:
        if branch.ref.session_id.startswith("helper"):
            await until(lambda: len(branch.conversation.runs) == 2)
            asyncio.get_running_loop().call_later(0.1, second.open)
        return await settled(branch, outcome)

    def reply(request: Request) -> Any:
        model, turns = request.body["model"], len(request.messages)
        if model == "model-deep":
            return answer("from below")
        if model == "model-helper":
            return [answer(spawn("deep", background=True)), answer("first"), second][turns // 2]
        return answer(spawn(background=background)) if turns == 1 else answer("Done")

    monkeypatch.setattr(agents.background, "settled", late)
    helper.server.rule = reply
    ref = helper.session()
    await run(helper, ref, runs=2 if background else 1)
    told = json.dumps(helper.server.last.messages)
    assert "first" in told and "second" in told
    await until(lambda: not agents.running(ref.key))


async def test_a_background_agent_with_one_of_its_own_comes_to_its_end(helper: World) -> None:
    helper.preset("deep", model="model-deep", tools="Read")
    agents, below = helper.kernel.feature(AgentSpawner), Valve(answer("from below"))

    def reply(request: Request) -> Any:
        model, turns = request.body["model"], len(request.messages)
        if model == "model-deep":
            return below
        if model == "model-helper":
            return [answer(spawn("deep", background=True)), answer("first"), answer("second")][turns // 2]
        return answer(spawn(background=True)) if turns == 1 else answer("Done")

    async def let_go() -> None:
        await until(
            lambda: [row for each in agents_of(ref) for row in rows(each) if row.data.get("reason") == "done"]
        )
        below.open()

    helper.server.rule = reply
    ref = helper.session()
    async with asyncio.timeout(20):
        await asyncio.gather(run(helper, ref, runs=2), let_go())
    await until(lambda: not agents.running(ref.key))
    assert "second" in json.dumps(helper.server.last.messages)


async def test_one_that_cannot_start_is_an_error_of_its_call(helper: World) -> None:
    helper.preset("helper", backend="nobody")
    helper.server.say(answer(spawn(background=True)), "It cannot be done")
    ref = helper.session()
    await run(helper, ref, runs=1)
    assert "Error" in results(helper.server.last)[0]
    assert agents_of(ref) == [] and debts(ref) == []
