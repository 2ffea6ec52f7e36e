"""Chat Completions as servers differ in it: what they want written, and the forms in which they answer."""

import json
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest
import pytest_asyncio

from pyagentd.errors import ContextOverflow, ProviderError, TransientProviderError
from pyagentd.llm.backend import ModelRequest, PartFinished, PartStarted, StepFinished, StreamItem
from pyagentd.llm.http import SseEvent
from pyagentd.llm.openai import ChatDecoder, OpenAIBackend, server
from pyagentd.messages import Media, Reasoning, Text, ToolCall, ToolResult, Usage
from tests.llm.requests import assistant, calls, collect, end, parts, request, said, tool, user
from tests.server import ModelServer, raw, refusal


@pytest_asyncio.fixture
async def backend(model_server: ModelServer) -> AsyncIterator[OpenAIBackend]:
    opened = OpenAIBackend(server(api_key="sk-test", base_url=f"{model_server.url}/v1", timeout_s=60.0))
    yield opened
    await opened.close()


def chunk(stop: str | None = None, /, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": stop}]}


def decoded(
    chunks: Iterable[dict[str, Any]], asked: ModelRequest | None = None, *, done: bool = True
) -> list[StreamItem]:
    decoder = ChatDecoder(asked or request())
    events = [SseEvent("", json.dumps(each).encode()) for each in chunks]
    items = decoder.decode([*events, *([SseEvent("", b"[DONE]")] if done else [])])
    if decoder.failure is not None:
        raise decoder.failure
    return items + ([] if done else decoder.end())


def call(id: str | None, name: str | None, arguments: Any, index: int | None = 0) -> dict[str, Any]:
    function = {"arguments": arguments} | ({"name": name} if name else {})
    return {"function": function} | ({"id": id} if id else {}) | ({"index": index} if index is not None else {})


# What is sent


async def test_the_request_is_that_of_the_published_schema(model_server: ModelServer, backend: OpenAIBackend) -> None:
    await collect(
        backend,
        request(
            "go",
            assistant("I look.", Reasoning(text="hm", signature="s"), ToolCall(id="c", name="A", input={"x": "ä"})),
            user(ToolResult(id="c", text="no", is_error=True), "And?"),
            system="Be brief.",
            tools=(tool("A"),),
            temperature=0.5,
            thinking_budget=3000,
            max_tokens=100,
        ),
    )
    assert model_server.last.body == {
        "model": "claude-test",
        "max_tokens": 3100,
        "temperature": 0.5,
        "reasoning_effort": "low",
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "A",
                    "description": "The tool A.",
                    "parameters": {"type": "object", "properties": {}},
                },
            }
        ],
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "go"},
            {
                "role": "assistant",
                "content": "I look.",
                "tool_calls": [
                    {"id": "c", "type": "function", "function": {"name": "A", "arguments": '{"x":"ä"}'}},
                ],
            },
            {"role": "tool", "tool_call_id": "c", "content": "Error: no"},
            {"role": "user", "content": "And?"},
        ],
    }


async def test_nothing_of_the_environment_is_sent(model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("API_KEY", "ORG_ID", "PROJECT_ID", "ADMIN_KEY"):
        monkeypatch.setenv(f"OPENAI_{name}", "sk-environment")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Mine: sk-environment")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1")
    backend = OpenAIBackend(server(api_key="sk-given", base_url=f"{model_server.url}/v1", timeout_s=60))
    await collect(backend, request())
    await backend.close()
    assert model_server.last.headers["authorization"] == "Bearer sk-given"
    assert "environment" not in str(model_server.last.headers)


_CALLED = (
    "go",
    assistant(ToolCall(id="toolu_012345", name="A", input={})),
    user(ToolResult(id="toolu_012345", text="x")),
)


