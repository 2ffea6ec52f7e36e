"""The ``task`` tool: the same agents as PersistentAgent's, with the arguments and results that other hosts have."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyagentd.api import Service
from pyagentd.features.agents import short_title
from pyagentd.store import paths
from tests.runtime.test_approvals import prompt_of, results, talking
from tests.runtime.test_resume import WAYS, agents_of, awake, begin, ended, restart, say
from tests.runtime.world import World, assert_closed, last_of, rows
from tests.server import answer, tool_use

ALLOWED = r"tool:task:helper"


@pytest.fixture
def service(world: World) -> Service:
    world.preset("main", tools="task, Read")
    world.preset("helper", tools="Bash, Read")
    world.preset("human", tools="Read")
    text = (world.presets / "human.md").read_text()
    (world.presets / "human.md").write_text(text.replace("mode: all", "mode: primary"))
    return world.service()


def task(prompt: str = "# Find it\nWhere is it?", kind: str = "helper", **more: Any) -> Any:
    return answer(tool_use("task", subagent_type=kind, prompt=prompt, **more))


async def test_a_blocking_call_gives_the_output(world: World, service: Service) -> None:
    async with talking(world, service) as talk:
        await talk.say(task(metadata={"ticket": 7}), "It is here.", "Done.", grants=world.granted(ALLOWED).grants)
        assert json.loads(await talk.end()) == {"output": "It is here."}
        (child,) = agents_of(talk.branch.ref)
        session = next(row.data for row in rows(child) if row.type == "session")
        assert session["metadata_json"]["task"] == {"ticket": 7} and session["description"] == "Find it"
        assert session["agent"] == "helper" and session["parent_message_id"]


async def test_a_background_call_gives_the_session_at_once(world: World, service: Service) -> None:
    async with talking(world, service) as talk:

        def model(request: Any) -> Any:
            if "Where is it?" in prompt_of(request):
                return answer("It is here.")
            return answer("Well.") if len(request.messages) > 1 else task(background=True)

        await talk.say(*[model] * 6, grants=world.granted(ALLOWED).grants)
        await talk.watcher.until(lambda: len(talk.watcher.of("run", talk.branch.key)) == 4)
        (row,) = [part for part in last_of(rows(talk.branch.ref), "part").values() if part["type"] == "tool-task"]
        (child,) = agents_of(talk.branch.ref)
        assert json.loads(row["data_json"]["output"])["session_id"] == child.session_id
        talk.watcher.events.clear()


@pytest.mark.parametrize("kind", ["nobody", "human"])
async def test_only_agents_of_mode_subagent_or_all_can_be_called(world: World, service: Service, kind: str) -> None:
    async with talking(world, service) as talk:
        await talk.say(task(kind=kind), "Oh.")
        assert '"subagent_type" must be one of' in await talk.end()
        assert not agents_of(talk.branch.ref)


async def test_a_grant_for_one_of_the_two_schemas_is_one_for_the_other(world: World, service: Service) -> None:
    async with talking(world, service) as talk:
        granted = world.granted("tool:PersistentAgent:helper").grants
        await talk.say(task(), "It is here.", "Done.", grants=granted, interactive=False)
        assert json.loads(await talk.end()) == {"output": "It is here."}


@pytest.mark.parametrize("how", WAYS)
async def test_its_agent_is_waited_for_after_a_restart(world: World, service: Service, how: str) -> None:
    def model(request: Any) -> Any:
        if "Where is it?" in prompt_of(request):
            return answer("Here.") if results(request) else answer(tool_use("Bash", command="echo hi"))
        return answer("Done.") if results(request) else task()

    world.server.say(*[model] * 6)
    ref = world.session()
    await begin(world, ref, "Hi", ALLOWED, asks=1)
    ref = await restart(world, ref, how)
    (ask,) = await awake(world, ref, 1)
    await say(world, ask)
    await ended(world)
    assert assert_closed(ref)["reason"] == "done"
    assert json.loads(results(world.server.last)[-1]) == {"output": "Here."}
    assert len(list(paths.agents_dir(ref.branch_dir).iterdir())) == 1


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("Find it", "Find it"),
        ("\n\n## Find  it\nand more", "Find it"),
        ("x" * 80, "x" * 60),
        ("seven 7 " * 20, " ".join(["seven 7"] * 7)),
        ("\n", "task"),
    ],
)
def test_a_task_is_described_by_the_beginning_of_its_prompt(prompt: str, words: str) -> None:
    assert short_title(prompt) == words
