"""A program has computing time, a mission a deadline that holds whatever its tools and its model do."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pyagentd.mission import LLMTool, adelegate, delegate
from pyagentd.mission.step import Step

SOON_S = 30.0  # less than a hanging tool takes, far more than a busy machine needs


@pytest.fixture
def forever() -> Iterator[Callable[..., Any]]:
    """A function that blocks until the test is over."""
    over = threading.Event()

    def hang(args: Any = None) -> str:
        over.wait(60)
        return '(return "too late")'

    yield hang
    over.set()


def model(*answers: str, seconds: float = 0.0) -> Callable[[Any], str]:
    def answer(request: Any) -> str:
        time.sleep(seconds)
        return answers[min(request["turn"], len(answers)) - 1]

    return answer


def run(how: str, *args: Any, **named: Any) -> Step:
    if how == "async":
        return asyncio.run(adelegate(*args, **named))
    return delegate(*args, **named, isolation="process" if how == "isolated" else "none")


ways = pytest.mark.parametrize("how", ["sync", "async", "isolated"])


@ways
def test_what_a_child_mission_waits_for_its_model_is_not_the_time_of_the_program_that_calls_it(how: str) -> None:
    slow = model("1", "2", "(return 3)", seconds=0.2)
    child = LLMTool(prompt="Count.", signature="() -> :int", llm=slow, tools={"t": lambda: 1})
    step = run(how, "Go.", llm=model('(return (call "count" {}))'), tools={"count": child}, timeout_ms=300)
    assert (step.ok, step.value) == (True, 3)


def test_the_time_of_tools_counts_where_one_asks_for_it() -> None:
    slow = {"wait": lambda: time.sleep(0.3)}
    options: Any = {
        "llm": model('(do (call "wait" {}) (return 1))'),
        "tools": slow,
        "timeout_ms": 100,
        "max_turns": 2,
    }
    assert delegate("Go.", **options).ok
    step = delegate("Go.", **options, tool_time_counts=True)
    assert step.trace[0].error is not None
    assert step.trace[0].error.message == "the program and its tools ran longer than 100 ms"


@ways
def test_a_mission_whose_tool_hangs_ends_at_its_deadline(how: str, forever: Callable[..., Any]) -> None:
    started = time.monotonic()
    llm = model('(try (call "hang" {}) (catch e (return 1)))')
    step = run(how, "Go.", llm=llm, tools={"hang": forever}, mission_timeout_ms=300)
    assert time.monotonic() - started < SOON_S
    assert step.fail is not None
    assert (step.fail.reason, step.fail.details["clock"], step.fail.details["limit_ms"]) == (
        "mission_timeout",
        "mission",
        300,
    )
    if how != "isolated":  # there a part of the time goes into starting a process
        assert step.fail.details["tools_ms"] >= 200
        assert "call fewer or faster tools" in step.fail.message
    (call,) = step.trace[0].tool_calls
    (thread,) = [each.name for each in threading.enumerate() if each.name.startswith('the tool "hang"')][-1:]
    assert f'left behind in the thread "{thread}"' in str(call.error)
    assert "what it does is not undone" in str(call.error)
    assert step.fail.details["left_behind"] == [call.error]
    assert all(each.daemon for each in threading.enumerate() if each.name == thread)


@pytest.mark.parametrize("how", ["sync", "async"])
def test_a_mission_whose_model_hangs_ends_at_its_deadline(how: str, forever: Callable[..., Any]) -> None:
    step = run(how, "Go.", llm=forever, mission_timeout_ms=200)
    assert step.fail is not None
    assert step.fail.reason == "mission_timeout"
    assert step.fail.details["model_ms"] >= 200
    assert "take a faster model" in step.fail.message
    assert "the thread" in step.fail.message


@pytest.mark.parametrize("how", ["sync", "async"])
def test_an_async_tool_is_cancelled_at_the_deadline(how: str) -> None:
    ended: list[str] = []

    async def hang() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    step = run(how, "Go.", llm=model('(call "hang" {})'), tools={"hang": hang}, mission_timeout_ms=200)
    assert step.fail is not None
    assert (step.fail.reason, ended) == ("mission_timeout", ["cancelled"])
    assert "was cancelled, since the time of the mission is over" in str(step.trace[0].tool_calls[0].error)


@pytest.mark.parametrize("how", ["sync", "async"])
def test_a_child_has_what_is_left_of_the_time_of_its_parent(how: str, forever: Callable[..., Any]) -> None:
    steps: list[Step] = []

    def ask() -> Any:
        steps.append(delegate("Wait.", llm=forever, mission_timeout_ms=60_000))
        return steps[0].fail and steps[0].fail.message

    step = run(how, "Go.", llm=model('(call "ask" {})'), tools={"ask": ask}, mission_timeout_ms=300)
    assert step.fail is not None
    assert step.fail.reason == "mission_timeout"
    assert steps[0].fail is not None
    assert steps[0].fail.message.startswith("The mission exceeded its time limit, what was left of its parent's time")


async def test_cancelling_does_not_wait_for_a_blocking_tool(forever: Callable[..., Any]) -> None:
    called = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hang() -> Any:
        loop.call_soon_threadsafe(called.set)
        return forever()

    task = asyncio.create_task(adelegate("Go.", llm=model('(call "hang" {})'), tools={"hang": hang}))
    await called.wait()
    started = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - started < SOON_S


def test_a_program_that_computes_too_long_says_what_did_not_count() -> None:
    llm = model('(do (call "wait" {}) (loop [i 0] (recur (inc i))))', "(return 1)")
    step = delegate("Go.", llm=llm, tools={"wait": lambda: time.sleep(0.05)}, timeout_ms=50)
    assert step.ok
    error = step.trace[0].error
    assert error is not None
    assert error.reason == "timeout"
    assert error.message.startswith("the program computed longer than 50 ms; the ")
    assert error.message.endswith(" ms in tools do not count")
