"""A passage that a model rewrites, outside of any session."""

import json
from typing import Any

import pytest

from pyagentd.errors import BadRequest, ProviderError
from pyagentd.llm.prompts import accept_rewrite
from pyagentd.policy.presets import DEFAULT_PRESET
from tests.runtime.world import Watcher, World
from tests.server import answer


@pytest.mark.parametrize(
    ("answered", "old", "new"),
    [
        ("(bar)", "  (foo)\n", "  (bar)\n"),
        ("  (bar)\n", "  (foo)\n", "  (bar)\n"),
        ("    (bar)", "  (foo)", "    (bar)"),  # indented otherwise
        ("```python\nx = 1\n```\n", "x = 2\n", "x = 1\n"),
        ("```python\nx = 1\n```", "```python\nx = 2\n```", "```python\nx = 1\n```"),  # the fence is the text's
        ("Some ``` text", "\n\nOther text\n\n", "\n\nSome ``` text\n\n"),
    ],
)
def test_an_answer_is_put_in_the_place_of_the_passage(answered: str, old: str, new: str) -> None:
    assert accept_rewrite(answered, old) == new


def call(world: World, **fields: Any) -> dict[str, Any]:
    return {"text": "  (foo)\n", "instruction": "call bar", "env": dict(world.options.env), **fields}


async def test_a_passage_is_rewritten_and_no_session_has_it(world: World) -> None:
    world.preset(DEFAULT_PRESET)
    world.server.say("(bar)")
    told = await world.service().rewrite(
        Watcher(), **call(world, name="a.el", before="before", after="behind", model="claude-haiku-4-5")
    )
    assert told["text"] == "  (bar)\n" and told["model"] == "claude-haiku-4-5"
    assert told["diff"].splitlines()[-2:] == ["-  (foo)", "+  (bar)"]
    sent = json.dumps(world.server.last.body["messages"])
    assert all(word in sent for word in ("<name>", "a.el", "before", "(foo)", "behind", "call bar"))
    assert "tools" not in world.server.last.body and not list(world.home.glob("sessions/*/branches"))


async def test_what_cannot_be_used_is_an_error(world: World) -> None:
    world.preset(DEFAULT_PRESET)
    service = world.service()
    for fields in ({"text": " \n"}, {"instruction": ""}, {"text": "x" * 300_000}):
        with pytest.raises(BadRequest):
            await service.rewrite(Watcher(), **call(world, **fields))
    assert not world.server.requests
    for unusable in (answer("half", stop_reason="max_tokens"), answer("no", stop_reason="refusal"), answer(" \n")):
        world.server.say(unusable)
        with pytest.raises(ProviderError):
            await service.rewrite(Watcher(), **call(world))
