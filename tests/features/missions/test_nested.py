"""Agents that start missions, missions that start agents and missions: one tree, one budget, nobody gains rights."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyagentd.features import mission_tool
from pyagentd.mission import options
from pyagentd.store import paths
from pyagentd.store.paths import BranchRef
from tests.features.missions.contracted import RETURN, contract, contracted, phases, said
from tests.runtime.delegation import agent_of, agents_of, converse, ends, results, system_of
from tests.runtime.world import World, assert_closed, body
from tests.server import answer, tool_use

GRANTS = ("tool:mission:.*", "tool:PersistentAgent:.*")
ONE = '(call "return" {:count 1})'


def missions(world: World, tools: str = "Read, Write, Glob, Bash, PersistentAgent, mission") -> BranchRef:
    """A session that chats, with the tool ``mission`` and the preset it needs."""
    contract(world, "mission", ":any", tools="Read, Glob, Grep")
    world.preset("main", tools=tools)
    return world.session()


def delegated(signature: str = "{count :int}", **more: Any) -> Any:
    return tool_use("mission", prompt="Count them.", signature=signature, **more)


async def test_an_agent_gets_the_value_of_a_mission_as_json(world: World) -> None:
    ref = missions(world)
    world.server.say(
        answer(delegated(context={"rows": [1, 2, 3]})), said('(call "return" {:count (count ctx/rows)})'), "3"
    )
    watcher = await converse(world, ref, grants=GRANTS)
    assert ends(watcher, ref)[0]["reason"] == "done"
    assert [json.loads(text) for text in results(world.server.last)] == [{"count": 3}]
    child = agent_of(ref)
    assert_closed(child)
    assert phases(child)["start"]["signature"] == "() -> {count :int}"
    assert "signature: " in (child.branch_dir / "preset.md").read_text()
    assert world.server.requests[1].body["model"] == "model-main", "who delegates answers for it"


async def test_a_mission_that_fails_is_an_error_of_the_tool_with_its_reason(world: World) -> None:
    ref = missions(world)
    world.server.say(answer(delegated()), said('(call "fail" {:reason :none :message "Nothing there"})'), "I see")
    await converse(world, ref, grants=GRANTS)
    (result,) = results(world.server.last)
    assert "none" in result and "Nothing there" in result
    (block,) = world.server.last.messages[-1]["content"]
    assert block["is_error"] is True


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ({"signature": "{count :in"}, "line 1"),
        ({"tools": ["Edit"]}, "Edit"),
        ({"tools": ["question"]}, "question"),
        ({"context": "no map"}, "context"),
    ],
)
async def test_what_is_no_mission_is_told_before_anything_is_made(world: World, call: Any, told: str) -> None:
    ref = missions(world)
    world.server.say(answer(delegated(**call)), "I see")
    await converse(world, ref, grants=GRANTS)
    assert told in results(world.server.last)[0]
    assert agents_of(ref) == []


async def test_a_mission_has_the_tools_and_rights_that_its_caller_lends(world: World) -> None:
    ref = missions(world)
    world.server.say(answer(delegated(tools=["Write"])), said(ONE), answer(delegated()), said(ONE), "ok")
    await converse(world, ref, grants=GRANTS)
    first, second = agents_of(ref)
    lent, whole = (world.kernel.presets.of_branch(each) for each in (first, second))
    assert lent.tools == ("Write",) and lent.paths.write == (f"{world.project}/**",) and not lent.shell.allow
    assert whole.tools == ("Read", "Write", "Glob", "Bash", "PersistentAgent", "mission")
    assert whole.shell.allow == ("*",)


async def test_it_is_confirmed_by_a_human_who_sees_its_rights(world: World) -> None:
    ref = missions(world)
    world.server.say(answer(delegated()), "I see")
    watcher = await converse(world, ref, grants=(), human=False)
    assert ends(watcher, ref)[0]["reason"] == "done"
    assert "approval" in results(world.server.last)[0] and "tool:mission:" in results(world.server.last)[0]
    assert agents_of(ref) == []


async def test_an_agent_made_from_a_preset_with_a_signature_is_a_mission(world: World) -> None:
    contract(world, "counter")
    ref = world.session()
    spawn = tool_use("PersistentAgent", preset="counter", description="count", prompt="Count.")
    world.server.say(answer(spawn), said(RETURN), "So")
    await converse(world, ref, grants=GRANTS)
    (result,) = results(world.server.last)
    assert json.loads(result.removeprefix("```json\n").removesuffix("\n```")) == {"count": 1, "names": []}


async def test_a_mission_delegates_to_an_agent_and_gets_its_words(world: World) -> None:
    world.preset("helper", tools="Read")
    ref = contracted(world, ":string", tools="PersistentAgent")
    spawn = '(call "PersistentAgent" {:preset "helper" :description "find" :prompt "Find."})'
    world.server.say(said(f'(call "return" (str "It said: " {spawn}))'), "found it")
    await converse(world, ref, grants=GRANTS)
    assert phases(ref)["end"]["value"] == "It said: found it"
    assert_closed(agent_of(ref))


@pytest.mark.spec("004", "Total Turn Budget")
async def test_missions_below_a_mission_spend_its_turns(world: World) -> None:
    """Also where a chat is between: the budget is that of the whole tree."""
    world.preset("helper", tools="mission")
    contract(world, "mission", ":any", tools="mission, PersistentAgent")
    ref = contracted(world, ":any", tools="PersistentAgent", more="max-turns: 3")
    spawn = '(call "PersistentAgent" {:preset "helper" :description "find" :prompt "Find."})'
    inner = answer(tool_use("mission", prompt="Count.", signature=":any", max_turns=20))
    world.server.say(said(spawn), inner, *(said(str(number)) for number in range(19)), "It ran out", said(ONE))
    watcher = await converse(world, ref, grants=GRANTS)
    told = [text for request in world.server.requests for text in _results(request)]
    assert any("turn_budget_exhausted" in text for text in told), told
    assert "turn_budget_exhausted" in ends(watcher, ref)[0]["message"]


def _results(request: Any) -> list[str]:
    return results(request) if isinstance(request.messages[-1]["content"], list) else []


@pytest.mark.spec("004", "Nested Depth")
async def test_missions_nest_three_deep_below_the_first(world: World) -> None:
    contract(world, "mission", ":any", tools="mission")
    ref = contracted(world, ":any", tools="mission")
    deeper = '(call "return" {:below (call "mission" {:prompt "Deeper." :signature ":any"})})'
    gives_up = said('(call "return" "too deep")')
    world.server.say(*[said(deeper)] * 4, *[gives_up] * 4)
    await converse(world, ref, grants=GRANTS)
    depth, here = 0, ref
    while below := agents_of(here):
        depth, here = depth + 1, below[0]
    assert depth == 3, "the one that would be too deep is not made"
    assert any("nested 3 deep" in json.dumps(request.messages) for request in world.server.requests)
    assert paths.ancestors_of(here)


def test_how_deep_missions_nest_is_said_alike_where_the_language_is_not_loaded() -> None:
    assert mission_tool._MISSIONS_DEEP == options.MAX_DEPTH


async def test_a_program_gets_the_value_of_a_mission_as_data(world: World) -> None:
    contract(world, "mission", ":any", tools="Read")
    ref = contracted(world, ":int", tools="mission, Read")
    inner = '(call "mission" {:prompt "Rows." :signature "{rows [:int]}"})'
    world.server.say(said(f'(call "return" (count (:rows {inner})))'), said('(call "return" {:rows [1 2 3]})'))
    await converse(world, ref, grants=GRANTS)
    assert phases(ref)["end"]["value"] == 3
    assert "mission(prompt :string" in system_of(world.server.requests[0])


@pytest.mark.spec("004", "Execution Behavior")
async def test_firewalled_fields_of_a_mission_reach_the_program_that_asked_and_nobody_else(world: World) -> None:
    contract(world, "mission", ":any", tools="Read")
    ref = contracted(world, ":int", tools="mission, Read")
    inner = '(call "mission" {:prompt "Ids." :signature "{count :int, _ids [:int]}"})'
    world.server.say(
        said(inner),
        said('(call "return" {:count 2 :_ids [4711 4712]})'),
        said('(call "return" (reduce + ctx/_ids))'),
    )
    await converse(world, ref, grants=GRANTS)
    assert phases(ref)["end"]["value"] == 9423
    for request in (world.server.requests[0], world.server.requests[2]):
        assert "4711" not in json.dumps(request.body)
    assert "4711" not in body(ref)
