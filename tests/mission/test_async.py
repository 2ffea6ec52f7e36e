"""Missions started from an event loop, and coroutines in missions that were not."""

from __future__ import annotations

import asyncio
import inspect
import threading

import pytest

from pyagentd.mission.budget import current
from pyagentd.mission.delegation import adelegate, delegate
from pyagentd.mission.registry import Scripted
from tests.mission.test_loop import RETURN_1, code


async def answering(request):
    await asyncio.sleep(0)
    return code('(call "return" (call "get" {:n 4}))')


async def get(n: int) -> int:
    await asyncio.sleep(0)
    return n + 1


async def test_coroutines_run_on_the_callers_loop():
    loops = []

    async def where(n: int) -> int:
        loops.append(asyncio.get_running_loop())
        return n

    step = await adelegate("Go.", llm=answering, tools={"get": where})
    assert step.value == 4
    assert loops == [asyncio.get_running_loop()]


def test_coroutines_run_where_there_is_no_loop():
    assert delegate("Go.", llm=answering, tools={"get": get}).value == 5


async def test_a_synchronous_mission_on_a_loop_still_runs_coroutines():
    assert delegate("Go.", llm=answering, tools={"get": get}).value == 5


async def test_listeners_are_called_on_the_loop_before_the_mission_goes_on():
    here, seen = threading.get_ident(), []
    llm = Scripted([code("1"), code(RETURN_1)])
    step = await adelegate(
        "Go.",
        llm=llm,
        telemetry=lambda event: seen.append((threading.get_ident(), event.name, len(llm.requests))),
        on_checkpoint=lambda state: seen.append((threading.get_ident(), "checkpoint", state.turn)),
    )
    assert step.ok
    assert {thread for thread, *_ in seen} == {here}
    assert (here, "program_start", 1) in seen and (here, "checkpoint", 1) in seen


async def test_missions_below_await_on_the_same_loop_and_spend_the_same_budget():
    async def below() -> int:
        scope = current()
        step = await adelegate("Inner.", llm=Scripted([code("1"), code('(call "return" 7)')]))
        return step.value + scope.depth

    outer = Scripted([code('(call "return" (call "below"))')])
    step = await adelegate("Go.", llm=outer, tools={"below": below})
    assert (step.value, step.usage.turns) == (7, 3)


async def test_many_missions_below_each_other_do_not_wait_for_a_thread():
    async def leaf(request):
        await asyncio.sleep(0)
        return code(RETURN_1)

    async def fan() -> int:
        steps = await asyncio.gather(*(adelegate("Leaf.", llm=leaf) for _ in range(12)))
        return sum(step.value for step in steps)

    step = await adelegate("Go.", llm=Scripted([code('(call "return" (call "fan"))')]), tools={"fan": fan})
    assert step.value == 12


async def test_cancelling_ends_the_callback_that_is_awaited():
    began, ended = asyncio.Event(), asyncio.Event()

    async def hanging(request):
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(adelegate("Go.", llm=hanging))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_cancelling_stops_a_program():
    began = asyncio.Event()
    loop = asyncio.get_running_loop()
    llm = Scripted([code('(do (call "begin") (loop [n 0] (recur (inc n))))')])
    task = asyncio.create_task(
        adelegate("Go.", llm=llm, tools={"begin": lambda: loop.call_soon_threadsafe(began.set)}, timeout_ms=60_000)
    )
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_callback_that_hangs_is_given_up_at_the_deadline():
    async def hanging(request):
        await asyncio.Event().wait()

    step = await adelegate("Go.", llm=hanging, mission_timeout_ms=30)
    assert step.fail.reason == "mission_timeout"


@pytest.mark.spec("004", "Quick Reference: Delegation Options")
def test_both_take_the_same_options_with_the_specifications_defaults():
    options = inspect.signature(delegate).parameters
    assert inspect.signature(adelegate).parameters == options
    assert options["llm"].default is inspect.Parameter.empty
    assert {name: options[name].default for name in ("max_turns", "timeout_ms", "mission_timeout_ms")} == {
        "max_turns": 5,
        "timeout_ms": 5000,
        "mission_timeout_ms": 60000,
    }
    seen = []
    delegate("Go.", llm=lambda request: seen.append(current()) or code(RETURN_1))
    (scope,) = seen
    assert (scope.budget.turns, scope.budget.depth, scope.signature_validation) == (20, 3, "enabled")
