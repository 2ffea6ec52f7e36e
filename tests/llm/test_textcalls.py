"""Calls of tools in the text of an answer: in which notations, when they are calls; servers that take no tools."""

import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from pyagentd.errors import ProviderError
from pyagentd.llm.backend import ModelRequest, StreamItem
from pyagentd.llm.factory import BackendSettings, close_backends, make_backend
from pyagentd.llm.http import SseEvent
from pyagentd.llm.openai import ChatDecoder
from pyagentd.llm.textcalls import TextCalls
from pyagentd.messages import Reasoning, Text, ToolCall, ToolResult
from tests.llm.requests import assistant, calls, collect, end, parts, request, said, tool, user
from tests.server import ModelServer, answer, refusal, text

READ = tool("Read", {"file_path": {"type": "string"}, "limit": {"type": "integer"}})
GO = request("go", tools=(READ, tool("List"), tool("mcp odd/name")))
CALL = '{"name": "Read", "arguments": {"file_path": "a", "limit": 3}}'
ONE: list[tuple[str, dict[str, Any]]] = [("Read", {"file_path": "a", "limit": 3})]
TWO: list[tuple[str, dict[str, Any]]] = [*ONE, ("List", {})]


def decoded(content: str, *, size: int = 0, stop: str = "stop", asked: ModelRequest = GO) -> list[StreamItem]:
    """Return what an answer with this text means that comes in pieces of ``size`` characters."""
    decoder = TextCalls(ChatDecoder(asked), asked)
    size = size or len(content)
    pieces = [content[at : at + size] for at in range(0, len(content), size)]
    chunks = [{"choices": [{"delta": {"content": piece}}]} for piece in pieces]
    chunks.append({"choices": [{"delta": {}, "finish_reason": stop}]})
    items: list[StreamItem] = []
    for chunk in chunks:
        items += decoder.decode([SseEvent("", json.dumps(chunk).encode())])
    items += decoder.decode([SseEvent("", b"[DONE]")])
    assert decoder.finished and decoder.failure is None
    return items


def called(items: list[StreamItem]) -> list[tuple[str, dict[str, Any]]]:
    return [(call.name, dict(call.input)) for call in calls(items)]


@pytest.mark.parametrize("size", [1, 3, 7, 0])
@pytest.mark.parametrize(
    ("content", "shown", "found"),
    [
        (f"<tool_call>\n{CALL}\n</tool_call>", "", ONE),
        (f"I look.\n<tool_call>\n{CALL}\n</tool_call>\n", "I look.\n", ONE),
        (f'<tool_call>{CALL}</tool_call>\n<tool_call>\n{{"name": "List", "arguments": {{}}}}\n</tool_call>', "", TWO),
        (f"<tool_call>\n{CALL}", "", ONE),  # the mark at the end is a token that some servers swallow
        (
            "So:\n\n<tool_call>\n<function=Read>\n<parameter=file_path>\na\n</parameter>\n<parameter=limit>\n3\n"
            "</parameter>\n</function>\n</tool_call>",
            "So:\n\n",
            ONE,
        ),
        ('<function=Read>{"file_path": "a", "limit": 3}</function>', "", ONE),
        (f"[TOOL_CALLS] [{CALL}]", "", ONE),
        (f'[TOOL_CALLS][{CALL}, {{"name": "List", "arguments": {{}}}}]', "", TWO),
        ('[TOOL_CALLS]Read[ARGS]{"file_path": "a", "limit": 3}[TOOL_CALLS]List[ARGS]{}', "", TWO),
        ('{"name": "Read", "parameters": {"file_path": "a", "limit": 3}}', "", ONE),
        (f'\n{CALL}; {{"name": "List", "parameters": {{}}}}', "", TWO),
        ('<|python_tag|>{"name": "Read", "parameters": {"file_path": "a", "limit": 3}}', "", ONE),
        ('```json\n{"name": "Read", "arguments": "{\\"file_path\\": \\"a\\", \\"limit\\": 3}"}\n```', "", ONE),
        ('{"type": "function", "name": "mcp odd/name", "parameters": {}}', "", [("mcp odd/name", {})]),
    ],
)  # fmt: skip
def test_every_usual_notation_is_a_call(content: str, shown: str, found: Any, size: int) -> None:
    items = decoded(content, size=size)
    assert called(items) == found
    assert said(items).strip() == shown.strip()
    assert [part.text.strip() for part in parts(items) if isinstance(part, Text)] == [shown.strip()] * bool(shown)
    assert end(items).stop_reason == "tool_use"
    ids = [part.id for part in calls(items)]
    assert len(set(ids)) == len(ids) and all(ids)


