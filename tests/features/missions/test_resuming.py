"""A mission whose daemon ended goes on: where it waited by itself, elsewhere when it is asked to."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from pyagentd.features.mission_tool import missions, unfinished_mission
from pyagentd.mission.budget import Budget
from pyagentd.runtime.opening import RESTARTED
from pyagentd.runtime.queue import Submission
from pyagentd.store.paths import BranchRef
from tests.features.missions.contracted import contracted, phases, said
from tests.runtime.delegation import converse, ends
from tests.runtime.test_resume import WAYS, agents_of, awake, begin, calls_of, ended, restart, say
from tests.runtime.world import Watcher, World, assert_closed, attached, body
from tests.server import answer, refusal, tool_use

LOOK_AND_ASK = """\
(let [seen (call "Read" {:file_path "FILE"})
      told (call "Bash" {:command "echo hi"})]
  (call "return" {:count (count (split-lines seen)) :names [told]}))"""


def waiting(world: World) -> BranchRef:
    """A mission whose program has read a file and waits for a human's word about a command."""
    (world.project / "a.txt").write_text("one\ntwo")
    world.server.say(said(LOOK_AND_ASK.replace("FILE", f"{world.project}/a.txt")))
    return contracted(world, tools="Read, Bash")


@pytest.mark.parametrize("how", WAYS)
async def test_a_program_that_waits_for_a_human_goes_on_and_nothing_happens_twice(world: World, how: str) -> None:
    ref = waiting(world)
    await begin(world, ref, "Look.", asks=1)
    (world.project / "a.txt").write_text("other")  # what was read stays read
    ref = await restart(world, ref, how)
    (ask,) = await awake(world, ref, 1)
    await say(world, ask)
    await ended(world)
    assert assert_closed(ref)["reason"] == "done"
    end = phases(ref)["end"]
    assert end["value"]["count"] == 2 and end["value"]["names"][0].startswith("hi")
    assert len(world.server.requests) == 1, "the model is not asked again for a program that is there"
    assert [call["type"] for call in calls_of(ref).values()] == ["tool-program", "tool-Read", "tool-Bash"]
    assert body(ref).count("``` tool (program") == 1


async def test_parallel_calls_that_were_made_are_not_made_again(world: World) -> None:
    (world.project / "a.txt").write_text("one")
    read = f'(call "Read" {{:file_path "{world.project}/a.txt"}})'
    bash = '(call "Bash" {:command "echo hi"})'
    both = f"(let [seen (pvalues {read} {read}) told (future {bash})] [(first seen) @told])"
    world.server.say(said(f"(return {{:count 2 :names {both}}})"))
    ref = contracted(world, tools="Read, Bash")
    await begin(world, ref, "Look.", asks=1)
    (world.project / "a.txt").write_text("other")
    ref = await restart(world, ref, "killed")
    (ask,) = await awake(world, ref, 1)
    await say(world, ask)
    await ended(world)
    assert assert_closed(ref)["reason"] == "done"
    seen, told = phases(ref)["end"]["value"]["names"]
    assert "one" in seen and told.startswith("hi")
    assert [call["type"] for call in calls_of(ref).values()] == [
        "tool-program",
        "tool-Read",
        "tool-Read",
        "tool-Bash",
    ]


async def test_a_program_that_waits_for_an_agent_goes_on_with_its_answer(world: World) -> None:
    world.preset("helper", tools="Bash")
    spawn = '(call "PersistentAgent" {:preset "helper" :description "find" :prompt "Find."})'
    world.server.say(
        said(f'(call "return" {{:count 1 :names [{spawn}]}})'), answer(tool_use("Bash", command="echo a"))
    )
    ref = contracted(world, tools="PersistentAgent")
    await begin(world, ref, "Go.", asks=1)
    ref = await restart(world, ref, "killed")
    (ask,) = await awake(world, ref, 1)
    world.server.say("the agent's words")
    await say(world, ask)
    await ended(world)
    assert phases(ref)["end"]["value"] == {"count": 1, "names": ["the agent's words"]}
    assert len(agents_of(ref)) == 1


async def test_what_was_denied_after_the_restart_is_an_error_of_the_program(world: World) -> None:
    ref = waiting(world)
    await begin(world, ref, "Look.", asks=1)
    ref = await restart(world, ref, "killed")
    (ask,) = await awake(world, ref, 1)
    world.server.say(said('(call "return" {:count 0 :names []})'))
    await say(world, ask, "deny", reason="not now")
    await ended(world)
    assert "not now" in json.dumps(world.server.last.messages)
    assert phases(ref)["end"]["value"] == {"count": 0, "names": []}


async def cut_off(world: World) -> BranchRef:
    """A mission that was stopped in its second program, when its first had put something into its memory."""
    ref = contracted(world, tools="Read, Bash")
    world.server.say(said("(do (memory/put :seen 41) {:found [1 2]})"), said('(call "Bash" {:command "sleep 600"})'))
    watcher = Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await world.kernel.prompt(branch, text="Go.", options=world.granted("tool:Bash:.*"))
        await watcher.until(lambda: _sleeps(watcher))
        await world.kernel.abort(branch)
        assert unfinished_mission(branch.conversation)
    return ref


def _sleeps(watcher: Watcher) -> bool:
    return any("Bash sleep 600" in (event.args[0].get("tools") or []) for event in watcher.of("status"))


RESUME: dict[str, Callable[[str], dict[str, Any]]] = {
    "message": lambda run: {"text": "continue"},
    "asked to": lambda run: {"text": "Continue.", "metadata": {"mission": {"resume": run}}},
}


