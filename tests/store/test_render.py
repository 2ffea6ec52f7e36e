from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyagentd.store.document.render import prompt_text, replay, tool_head
from pyagentd.store.document.text import Settings, Span, format_file
from tests.store.talk import Call, Step, Talk, Turn, talks

GOLDEN = Path(__file__).parent / "golden"
STOCK_TURN = Turn(
    prompt="How many files?",
    steps=(
        Step(
            reasoning="Count them.",
            texts=("Checking.",),
            calls=(Call(input={"command": "ls | wc -l"}, result="7\n"),),
        ),
        Step(texts=("Seven.",)),
    ),
)


def body(*turns: Turn) -> str:
    return Talk(turns).document.body


def test_the_layout_is_that_of_stock_gptel() -> None:
    talk = Talk([STOCK_TURN])
    stock = (GOLDEN / "stock-gptel.md").read_text()
    assert talk.document.body == stock.partition("\n\n<!-- Local")[0]
    ids = {"toolu_01A": next(span.id for span in talk.document.spans if span.kind == "tool")}
    assert f"{talk.document.spans}".replace(ids["toolu_01A"], "toolu_01A") in (
        "(Span(start=22, end=51, kind='ignore', id=''), Span(start=53, end=62, kind='response', id=''), "
        "Span(start=64, end=101, kind='ignore', id=''), Span(start=101, end=150, kind='tool', id='toolu_01A'), "
        "Span(start=150, end=155, kind='ignore', id=''), Span(start=155, end=161, kind='response', id=''))"
    )


def test_the_file_of_a_turn_is_as_recorded() -> None:
    steps = (
        Step(
            reasoning="Two at once.",
            texts=("Both:",),
            calls=(
                Call(name="Read", input={"path": "/é", "limit": None}, result="```\ncode\n```"),
                Call(name="Bash", input={"command": 'echo "a\nb"', "background": False}, result="no", is_error=True),
            ),
            order=1,
        ),
        Step(reasoning="Done.", texts=("First.", "Second 😀.")),
    )
    talk = Talk([Turn(prompt="Go", steps=steps), Turn(prompt="And?", error="The server is overloaded")])
    settings = Settings(model="claude-sonnet-4-6", backend="Claude", tools=("Read", "Bash"), temperature=1.0)
    text = format_file(type(talk.document)(body=talk.document.body, spans=talk.document.spans, settings=settings))
    assert text == (GOLDEN / "two-turns.md").read_text()


@given(talks, st.integers(1, 5))
def test_parts_in_deltas_and_whole_parts_give_the_same_document(turns: list[Turn], chunk: int) -> None:
    assert Talk(turns, chunk=chunk).document == Talk(turns, chunk=0).document


@given(talks, st.data())
def test_a_replay_from_any_row_gives_what_came_after_it(turns: list[Turn], data: st.DataObject) -> None:
    talk = Talk(turns)
    after = data.draw(st.integers(0, len(talk.rows)))
    assert replay(talk.rows, after) == [insert for insert in talk.inserts if insert.seq > after]


@given(talks)
def test_inserts_are_never_empty(turns: list[Turn]) -> None:
    assert all(insert.text for insert in Talk(turns).inserts)


@given(st.integers(0, 23), st.lists(st.sampled_from("abc"), min_size=2, max_size=3))
def test_results_are_shown_in_the_order_of_the_calls(order: int, names: list[str]) -> None:
    calls = tuple(Call(input={"n": index, "name": name}) for index, name in enumerate(names))
    shown = body(Turn(prompt="x", steps=(Step(calls=calls, order=order),)))
    assert shown == body(Turn(prompt="x", steps=(Step(calls=calls),)))


def test_a_call_without_result_does_not_hide_the_results_behind_it() -> None:
    calls = (Call(result=None), Call(result="kept"))
    talk = Talk([Turn(prompt="x", steps=(Step(texts=("Hm",), calls=calls),))])
    assert "kept" in talk.document.body
    assert len([span for span in talk.document.spans if span.kind == "tool"]) == 1


def test_an_empty_text_shows_nothing() -> None:
    assert body(Turn(prompt="x", steps=(Step(reasoning="", texts=("",)),))) == "### x\n\n\n\n### "


def test_reasoning_that_was_cut_off_is_closed() -> None:
    talk = Talk()
    run = talk.start(talk.user("x"))
    message = talk.message("assistant")
    part = talk.part(message, 0, "reasoning", {"type": "reasoning", "text": "", "state": "streaming"})
    talk.record("delta", part_id=part, text="hmm")
    talk.finish(run)
    assert talk.document.body == "\n\n\n``` reasoning\nhmm\n```\n\n### "
    assert talk.document.spans == (Span(3, 24, "ignore"),)


def test_an_error_stands_in_a_fence_that_no_model_sees() -> None:
    talk = Talk([Turn(prompt="x", error="The server\nis down")])
    assert talk.document.body == "### x\n\n``` error\nThe server\nis down\n```\n\n### "
    assert [span.kind for span in talk.document.spans] == ["ignore"]


def test_an_error_of_a_tool_is_its_result() -> None:
    step = Step(calls=(Call(name="Read", result="no such file", is_error=True),))
    assert body(Turn(prompt="x", steps=(step,))).endswith(
        '``` tool (Read)\n(:name "Read" :args nil)\n\nno such file\n```\n\n\n### '
    )


def test_half_a_surrogate_pair_does_not_break_the_file() -> None:
    assert "a\ufffdb" in body(Turn(prompt="x", steps=(Step(texts=("a\ud83db",)),)))


@pytest.mark.parametrize(
    ("input", "head"),
    [
        ({}, "``` tool (Bash)"),
        ({"command": "a\nb"}, '``` tool (Bash :command "a b")'),
        ({"command": "x" * 42}, f'``` tool (Bash :command "{"x" * 42}")'),
        ({"command": "x" * 43}, f'``` tool (Bash :command "{"x" * 39} ...)'),
    ],
)
def test_the_head_of_a_tool_block_is_one_short_line(input: dict[str, str], head: str) -> None:
    assert tool_head({"type": "tool-Bash", "input": input}) == head


@pytest.mark.parametrize(
    ("body", "is_agent", "added"),
    [
        ("", False, "### hi"),
        ("", True, "hi"),
        ("### a\n\nb\n\n### ", False, "hi"),
        ("a\n\nb\n\n### ", True, "hi"),
        ("### a draft", False, "\n\n### hi"),
    ],
)
def test_a_message_from_elsewhere_is_a_prompt_of_its_own(body: str, is_agent: bool, added: str) -> None:
    assert prompt_text(body, "hi", is_agent=is_agent) == added