@pytest.mark.parametrize("size", [1, 5, 0])
@pytest.mark.parametrize(
    "content",
    [
        "Nothing is called here.",
        f"Models write `<tool_call>{CALL}</tool_call>` for that.",  # not at the start of a line
        f"<tool_call>\n{CALL}\n</tool_call>\nis how it is written.",  # not at the end
        f"It looks so:\n```\n<tool_call>\n{CALL}\n</tool_call>\n```",
        '<tool_call>\n{"name": "Delete", "arguments": {}}\n</tool_call>',  # nobody offered that
        '{"name": "Read", "arguments": {"file_path": "a"}, "note": "an object of mine"}',
        '{"name": "Ada", "parameters": {}}',
        '{"name": "Read"}',
        '{"file_path": "a"}',
        "```json\n{}\n```",
        "[TOOL_CALLS] of Mistral",
        "<tool_call>",
        "<tool",
        '{"name": ' * 3000,
    ],
)
def test_all_other_text_stays_text(content: str, size: int) -> None:
    items = decoded(content, size=size)
    assert not calls(items)
    assert said(items) == content and parts(items) == [Text(text=content)]
    assert end(items).stop_reason == "end_turn"


def test_text_is_shown_as_it_comes_up_to_what_may_be_a_call() -> None:
    decoder = TextCalls(ChatDecoder(GO), GO)
    shown = []
    for piece in ("Look", " <here", ">\n", "<tool", "box", " is not a", " call"):
        event = SseEvent("", json.dumps({"choices": [{"delta": {"content": piece}}]}).encode())
        shown.append(said(decoder.decode([event])))
    assert shown == ["Look", " <here", ">\n", "", "<toolbox", " is not a", " call"]


def test_a_call_that_cannot_be_read_is_told_to_the_model_and_one_that_is_cut_off_is_void() -> None:
    half = '<tool_call>\n{"name": "Read", "arguments": {"file_path": \n</tool_call>'
    (call,) = calls(decoded(half))
    assert call.name == "Read" and call.unreadable.startswith('{"name"')
    assert not calls(decoded(half, stop="length"))


@pytest.mark.parametrize("content", ["<tool_call>{", "<function=Read>{"])
def test_a_model_that_writes_blank_lines_for_ever_holds_nothing_up(content: str) -> None:
    started = time.process_time()
    decoded(content + "\n" * 40_000 + "x")
    assert time.process_time() - started < 3


def test_a_long_text_costs_what_its_pieces_cost() -> None:
    started = time.process_time()
    items = decoded("\n" * 800_000 + "x", size=40)
    assert time.process_time() - started < 3
    assert parts(items) == [Text(text="\n" * 800_000 + "x")]


def test_reasoning_before_and_calls_of_the_server_beside_keep_their_order() -> None:
    decoder = TextCalls(ChatDecoder(GO), GO)
    function = {"name": "List", "arguments": "{}"}
    chunks = [
        {"choices": [{"delta": {"reasoning_content": "hm"}}]},
        {"choices": [{"delta": {"content": f"<tool_call>{CALL}</tool_call>"}}]},
        {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "x", "function": function}]}}]},
        {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]},
    ]
    items = decoder.decode([*(SseEvent("", json.dumps(each).encode()) for each in chunks), SseEvent("", b"[DONE]")])
    assert [type(part) for part in parts(items)] == [Reasoning, ToolCall, ToolCall]
    assert [item.index for item in items if hasattr(item, "part")] == [0, 1, 2]