@pytest.mark.parametrize(
    ("fields", "status", "refused", "key", "then"),
    [
        ({}, 400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.", "max_tokens", None),
        ({}, 422, "stream_options: Extra inputs are not permitted", "stream_options", None),
        ({"temperature": 0.1}, 400, "Unsupported value: 'temperature' does not support 0.1", "temperature", None),
        ({"thinking_budget": 9000}, 400, '"qwen3" does not support thinking', "reasoning_effort", None),
        ({"thinking_budget": 9000}, 400, "Unrecognized request argument: reasoning_effort", "reasoning_effort", None),
    ],
)
async def test_what_a_server_refuses_is_left_out_from_then_on(
    model_server: ModelServer,
    backend: OpenAIBackend,
    fields: dict[str, Any],
    status: int,
    refused: str,
    key: str,
    then: Any,
) -> None:
    model_server.say(refusal(status, "invalid_request_error", refused), "one", "two")
    assert said(await collect(backend, request(**fields))) == "one"
    assert said(await collect(backend, request(**fields))) == "two"
    first, *others = (sent.body for sent in model_server.requests)
    assert key in first and len(others) == 2
    assert all(key not in body for body in others)
    assert all(("max_completion_tokens" in body) == (key == "max_tokens") for body in others)


async def test_ids_of_nine_characters_where_the_server_wants_them(
    model_server: ModelServer, backend: OpenAIBackend
) -> None:
    words = "Tool call id was toolu_012345 but must be a-z, A-Z, 0-9, with a length of 9."
    model_server.say(refusal(400, "invalid_request_error", words), "ok")
    await collect(backend, request(*_CALLED))
    id = model_server.last.messages[1]["tool_calls"][0]["id"]
    assert len(id) == 9 and id.isalnum() and model_server.last.messages[2]["tool_call_id"] == id


async def test_reasoning_that_is_missed_is_sent_empty(model_server: ModelServer, backend: OpenAIBackend) -> None:
    words = "The reasoning_content in the thinking mode must be passed back to the API."
    model_server.say(refusal(400, "invalid_request_error", words), "ok")
    await collect(backend, request(*_CALLED))
    assert [each.get("reasoning_content") for each in model_server.last.messages] == [None, "", None]


async def test_a_refusal_of_something_else_is_not_argued_with(
    model_server: ModelServer, backend: OpenAIBackend
) -> None:
    model_server.say(refusal(400, "invalid_request_error", "no such thing"))
    with pytest.raises(ProviderError, match="no such thing"):
        await collect(backend, request(temperature=0.1, thinking_budget=2000))
    assert len(model_server.requests) == 1


async def test_a_tool_with_a_long_name_is_called_by_its_own(
    model_server: ModelServer, backend: OpenAIBackend
) -> None:
    name = "mcp__a_server_with_a_very_long_name__and_a_tool_with_a_name_that_is_longer"
    await collect(backend, request(tools=(tool(name),)))
    sent = model_server.last.body["tools"][0]["function"]["name"]
    assert len(sent) <= 64
    (made,) = calls(decoded([chunk("tool_calls", tool_calls=[call("c", sent, "{}")])], request(tools=(tool(name),))))
    assert made.name == name


# What servers answer


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param([call("a", "F", "{}", 0), call("b", "F", '{"x":1}', 1)], id="numbered"),
        pytest.param([call("a", "F", "{}", 0), call("b", "F", '{"x":1}', 0)], id="all with one number"),
        pytest.param([call("a", "F", "{}", None), call("b", "F", '{"x":1}', None)], id="without numbers"),
        pytest.param([call("a", "F", {}, 0), call("b", "F", {"x": 1}, 1)], id="arguments as an object"),
        pytest.param([call("a", "F", "", 0), call("b", "F", '{"x"', 1), call(None, None, ":1}", 1)], id="in pieces"),
        pytest.param(
            [call("a", "F", "", 0), call("b", "F", '{"x"', 1), call("b", "F", ":1}", 1)], id="id and name repeated"
        ),
        pytest.param(
            [call("a", "F", "", None), call("b", "F", '{"x"', None), call("b", None, ":1}", None)],
            id="id repeated, without numbers",
        ),
        pytest.param(
            [call("a", None, "", 0), call(None, "F", "{}", 0), call("b", None, '{"x"', 1), call(None, "F", ":1}", 1)],
            id="name after the id",
        ),
    ],
)
def test_parallel_calls_however_they_come(chunks: list[dict[str, Any]]) -> None:
    items = decoded([*(chunk(tool_calls=[each]) for each in chunks), chunk("stop")])
    assert calls(items) == [ToolCall(id="a", name="F", input={}), ToolCall(id="b", name="F", input={"x": 1})]
    assert [(each.call_id, each.name) for each in items if isinstance(each, PartStarted)] == [("a", "F"), ("b", "F")]
    assert end(items).stop_reason == "tool_use"


def test_a_call_without_a_name_begins_and_ends() -> None:
    begun, ended, _ = decoded([chunk(tool_calls=[call("a", None, "{}")]), chunk("tool_calls")])
    assert begun == PartStarted(0, "tool", "a") and isinstance(ended, PartFinished)


def test_calls_with_an_id_that_is_missing_or_taken_get_their_own() -> None:
    before = request(
        "go", assistant(ToolCall(id="call_0", name="F", input={})), user(ToolResult(id="call_0", text=""))
    )
    pieces = [call("call_0", "F", "{}", 0), call("call_0", None, "", 0), call(None, "F", "{}", 1)]
    made = calls(decoded([chunk(tool_calls=[each]) for each in pieces] + [chunk("tool_calls")], before))
    assert len({each.id for each in made} | {"call_0"}) == 3


@pytest.mark.parametrize(
    "deltas",
    [
        [{"reasoning_content": "h"}, {"reasoning_content": "m"}, {"content": "so"}],
        [{"reasoning": "hm", "reasoning_content": None, "content": ""}, {"content": "so"}],
        [{"reasoning": "hm", "reasoning_content": "hm"}, {"content": "so"}],
        [
            {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]},
            {"content": [{"type": "text", "text": "so"}]},
        ],
    ],
)
def test_reasoning_wherever_it_is_written(deltas: list[dict[str, Any]]) -> None:
    thought, spoken = parts(decoded([*(chunk(**each) for each in deltas), chunk("stop")]))
    assert isinstance(thought, Reasoning) and (thought.text, spoken) == ("hm", Text(text="so"))


