"""Missions run beside each other; results keep their order, and one failure is one result."""

import asyncio
import threading
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest

from pyagentd.errors import UserError
from pyagentd.mission import Budget, Scripted, Step, delegate, gather, gather_sync, mission
from pyagentd.mission.options import Request


def said(value: int) -> Scripted:
    return Scripted([f'(call "return" {value})'])


def same(request: Request) -> str:
    """A callback that can be pickled."""
    return '(call "return" (inc ctx/n))'


FAILING = mission("c", llm=Scripted(['(call "fail" {:reason :broken :message "No"})'] * 9))


def values(steps: list[Step]) -> list[Any]:
    return [step.value if step.ok else step.fail and step.fail.reason for step in steps]


@pytest.mark.spec("004", "Parallel SubAgents")
async def test_results_come_in_order_with_failures_among_them() -> None:
    steps = await gather(
        [mission("a", llm=said(1)), ("b", {"llm": said(2)}), FAILING, {"prompt": "d", "llm": said(4)}]
    )
    assert values(steps) == [1, 2, "broken", 4]


def test_the_same_on_threads() -> None:
    assert values(gather_sync([mission(str(n), llm=said(n)) for n in range(9)], max_concurrency=3)) == [*range(9)]
    assert gather_sync([]) == []


async def test_options_for_all_stand_behind_each_ones_own() -> None:
    llm = Scripted(['(call "return" "x")'], repeat=True)
    missions = [mission("a"), mission("b", signature=":int", max_turns=1)]
    assert values(await gather(missions, llm=llm, signature=":string")) == ["x", "validation_error"]


@pytest.mark.parametrize("limit", [1, 2, 4])
async def test_no_more_than_the_limit_run_at_once(limit: int) -> None:
    running: list[int] = []
    most = 0

    async def llm(request: Any) -> str:
        nonlocal most
        running.append(1)
        most = max(most, len(running))
        for _ in range(5):
            await asyncio.sleep(0)
        running.pop()
        return '(call "return" 1)'

    await gather([mission(str(n), llm=llm) for n in range(6)], max_concurrency=limit)
    assert 1 <= most <= limit


def test_missions_are_really_beside_each_other() -> None:
    both = threading.Barrier(2, timeout=10)

    def llm(request: Request) -> str:
        both.wait()
        return '(call "return" 1)'

    assert values(gather_sync([mission("a", llm=llm), mission("b", llm=llm)], max_concurrency=2)) == [1, 1]


class Inline(Executor):
    """An executor that runs at once, as any other library's might."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class BreaksAfterOne(Inline):
    """An executor that is of no use after its first call, as a pool is that lost a process."""

    used = False

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self.used:
            raise RuntimeError("the pool is not usable anymore")
        self.used = True
        return super().submit(fn, *args, **kwargs)


def test_what_is_done_is_not_lost_with_the_executor() -> None:
    missions = [mission(str(n), llm=said(n)) for n in range(3)]
    done, *others = gather_sync(missions, executor=BreaksAfterOne(), max_concurrency=1)
    assert done.value == 0
    assert [step.fail and step.fail.message for step in others] == [
        "The mission could not be run: the pool is not usable anymore"
    ] * 2


def test_any_executor_will_do() -> None:
    missions = [mission("a", llm=said(1)), FAILING, mission("b", llm=said(2))]
    assert values(gather_sync(missions, executor=Inline())) == [1, "broken", 2]
    with ThreadPoolExecutor(2) as pool:
        assert values(gather_sync([mission("a", llm=said(1))], executor=pool)) == [1]


def test_a_process_runs_what_can_be_pickled_and_tells_what_cannot() -> None:
    missions = [mission("a", llm=same, context={"n": 1}), mission("b", llm=lambda request: "")]
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:  # forking a process with threads may hang it
        first, second = gather_sync(missions, executor=pool)
    assert first.value == 2, first.fail
    assert second.fail is not None and "could not be run" in second.fail.message


def test_inside_a_tool_missions_spend_the_budget_around() -> None:
    def fan(n: int) -> list[Any]:
        return values(gather_sync([mission(str(each), llm=said(each)) for each in range(n)]))

    budget = Budget(turns=20)
    step = delegate(
        "Fan out", llm=Scripted(['(call "return" (call "fan" {:n 3}))']), tools={"fan": fan}, budget=budget
    )
    assert step.value == [0, 1, 2] and budget.used == 4


async def test_cancelling_cancels_the_missions() -> None:
    started = asyncio.Event()
    ended: list[str] = []

    async def llm(request: Any) -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")
        return ""

    task = asyncio.create_task(gather([mission("a", llm=llm)]))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for _ in range(1000):
        if ended:
            break
        await asyncio.sleep(0.001)
    assert ended == ["cancelled"]


@pytest.mark.parametrize("given", ["text", 3, {"llm": len}, ("a", "b", "c")])
def test_what_is_no_mission_is_refused(given: Any) -> None:
    with pytest.raises(UserError, match="is not a mission"):
        gather_sync([given])


def test_a_limit_of_none_at_all_is_refused() -> None:
    with pytest.raises(UserError, match="at least 1"):
        gather_sync([], max_concurrency=0)


@pytest.mark.spec("004", "Concurrency & Safety")
def test_a_mission_waits_to_be_run() -> None:
    waiting = mission("a", llm=said(3))
    assert waiting.run().value == 3
    assert asyncio.run(mission("a", llm=said(4)).arun()).value == 4
