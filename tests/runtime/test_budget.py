"""How long a run may go on: turns, tokens and time of its preset; who exceeds them ends with one clear error."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from pyagentd.errors import BudgetSpent
from pyagentd.messages import Usage
from pyagentd.runtime import run as budget
from pyagentd.runtime.approvals import Answer
from pyagentd.runtime.run import Limits, RunTimer
from tests.features.test_agents import agents_of, converse, results, spawn
from tests.runtime.world import Watcher, World, assert_closed, attached, body
from tests.server import answer, text, tool_use


def limited(world: World, line: str, tools: str = "Read") -> World:
    """Give the preset of agents one more line."""
    world.preset("helper", model=f"model-helper\n{line}", tools=tools)
    return world


async def test_an_agent_that_needs_too_many_turns_stops_and_its_parent_gets_what_it_said(world: World) -> None:
    limited(world, "max-turns: 2")
    look = tool_use("Read", file_path=str(world.project / "a"))
    world.server.say(
        answer(spawn()), answer("I look.", look), answer("Again.", tool_use("Read", file_path="/a")), "So"
    )
    ref = world.session()
    await converse(world, ref)
    (result,) = results(world.server.last)
    assert "Error: Agent stopped: turn limit (2) reached\\nI look.\\n\\nAgain." in result
    (agent,) = agents_of(ref)
    end = assert_closed(agent)
    assert end["reason"] == "error" and end["error"]["code"] == "budget"
    assert "turn limit (2) reached" in body(agent)
    assert assert_closed(ref)["reason"] == "done"


async def test_an_answer_within_the_limit_is_an_answer(world: World) -> None:
    limited(world, "max-turns: 2")
    world.server.say(answer(spawn()), answer(tool_use("Read", file_path="/a")), "found", "So")
    ref = world.session()
    await converse(world, ref)
    assert "found" in results(world.server.last)[0]


async def test_tokens_are_counted_over_all_turns(world: World) -> None:
    limited(world, "token-budget: 1")
    world.server.say(answer(spawn()), answer(tool_use("Read", file_path="/a")), "So")
    ref = world.session()
    await converse(world, ref)
    assert "token limit (1) reached" in results(world.server.last)[0]


async def test_a_user_who_prompts_it_again_gives_it_a_new_budget(world: World) -> None:
    limited(world, "max-turns: 1")
    world.server.say(answer(spawn()), answer(tool_use("Read", file_path="/a")), "So", "more")
    ref = world.session()
    await converse(world, ref)
    (agent,) = agents_of(ref)
    await converse(world, agent, prompt="Go on.")
    assert assert_closed(agent)["reason"] == "done" and "more" in body(agent)


async def test_too_many_calls_end_a_run_before_the_answer_that_exceeds_them_acts(world: World) -> None:
    limited(world, "max-calls: 3")
    look = [tool_use("Read", file_path=f"/{name}") for name in "abcd"]
    world.server.say(answer(spawn()), answer(*look[:2]), answer("Two more.", *look[2:]), "So")
    ref = world.session()
    await converse(world, ref)
    (result,) = results(world.server.last)
    assert "Error: Agent stopped: limit of tool calls (3) reached\\nTwo more." in result
    (agent,) = agents_of(ref)
    end = assert_closed(agent)
    assert end["reason"] == "error" and end["error"]["code"] == "budget"
    assert assert_closed(ref)["reason"] == "done"


async def test_as_many_calls_as_allowed_are_made(world: World) -> None:
    limited(world, "max-calls: 2")
    looks = [tool_use("Read", file_path=f"/{name}") for name in "ab"]
    world.server.say(answer(spawn()), answer(*looks), "found", "So")
    ref = world.session()
    await converse(world, ref)
    assert "found" in results(world.server.last)[0]


async def test_every_run_has_a_limit_of_calls() -> None:
    Limits().check_calls(budget.MAX_CALLS)
    with pytest.raises(BudgetSpent, match=r"limit of tool calls \(5,000\)"):
        Limits().check_calls(budget.MAX_CALLS + 1)


async def test_time_ends_what_is_going_on(world: World) -> None:
    limited(world, "time-budget: 1")
    world.server.say(answer(spawn()), answer(text("Hello", chunks=2), hang_after=4), "So")
    ref = world.session()
    await converse(world, ref)
    assert "time limit (1 s) reached" in results(world.server.last)[0]
    (agent,) = agents_of(ref)
    assert assert_closed(agent)["error"]["code"] == "budget"


async def test_time_in_which_a_human_is_asked_does_not_count_for_anybody_who_waits(world: World) -> None:
    limited(world, "time-budget: 1000", tools="Bash")
    world.preset("main", model="model-main\ntime-budget: 1000")
    world.server.say(answer(spawn()), answer(tool_use("Bash", command="true")), "found", "So")
    ref, watcher = world.session(), Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await world.kernel.prompt(branch, text="Delegate.", options=world.granted("tool:PersistentAgent:.*"))
        await watcher.until(lambda: world.kernel.asks.all())
        runs = [live.run for live in world.kernel.runs if live.run]
        assert [run.stopwatch.timer for run in runs] == [None, None]
        world.kernel.asks.answer(str(world.kernel.asks.all()[0]["id"]), Answer(decision="allow"))
        await watcher.finished(branch)


@pytest.mark.parametrize(
    ("limits", "turns", "usage", "said"),
    [
        (Limits(), 10**6, Usage(input=10**9), None),
        (Limits(turns=3), 2, Usage(), None),
        (Limits(turns=3), 3, Usage(), "turn limit (3) reached"),
        (Limits(tokens=100), 1, Usage(input=60, output=39), None),
        (Limits(tokens=100), 1, Usage(input=60, cache_read=40), "token limit (100) reached"),
    ],
)
def test_limits(limits: Limits, turns: int, usage: Usage, said: str | None) -> None:
    if said is None:
        limits.check(turns, usage)
    else:
        with pytest.raises(BudgetSpent) as caught:
            limits.check(turns, usage)
        assert str(caught.value) == f"Agent stopped: {said}"


@dataclass
class Clock:
    """A loop whose time a test moves."""

    now: float = 0.0
    due: list[float] = field(default_factory=list)

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, then: Callable[[], None]) -> asyncio.TimerHandle:
        self.due.append(self.now + delay)
        loop = asyncio.get_running_loop()
        return loop.call_later(10_000, then)


async def test_a_stopwatch_goes_on_where_it_was_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(budget, "get_running_loop", lambda: clock)
    watch = RunTimer(10.0, lambda error: None)
    with watch.running():
        clock.now = 4.0
        with watch.paused(), watch.paused():
            clock.now = 100.0
        clock.now = 103.0
        with watch.paused():
            clock.now = 200.0
    assert clock.due == [10.0, 106.0, 203.0]
