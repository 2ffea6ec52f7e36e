"""The Gemini API, beyond what every provider can do: signatures, names, refusals, and what a reader leaves."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
import pytest_asyncio

from pyagentd.errors import ContextOverflow, NoKey, ProviderError, TransientProviderError
from pyagentd.llm.backend import Backend, PartDelta
from pyagentd.llm.factory import BackendSettings, close_backends, list_models, make_backend
from pyagentd.messages import ToolCall, ToolResult
from tests.llm.requests import assistant, calls, collect, end, parts, request, said, tool, user
from tests.server import ModelServer, answer, raw, refusal, text, thinking, tool_use
from tests.server.answers import Fixed
from tests.server.gemini import event
from tests.server.http import json_reply


def settings(server: ModelServer, **given: Any) -> BackendSettings:
    return BackendSettings(kind="gemini", base_url=server.url, api_key="k", **given)


@pytest_asyncio.fixture
async def backend(model_server: ModelServer) -> AsyncIterator[Backend]:
    yield make_backend("x", settings(model_server, max_retries=0))
    await close_backends()


def sent(server: ModelServer) -> list[dict[str, Any]]:
    """Return the parts of the conversation as they were sent."""
    return [part for turn in server.last.messages for part in turn["parts"]]


async def test_signatures_go_back_to_where_they_stood(model_server: ModelServer, backend: Backend) -> None:
    use = (tool_use("Read", id="c1"), tool_use("Read", id="c2"))
    model_server.say(answer(thinking("hm", signature="AAAA"), "I look.", thinking("so", signature="BBBB"), *use))
    said_parts = parts(await collect(backend, request("go", tools=(tool("Read"),))))
    results = user(ToolResult(id="c1", text="x"), ToolResult(id="c2", text="y"))
    await collect(backend, request("go", assistant(*said_parts), results))
    signed = {part.get("thoughtSignature"): part for part in sent(model_server)}
    assert signed["AAAA"]["text"] == "" and signed["BBBB"]["functionCall"]["id"] == "c1"
    calls_sent = [part for part in sent(model_server) if "functionCall" in part]
    assert len(model_server.requests) == 2 and "thoughtSignature" not in calls_sent[1]


async def test_calls_of_another_model_are_marked_as_unsigned(model_server: ModelServer, backend: Backend) -> None:
    call = assistant(ToolCall(id="c1", name="9 odd", input={}))
    conversation = request("go", call, user(ToolResult(id="c1", text="x")), tools=(tool("9 odd"),))
    for requests in (2, 3):  # the first one is refused, which is remembered
        assert said(await collect(backend, conversation)) == "ok"
        assert len(model_server.requests) == requests
    (made,) = [part for part in sent(model_server) if "functionCall" in part]
    assert made["thoughtSignature"] == "skip_thought_signature_validator"
    model_server.say(lambda asked: answer(tool_use(asked.body["tools"][0]["functionDeclarations"][0]["name"])))
    assert calls(await collect(backend, conversation))[0].name == "9 odd"


async def test_a_blocked_prompt_is_a_refusal(model_server: ModelServer, backend: Backend) -> None:
    model_server.say(raw([event({"promptFeedback": {"blockReason": "SAFETY"}})]))
    assert end(await collect(backend, request())).stop_reason == "refusal"


async def test_calls_without_an_id_get_one(model_server: ModelServer, backend: Backend) -> None:
    call = {"functionCall": {"name": "A", "args": {"n": 1}}}
    content = {"role": "model", "parts": [call, call]}
    model_server.say(raw([event({"candidates": [{"content": content, "finishReason": "STOP"}]})]))
    first, second = calls(await collect(backend, request(tools=(tool("A"),))))
    assert first.id and second.id and first.id != second.id and first.input == {"n": 1}


@pytest.mark.parametrize(
    ("status", "words", "error", "hint"),
    [
        (400, "The input token count (9) exceeds the maximum number of tokens allowed (8).", ContextOverflow, ""),
        (400, "API key not valid. Please pass a valid API key.", ProviderError, "API key"),
        (503, "The model is overloaded.", TransientProviderError, "send again"),
    ],
)
async def test_errors_in_googles_words(
    status: int, words: str, error: type[ProviderError], hint: str, model_server: ModelServer, backend: Backend
) -> None:
    model_server.say(refusal(status, "INVALID_ARGUMENT", words))
    with pytest.raises(error) as caught:
        await collect(backend, request())
    assert type(caught.value) is error and hint in caught.value.hint


async def test_it_waits_as_long_as_the_error_says(model_server: ModelServer, backend: Backend) -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "17.5s"}]
    body = {"error": {"code": 429, "message": "Quota exceeded", "status": "RESOURCE_EXHAUSTED", "details": details}}
    model_server.say(Fixed(json_reply(429, body)))
    with pytest.raises(TransientProviderError) as caught:
        await collect(backend, request())
    assert caught.value.retry_after == 17.5


@pytest.mark.parametrize(
    "reply",
    [raw([b"data: {nonsense\n\n"]), raw([b"<html>"], content_type="text/html"), raw([b"data: [1]\n\n"])],
)
async def test_what_is_no_answer_is_an_error(reply: Fixed, model_server: ModelServer, backend: Backend) -> None:
    model_server.say(reply)
    with pytest.raises(ProviderError):
        await collect(backend, request())


async def test_nobody_there_is_said(backend: Backend) -> None:
    nowhere = BackendSettings(kind="gemini", base_url="http://127.0.0.1:9", api_key="k", max_retries=0)
    gone = make_backend("y", nowhere)
    with pytest.raises(TransientProviderError, match=r"127.0.0.1:9 cannot be reached"):
        await collect(gone, request())


async def test_who_stops_reading_ends_the_request(model_server: ModelServer, backend: Backend) -> None:
    model_server.say(answer(text("one two three", chunks=3), hang_after=1))
    async with aclosing(backend.stream(request())) as batches:
        async for batch in batches:
            if any(isinstance(item, PartDelta) for item in batch):
                break
    await asyncio.to_thread(model_server.wait_until, lambda: model_server.hangups == 1)


async def test_a_refused_key_is_told_apart(model_server: ModelServer) -> None:
    model_server.models = ("a",)
    refused = BackendSettings(kind="gemini", base_url=model_server.url, api_key="refused")
    with pytest.raises(NoKey, match="refused"):
        await list_models("x", refused)
