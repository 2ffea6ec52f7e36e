"""Questions: shown where somebody looks, answered once."""

from __future__ import annotations

import pytest

from pyagentd.errors import NotFound, StoreError
from pyagentd.events import Event
from pyagentd.runtime.approvals import Answer, Ask, AskBoard


def board() -> tuple[AskBoard, list[Event]]:
    told: list[Event] = []
    return AskBoard(told.append), told


def post(asks: AskBoard, ask_id: str, run: str = "run_1", branches: tuple[str, ...] = ("child", "root")) -> Ask:
    return asks.post(seq=7, run_id=run, branches=branches, row={"id": ask_id})


async def test_an_ask_is_shown_on_its_branch_and_on_the_root_of_the_tree() -> None:
    asks, told = board()
    post(asks, "ask_1")
    assert [(event.kind, event.branch, event.seq) for event in told] == [("ask", "child", 7), ("ask", "root", 0)]
    assert asks.open_for("root") == asks.open_for("child") == asks.all() == [{"id": "ask_1"}]


async def test_the_answer_reaches_who_waits_and_everybody_is_told() -> None:
    asks, told = board()
    ask = post(asks, "ask_1")
    assert asks.answer("ask_1", Answer(decision="deny", reason="no", by="Emacs"))
    assert await ask.future == Answer(decision="deny", reason="no", by="Emacs")
    answered = [event for event in told if event.kind == "answered"]
    assert [event.branch for event in answered] == ["child", "root"]
    assert answered[0].args == ({"id": "ask_1", "decision": "deny", "by": "Emacs"},)
    assert asks.all() == []


async def test_only_the_first_answer_counts() -> None:
    asks, _ = board()
    ask = post(asks, "ask_1")
    asks.answer("ask_1", Answer(decision="allow"))
    with pytest.raises(NotFound, match="answered already: allow"):
        asks.answer("ask_1", Answer(decision="deny"))
    assert (await ask.future).decision == "allow"


async def test_asks_are_answered_in_any_order() -> None:
    asks, _ = board()
    first, second = post(asks, "ask_1"), post(asks, "ask_2")
    asks.answer("ask_2", Answer(decision="allow"))
    assert not first.future.done() and second.future.done()


async def test_aborting_a_run_answers_all_its_asks_and_no_others() -> None:
    asks, _ = board()
    mine, other = post(asks, "ask_1"), post(asks, "ask_2", run="run_2")
    asks.abort_run("run_1")
    assert (await mine.future).decision == "abort"
    assert not other.future.done()


async def test_who_answers_an_ask_of_a_run_that_was_stopped_is_told_so() -> None:
    asks, _ = board()
    post(asks, "ask_1")
    asks.abort_run("run_1")
    with pytest.raises(NotFound, match="was stopped"):
        asks.answer("ask_1", Answer(decision="allow"))


async def test_an_answer_is_recorded_before_anybody_learns_of_it() -> None:
    asks, told = board()
    order: list[str] = []
    ask = asks.post(
        seq=1,
        run_id="run_1",
        branches=("root",),
        row={"id": "ask_1"},
        record=lambda answer: order.append(f"{answer.decision} {ask.future.done()} {len(told)}"),
    )
    asks.answer("ask_1", Answer(decision="allow"))
    assert order == ["allow False 1"]


async def test_an_answer_that_cannot_be_recorded_is_an_error_of_the_run() -> None:
    def full(answer: Answer) -> None:
        raise StoreError("no space left")

    asks, _ = board()
    ask = asks.post(seq=1, run_id="run_1", branches=("root",), row={"id": "ask_1"}, record=full)
    asks.answer("ask_1", Answer(decision="allow"))
    with pytest.raises(StoreError):
        await ask.future


async def test_asks_of_a_run_that_is_left_are_open_for_nobody_and_not_settled() -> None:
    asks, told = board()
    ask = post(asks, "ask_1")
    asks.leave_run("run_1")
    assert ask.future.cancelled() and asks.all() == []
    assert not [event for event in told if event.kind == "answered"]