@pytest.mark.spec("004", "Checkpoint/Resume")
@pytest.mark.parametrize("way", RESUME)
async def test_a_mission_that_was_stopped_goes_on_behind_its_last_program(world: World, way: str) -> None:
    ref = await cut_off(world)
    world.server.say(said('(call "return" {:count (+ 1 memory/seen) :names (mapv str ctx/found)})'))
    watcher = Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        given = RESUME[way](unfinished_mission(branch.conversation))
        await world.kernel.submit(branch, Submission(options=world.options, **given))
        assert (await watcher.finished(branch))["reason"] == "done"
        assert not unfinished_mission(branch.conversation)
    assert phases(ref)["end"]["value"] == {"count": 42, "names": ["1", "2"]}
    assert phases(ref)["start"]["resumed"]
    told = json.dumps(world.server.last.messages)
    assert "memory/put" in told and "Go." in told, "the model sees what it did before"


async def test_the_turns_that_were_taken_count_when_it_goes_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ref = await cut_off(world)
    budgets: list[Budget] = []
    monkeypatch.setattr(
        "pyagentd.features.missions.Budget", lambda **more: budgets.append(Budget(**more)) or budgets[-1]
    )
    world.server.say(said('(call "return" {:count memory/seen :names []})'))
    await converse(world, ref, "continue")
    assert [budget.used for budget in budgets] == [2], "the finished one, and the one that was begun again"


async def test_it_goes_on_in_another_daemon_too(world: World) -> None:
    ref = await cut_off(world)
    ref = await restart(world, ref, "stopped")
    world.server.say(said('(call "return" {:count memory/seen :names []})'))
    watcher = await converse(world, ref, "continue")
    assert ends(watcher, ref)[0]["reason"] == "done"
    assert phases(ref)["end"]["value"]["count"] == 41


async def test_another_message_is_another_mission(world: World) -> None:
    ref = await cut_off(world)
    world.server.say(said('(call "return" {:count 0 :names [(str memory/seen)]})'))
    await converse(world, ref, "Something else.")
    assert phases(ref)["end"]["value"] == {"count": 0, "names": [""]}


async def test_what_a_killed_daemon_ran_is_closed_and_can_go_on(world: World) -> None:
    ref = contracted(world, tools="Read, Bash")
    world.server.say(said("(do (memory/put :seen 1) nil)"), said('(call "Bash" {:command "sleep 600"})'))
    watcher = Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await world.kernel.prompt(branch, text="Go.", options=world.granted("tool:Bash:.*"))
        await watcher.until(lambda: _sleeps(watcher))
    ref = await restart(world, ref, "killed")
    async with world.kernel.using(ref) as branch:
        assert unfinished_mission(branch.conversation)
    assert RESTARTED in body(ref)
    world.server.say(said('(call "return" {:count memory/seen :names []})'))
    await converse(world, ref, "continue")
    assert phases(ref)["end"]["value"]["count"] == 1


async def goes_on(world: World, ref: BranchRef, *, until: Callable[[Watcher], bool] | None = None) -> None:
    """Have a mission go on; to its end, or until it is stopped."""
    watcher = Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        asked = Submission(
            options=world.granted("tool:Bash:.*"), **RESUME["asked to"](unfinished_mission(branch.conversation))
        )
        await world.kernel.submit(branch, asked)
        if until is not None:
            await watcher.until(lambda: until(watcher))
            await world.kernel.abort(branch)
        await watcher.finished(branch)


@pytest.mark.spec("004", "Checkpoint/Resume")
async def test_a_mission_that_is_stopped_again_before_a_turn_stands_where_it_stood(world: World) -> None:
    ref = await cut_off(world)
    for _ in range(2):
        world.server.say(said('(call "Bash" {:command "sleep 600"})'))
        await goes_on(world, ref, until=_sleeps)
    ref = await restart(world, ref, "stopped")
    world.server.say(said('(call "return" {:count memory/seen :names []})'))
    await goes_on(world, ref)
    assert phases(ref)["end"]["value"]["count"] == 41
    async with world.kernel.using(ref) as branch:
        numbers = [[turn["number"] for turn in each["turns"]] for each in missions(branch.conversation, ref)]
    assert numbers == [[1, 2], [2], [2], [2]], "the turn that was cut off is made again"


async def test_a_mission_whose_first_request_failed_begins_anew_with_its_data(world: World) -> None:
    ref = contracted(world, tools="Read, Bash")
    world.server.say(refusal(400, "invalid_request_error", "no such model"))
    watcher = Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        given = {"mission": {"context": {"rows": [1, 2, 3]}, "template": True}}
        await world.kernel.submit(branch, Submission(text="Count {{rows}}.", options=world.options, metadata=given))
        assert (await watcher.finished(branch))["reason"] == "error"
    world.server.say(said('(call "return" {:count (count ctx/rows) :names []})'))
    await goes_on(world, ref)
    assert phases(ref)["end"]["value"]["count"] == 3
    assert "Count [1 2 3]." in json.dumps(world.server.last.messages)


async def test_a_message_that_was_no_good_does_not_lose_the_mission_before_it(world: World) -> None:
    ref = contracted(world, "(a :string, b :int) -> :any", more='prompt: "{{a}} {{b}}"')
    world.server.say(refusal(400, "invalid_request_error", "no such model"))
    await converse(world, ref, "a: x\nb: 1")
    await converse(world, ref, "Hello!")
    world.server.say(said('(call "return" ctx/b)'))
    await converse(world, ref, "continue")
    assert phases(ref)["end"]["value"] == 1
