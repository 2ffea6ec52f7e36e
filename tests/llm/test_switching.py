"""A conversation goes on with another provider: each ordered pair, on servers that refuse what is not theirs."""

import copy
import itertools
import json

import pytest

from pyagentd.llm.backend import Backend
from pyagentd.llm.factory import close_backends, make_backend
from pyagentd.messages import Media, Message, Reasoning, ToolResult
from tests.llm.requests import assistant, calls, collect, parts, request, said, tool, user
from tests.llm.test_conformance import KINDS, PNG, settings_of
from tests.server import ModelServer, answer, text, thinking, tool_use

ANTHROPIC = {"anthropic", "bedrock", "vertex"}
ODD = "call:" + "é/" * 40  # an id that no API but the one that gave it takes


@pytest.mark.parametrize(("first", "second"), list(itertools.permutations(KINDS, 2)))
async def test_a_conversation_goes_on(model_server: ModelServer, first: str, second: str) -> None:
    def backend(kind: str) -> Backend:
        return make_backend(kind, settings_of(kind, model_server))

    offered = (tool("Read"), tool("mcp__a.b__c"))
    asked = user(Media(type="image/png", data=PNG), "What is this?")
    use = (tool_use("Read", id="id_1"), tool_use("mcp__a_b__c", id=ODD))
    model_server.say(answer(thinking("so it is", signature="b3BhcXVl"), text("I look."), *use))
    try:
        items = await collect(backend(first), request(asked, tools=offered, thinking_budget=2000))
        assert len(calls(items)) == 2 and any(isinstance(part, Reasoning) for part in parts(items))
        results = [
            ToolResult(id=call.id, text=f"result {number}", is_error=bool(number))
            for number, call in enumerate(calls(items))
        ]
        history: tuple[Message, ...] = (
            asked,
            assistant(*parts(items)),
            user(*results, Media(type="image/png", data=PNG)),
        )
        before = copy.deepcopy(history)
        for kind in (second, first, second):
            model_server.say("go on")
            given = request(*history, tools=offered, thinking_budget=2000)
            assert said(await collect(backend(kind), given)) == "go on"  # nothing was refused
            sent = json.dumps(model_server.last.messages)
            assert sent.count(PNG) == 2 and "result 0" in sent and "result 1" in sent and "I look." in sent
            # Reasoning is for those who wrote it; Anthropic's models read theirs wherever they run.
            kept = "b3BhcXVl" if first == "gemini" else "so it is"  # Gemini wants the signature alone
            assert (kept in sent) == (kind == first or {kind, first} <= ANTHROPIC)
        assert history == before
    finally:
        await close_backends()
