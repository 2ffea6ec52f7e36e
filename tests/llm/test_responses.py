"""The Responses API: what is sent, what is left out where a model refuses it, and how answers come."""

import json
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest
import pytest_asyncio

from pyagentd.errors import ContextOverflow, ProviderError, TransientProviderError
from pyagentd.llm.backend import StreamItem
from pyagentd.llm.http import SseEvent
from pyagentd.llm.openai import server
from pyagentd.llm.responses import ResponseDecoder, ResponsesBackend
from pyagentd.messages import Reasoning, Text, ToolCall, ToolResult
from tests.llm.requests import assistant, collect, end, parts, request, said, tool, user
from tests.server import ModelServer, answer, refusal, thinking, tool_use

Json = dict[str, Any]


@pytest_asyncio.fixture
async def backend(model_server: ModelServer) -> AsyncIterator[ResponsesBackend]:
    opened = ResponsesBackend(server(api_key="sk-test", base_url=f"{model_server.url}/v1", timeout_s=60.0))
    yield opened
    await opened.close()


def decoded(events: Iterable[Json]) -> list[StreamItem]:
    decoder = ResponseDecoder(request())
    items = decoder.decode(SseEvent(each["type"], json.dumps(each).encode()) for each in events)
    if decoder.failure is not None:
        raise decoder.failure
    return items


async def test_the_request_is_that_of_the_published_schema(
    model_server: ModelServer, backend: ResponsesBackend
) -> None:
    mine = Reasoning(text="hm", signature="rs_1", redacted="opaque", provider="openai")
    await collect(
        backend,
        request(
            "go",
            assistant(mine, "I look.", mine, ToolCall(id="c", name="A", input={"x": "ä"}), mine),
            user(ToolResult(id="c", text="no", is_error=True), "And?"),
            system="Be brief.",
            tools=(tool("A"),),
            temperature=0.5,
            thinking_budget=3000,
            max_tokens=100,
        ),
    )
    thought = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "hm"}],
        "encrypted_content": "opaque",
    }
    assert model_server.last.body == {
        "model": "claude-test",
        "max_output_tokens": 3100,
        "store": False,
        "stream": True,
        "instructions": "Be brief.",
        "temperature": 0.5,
        "reasoning": {"effort": "low", "summary": "auto"},
        "include": ["reasoning.encrypted_content"],
        "tools": [
            {
                "type": "function",
                "name": "A",
                "description": "The tool A.",
                "parameters": {"type": "object", "properties": {}},
                "strict": False,
            }
        ],
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "go"}]},
            thought,
            {"role": "assistant", "content": "I look."},
            thought,  # the third, which nothing follows, is left out: the API would refuse it
            {"type": "function_call", "call_id": "c", "name": "A", "arguments": '{"x":"ä"}'},
            {"type": "function_call_output", "call_id": "c", "output": "Error: no"},
            {"role": "user", "content": [{"type": "input_text", "text": "And?"}]},
        ],
    }


async def test_reasoning_goes_back_as_it_came(model_server: ModelServer, backend: ResponsesBackend) -> None:
    model_server.say(answer(thinking("look", signature="b3BhcXVl"), tool_use("A", id="c")))
    (thought, made) = parts(await collect(backend, request("go", tools=(tool("A"),))))
    assert isinstance(thought, Reasoning) and (thought.text, thought.redacted) == ("look", "b3BhcXVl")
    await collect(backend, request("go", assistant(thought, made), user(ToolResult(id="c", text="x"))))
    sent = model_server.last.messages[1]
    assert (sent["id"], sent["encrypted_content"]) == (thought.signature, "b3BhcXVl")


