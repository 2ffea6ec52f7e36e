"""A mission over many items: rows, and going on with them."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pyagentd.errors import UserError
from pyagentd.mission import Mission
from pyagentd.mission.options import LLMError, Request
from pyagentd.mission.over import Row, Summary, Workers, read_items, run_over, version

ITEMS = [f"item-{number}" for number in range(12)]


def _answer(request: Request) -> dict[str, Any]:
    """Answer with the last word of the prompt."""
    word = request["prompt"].split()[-1]
    return {
        "content": f'```clojure\n(call "return" "{word}")\n```',
        "tokens": {"input": 1, "output": 1},
        "cost_usd": 0.25,
    }


def die_once(mark: str) -> str:
    """End the process of the worker the first time."""
    place = Path(mark)
    if not place.exists():
        place.write_text("x")
        os._exit(9)
    return "alive"


def _call_tool(request: Request) -> str:
    return f'```clojure\n(call "return" (call "die_once" {{:mark {json.dumps(request["prompt"].split()[-1])}}}))\n```'


def made(llm: Any = _answer, **options: Any) -> Mission[Any]:
    return Mission("Say {{x}}", llm=llm, signature=":string", **options)


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_each_item_is_a_row_in_order_if_wanted(tmp_path: Path) -> None:
    file = tmp_path / "out"
    came = run_over(made(), ITEMS, file, ordered=True)
    assert (came.total, came.done, came.failed, came.stopped) == (12, 12, 0, "") and came.cost_usd == 3.0
    assert [row["value"] for row in rows(file)] == ITEMS and [row["item"] for row in rows(file)] == ITEMS
    other = tmp_path / "other"
    run_over(made(), ITEMS, other)
    assert sorted(row["index"] for row in rows(other)) == list(range(12))


def test_going_on_does_what_is_missing_and_nothing_twice(tmp_path: Path) -> None:
    file, asked = tmp_path / "out", Counter[str]()

    def llm(request: Request) -> Any:
        asked[request["prompt"]] += 1
        return _answer(request)

    run_over(made(llm), ITEMS[:5], file)
    with file.open("a") as torn:
        torn.write('{"index": 5, "key"')
    items = [*ITEMS, "item-0"]  # one that is there twice has two rows
    with pytest.raises(UserError, match="exists"):
        run_over(made(llm), items, file)
    came = run_over(made(llm), items, file, resume=True)
    assert (came.before, came.done) == (5, 8) and len(rows(file)) == 13
    assert asked["Say item-0"] == 2 and set(asked.values()) == {1, 2} and sum(asked.values()) == 13
    assert run_over(made(llm), items, file, resume=True).done == 0
    assert run_over(made(llm, max_turns=2), items, file, resume=True).done == 13, "another version of the mission"


def test_the_output_is_a_file_that_can_be_gone_on_with(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    for place in (tmp_path, Path("/dev/null"), pipe):
        with pytest.raises(UserError, match="is not a regular file"):
            run_over(made(_Model()), ITEMS, place)


class _Model:
    def __call__(self, request: Request) -> Any:
        return _answer(request)


def _mission_of_new_objects() -> Mission[Any]:
    def look(deep: int, where: str) -> str:
        return where * deep

    tool = Mission("Sort {{it}}", signature="(it :any) -> :any", tools=[look]).as_tool("sort")
    return made(_Model(), tools={"sort": tool, "look": (partial(look, 2), "(where :string) -> :string")})


def test_the_version_of_a_mission_is_that_of_its_parts_not_of_their_addresses() -> None:
    one, other = _mission_of_new_objects(), _mission_of_new_objects()
    assert version(one) == version(other) != version(made(_Model()))


def test_a_mission_that_fails_is_a_row(tmp_path: Path) -> None:
    def llm(request: Request) -> Any:
        if "item-3" in request["prompt"]:
            raise LLMError("client_error", "no", final=True)
        return _answer(request)

    came = run_over(made(llm), ITEMS, tmp_path / "out")
    (failed,) = (row for row in rows(tmp_path / "out") if not row["ok"])
    assert came.failed == 1 and came.done == 12 and failed["item"] == "item-3" and "no" in failed["fail"]["message"]


def test_the_budget_of_the_whole_counts_what_was_there(tmp_path: Path) -> None:
    file = tmp_path / "out"
    first = run_over(made(max_cost_usd=0.25), ITEMS, file, max_cost_usd=1.0)
    assert first.done == 4 and "budget" in first.stopped
    second = run_over(made(max_cost_usd=0.25), ITEMS, file, resume=True, max_cost_usd=1.5)
    assert second.done == 2 and len(rows(file)) == 6


def test_a_rate_limit_slows_all_and_fails_nobody(tmp_path: Path) -> None:
    lock, running, most, refused = threading.Lock(), 0, 0, 0

    def llm(request: Request) -> Any:
        nonlocal running, most, refused
        with lock:
            running += 1
            too_many = running > 2
            refused += too_many
        threading.Event().wait(0.02)
        with lock:
            running -= 1
        if too_many:
            raise LLMError("rate_limit", "slow down")
        return _answer(request)

    came = run_over(made(llm, llm_retry={"max_attempts": 1}), ITEMS, tmp_path / "out", max_concurrency=8)
    assert came.done == 12 and came.failed == 0 and 0 < refused < 36


@pytest.mark.parametrize("ordered", [False, True])
def test_what_is_paid_for_is_written_though_the_run_is_interrupted(tmp_path: Path, ordered: bool) -> None:
    asked = Counter[str]()

    def llm(request: Request) -> Any:
        asked[request["prompt"]] += 1
        threading.Event().wait(0.2 if request["prompt"].endswith("item-0") else 0.05)
        return _answer(request)

    def progress(summary: Summary, row: Row | None) -> None:
        if row is not None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_over(made(llm), ITEMS, tmp_path / "out", ordered=ordered, max_concurrency=4, progress=progress)
    assert {f"Say {row['item']}" for row in rows(tmp_path / "out")} == set(asked)
    assert set(asked.values()) == {1} and 4 <= len(asked) < 12


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyagentd.mission.over._PAUSE_S", 0.001)
    monkeypatch.setattr("pyagentd.mission.over._LONGEST_PAUSE_S", 0.01)


@pytest.mark.usefixtures("short_pauses")
def test_an_item_that_was_refused_in_a_later_turn_is_tried_until_it_comes_through(tmp_path: Path) -> None:
    refusals = iter(range(8))

    def llm(request: Request) -> Any:
        if request["turn"] == 1:
            return {**_answer(request), "content": "(memory/put :a 1)"}
        if next(refusals, None) is not None:
            raise LLMError("rate_limit", "slow down")
        return _answer(request)

    came = run_over(made(llm, llm_retry={"max_attempts": 1}), ITEMS[:1], tmp_path / "out")
    (row,) = rows(tmp_path / "out")
    assert came.failed == 0 and row["value"] == "item-0"
    assert row["usage"]["cost_usd"] == 10 * 0.25, "what the refused attempts cost is told, too"


@pytest.mark.usefixtures("short_pauses")
def test_a_rate_limit_that_lets_nothing_through_stops_the_run_and_fails_nobody(tmp_path: Path) -> None:
    def llm(request: Request) -> Any:
        if "item-2" in request["prompt"]:
            raise LLMError("rate_limit", "quota")
        return _answer(request)

    came = run_over(made(llm, llm_retry={"max_attempts": 1}), ITEMS[:3], tmp_path / "out")
    assert (came.done, came.failed) == (2, 0) and "rate limit" in came.stopped
    assert {row["item"] for row in rows(tmp_path / "out")} == {"item-0", "item-1"}


def test_what_a_lost_worker_had_runs_again(tmp_path: Path) -> None:
    items = [str(tmp_path / f"mark{number}") for number in range(2)]
    mission = made(_call_tool, tools=["tests.mission.test_over:die_once"])
    came = run_over(mission, items, tmp_path / "out", executor="processes", max_concurrency=1)
    assert came.failed == 0 and [row["value"] for row in rows(tmp_path / "out")] == ["alive", "alive"]


def die(mark: str) -> str:
    """End the process of the worker for one item, when others have begun."""
    if mark != "poison":
        return mark
    time.sleep(0.3)
    os._exit(9)


def _call_die(request: Request) -> str:
    if "poison" not in request["prompt"]:
        time.sleep(0.5)
    return _call_tool(request).replace("die_once", "die")


def test_an_item_that_ends_its_workers_fails_nobody_else(tmp_path: Path) -> None:
    mission = made(_call_die, tools=["tests.mission.test_over:die"])
    run_over(mission, ["poison", "a", "b", "c"], tmp_path / "out", executor="processes", max_concurrency=3)
    assert {row["item"]: row["ok"] for row in rows(tmp_path / "out")} == {
        "poison": False,
        "a": True,
        "b": True,
        "c": True,
    }


class _Losing(Executor):
    """Loses what it is given."""

    def submit(self, fn: Any, /, *args: Any, **more: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_exception(BrokenProcessPool("gone"))
        return future


def test_an_item_that_ends_every_worker_is_a_row_that_failed(tmp_path: Path) -> None:
    came = run_over(made(), ITEMS[:2], tmp_path / "out", executor=_Losing())
    assert came.failed == 2 and {row["fail"]["reason"] for row in rows(tmp_path / "out")} == {"worker"}


def test_mistakes_are_told_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"items:2: "):
        read_items('{"x": 1}\n{"x": \n', "items")
    with pytest.raises(UserError, match="Item 2"):
        run_over(Mission("Say {{x}} {{y}}", llm=_answer), [{"x": 1, "y": 2}, 3], tmp_path / "out")
    with pytest.raises(UserError, match="executor"):
        run_over(made(), ITEMS, tmp_path / "other", executor="quantum")
    assert not (tmp_path / "out").exists()


def test_map_takes_any_executor() -> None:
    with ThreadPoolExecutor(2) as executor:
        assert [step.value for step in made().map(ITEMS[:3], executor=executor)] == ITEMS[:3]


_begun, _may_end = threading.Event(), threading.Event()


def _answer_late(request: Request) -> dict[str, Any]:
    _begun.set()
    assert _may_end.wait(30)
    return _answer(request)


def test_an_item_that_a_worker_of_dask_has_begun_is_not_cancelled() -> None:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        workers = Workers.of(client.get_executor(pure=False))
        begun = workers.submit(made(_answer_late), ITEMS[0])
        assert _begun.wait(30)
        waiting = workers.submit(made(), ITEMS[1])
        assert waiting.cancel() and not begun.cancel()
        _may_end.set()
        assert begun.result(30).ok


def test_dask_s_own_executor_is_guarded_over_items_and_refused_by_map(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(2, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        executor = client.get_executor(pure=False)
        came = run_over(made(), ITEMS, tmp_path / "out", executor=executor, ordered=True)
        assert came.done == 12 and [row["value"] for row in rows(tmp_path / "out")] == ITEMS
        assert client.submit(len, "abc").result() == 3, "what was given is not closed"
        with pytest.raises(UserError, match="wait for ever") as refused:
            made().map(ITEMS, executor=executor)
        assert "dask://" in refused.value.hint
