"""Requests become the JSON that the Messages API wants."""

from __future__ import annotations

import json
from typing import Any

from pyagentd.llm.anthropic import body_writer, settings_body
from pyagentd.llm.backend import ModelRequest
from pyagentd.messages import Reasoning, Text, ToolCall, ToolResult
from tests.llm.requests import assistant, request, tool, user

CACHE = {"type": "ephemeral"}


def request_body(request: ModelRequest) -> dict[str, Any]:
    """The body as the server reads it, without what every request of ours has."""
    body = json.loads(body_writer().write({**settings_body(request), "stream": True}, request.messages).to_bytes())
    assert body.pop("stream") is True
    return body


def marked(body: dict[str, Any]) -> int:
    return json.dumps(body).count('"cache_control"')


def test_a_first_request_holds_system_tools_and_prompt() -> None:
    body = request_body(
        request("hi", system="Be brief.", tools=(tool("A"), tool("B")), temperature=0.3, max_tokens=99)
    )
    assert body == {
        "model": "claude-test",
        "max_tokens": 99,
        "temperature": 0.3,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": CACHE}],
        "tools": [
            {"name": "A", "description": "The tool A.", "input_schema": {"type": "object", "properties": {}}},
            {
                "name": "B",
                "description": "The tool B.",
                "input_schema": {"type": "object", "properties": {}},
                "cache_control": CACHE,
            },
        ],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": CACHE}]}],
    }


def test_what_is_absent_is_left_out() -> None:
    assert request_body(request("hi", system=" ")).keys() == {"model", "max_tokens", "messages"}


def test_each_kind_of_part_has_its_block() -> None:
    body = request_body(
        request(
            "go",
            assistant(
                Reasoning(text="hm", signature="sig"),
                Reasoning(text="", redacted="opaque"),
                Text(text="I look."),
                ToolCall(id="t1", name="Read", input={"file_path": "a"}),
                ToolCall(id="t2", name="Read", input={}),
            ),
            user(ToolResult(id="t1", text="one"), ToolResult(id="t2", text="no such file", is_error=True)),
        )
    )
    assert body["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "redacted_thinking", "data": "opaque"},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "a"}},
        {"type": "tool_use", "id": "t2", "name": "Read", "input": {}},
    ]
    assert body["messages"][2]["content"] == [
        {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "one"}]},
        {
            "type": "tool_result",
            "tool_use_id": "t2",
            "content": [{"type": "text", "text": "no such file"}],
            "is_error": True,
            "cache_control": CACHE,
        },
    ]


def test_reasoning_without_a_signature_is_not_sent() -> None:
    body = request_body(request("go", assistant(Reasoning(text="edited"), "said"), "more"))
    assert body["messages"][1]["content"] == [{"type": "text", "text": "said"}]


def test_blank_text_and_messages_left_empty_are_not_sent() -> None:
    body = request_body(request(user("go", "  \n"), assistant(" "), "more"))
    assert [message["role"] for message in body["messages"]] == ["user", "user"]
    assert len(body["messages"][0]["content"]) == 1


def test_results_come_before_the_text_of_the_same_message() -> None:
    body = request_body(
        request("go", assistant(ToolCall(id="t", name="A", input={})), user("and?", ToolResult(id="t", text="x")))
    )
    assert [block["type"] for block in body["messages"][2]["content"]] == ["tool_result", "text"]


def test_an_empty_result_is_still_a_result() -> None:
    call = assistant(ToolCall(id="t", name="A", input={}))
    body = request_body(request("go", call, user(ToolResult(id="t", text="")), "x", "y"))
    assert body["messages"][2]["content"] == [{"type": "tool_result", "tool_use_id": "t"}]
    failed = request_body(request("go", call, user(ToolResult(id="t", text="", is_error=True))))
    assert failed["messages"][2]["content"][0]["content"][0]["text"]


def test_the_cache_is_marked_at_system_tools_and_the_last_two_user_messages() -> None:
    turns = [message for n in range(5) for message in (user(f"q{n}"), assistant(f"a{n}"))]
    body = request_body(request(*turns, "last", system="s", tools=(tool("A"), tool("B"))))
    assert marked(body) == 4
    users = [message["content"] for message in body["messages"] if message["role"] == "user"]
    assert ["cache_control" in content[-1] for content in users] == [False] * 4 + [True] * 2


def test_thinking_raises_max_tokens_by_its_budget_and_drops_the_temperature() -> None:
    body = request_body(request("hi", thinking_budget=2000, max_tokens=500, temperature=0.7))
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 2000}
    assert body["max_tokens"] == 2500
    assert "temperature" not in body


def test_a_message_that_was_sent_before_is_written_the_same_way() -> None:
    writer = body_writer()
    turns = request("one", assistant("two"), "three", "four", "five")
    once = writer.write({}, turns.messages)
    assert writer.write({}, turns.messages) == once == body_writer().write({}, turns.messages)


def test_a_long_request_is_sent_in_chunks_that_are_it() -> None:
    long = (text for number in range(100) for text in (user(f"{number} " * 5_000), assistant("yes")))
    body = body_writer().write(settings_body(request("hi", tools=(tool("A"),))), (*long, user("end")))
    chunks = list(body.chunks())
    assert len(chunks) > 2
    assert max(map(len, chunks)) < len(body.to_bytes()) / 2
    assert b"".join(chunks) == body.to_bytes()
    assert body.size == len(body.to_bytes())
    assert len(json.loads(body.to_bytes())["messages"]) == 201


def test_what_steps_join_is_what_one_request_says() -> None:
    writer, kept = body_writer(), dict[object, Any]()
    said = [message for number in range(60) for message in (user(f"{number} " * 9_000), assistant("yes"))]
    earlier = []
    for count in (0, 1, 40, 41, 60, 100, 120, 90, 30, 31, 120):  # also of a conversation that was cut
        body = writer.write({}, tuple(said[:count]), kept=kept)
        alone = body_writer().write({}, tuple(said[:count]))
        assert body == alone
        assert body.to_bytes() == alone.to_bytes()
        assert [message["role"] for message in json.loads(body.to_bytes())["messages"]] == ["user", "assistant"] * (
            count // 2
        ) + ["user"] * (count % 2)
        assert body.size == len(body.to_bytes())
        earlier.append((body, alone.to_bytes()))
    assert all(body.to_bytes() == sent for body, sent in earlier)  # no step changes what one before it sent


def test_half_a_surrogate_pair_can_be_sent() -> None:
    assert "?" in str(request_body(request("a\ud83d b"))["messages"])