@pytest.mark.parametrize(
    ("fields", "refused", "gone"),
    [
        (
            {"temperature": 0.1},
            "Unsupported parameter: 'temperature' is not supported with this model.",
            "temperature",
        ),
        ({}, "Encrypted content is not supported with this model.", "include"),
        (
            {"thinking_budget": 9000},
            "Your organization must be verified to generate reasoning summaries.",
            "summary",
        ),
        (
            {"thinking_budget": 9000},
            "Unsupported parameter: 'reasoning.effort' is not supported with this model.",
            "effort",
        ),
    ],
)
async def test_what_a_model_refuses_is_left_out_from_then_on(
    model_server: ModelServer, backend: ResponsesBackend, fields: Json, refused: str, gone: str
) -> None:
    model_server.say(refusal(400, "invalid_request_error", refused), "one", "two")
    assert said(await collect(backend, request(**fields))) == "one"
    assert said(await collect(backend, request(**fields))) == "two"
    first, *others = (json.dumps(sent.body) for sent in model_server.requests)
    assert f'"{gone}"' in first and len(others) == 2 and not any(f'"{gone}"' in body for body in others)


async def test_what_a_server_says_when_it_has_no_such_path_is_shown(
    model_server: ModelServer, backend: ResponsesBackend
) -> None:
    model_server.say(refusal(404, "not_found", "no such path"))
    with pytest.raises(ProviderError, match="no such path"):
        await collect(backend, request())


ADDED: Json = {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message"}}
DONE: Json = {"type": "response.output_item.done", "output_index": 0, "item": {"type": "message"}}
COMPLETED: Json = {"type": "response.completed", "response": {"status": "completed"}}


def test_a_refusal_is_shown_and_is_the_reason() -> None:
    refused = [{"type": "response.refusal.delta", "output_index": 0, "delta": each} for each in ("I ", "won't.")]
    items = decoded([ADDED, *refused, DONE, COMPLETED])
    assert (said(items), end(items).stop_reason) == ("I won't.", "refusal")


def test_an_answer_that_ran_into_its_limit_keeps_its_text() -> None:
    text = {"type": "response.output_text.delta", "output_index": 0, "delta": "half"}
    why = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    items = decoded([ADDED, text, {"type": "response.incomplete", "response": why}])
    assert (parts(items), end(items).stop_reason) == ([Text(text="half")], "max_tokens")


def test_parts_of_a_summary_are_paragraphs_and_unknown_events_are_skipped() -> None:
    place = {"output_index": 0}
    events: list[Json] = [
        {"type": "response.new_thing", "x": 1},
        {"type": "response.output_item.added", "item": {"type": "web_search_call"}, "output_index": 7},
        {"type": "response.output_item.done", "item": {"type": "web_search_call"}, "output_index": 7},
        {"type": "response.output_item.added", "item": {"type": "reasoning", "id": "rs_1"}, **place},
    ]
    for number, text in enumerate(("one", "two")):
        events.append({"type": "response.reasoning_summary_part.added", "summary_index": number, **place})
        events.append(
            {"type": "response.reasoning_summary_text.delta", "summary_index": number, "delta": text, **place}
        )
    done = {"type": "reasoning", "id": "rs_1", "encrypted_content": "e"}
    events += [{"type": "response.output_item.done", "item": done, **place}, COMPLETED]
    assert parts(decoded(events)) == [Reasoning(text="one\n\ntwo", signature="rs_1", redacted="e", provider="openai")]


@pytest.mark.parametrize(
    ("failed", "error"),
    [
        (
            {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "sorry"}}},
            TransientProviderError,
        ),
        (
            {"type": "error", "error": {"type": "t", "code": "too_many_requests", "message": "slow down"}},
            TransientProviderError,
        ),
        ({"type": "error", "error": {"code": "context_length_exceeded", "message": "too long"}}, ContextOverflow),
        ({"type": "error", "error": {"type": "invalid_request_error", "message": "no"}}, ProviderError),
        ({"type": "error", "code": "rate_limit_exceeded", "message": "slow down"}, TransientProviderError),
        ({"type": "error", "code": "context_length_exceeded", "message": "too long"}, ContextOverflow),
        ({"type": "error", "code": "invalid_prompt", "message": "no"}, ProviderError),
        ({"type": "response.output_text.delta", "output_index": 3, "delta": "x"}, ProviderError),
        ({"type": "response.output_item.added", "output_index": 1, "item": 7}, ProviderError),
    ],
)
def test_what_goes_wrong_in_the_middle_is_an_error(failed: Json, error: type[Exception]) -> None:
    with pytest.raises(ProviderError) as caught:
        decoded([ADDED, failed, COMPLETED])
    assert type(caught.value) is error
