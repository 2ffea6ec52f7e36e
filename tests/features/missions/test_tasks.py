"""What a message asks of a mission: its own words only, a template where it was given as one, and what people see."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyagentd.errors import BadRequest
from pyagentd.features.mission_tool import missions
from pyagentd.runtime.queue import Submission
from pyagentd.store.paths import BranchRef
from tests.features.missions.contracted import contracted, phases, said
from tests.runtime.delegation import converse, ends
from tests.runtime.world import Watcher, World, attached
from tests.server import Request

INPUTS = "(pattern :string, n :int?) -> :any"


def told(request: Request) -> str:
    return json.dumps(request.messages)


async def submitted(world: World, ref: BranchRef, text: str, **given: Any) -> list[dict[str, Any]]:
    """Send a mission as the command line does, wait for its end, and return the report."""
    watcher = Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        metadata = {"mission": {"template": True, **given}}
        await world.kernel.submit(branch, Submission(text=text, options=world.options, metadata=metadata))
        end = await watcher.finished(branch)
        return missions(branch.conversation, ref) or [{"fail": end}]


async def test_a_message_that_was_no_good_is_no_part_of_the_next_one(world: World) -> None:
    ref = contracted(world, INPUTS, more='prompt: "Count {{pattern}}."')
    watcher = await converse(world, ref, "*.md and others")
    assert "inputs pattern, n" in ends(watcher, ref)[0]["message"]
    world.server.say(said('(call "return" ctx/pattern)'))
    await converse(world, ref, '{"pattern": "x"}')
    assert phases(ref)["end"]["value"] == "x"


async def test_nor_where_the_message_itself_is_the_task(world: World) -> None:
    ref = contracted(world, "(pattern :string, n :int) -> :any")
    await converse(world, ref, "Hello!")
    world.server.say(said('(call "return" ctx/pattern)'))
    await converse(world, ref, '{"pattern": "x", "n": 1}')
    assert "Hello!" not in told(world.server.last)


@pytest.mark.spec("004", "Prompt Placeholder Validation")
@pytest.mark.parametrize(
    ("signature", "text", "given", "reason"),
    [
        (":any", "Greet {{whom}}.", {"context": {"who": "Ann"}}, "template_error"),
        (":any", "Greet {{whom}}.", {}, "template_error"),
        ("(who :string) -> :any", "Greet.", {}, "inputs without a value: who"),
    ],
)
async def test_a_mission_without_its_data_is_refused_before_any_request(
    world: World, signature: str, text: str, given: dict[str, Any], reason: str
) -> None:
    ref = contracted(world, signature)
    (report,) = await submitted(world, ref, text, **given)
    assert reason in json.dumps(report["fail"])
    assert not world.server.requests


@pytest.mark.parametrize("limit", [{"max_turns": -3}, {"max_turns": 0}, {"parallel": -1}])
async def test_a_mission_with_a_limit_that_cannot_be_makes_no_session(world: World, limit: dict[str, int]) -> None:
    world.preset("main")
    with pytest.raises(BadRequest, match="should be a whole number from 1"):
        await world.service().mission(Watcher(), prompt="Count.", signature=":any", preset="main", **limit)
    assert list(world.kernel.config.sessions_dir.glob("*/branches")) == []


async def test_people_see_the_task_and_not_its_template(world: World) -> None:
    ref = contracted(world, ":any")
    world.server.say(said('(call "return" 1)'), said('(call "return" 1)'))
    (report,) = await submitted(world, ref, "Greet {{who}}, {{_key}}.", context={"who": "Ann", "_key": "s3cret"})
    assert report["prompt"] == "Greet Ann, [Hidden] [Firewalled]."
    await converse(world, ref, "What does {{x}} mean?")
    async with world.kernel.using(ref) as branch:
        assert missions(branch.conversation, ref)[-1]["prompt"] == "What does {{x}} mean?"