def test_an_answer_without_a_mark_at_its_end_is_whole() -> None:
    assert said(decoded([chunk(content="so"), chunk("stop")], done=False)) == "so"
    assert not any(isinstance(item, StepFinished) for item in decoded([chunk(content="so")], done=False))


@pytest.mark.parametrize(
    ("given", "usage"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 2}, Usage(input=9, output=2)),
        (
            {"prompt_tokens": 9, "completion_tokens": 2, "prompt_cache_hit_tokens": 4},
            Usage(input=5, output=2, cache_read=4),
        ),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 2,
                "total_tokens": 16,
                "completion_tokens_details": {"reasoning_tokens": 5},
            },
            Usage(input=9, output=2, reasoning=5),
        ),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 7,
                "total_tokens": 16,
                "completion_tokens_details": {"reasoning_tokens": 5},
            },
            Usage(input=9, output=2, reasoning=5),
        ),
        ({}, Usage()),
    ],
)
def test_tokens_however_they_are_counted(given: dict[str, Any], usage: Usage) -> None:
    assert end(decoded([chunk("stop"), {"choices": [], "usage": given}])).usage == usage


def test_a_refusal_is_shown_and_is_the_reason() -> None:
    items = decoded([chunk(refusal="I "), chunk(refusal="won't."), chunk("stop")])
    assert (said(items), end(items).stop_reason) == ("I won't.", "refusal")


@pytest.mark.parametrize(
    ("broken", "error"),
    [
        ({"error": {"code": 502, "message": "Provider returned error"}}, TransientProviderError),
        ({"error": {"type": "overloaded", "message": "busy"}}, TransientProviderError),
        ({"error": {"message": "content is not allowed", "type": "invalid_request_error"}}, ProviderError),
        ({"error": "out of memory"}, ProviderError),
        ({"error": {"code": 500, "message": "An error has occurred", "status": "INTERNAL"}}, TransientProviderError),
        ({"error": {"code": 400, "message": "The maximum context length is 8192 tokens."}}, ContextOverflow),
        (chunk("error"), TransientProviderError),
        (chunk("insufficient_system_resource"), TransientProviderError),
        ({"choices": [{"delta": {"content": 7}}]}, ProviderError),
        ({"choices": [7]}, ProviderError),
        ({"choices": [], "usage": {"prompt_tokens": "many"}}, ProviderError),
        ({"choices": [], "usage": {"prompt_tokens": float("inf")}}, ProviderError),
        ({"choices": [], "usage": {"prompt_tokens_details": [1]}}, ProviderError),
    ],
)
def test_what_goes_wrong_in_the_middle_is_an_error(broken: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(ProviderError) as caught:
        decoded([chunk(content="so"), broken, chunk("stop") if "usage" in broken else {}])
    assert type(caught.value) is error


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, {"error": {"message": "too long", "type": "invalid_request_error", "code": "context_length_exceeded"}}),
        (
            400,
            {"error": {"code": 400, "message": "the request exceeds the available context size, try increasing it"}},
        ),
        (400, {"object": "error", "message": "This model's maximum context length is 10 tokens.", "code": 400}),
        (400, {"error": "This model's maximum prompt length is 131072 but the request contains 200000 tokens."}),
        (422, {"detail": "Prompt contains 9 tokens, too large for model with 8 maximum context length"}),
        (413, {}),
        (200, {"error": {"code": 400, "message": "This endpoint's maximum context length is 10 tokens."}}),
    ],
)
async def test_a_conversation_that_is_too_long_in_every_servers_words(
    model_server: ModelServer, backend: OpenAIBackend, status: int, body: dict[str, Any]
) -> None:
    model_server.say(raw([json.dumps(body).encode()], content_type="application/json", status=status))
    with pytest.raises(ContextOverflow):
        await collect(backend, request())


async def test_a_quota_that_is_used_up_is_not_tried_again(model_server: ModelServer, backend: OpenAIBackend) -> None:
    model_server.say(refusal(429, "insufficient_quota", "You exceeded your current quota."))
    with pytest.raises(ProviderError, match="exceeded") as caught:
        await collect(backend, request())
    assert not isinstance(caught.value, TransientProviderError) and "credit" in caught.value.hint


async def test_a_document_that_was_refused_before_refuses_nothing_later(
    model_server: ModelServer, backend: OpenAIBackend
) -> None:
    document = Media(type="application/pdf", data="JVBERi0=")
    attachment = Text(text="<attachment>\nfiles/a.txt\n</attachment>")
    with pytest.raises(ProviderError, match="takes none"):
        await collect(backend, request(user(document, attachment, Text(text="What is it?"))))
    both = user(document, Text(text="What is it?"), Text(text="Never mind."))
    assert said(await collect(backend, request(both))) == "ok"
    assert "cannot be shown" in str(model_server.last.messages)
