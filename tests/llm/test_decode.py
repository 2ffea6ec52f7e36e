"""Events of one chunk become as few items as possible, and nothing that came is lost."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyagentd.errors import ProviderError, TransientProviderError
from pyagentd.llm.anthropic import StepDecoder
from pyagentd.llm.backend import MAX_ARGUMENTS, ModelRequest, PartDelta, PartFinished, PartStarted, StreamItem
from pyagentd.llm.http import MAX_CALLS, MAX_TEXT, SseEvent
from pyagentd.messages import Message, Reasoning, Text, ToolCall
from tests.server import Block, answer, text, thinking, tool_use
from tests.server.answers import Answer
from tests.server.http import Request

ASKED = Request(method="POST", path="/v1/messages", headers={}, body={"stream": True})

REQUEST = ModelRequest(model="m", messages=())


def events(given: Answer) -> list[SseEvent]:
    return [event(one) for one in given.events(ASKED)]


def event(body: dict[str, Any]) -> SseEvent:
    return SseEvent(body["type"], json.dumps(body).encode())


def decode(*blocks: Block) -> list[StreamItem]:
    return StepDecoder(REQUEST).decode(events(answer(*blocks)))


def test_deltas_that_follow_each_other_are_one_item() -> None:
    items = decode(text("a b c d e", chunks=9))
    assert items[:3] == [PartStarted(0, "text"), PartDelta(0, "a b c d e"), PartFinished(0, Text(text="a b c d e"))]


def test_deltas_of_different_parts_are_never_joined() -> None:
    items = decode(thinking("hm", chunks=2), text("so", chunks=2))
    assert [item for item in items if isinstance(item, PartDelta)] == [PartDelta(0, "hm"), PartDelta(1, "so")]


def test_interleaved_parts_keep_their_order() -> None:
    def delta(index: int, said: str) -> SseEvent:
        return event({"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": said}})

    def start(index: int) -> SseEvent:
        return event({"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": ""}})

    given = [start(0), start(1), delta(0, "a"), delta(1, "b"), delta(1, "c"), delta(0, "d")]
    items = StepDecoder(REQUEST).decode(given)
    assert items[2:] == [PartDelta(0, "a"), PartDelta(1, "bc"), PartDelta(0, "d")]


def test_a_tools_arguments_come_whole_and_not_as_deltas() -> None:
    items = decode(tool_use("Read", id="t", file_path="ü.md", chunks=7))
    assert items[:2] == [
        PartStarted(0, "tool", "t", "Read"),
        PartFinished(0, ToolCall(id="t", name="Read", input={"file_path": "ü.md"})),
    ]


def test_arguments_given_at_the_start_are_taken_too() -> None:
    block = {"type": "tool_use", "id": "t", "name": "A", "input": {"x": 1}}
    start = event({"type": "content_block_start", "index": 0, "content_block": block})
    items = StepDecoder(REQUEST).decode([start, event({"type": "content_block_stop", "index": 0})])
    assert items[1] == PartFinished(0, ToolCall(id="t", name="A", input={"x": 1}))


def test_text_given_at_the_start_is_taken_too() -> None:
    block = {"type": "text", "text": "early "}
    start = event({"type": "content_block_start", "index": 0, "content_block": block})
    more = event({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "late"}})
    items = StepDecoder(REQUEST).decode([start, more, event({"type": "content_block_stop", "index": 0})])
    assert items[-1] == PartFinished(0, Text(text="early late"))
    assert "".join(item.text for item in items if isinstance(item, PartDelta)) == "early late"


def test_hidden_reasoning_keeps_its_signature() -> None:
    assert decode(thinking("", signature="s"))[1] == PartFinished(0, Reasoning(text="", signature="s"))


@pytest.mark.parametrize(
    ("bad", "kind"),
    [
        (SseEvent("content_block_delta", b"{"), ProviderError),
        (event({"type": "error", "error": {"type": "overloaded_error", "message": "m"}}), TransientProviderError),
        (event({"type": "error"}), ProviderError),
        (
            event({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": None}}),
            ProviderError,
        ),
        (event({"type": "message_stop"}), ProviderError),
    ],
)
def test_what_came_before_a_failure_in_the_same_chunk_is_not_lost(bad: SseEvent, kind: type[ProviderError]) -> None:
    step = StepDecoder(REQUEST)
    items = step.decode([*events(answer("kept"))[:4], bad, *events(answer("kept"))[4:]])
    assert items == [PartStarted(0, "text"), PartDelta(0, "kept")]
    assert type(step.failure) is kind and not step.finished


@pytest.mark.parametrize(
    ("blocks", "more"),
    [
        ([text("x" * (MAX_TEXT + 1), chunks=9)], "4 million characters of text"),
        ([text("x" * MAX_TEXT), thinking("hm")], "4 million characters of text"),
        ([tool_use("Write", json_text="x" * (33 * 1_000_000), chunks=9)], "32 million characters"),
        ([tool_use("Read", file_path="/a") for _ in range(MAX_CALLS + 1)], "128 calls of tools"),
    ],
    ids=["text", "text and reasoning", "arguments", "calls"],
)
def test_an_answer_that_is_too_much_ends_with_an_error_that_says_so(blocks: list[Block], more: str) -> None:
    decoder = StepDecoder(REQUEST)
    decoder.decode(events(answer(*blocks)))
    assert not decoder.finished and decoder.failure is not None
    assert more in str(decoder.failure) and "cut off" in str(decoder.failure)


def test_arguments_that_are_too_long_make_a_call_that_cannot_be_read() -> None:
    written = json.dumps({"content": "x" * MAX_ARGUMENTS})
    (call,) = [item.part for item in decode(tool_use("Write", json_text=written)) if isinstance(item, PartFinished)]
    assert isinstance(call, ToolCall) and call.input == {} and call.unreadable == written


def test_names_and_ids_of_calls_have_a_length() -> None:
    items = decode(tool_use("N" * 10_000, id="i" * 10_000))
    (call,) = [item.part for item in items if isinstance(item, PartFinished)]
    assert isinstance(call, ToolCall) and len(call.name) == len(call.id) == 200


def test_a_call_with_the_id_of_an_earlier_one_gets_another() -> None:
    earlier = Message(role="assistant", parts=(ToolCall(id="call_0", name="Read", input={}),))
    decoder = StepDecoder(ModelRequest(model="m", messages=(earlier,)))
    items = decoder.decode(events(answer(tool_use("Read", id="call_0"), tool_use("Read", id="call_1"))))
    first, second = [item.part for item in items if isinstance(item, PartFinished)]
    assert isinstance(first, ToolCall) and first.id.startswith("call_0_")
    assert isinstance(second, ToolCall) and second.id == "call_1"
