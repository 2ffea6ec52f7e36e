"""Whatever tools and callbacks of models do wrong ends in a sentence, and in nothing else."""

from __future__ import annotations

import asyncio
import math
import sys

import pytest

from pyagentd.mission.delegation import adelegate, delegate
from pyagentd.mission.parallel import gather_sync, mission
from pyagentd.mission.registry import Scripted
from tests.mission.test_loop import RETURN_1, code, told


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("in str")


def mute(*_):
    raise Mute


def leave(*_):
    sys.exit(3)


def cancel(*_):
    raise asyncio.CancelledError


async def leave_later(*_):
    await asyncio.sleep(0)
    sys.exit(3)


async def cancel_later(*_):
    await asyncio.sleep(0)
    raise asyncio.CancelledError


BAD = {
    mute: "mute, without a message",
    leave: "it tried to end the process (sys.exit)",
    cancel: "it was cancelled",
    leave_later: "it tried to end the process (sys.exit)",
    cancel_later: "ancelled",
}


@pytest.mark.parametrize(("tool", "said"), BAD.items(), ids=[each.__name__ for each in BAD])
def test_a_tool_fails_with_a_sentence_and_the_mission_goes_on(tool, said):
    llm, seen = Scripted([code('(call "bad")'), code(RETURN_1)]), []
    step = delegate("Go.", llm=llm, tools={"bad": tool}, telemetry=lambda event: seen.append(event.name))
    assert step.ok
    assert 'The tool "bad" failed: ' in told(llm) and said in told(llm)
    assert seen[-1] == "mission_stop"


@pytest.mark.parametrize("tool", BAD, ids=[each.__name__ for each in BAD])
async def test_the_event_loop_stands_it_too(tool):
    step = await adelegate("Go.", llm=Scripted([code('(call "bad")'), code(RETURN_1)]), tools={"bad": tool})
    assert step.ok and step.trace[0].error.reason == "tool_error"


@pytest.mark.parametrize("llm", BAD, ids=[each.__name__ for each in BAD])
async def test_so_do_callbacks_of_models(llm):
    step = await adelegate("Go.", llm=llm, llm_retry={"max_attempts": 1})
    assert step.fail.reason == "llm_error"
    assert delegate("Go.", llm=llm, llm_retry={"max_attempts": 1}).fail.reason == "llm_error"


def test_a_bad_mission_does_not_take_the_others_along():
    bad, good = (
        mission("Go.", llm=leave, llm_retry={"max_attempts": 1}),
        mission("Go.", llm=Scripted([code("1")] * 5)),
    )
    assert [step.fail.reason for step in gather_sync([bad, good])] == ["llm_error", "max_turns_exceeded"]


def test_the_users_interrupt_passes():
    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        delegate("Go.", llm=Scripted([code('(call "bad")')]), tools={"bad": interrupt})


@pytest.mark.parametrize("tokens", [{"input": "x", "output": -3}, "many", {"input": math.nan}, [1], math.inf])
def test_an_answer_that_cannot_be_counted_is_an_answer(tokens):
    asked = []

    def llm(request):
        asked.append(request)
        return {"content": code(RETURN_1), "tokens": tokens, "cost_usd": "?"}

    step = delegate("Go.", llm=llm)
    assert (step.value, len(asked), step.usage.total_tokens, step.usage.cost_usd) == (1, 1, 0, 0)


@pytest.mark.parametrize("cost", [math.nan, -1, "free"])
def test_a_cost_that_is_none_does_not_pass_the_limit(cost):
    step = delegate("Go.", llm=lambda _: {"content": code(RETURN_1), "cost_usd": cost}, max_cost_usd=1)
    assert (step.ok, step.fail.reason) == (False, "validation_error")
