"""Tool calls of one program run in parallel: in order, within the limits, and ended by the first failure."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from pyagentd import lisp
from pyagentd.mission import Limits, LLMTool, Scripted, adelegate, delegate
from pyagentd.mission.step import Step

FAR_S = 60.0  # far longer than any of these takes on a busy machine


class Meeting:
    """A tool whose calls wait for each other: they end only if so many run at once."""

    def __init__(self, count: int) -> None:
        self._barrier = threading.Barrier(count)
        self._lock = threading.Lock()
        self.most = self._now = 0

    def __call__(self, n: int) -> int:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        self._barrier.wait(FAR_S)
        with self._lock:
            self._now -= 1
        return n * n


def scripted(program: str) -> Scripted:
    return Scripted([program])


def run(how: str, program: str, tools: dict[str, Any], **options: Any) -> Step:
    if how == "async":
        return asyncio.run(adelegate("Go.", llm=scripted(program), tools=tools, **options))
    return delegate("Go.", llm=scripted(program), tools=tools, isolation=how, **options)


ways = pytest.mark.parametrize("how", ["none", "process", "async"])

SQUARES = '(return (pmap (fn [n] (call "square" {:n n})) (range 20)))'


@ways
def test_ten_blocking_calls_run_at_once_and_their_results_keep_the_order(how: str) -> None:
    square = Meeting(10)
    step = run(how, SQUARES, {"square": square})
    assert step.value == [n * n for n in range(20)], step.fail
    assert square.most == 10
    calls = step.trace[0].tool_calls
    assert [call.args["n"] for call in calls] == list(range(20))
    assert [call.result for call in calls] == step.value


@ways
def test_the_bound_is_an_option(how: str) -> None:
    square = Meeting(2)
    assert run(how, SQUARES, {"square": square}, parallel=2).ok
    assert square.most == 2


@ways
def test_one_at_a_time_where_one_asks_for_it(how: str) -> None:
    square = Meeting(1)
    assert run(how, SQUARES, {"square": square}, parallel=1).ok
    assert square.most == 1


@pytest.mark.parametrize(
    "program",
    [
        '(return (pcalls #(call "square" {:n 1}) #(call "square" {:n 2})))',
        '(return (pvalues (call "square" {:n 1}) (call "square" {:n 2})))',
        '(let [a (future (call "square" {:n 1})) b (call "square" {:n 2})] (return [@a b]))',
        '(return (map deref (mapv (fn [n] (future (call "square" {:n n}))) [1 2])))',
    ],
)
@ways
def test_the_other_forms_overlap_too(how: str, program: str) -> None:
    step = run(how, program, {"square": Meeting(2)})
    assert step.value == [1, 4], step.fail


@pytest.mark.parametrize("program", ["(future 1)", "{:a (future 1)}", "(return (future 1))"])
def test_a_future_is_told_to_be_waited_for(program: str) -> None:
    step = delegate("Go.", llm=Scripted([f"```clojure\n{program}\n```", "(return 1)"]))
    assert step.value == 1
    assert "A future is not data." in step.trace[0].feedback and "(deref x), or @x" in step.trace[0].feedback


def test_async_tools_run_on_the_loop_of_the_caller() -> None:
    threads, arrived = set(), []

    async def main() -> tuple[Step, int]:
        every = asyncio.Event()

        async def fetch(n: int) -> int:
            threads.add(threading.get_ident())
            arrived.append(n)
            if len(arrived) == 5:
                every.set()
            await asyncio.wait_for(every.wait(), FAR_S)
            return n

        program = '(return (pmap (fn [n] (call "fetch" {:n n})) [5 4 3 2 1]))'
        return await adelegate("Go.", llm=scripted(program), tools={"fetch": fetch}), threading.get_ident()

    step, here = asyncio.run(main())
    assert step.value == [5, 4, 3, 2, 1], step.fail
    assert threads == {here}


def test_ten_calls_take_hardly_longer_than_one() -> None:
    def measured(tool: Callable[..., Any], parallel: int) -> float:
        program = '(return (pmap (fn [n] (call "wait" {:n n})) (range 10)))'
        started = time.monotonic()
        assert delegate("Go.", llm=scripted(program), tools={"wait": tool}, parallel=parallel).ok
        return time.monotonic() - started

    def wait(n: int) -> int:
        time.sleep(0.2)
        return n

    assert measured(wait, Limits().parallel) < measured(wait, 1) / 2


@ways
def test_the_first_failure_ends_the_others_and_is_that_of_the_program(how: str) -> None:
    over, began = threading.Event(), []

    def work(n: int) -> int:
        began.append(n)
        if n == 3:
            raise ValueError("the third is broken")
        over.wait(FAR_S)
        return n

    try:
        program = '(return (pmap (fn [n] (call "work" {:n n})) (range 100)))'
        step = run(how, program, {"work": work}, max_turns=2)
        (first, *_) = step.trace
        assert "the third is broken" in str(first.error)
        assert not over.is_set()  # the program did not wait for them
        assert len(began) <= Limits().parallel
        given_up = [call for call in first.tool_calls if call.args["n"] != 3]
        assert all("given up while it was running" in (call.error or "") for call in given_up)
    finally:
        over.set()


def test_an_async_call_is_cancelled_when_another_one_fails() -> None:
    cancelled = []

    async def work(n: int) -> int:
        if n == 1:
            await asyncio.sleep(0.05)
            raise ValueError("broken")
        try:
            await asyncio.sleep(FAR_S)
        except asyncio.CancelledError:
            cancelled.append(n)
            raise
        return n

    program = '(return (pmap (fn [n] (call "work" {:n n})) [0 1 2]))'
    step = asyncio.run(adelegate("Go.", llm=scripted(program), tools={"work": work}, max_turns=2))
    assert "broken" in str(step.trace[0].error)
    assert sorted(cancelled) == [0, 2]


@ways
def test_return_inside_of_a_parallel_call_ends_the_program(how: str) -> None:
    program = '(do (pmap (fn [n] (if (= n 2) (return n) (call "id" {:n n}))) [1 2 3]) (return "too late"))'
    assert run(how, program, {"id": lambda n: n}).value == 2


@ways
def test_tool_calls_in_parallel_count_against_one_limit(how: str) -> None:
    limits = lisp.Limits(tool_calls=5)
    made = []
    with pytest.raises(lisp.LispError, match="more than 5 times"):
        lisp.compile('(pmap (fn [n] (call "t" {:n n})) (range 20))').run(
            tools=lambda name, args: made.append(args),
            limits=limits,
            isolation="process" if how == "process" else "none",
        )
    assert len(made) <= 5


@pytest.mark.parametrize(
    ("program", "limits", "reason"),
    [
        ("(pmap (fn [n] (reduce + (range 100000))) (range 8))", {"steps": 200_000}, "timeout"),
        ("(pmap (fn [n] (vec (range 100000))) (range 8))", {"cells": 300_000}, "memory_exceeded"),
        ("(pmap (fn [n] (loop [] (recur))) (range 8))", {"timeout_ms": 200}, "timeout"),
        ("@(future (loop [] (recur)))", {"timeout_ms": 200}, "timeout"),
        ("(mapv (fn [n] (future n)) (range 100000))", {}, "memory_exceeded"),
    ],
)
@pytest.mark.parametrize("isolation", ["none", "process"])
def test_parallel_calls_have_the_limits_of_one_program(
    program: str, limits: dict[str, int], reason: str, isolation: Any
) -> None:
    with pytest.raises(lisp.LispError) as caught:
        lisp.compile(program).run(limits=lisp.Limits(**limits), isolation=isolation)
    assert caught.value.reason == reason


@ways
def test_waiting_for_parallel_tools_is_not_computing_time(how: str) -> None:
    def wait(n: int) -> int:
        time.sleep(0.4)
        return n

    program = '(return (pmap (fn [n] (call "wait" {:n n})) (range 3)))'
    assert run(how, program, {"wait": wait}, timeout_ms=300).value == [0, 1, 2]


def test_missions_below_run_in_parallel_and_stand_in_the_trace_of_their_call() -> None:
    meeting = threading.Barrier(3)

    def answer(request: Any) -> str:
        meeting.wait(FAR_S)
        return "(return (inc ctx/n))"

    child = LLMTool(prompt="Count on from {{n}}.", signature="(n :int) -> :int", llm=answer, tools={"t": lambda: 1})
    step = run("none", '(return (pmap (fn [n] (call "next" {:n n})) [1 2 3]))', {"next": child})
    assert step.value == [2, 3, 4], step.fail
    assert [each.value for call in step.trace[0].tool_calls for each in call.children] == [2, 3, 4]


def test_events_of_parallel_calls_have_spans_of_their_own_below_their_turn() -> None:
    events: list[Any] = []
    step = run("none", SQUARES, {"square": Meeting(4)}, telemetry=events.append)
    assert step.ok
    starts = [each for each in events if each.name == "tool_start"]
    stops = {each.span_id: each for each in events if each.name == "tool_stop"}
    assert len({each.span_id for each in starts}) == 20 == len(stops)
    assert len({each.parent_span_id for each in starts}) == 1
    assert all(stops[each.span_id].metadata["args"] == each.metadata["args"] for each in starts)


def test_a_program_is_recorded_alike_whichever_call_ends_first() -> None:
    def traced(slow: int) -> Any:
        def wait(n: int) -> int:
            time.sleep(0.05 if n == slow else 0)
            return n

        program = '(return [(pmap (fn [n] (call "w" {:n n})) [0 1 2]) @(future (call "w" {:n 3})) (call "w" {:n 4})])'
        step = run("none", program, {"w": wait})
        return step.value, [(call.name, call.args, call.result) for call in step.trace[0].tool_calls]

    assert traced(0) == traced(1) == traced(3)


@ways
def test_a_mission_with_parallel_tools_that_hang_ends_at_its_deadline(how: str) -> None:
    over = threading.Event()

    def hang(n: int) -> None:
        over.wait(FAR_S)

    try:
        started = time.monotonic()
        step = run(how, SQUARES.replace("square", "hang"), {"hang": hang}, mission_timeout_ms=300)
        assert step.fail is not None
        assert step.fail.reason == "mission_timeout"
        assert time.monotonic() - started < FAR_S / 2
    finally:
        over.set()
