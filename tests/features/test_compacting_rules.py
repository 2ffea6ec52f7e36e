"""What stays verbatim, which outputs may go, and what is tried for a summary: the rules, without a run."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Sequence
from itertools import pairwise
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyagentd.config.tables import CompactionSettings
from pyagentd.errors import ContextOverflow, ProviderError, TransientProviderError
from pyagentd.features.compaction import (
    CUT,
    KEEP_RECENT,
    Summariser,
    choose_tail,
    prunable_outputs,
    tail_starts,
    tokens_saved,
    without_outputs,
)
from pyagentd.llm.backend import ModelRequest, PartFinished, RetryNotice, StepFinished, StreamItem
from pyagentd.llm.catalog import ModelFacts
from pyagentd.messages import Message, Text, ToolCall, ToolResult, Usage
from pyagentd.runtime.usage import tokens_of
from pyagentd.store.document.reconcile import align
from tests.store.talk import Call, Step, Talk, Turn, assert_valid, talks


def view_of(talk: Talk) -> tuple[Message, ...]:
    return align(talk.document, talk.conversation).view


class TestTail:
    @given(talks, st.integers(1, 3), st.integers(0, 300))
    def test_a_tail_is_a_valid_conversation_and_names_what_it_begins_with(
        self, turns: list[Turn], number: int, budget: int
    ) -> None:
        talk = Talk(turns, chunk=0)
        view, conversation = view_of(talk), talk.conversation
        chosen = choose_tail(view, tail_starts(view, conversation), turns=number, budget=budget)
        if chosen is None:
            return
        tail, _ = chosen
        left = view[tail.index :]
        assert tail.index > 0
        results = [part.id for m in left for part in m.parts if isinstance(part, ToolResult)]
        calls = [part.id for m in left for part in m.parts if isinstance(part, ToolCall)]
        assert results == calls
        head = (Message(role="user", parts=(Text(text="summary"),)),) if left[0].role == "assistant" else ()
        assert_valid((*head, *left))
        message = conversation.messages[tail.message_id]
        assert message.role == left[0].role
        assert (left[0].role == "assistant") == bool(tail.part_id)

    @pytest.mark.parametrize(
        ("budget", "kept", "warned"),
        [(1000, ["b", "c"], False), (60, ["c"], True), (30, ["c"], True), (5, ["c"], True)],
    )
    def test_fewer_turns_stay_where_more_take_too_much(self, budget: int, kept: list[str], warned: bool) -> None:
        turns = [Turn(prompt=name, steps=(Step(texts=("word " * 40,)),)) for name in "abc"]
        talk = Talk(turns, chunk=0)
        view = view_of(talk)
        chosen = choose_tail(view, tail_starts(view, talk.conversation), turns=2, budget=budget)
        assert chosen is not None
        tail, warning = chosen
        left = view[tail.index :]
        assert [p.text for m in left for p in m.parts if m.role == "user" and isinstance(p, Text)] == kept
        assert bool(warning) is warned


class TestPruning:
    def test_old_big_outputs_go_and_the_recent_ones_and_state_stay(self) -> None:
        big = "x" * 500
        names = ["TodoWrite", "Read", "Bash", *["Read"] * KEEP_RECENT]
        calls = [Call(name=name, result=big) for name in names]
        calls.insert(2, Call(name="Read", result="small"))
        calls.insert(2, Call(name="Bash", result=big, is_error=True))
        talk = Talk([Turn(prompt="Go", steps=tuple(Step(calls=(call,)) for call in calls))], chunk=0)
        view, conversation = view_of(talk), talk.conversation
        found = prunable_outputs(view, conversation)
        assert [conversation.parts[part].type for part in found.values()] == ["tool-Read", "tool-Bash"]
        left = without_outputs(view, found)
        stubs = [p.text for m in left for p in m.parts if isinstance(p, ToolResult) and p.id in found]
        assert stubs == ["<output pruned, ~125 tokens>"] * 2
        assert tokens_saved(view, found) == tokens_of(view) - tokens_of(left)
        assert_valid(left)


class Model:
    """Says what is scripted: a text, an error, or a wait before another attempt; a text that ends with … is cut."""

    def __init__(self, *script: str | Exception | RetryNotice) -> None:
        self.script = list(script)
        self.asked: list[str] = []
        self.max_tokens: list[int] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[StreamItem], None]:
        (part,) = request.messages[0].parts
        assert isinstance(part, Text)
        self.asked.append(part.text)
        self.max_tokens.append(request.max_tokens)
        for item in itertools.count():
            said = self.script.pop(0) if self.script else f"summary {item}"
            if isinstance(said, Exception):
                raise said
            if isinstance(said, RetryNotice):
                yield [said]
                continue
            stop = "max_tokens" if said.endswith("…") else "end_turn"
            yield [PartFinished(0, Text(text=said)), StepFinished(stop, Usage(input=1, output=1))]
            return

    async def close(self) -> None: ...


LONG = (
    Message(role="user", parts=(Text(text="Begin here"),)),
    Message(role="assistant", parts=(ToolCall(id="1", name="Bash", input={}),)),
    Message(role="user", parts=(ToolResult(id="1", text="o" * 2000),)),
    Message(role="assistant", parts=(Text(text="word " * 2000 + "and end"),)),
)


def summariser(model: Model, window: int = 100_000, **settings: object) -> Summariser:
    made = CompactionSettings(**{"max_tokens": 200, **settings})  # type: ignore[arg-type]
    return Summariser(model, "m", known=ModelFacts(context_window=window, window_known=True), settings=made)


@pytest.mark.spec(
    "002",
    "How should errors be designed — what auto-retries, what hard-fails, and is a hard-failed session dead forever?",
)
async def test_what_is_too_long_is_tried_without_outputs_then_in_pieces_then_without_its_middle() -> None:
    model = Model(*[ContextOverflow("prompt is too long")] * 3, "done")
    made = await summariser(model).summarise("", LONG)
    assert (made.text, made.strategy) == ("done", "drop-middle")
    whole, stubbed, piece, ends = model.asked
    assert "o" * 900 in whole and "<output pruned, ~500 tokens>" in stubbed
    assert len(piece) <= len(stubbed)
    assert "Begin here" in ends and "and end" in ends
    never = Model(*[ContextOverflow("prompt is too long")] * 40)
    with pytest.raises(ContextOverflow, match="too long to be summarised"):
        await summariser(never).summarise("", LONG)
    assert 4 < len(never.asked) < 20
    assert all(len(after) < len(before) for before, after in pairwise(never.asked)), "none is sent twice"
    off = {"prune_tool_outputs": False, "chunked_summarize": False, "drop_middle": False}
    with pytest.raises(ContextOverflow):
        await summariser(Model(ContextOverflow("prompt is too long")), **off).summarise("", LONG)


@pytest.mark.parametrize("earlier", ["", "before. " * 50, "before. " * 500], ids=["none", "short", "long"])
async def test_a_server_that_holds_less_than_is_known_gets_ever_smaller_requests(earlier: str) -> None:
    class Small(Model):
        refused: ClassVar[list[int]] = []

        async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[StreamItem], None]:
            (part,) = request.messages[0].parts
            assert isinstance(part, Text)
            if len(part.text) > 1100:
                self.refused.append(len(part.text))
                raise ContextOverflow("prompt is too long")
            async for items in super().stream(request):
                yield items

    model = Small(*["said"] * 100)
    made = await summariser(model).summarise(earlier, LONG)
    assert made.text == "said"
    assert model.refused == sorted(set(model.refused), reverse=True) and len(model.refused) < 15
    assert "Begin here" in "".join(model.asked) or earlier
    assert "and end" in model.asked[-1]


async def test_what_cannot_fit_is_not_sent() -> None:
    model = Model("one", "two", "three", "four")
    made = await summariser(model, window=2000).summarise("before", LONG)
    assert made.strategy == "chunked" and made.text == ["one", "two", "three", "four"][len(model.asked) - 1]
    assert all(len(text) < 4 * 2000 for text in model.asked)
    assert "<earlier_summary>\nbefore\n" in model.asked[0] and "<earlier_summary>\none\n" in model.asked[1]
    assert made.usage == Usage(input=len(model.asked), output=len(model.asked))


async def test_failures_are_tried_again_only_so_often_and_an_empty_summary_is_none() -> None:
    waits = [RetryNotice(attempt=n, delay_s=0, message="Overloaded") for n in (1, 2, 3)]
    assert (await summariser(Model(*waits[:2], "done")).summarise("", LONG)).text == "done"
    with pytest.raises(TransientProviderError, match="Overloaded"):
        await summariser(Model(*waits, "done")).summarise("", LONG)
    with pytest.raises(ProviderError, match="no summary"):
        await summariser(Model(" \n")).summarise("", LONG)


async def test_a_summary_that_is_cut_off_is_asked_for_with_more_room_and_else_says_so() -> None:
    model = Model("half…", "whole")
    assert (await summariser(model).summarise("", LONG)).text == "whole"
    assert model.max_tokens == [200, 400]
    for second in ("more…", ContextOverflow("prompt is too long")):
        made = await summariser(Model("half…", second)).summarise("", LONG)
        assert made.text == f"{second if isinstance(second, str) else 'half…'}\n\n{CUT}"
