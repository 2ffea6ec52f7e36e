"""The model server of the tests refuses what the API refuses and can be trusted with faults."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import anthropic
import pytest

from tests.server import ModelServer, answer, burst, paced, text, thinking, tool_turns, tool_use


def client(server: ModelServer) -> anthropic.Anthropic:
    return anthropic.Anthropic(api_key="k", base_url=server.url, max_retries=0, timeout=20)


def ask(server: ModelServer, *messages: Any, **fields: Any) -> anthropic.types.Message:
    given = list(messages) or [{"role": "user", "content": "hi"}]
    with client(server) as opened:
        return opened.messages.create(model="m", max_tokens=5000, messages=given, **fields)


def dumped(message: anthropic.types.Message) -> list[dict[str, Any]]:
    return [block.model_dump(exclude_none=True) for block in message.content]


CALL = {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "A", "input": {}}]}
RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "x"}]}
HI = {"role": "user", "content": "hi"}


def test_streamed_and_whole_answers_say_the_same(model_server: ModelServer) -> None:
    def script() -> Any:
        blocks = (thinking("hm"), text("Hello, wörld", chunks=4), tool_use("Read", id="t", path="ä"))
        return answer(*blocks, usage={"output_tokens": 42})

    model_server.say(script(), script())
    whole = ask(model_server)
    with client(model_server) as opened, opened.messages.stream(model="m", max_tokens=9, messages=[HI]) as stream:
        streamed = stream.get_final_message()
    assert dumped(whole) == dumped(streamed)
    assert (whole.stop_reason, whole.usage.output_tokens) == (streamed.stop_reason, streamed.usage.output_tokens)


@pytest.mark.parametrize(
    ("messages", "fields", "problem"),
    [
        ([HI, CALL], {}, "without tool_result"),
        ([HI, CALL, HI], {}, "without tool_result"),
        ([RESULT], {}, "unexpected tool_use_id"),
        ([CALL, RESULT], {}, "first message must use the user role"),
        ([{"role": "user", "content": [{"type": "text", "text": " "}]}], {}, "non-whitespace"),
        ([{"role": "user", "content": []}], {}, "must not be empty"),
        ([HI], {"thinking": {"type": "enabled", "budget_tokens": 5000}}, "greater than thinking.budget_tokens"),
        ([HI], {"thinking": {"type": "enabled", "budget_tokens": 10}}, "at least 1024"),
        (
            [HI],
            {"system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}] * 5},
            "maximum of 4",
        ),
    ],
)
def test_what_the_api_refuses_is_refused(
    model_server: ModelServer, messages: list[Any], fields: dict[str, Any], problem: str
) -> None:
    with pytest.raises(anthropic.BadRequestError, match=problem):
        ask(model_server, *messages, **fields)


def test_a_valid_exchange_of_tools_is_accepted(model_server: ModelServer) -> None:
    assert ask(model_server, HI, CALL, RESULT).stop_reason == "end_turn"


def test_a_rule_calls_a_tool_so_often_for_each_prompt(model_server: ModelServer) -> None:
    model_server.rule = tool_turns(2, name="Glob")
    conversation: list[Any] = [HI]
    stops = []
    for _ in range(6):
        said = ask(model_server, *conversation)
        stops.append(said.stop_reason)
        conversation.append({"role": "assistant", "content": [block.model_dump() for block in said.content]})
        calls = [block for block in said.content if block.type == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": "x"} for call in calls]
        conversation.append({"role": "user", "content": results or "again"})
    assert stops == ["tool_use", "tool_use", "end_turn"] * 2


@pytest.mark.parametrize("per_write", [1, 64])
def test_a_burst_holds_every_delta(model_server: ModelServer, per_write: int) -> None:
    model_server.say(burst(1000, per_write=per_write, word="x"))
    with client(model_server) as opened, opened.messages.stream(model="m", max_tokens=9, messages=[HI]) as stream:
        assert stream.get_final_text() == "x" * 1000


def test_a_paced_answer_takes_its_time(model_server: ModelServer) -> None:
    model_server.say(paced(200, seconds=0.5, word="x"))
    start = time.monotonic()
    with client(model_server) as opened, opened.messages.stream(model="m", max_tokens=9, messages=[HI]) as stream:
        assert stream.get_final_text() == "x" * 100
    assert time.monotonic() - start >= 0.49


def test_it_runs_as_a_process_that_ends_with_its_standard_input() -> None:
    command = [sys.executable, "-m", "tests.server", "--mode", "text", "--text", "from a process"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        url = f"http://127.0.0.1:{process.stdout.readline().strip()}"
        with anthropic.Anthropic(api_key="k", base_url=url) as opened:
            said = opened.messages.create(model="m", max_tokens=9, messages=[HI])
        assert said.content[0].text == "from a process"
        process.stdin.close()
        assert process.wait(10) == 0