def test_what_was_held_back_is_shown_when_the_answer_fails() -> None:
    decoder = TextCalls(ChatDecoder(GO), GO)
    events = [
        SseEvent("", json.dumps({"choices": [{"delta": {"content": "<tool_call>\n{"}}]}).encode()),
        SseEvent("", b'{"error": {"message": "boom"}}'),
    ]
    assert said(decoder.decode(events)) == "<tool_call>\n{"
    assert isinstance(decoder.failure, ProviderError)


def test_what_is_held_back_is_said_where_an_answer_without_a_mark_at_its_end_fails() -> None:
    decoder = TextCalls(ChatDecoder(GO), GO)
    broken = b'{"choices": [{"delta": {"content": "<tool_call>{"}, "finish_reason": "error"}]}'
    assert said([*decoder.decode([SseEvent("", broken)]), *decoder.end()]) == "<tool_call>{"
    assert isinstance(decoder.failure, ProviderError)


# Servers


@pytest_asyncio.fixture
async def closing() -> AsyncIterator[None]:
    yield
    await close_backends()


def settings(server: ModelServer, *, text_calls: bool = True) -> BackendSettings:
    return BackendSettings(kind="openai-compatible", base_url=f"{server.url}/v1", text_calls=text_calls)


async def test_a_server_that_reads_no_calls_lets_the_model_work_all_the_same(
    model_server: ModelServer, closing: None
) -> None:
    backend = make_backend("ollama", settings(model_server))
    model_server.say(answer(text(f"<tool_call>\n{CALL}\n</tool_call>", chunks=9)), "done")
    items = await collect(backend, GO)
    assert called(items) == ONE
    (call,) = calls(items)
    following = request("go", assistant(*parts(items)), user(ToolResult(id=call.id, text="it")), tools=GO.tools)
    assert said(await collect(backend, following)) == "done"
    sent = model_server.last.messages
    assert (
        sent[-2]["tool_calls"][0]["id"] == call.id == sent[-1]["tool_call_id"]
    )  # the server is told in its own form


async def test_text_of_a_provider_that_reads_calls_itself_is_text(model_server: ModelServer, closing: None) -> None:
    model_server.say(f"<tool_call>\n{CALL}\n</tool_call>")
    assert not calls(await collect(make_backend("x", settings(model_server, text_calls=False)), GO))


@pytest.mark.parametrize(
    ("status", "refused"),
    [
        (400, "registry.ollama.ai/library/gemma:2b does not support tools"),
        (500, "tools param requires --jinja flag"),
        (400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
    ],
)
async def test_a_server_that_takes_no_tools_is_told_of_them_in_words(
    model_server: ModelServer, closing: None, status: int, refused: str
) -> None:
    backend = make_backend("ollama", settings(model_server, text_calls=False))
    model_server.say(refusal(status, "invalid_request_error", refused), f"<tool_call>\n{CALL}\n</tool_call>", "done")
    items = await collect(backend, request("go", system="Be brief.", tools=GO.tools))
    assert called(items) == ONE
    assert "tools" not in model_server.last.body
    system = model_server.last.messages[0]["content"]
    assert system.startswith("Be brief.") and '"name":"Read"' in system and "<tool_call>" in system
    (call,) = calls(items)
    results = user(ToolResult(id=call.id, text="no such file", is_error=True), "And now?")
    await collect(backend, request("go", assistant(*parts(items)), results, tools=GO.tools))
    *_, mine, answered = model_server.last.messages
    assert mine["role"] == "assistant" and '<tool_call>\n{"name":"Read"' in mine["content"]
    assert answered["role"] == "user"
    assert answered["content"] == "<tool_response>\nError: no such file\n</tool_response>\n\nAnd now?"
    assert len(model_server.requests) == 3  # it is refused once
