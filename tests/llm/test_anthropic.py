"""The Anthropic backend over a real socket, through the real SDK."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
import pytest_asyncio

from pyagentd.clock import Clock
from pyagentd.errors import ConfigError, ContextOverflow, ProviderError, TransientProviderError
from pyagentd.llm.anthropic import AnthropicBackend, server
from pyagentd.llm.backend import PartDelta, PartFinished, PartStarted, StepFinished, StreamItem
from pyagentd.llm.http import HttpServer
from pyagentd.messages import Reasoning, Text, ToolCall, ToolResult, Usage
from tests.llm.requests import assistant, calls, collect, end, flatten, parts, request, said, tool, user
from tests.server import (
    ModelServer,
    answer,
    burst,
    error_event,
    malformed,
    raw,
    redacted_thinking,
    refusal,
    silent,
    text,
    thinking,
    tool_use,
)
from tests.server.http import Hang, Pause

NOW = datetime(2025, 6, 1, 12, 0, tzinfo=UTC)

ERRORS = (
    "How should errors be designed — what auto-retries, what hard-fails, and is a hard-failed session dead forever?"
)


_VERY_BUSY_S = 300.0  # for what takes a second: only a test that hangs takes longer


class Noon(Clock):
    def now(self) -> datetime:
        return NOW


@pytest_asyncio.fixture
async def backend(model_server: ModelServer) -> AsyncIterator[AnthropicBackend]:
    client = server(api_key="sk-test", base_url=model_server.url, timeout_s=10.0)
    opened = AnthropicBackend(client, Noon())
    yield opened
    await opened.close()


# What is sent


async def test_the_request_carries_the_key_the_version_and_the_body(
    model_server: ModelServer, backend: AnthropicBackend
) -> None:
    await collect(backend, request("hi", system="Be brief.", tools=(tool("Read"),), temperature=0.5))
    sent = model_server.last
    assert (sent.method, sent.path) == ("POST", "/v1/messages")
    assert sent.headers["authorization"] == "Bearer sk-test"
    assert sent.headers["x-api-key"] == "sk-test"
    assert sent.headers["anthropic-version"]
    assert sent.body["stream"] is True
    assert sent.body["temperature"] == 0.5
    assert sent.body["tools"][0]["name"] == "Read"


async def test_a_conversation_of_megabytes_arrives_whole(
    model_server: ModelServer, backend: AnthropicBackend
) -> None:
    said = [f"{number} " * 50_000 for number in range(20)]
    await collect(backend, request(*(turn for text in said for turn in (text, assistant("yes"))), "end"))
    users = [message["content"][0]["text"] for message in model_server.last.body["messages"][::2]]
    assert users == [*said, "end"]


async def test_a_key_in_the_environment_is_not_used(
    model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-environment")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "token")
    backend = AnthropicBackend(server(api_key="sk-given", base_url=model_server.url, timeout_s=10))
    await collect(backend, request())
    await backend.close()
    assert model_server.last.headers["authorization"] == "Bearer sk-given"
    assert "environment" not in str(model_server.last.headers)


async def test_the_api_accepts_a_whole_conversation_with_tools_and_reasoning(
    model_server: ModelServer, backend: AnthropicBackend
) -> None:
    conversation = request(
        "go",
        assistant(
            Reasoning(text="hm", signature="s"),
            ToolCall(id="t1", name="A", input={"x": [1, {"y": None}]}),
            ToolCall(id="t2", name="A", input={}),
        ),
        user(ToolResult(id="t1", text="one"), ToolResult(id="t2", text="", is_error=True)),
        assistant("done"),
        "more",
        system="s",
        tools=(tool("A"),),
        thinking_budget=1024,
        temperature=0.2,
    )
    assert end(await collect(backend, conversation)).stop_reason == "end_turn"
    assert model_server.last.body["messages"][1]["content"][1]["input"] == {"x": [1, {"y": None}]}


async def test_one_connection_serves_all_requests(model_server: ModelServer, backend: AnthropicBackend) -> None:
    model_server.say("one", refusal(500), "two", answer(tool_use("A")))
    for _ in range(4):
        await flatten_or_error(backend, [])
    assert (len(model_server.requests), model_server.connections) == (4, 1)


@pytest.mark.parametrize(
    ("fields", "refused", "gone"),
    [
        ({"temperature": 0.3}, "`temperature` is deprecated for this model.", {"temperature"}),
        ({"thinking_budget": 1024}, '"thinking.type.enabled" is not supported. Use "thinking.type.adaptive"', set()),
        ({"thinking_budget": 1024}, "This model does not support extended thinking", {"thinking"}),
    ],
)
async def test_what_a_model_refuses_is_left_out_and_remembered(
    model_server: ModelServer, backend: AnthropicBackend, fields: dict[str, Any], refused: str, gone: set[str]
) -> None:
    model_server.say(refusal(400, "invalid_request_error", refused), "one", "two", "three")
    assert said(await collect(backend, request(**fields))) == "one"
    assert said(await collect(backend, request(**fields))) == "two"
    first, *others = (sent.body for sent in model_server.requests)
    assert len(others) == 2
    for body in others:
        assert set(first) - set(body) == gone
        assert body.get("thinking", {"type": "adaptive"})["type"] == "adaptive"
    await collect(backend, request(model="another", **fields))
    assert model_server.last.body == first | {"model": "another"}


async def test_a_model_that_decides_how_much_to_think_is_told_the_effort(
    model_server: ModelServer, backend: AnthropicBackend
) -> None:
    adaptive = refusal(400, "invalid_request_error", 'Use "thinking.type.adaptive"')
    no_effort = refusal(400, "invalid_request_error", "This model does not support the effort parameter")
    model_server.say(adaptive, "one", "two", "three", no_effort, "four")
    efforts = []
    for budget in (4_000, 12_000, 32_000):
        await collect(backend, request(thinking_budget=budget))
        efforts.append(model_server.last.body["output_config"]["effort"])
    assert efforts == ["low", "medium", "high"]
    assert said(await collect(backend, request(thinking_budget=4_000))) == "four"
    assert model_server.last.body["thinking"]["type"] == "adaptive" and "output_config" not in model_server.last.body


async def test_a_refusal_of_something_else_is_not_argued_with(
    model_server: ModelServer, backend: AnthropicBackend
) -> None:
    model_server.say(refusal(400, "invalid_request_error", "prompt is too long"))
    with pytest.raises(ProviderError, match="prompt is too long"):
        await collect(backend, request(temperature=0.3))
    assert len(model_server.requests) == 1


# What is answered


async def test_text_comes_as_deltas_then_whole(model_server: ModelServer, backend: AnthropicBackend) -> None:
    model_server.say(answer(text("Hello, wörld 🌍!", chunks=5)))
    items = await collect(backend, request())
    assert items[0] == PartStarted(0, "text")
    assert {type(item) for item in items[1:-2]} == {PartDelta}
    assert said(items) == "Hello, wörld 🌍!"
    assert items[-2:] == [PartFinished(0, Text(text="Hello, wörld 🌍!")), end(items)]


async def test_reasoning_text_and_parallel_calls_come_in_order(
    model_server: ModelServer, backend: AnthropicBackend
) -> None:
    model_server.say(
        answer(
            thinking("Let me see.", signature="sig=", chunks=3),
            redacted_thinking("opaque"),
            "I look.",
            tool_use("Read", id="t1", file_path="a b.md", limit=3, chunks=4),
            tool_use("Glob", id="t2"),
        )
    )
    items = await collect(backend, request())
    assert parts(items) == [
        Reasoning(text="Let me see.", signature="sig="),
        Reasoning(text="", redacted="opaque"),
        Text(text="I look."),
        ToolCall(id="t1", name="Read", input={"file_path": "a b.md", "limit": 3}),
        ToolCall(id="t2", name="Glob", input={}),
    ]
    assert [item for item in items if isinstance(item, PartStarted)] == [
        PartStarted(0, "reasoning"),
        PartStarted(1, "reasoning"),
        PartStarted(2, "text"),
        PartStarted(3, "tool", "t1", "Read"),
        PartStarted(4, "tool", "t2", "Glob"),
    ]
    assert end(items).stop_reason == "tool_use"


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("end_turn", "end_turn"),
        ("max_tokens", "max_tokens"),
        ("stop_sequence", "stop_sequence"),
        ("refusal", "refusal"),
        ("pause_turn", "pause_turn"),
        ("model_context_window_exceeded", "max_tokens"),
        ("something_new", "end_turn"),
    ],
)
async def test_the_stop_reason_is_the_providers(
    model_server: ModelServer, backend: AnthropicBackend, given: str, taken: str
) -> None:
    model_server.say(answer("x", stop_reason=given))
    assert end(await collect(backend, request())).stop_reason == taken


async def test_a_tool_call_does_not_make_the_stop_reason(
    model_server: ModelServer, backend: AnthropicBackend
) -> None:
    model_server.say(answer(tool_use("A"), stop_reason="refusal"))
    assert end(await collect(backend, request())).stop_reason == "refusal"


async def test_usage_keeps_cached_tokens_apart(model_server: ModelServer, backend: AnthropicBackend) -> None:
    counts = {
        "input_tokens": 7,
        "cache_read_input_tokens": 300,
        "cache_creation_input_tokens": 20,
        "output_tokens": 9,
    }
    model_server.say(answer("x", usage=counts), answer("x", usage={"output_tokens_details": {"thinking_tokens": 2}}))
    assert end(await collect(backend, request())).usage == Usage(input=7, output=9, cache_read=300, cache_write=20)
    assert end(await collect(backend, request())).usage == Usage(input=10, output=3, reasoning=2)


async def test_an_empty_answer_is_an_answer(model_server: ModelServer, backend: AnthropicBackend) -> None:
    model_server.say(answer())
    assert await collect(backend, request()) == [StepFinished("end_turn", Usage(input=10, output=5))]


async def test_events_blocks_and_deltas_of_unknown_types_are_skipped(
    model_server: ModelServer, backend: AnthropicBackend
) -> None:
    strange = (
        b'event: novelty\ndata: {"type": "novelty"}\n\n: comment\n\n'
        b'data: {"type": "content_block_start", "index": 9, "content_block": {"type": "hologram"}}\n\n'
        b'data: {"type": "content_block_delta", "index": 9, "delta": {"type": "hologram_delta"}}\n\n'
        b'data: {"type": "content_block_stop", "index": 9}\n\n'
        b'data: {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta"}}\n\n'
    )
    model_server.say(answer("seen", insert={3: strange}))
    items = await collect(backend, request())
    assert (said(items), parts(items)) == ("seen", [Text(text="seen")])


async def test_a_burst_arrives_whole_and_in_few_batches(model_server: ModelServer, backend: AnthropicBackend) -> None:
    model_server.say(burst(5000, per_write=100))
    batches = [batch async for batch in backend.stream(request())]
    assert said([item for batch in batches for item in batch]) == "token " * 5000
    assert len(batches) < 500


async def test_deltas_arrive_while_the_answer_is_still_being_written(
    model_server: ModelServer, backend: AnthropicBackend
) -> None:
    model_server.say(answer(text("never finished", chunks=2), hang_after=4))
    async with aclosing(backend.stream(request())) as batches:
        async for batch in batches:
            if any(isinstance(item, PartDelta) for item in batch):
                break
    await asyncio.to_thread(model_server.wait_until, lambda: model_server.hangups == 1)


async def test_hundreds_of_agents_have_a_connection_each(
    model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyagentd.llm.http.CONNECT_S", _VERY_BUSY_S)
    backend = AnthropicBackend(server(api_key="k", base_url=model_server.url, timeout_s=_VERY_BUSY_S))
    together = asyncio.Barrier(250)

    async def begin() -> None:
        async with aclosing(backend.stream(request())) as batches:
            await anext(batches)
            await together.wait()

    model_server.rule = lambda request: answer(text("one two", chunks=2), hang_after=4)
    async with asyncio.timeout(_VERY_BUSY_S), asyncio.TaskGroup() as tasks:
        for _ in range(together.parties):
            tasks.create_task(begin())
    assert model_server.connections == together.parties
    await asyncio.to_thread(
        model_server.wait_until, lambda: model_server.hangups == together.parties, timeout_s=_VERY_BUSY_S
    )
    await backend.close()


@pytest.mark.parametrize("scheme", ["http://", ""])
async def test_a_proxy_of_the_environment_is_asked(
    model_server: ModelServer, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", model_server.url.replace("http://", scheme))
    backend = AnthropicBackend(server(api_key="k", base_url="http://model.invalid", timeout_s=5))
    await flatten_or_error(backend, [])
    await backend.close()
    assert model_server.last.path == "http://model.invalid/v1/messages"


def test_a_proxy_that_speaks_no_http_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://user:secret@127.0.0.1:1080")
    with pytest.raises(ConfigError, match="no address of an HTTP proxy") as raised:
        server(api_key="k", base_url="https://model.invalid", timeout_s=5)
    assert "secret" not in str(raised.value) and "https_proxy" in raised.value.hint
    monkeypatch.setenv("NO_PROXY", "model.invalid")
    server(api_key="k", base_url="https://model.invalid", timeout_s=5)


@pytest.mark.parametrize("names", [[], ["small"]])
async def test_a_server_that_lists_the_same_page_again_and_again_is_asked_no_more(
    names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def get(self: HttpServer, path: str) -> object:
        asked.append(path)
        return {"data": [{"id": name} for name in names], "has_more": len(asked) < 9, "last_id": "small"}

    monkeypatch.setattr(HttpServer, "get", get)
    backend = AnthropicBackend(server(api_key="k", base_url="http://model.invalid", timeout_s=5))
    assert await backend.models() == tuple(names)
    assert len(asked) == len(names) + 1


async def test_closing_leaves_nothing_open(
    model_server: ModelServer, caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    backend = AnthropicBackend(server(api_key="k", base_url=model_server.url, timeout_s=5))
    await collect(backend, request())
    await backend.close()
    del backend
    gc.collect()
    assert not caplog.messages  # where aiohttp complains of what nobody closed
    assert not [warning for warning in recwarn if issubclass(warning.category, ResourceWarning)]


async def test_closing_what_was_never_used_harms_nothing() -> None:
    await AnthropicBackend(server(api_key="k", base_url="http://model.invalid", timeout_s=5)).close()


# What goes wrong


async def flatten_or_error(backend: AnthropicBackend, into: list[StreamItem]) -> ProviderError | None:
    try:
        await flatten(backend.stream(request()), into)
    except ProviderError as error:
        return error
    return None


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
async def test_what_may_pass_is_transient(model_server: ModelServer, backend: AnthropicBackend, status: int) -> None:
    model_server.say(refusal(status, "overloaded_error", "Overloaded"))
    with pytest.raises(TransientProviderError, match=rf"{status} \(overloaded_error\): Overloaded") as caught:
        await collect(backend, request())
    assert caught.value.retry_after is None
    assert len(model_server.requests) == 1, "the SDK must not retry on its own"


@pytest.mark.parametrize("status", [400, 402, 403, 404, 413, 422])
async def test_what_will_not_pass_is_final(model_server: ModelServer, backend: AnthropicBackend, status: int) -> None:
    model_server.say(refusal(status, "invalid_request_error", "prompt is too long"))
    with pytest.raises(ProviderError, match="prompt is too long") as caught:
        await collect(backend, request())
    assert not isinstance(caught.value, TransientProviderError)


@pytest.mark.parametrize(
    ("status", "words", "is_length"),
    [
        (400, "prompt is too long: 205000 tokens > 200000 maximum", True),
        (400, "input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000", True),
        (400, "This model's maximum context length is 8192 tokens", True),
        (413, "Request exceeds the maximum size", True),
        (400, "max_tokens: must be at least 1", False),
        (401, "prompt is too long", False),
    ],
)
async def test_a_conversation_that_is_too_long_is_an_error_of_its_own(
    model_server: ModelServer, backend: AnthropicBackend, status: int, words: str, is_length: bool
) -> None:
    model_server.say(refusal(status, "invalid_request_error", words))
    with pytest.raises(ProviderError) as caught:
        await collect(backend, request())
    assert isinstance(caught.value, ContextOverflow) is is_length


TOO_LONG = b'{"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long"}}'


async def test_a_refusal_that_comes_in_pieces_is_read_whole(
    model_server: ModelServer, backend: AnthropicBackend
) -> None:
    pieces = [TOO_LONG[:30], Pause(0.05), TOO_LONG[30:60], Pause(0.05), TOO_LONG[60:]]
    model_server.say(raw(pieces, content_type="application/json", status=400))
    assert isinstance(await flatten_or_error(backend, []), ContextOverflow)


async def test_a_refusal_that_does_not_end_counts_as_far_as_it_came(model_server: ModelServer) -> None:
    backend = AnthropicBackend(server(api_key="k", base_url=model_server.url, timeout_s=0.2))
    model_server.say(raw([TOO_LONG, Hang()], content_type="application/json", status=400))
    assert isinstance(await flatten_or_error(backend, []), ContextOverflow)
    await backend.close()


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": format_datetime(NOW + timedelta(seconds=30), usegmt=True)}, 30.0),
        ({"retry-after": format_datetime(NOW - timedelta(seconds=30), usegmt=True)}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "inf"}, None),
        ({}, None),
    ],
)
async def test_the_servers_wish_to_wait_is_kept(
    model_server: ModelServer, backend: AnthropicBackend, headers: dict[str, str], seconds: float | None
) -> None:
    model_server.say(refusal(429, "rate_limit_error", "slow down", headers=headers))
    with pytest.raises(TransientProviderError) as caught:
        await collect(backend, request())
    assert caught.value.retry_after == seconds


@pytest.mark.parametrize(("status", "word", "transient"), [(500, "false", False), (400, "true", True)])
async def test_the_server_may_say_whether_to_retry(
    model_server: ModelServer, backend: AnthropicBackend, status: int, word: str, transient: bool
) -> None:
    model_server.say(refusal(status, headers={"x-should-retry": word}))
    assert isinstance(await flatten_or_error(backend, []), TransientProviderError) is transient


async def test_a_wrong_key_is_mended_by_the_user_and_never_shown(
    model_server: ModelServer, backend: AnthropicBackend
) -> None:
    model_server.say(refusal(401, "authentication_error", "invalid x-api-key"))
    with pytest.raises(ProviderError) as caught:
        await collect(backend, request())
    assert "ANTHROPIC_API_KEY" in caught.value.hint and "auth-source" in caught.value.hint
    assert "sk-test" not in str(caught.value)


async def test_a_refusal_that_is_not_the_apis_names_the_status(
    model_server: ModelServer, backend: AnthropicBackend
) -> None:
    model_server.say(raw([b"<html>Bad gateway</html>"], content_type="text/html", status=502))
    with pytest.raises(TransientProviderError, match="502 Bad Gateway"):
        await collect(backend, request())


async def test_nobody_listening_is_transient() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        backend = AnthropicBackend(server(api_key="k", base_url=url, timeout_s=5))
        with pytest.raises(TransientProviderError, match="cannot be reached"):
            await collect(backend, request())
        await backend.close()


async def test_a_server_that_never_answers_is_transient(model_server: ModelServer) -> None:
    backend = AnthropicBackend(server(api_key="k", base_url=model_server.url, timeout_s=0.2))
    model_server.say(silent())
    with pytest.raises(TransientProviderError, match="went silent"):
        await collect(backend, request())
    await backend.close()


@pytest.mark.parametrize("fault", ["cut_after", "end_after"])
async def test_an_answer_that_breaks_off_is_transient_and_keeps_what_came(
    model_server: ModelServer, backend: AnthropicBackend, fault: str
) -> None:
    model_server.say(answer(text("one two", chunks=2), **{fault: 4}))
    came: list[StreamItem] = []
    error = await flatten_or_error(backend, came)
    assert isinstance(error, TransientProviderError)
    assert "broke off" in str(error) or "in the middle" in str(error)
    assert said(came) == "one "
    assert not any(isinstance(item, StepFinished) for item in came)


async def test_an_answer_without_its_very_end_is_not_finished(
    model_server: ModelServer, backend: AnthropicBackend
) -> None:
    model_server.say(answer("x", end_after=6))  # message_delta came, message_stop did not
    came: list[StreamItem] = []
    assert isinstance(await flatten_or_error(backend, came), TransientProviderError)
    assert parts(came) == [Text(text="x")]


async def test_a_connection_cut_after_the_end_harms_nothing(
    model_server: ModelServer, backend: AnthropicBackend
) -> None:
    model_server.say(answer("x", cut_after=7))
    assert end(await collect(backend, request())).stop_reason == "end_turn"


async def test_a_server_that_keeps_the_body_open_does_not_hold_the_end_back(
    model_server: ModelServer, backend: AnthropicBackend
) -> None:
    model_server.say(answer("x", hang_after=7))
    assert said(await collect(backend, request())) == "x"


@pytest.mark.parametrize(
    ("kind", "transient"),
    [("overloaded_error", True), ("api_error", True), ("rate_limit_error", True), ("invalid_request_error", False)],
)
async def test_an_error_in_the_middle_of_the_stream_is_raised(
    model_server: ModelServer, backend: AnthropicBackend, kind: str, transient: bool
) -> None:
    model_server.say(answer(text("one two", chunks=2), insert={4: error_event(kind, "too busy")}))
    came: list[StreamItem] = []
    error = await flatten_or_error(backend, came)
    assert error is not None and "too busy" in error.message and kind in error.message
    assert isinstance(error, TransientProviderError) is transient
    assert said(came) == "one "


@pytest.mark.parametrize(
    "data",
    [
        b'event: content_block_delta\ndata: {"type": "content_b\n\n',
        b"data: [1, 2]\n\n",
        b"data: \xff\xfe\n\n",
        b'data: {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x"}}\n\n',
        b'data: {"type": "content_block_delta"}\n\n',
        b'data: {"type": "message_start", "message": null}\n\n',
        b"data: " + b"[" * 100_000 + b"\n\n",
        b'data: {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use"}}\n\n',
    ],
)
async def test_a_malformed_event_is_the_providers_error(
    model_server: ModelServer, backend: AnthropicBackend, data: bytes
) -> None:
    model_server.say(malformed(data))
    with pytest.raises(ProviderError, match="malformed") as caught:
        await collect(backend, request())
    assert not isinstance(caught.value, TransientProviderError)


async def test_arguments_that_are_no_json_object_are_a_call_that_says_so(
    model_server: ModelServer, backend: AnthropicBackend
) -> None:
    model_server.say(answer(tool_use("Read", json_text='{"file_path": "a')))
    (call,) = calls(await collect(backend, request()))
    assert (call.name, call.input, call.unreadable) == ("Read", {}, '{"file_path": "a')


async def test_a_call_cut_off_by_the_token_limit_is_void(
    model_server: ModelServer, backend: AnthropicBackend
) -> None:
    model_server.say(answer("I write.", tool_use("Write", json_text='{"content": "aaa'), stop_reason="max_tokens"))
    items = await collect(backend, request())
    assert (calls(items), end(items).stop_reason) == ([], "max_tokens")


async def test_an_answer_that_is_no_stream_points_at_the_base_url(
    model_server: ModelServer, backend: AnthropicBackend
) -> None:
    model_server.say(raw([b"<html>Welcome</html>"], content_type="text/html; charset=utf-8"))
    with pytest.raises(ProviderError, match="text/html") as caught:
        await collect(backend, request())
    assert "base URL" in caught.value.hint


async def test_no_header_appears_in_an_error(model_server: ModelServer) -> None:
    backend = AnthropicBackend(server(api_key="sk-\nsecret", base_url=model_server.url, timeout_s=5))
    with pytest.raises(ProviderError) as caught:
        await collect(backend, request())
    await backend.close()
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("status", "kind", "words", "hint"),
    [
        (401, "authentication_error", "invalid x-api-key", "ANTHROPIC_API_KEY"),
        (400, "invalid_request_error", "Your credit balance is too low to access the API", "Add credit"),
        (402, "billing_error", "Payment required", "Add credit"),
        (403, "permission_error", "Not allowed", "another model"),
        (404, "not_found_error", "model: claude-none", "ends in /v1"),
        (400, "invalid_request_error", "messages.3: no such role", "rewind"),
        (429, "rate_limit_error", "Slow down", "wait a little"),
        (529, "overloaded_error", "Overloaded", "send again"),
        (500, "api_error", "Internal server error", "send again"),
    ],
)
@pytest.mark.spec("002", ERRORS)
async def test_every_refusal_says_what_to_do(
    model_server: ModelServer, backend: AnthropicBackend, status: int, kind: str, words: str, hint: str
) -> None:
    model_server.say(refusal(status, kind, words))
    with pytest.raises(ProviderError) as caught:
        await collect(backend, request())
    assert words in caught.value.message and hint in caught.value.hint
    assert isinstance(caught.value, TransientProviderError) == (status in (429, 529, 500))
