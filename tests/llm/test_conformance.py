"""What every provider can do, against a local server that speaks its protocol and refuses what the real one does.

The table of it stands in docs/models.md; ``python -m tests.llm.test_conformance`` writes it.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio

from pyagentd.errors import ContextOverflow, ProviderError, TransientProviderError
from pyagentd.llm.factory import BackendSettings, close_backends, list_models, make_backend
from pyagentd.messages import Media, Reasoning, Text, ToolCall, ToolResult, Usage
from tests.llm.requests import assistant, calls, collect, end, flatten, parts, request, said, tool, user
from tests.server import ModelServer, answer, refusal, text, thinking, tool_use

DOCUMENT = Path(__file__).parents[2] / "docs" / "models.md"
KINDS: dict[str, str] = {
    "anthropic": "",
    "bedrock": "",
    "vertex": "",
    "gemini": "",
    "openai": "/v1",
    "openai-compatible": "/v1",
}  # what follows the server's address
PACKAGES = {"bedrock": "boto3", "vertex": "google.auth"}  # of extras
PNG = "iVBORw0KGgo="


class Case(SimpleNamespace):
    """A server, and a backend of one kind that asks it."""

    kind: str
    server: ModelServer
    backend: Any
    settings: BackendSettings


Ability = Callable[[Case], Awaitable[str]]
ABILITIES: dict[str, Ability] = {}


def ability(words: str) -> Callable[[Ability], Ability]:
    """Name what a check shows; it returns what the table says."""

    def named(check: Ability) -> Ability:
        ABILITIES[words] = check
        return check

    return named


YES = "yes"


@ability("streamed text")
async def streams(case: Case) -> str:
    case.server.say(answer(text("Hello, wörld", chunks=4)))
    items = await collect(case.backend, request("hi", system="Be brief."))
    assert said(items) == "Hello, wörld" and parts(items) == [Text(text="Hello, wörld")]
    assert end(items).stop_reason == "end_turn"
    assert "Be brief." in str(case.server.last.body)
    return YES


@ability("reasoning shown")
async def reasons(case: Case) -> str:
    case.server.say(answer(thinking("hm, so", chunks=2), text("four")))
    items = await collect(case.backend, request("2+2", thinking_budget=2000))
    thought, spoken, *hidden = parts(items)
    assert all(isinstance(each, Reasoning) and not each.text for each in hidden)
    assert isinstance(thought, Reasoning) and thought.text == "hm, so" and spoken == Text(text="four")
    assert re.search("'(thinking|reasoning|reasoning_effort|thinkingConfig)'", str(case.server.last.body))
    return YES


@ability("reasoning sent back")
async def sends_reasoning_back(case: Case) -> str:
    case.server.say(answer(thinking("look first"), tool_use("Read", id="call_1", path="a")))
    items = await collect(case.backend, request("go", tools=(tool("Read"),)))
    await collect(case.backend, request("go", assistant(*parts(items)), user(ToolResult(id="call_1", text="x"))))
    kept = "c2lnbmF0dXJl" if case.kind == "gemini" else "look first"
    assert kept in str(case.server.last.messages)
    if case.kind == "gemini":
        return "its signature"
    return "with calls of tools" if case.kind == "openai-compatible" else YES


@ability("parallel calls of tools")
async def calls_tools(case: Case) -> str:
    blocks = (
        text("Both."),
        tool_use("Read", id="c1", path="ä"),
        tool_use("Read", id="c2", chunks=5, path="b", n=[1]),
    )
    case.server.say(answer(*blocks))
    items = await collect(case.backend, request("go", tools=(tool("Read"), tool("Write"))))
    assert calls(items) == [
        ToolCall(id="c1", name="Read", input={"path": "ä"}),
        ToolCall(id="c2", name="Read", input={"path": "b", "n": [1]}),
    ]
    assert end(items).stop_reason == "tool_use"
    return YES


@ability("results and errors of tools")
async def takes_results(case: Case) -> str:
    odd = "functions.Read:0 — odd" * 4  # as another provider or a model made it up
    conversation = request(
        "go",
        assistant(
            Text(text="Both."), ToolCall(id=odd, name="mcp odd/name", input={}), ToolCall(id="c2", name="A", input={})
        ),
        user(ToolResult(id=odd, text="it is there"), ToolResult(id="c2", text="no such file", is_error=True)),
        assistant(ToolCall(id="c3", name="A", input={})),
        user(ToolResult(id="c3", text=""), Text(text="And this, too.")),
        tools=(tool("A"),),
    )
    assert said(await collect(case.backend, conversation)) == "ok"
    sent = str(case.server.last.messages)
    assert "it is there" in sent and "And this, too." in sent
    assert re.search("'is_error': True|Error: no such file|'error': 'no such file'", sent)
    return YES


@ability("images")
async def takes_images(case: Case) -> str:
    shown = user(Media(type="image/png", data=PNG), Text(text="What is it?"))
    assert said(await collect(case.backend, request(shown))) == "ok"
    assert PNG in str(case.server.last.messages)
    return YES


@ability("images beside results of tools")
async def takes_images_with_results(case: Case) -> str:
    call = assistant(ToolCall(id="c1", name="A", input={}))
    shown = user(ToolResult(id="c1", text="a picture"), Media(type="image/png", data=PNG))
    assert said(await collect(case.backend, request("go", call, shown))) == "ok"
    assert PNG in str(case.server.last.messages)
    return YES


@ability("PDF")
async def takes_documents(case: Case) -> str:
    shown = user(Media(type="application/pdf", data="JVBERi0="), Text(text="What is it?"))
    if case.kind != "openai-compatible":
        assert said(await collect(case.backend, request(shown))) == "ok"
        assert "JVBERi0=" in str(case.server.last.messages)
        return YES
    with pytest.raises(ProviderError, match="takes none"):
        await collect(case.backend, request(shown))
    assert not case.server.requests  # it is said before anything is sent
    assert said(await collect(case.backend, request(shown, assistant("I see."), "And?"))) == "ok"
    assert "cannot be shown" in str(case.server.last.messages)  # what was attached earlier is named to the model
    return "at OpenRouter; elsewhere an error before it is sent"


@ability("tokens, cached ones apart")
async def counts(case: Case) -> str:
    usage = {
        "input_tokens": 10,
        "cache_read_input_tokens": 200,
        "cache_creation_input_tokens": 30,
        "output_tokens": 50,
        "output_tokens_details": {"thinking_tokens": 20},
    }
    case.server.say(answer("ok", usage=usage))
    counted = end(await collect(case.backend, request())).usage
    if case.kind == "gemini":
        assert counted == Usage(input=40, output=30, reasoning=20, cache_read=200)
        return "yes; not what was written to the cache"
    assert counted == Usage(input=10, output=30, reasoning=20, cache_read=200, cache_write=30)
    return YES


@ability("why it stopped")
async def stops(case: Case) -> str:
    for reason in ("end_turn", "tool_use", "max_tokens", "refusal"):
        blocks = ("so", tool_use("A")) if reason == "tool_use" else ("so",)
        case.server.say(answer(*blocks, stop_reason=reason))
        assert end(await collect(case.backend, request())).stop_reason == reason
    case.server.say(answer(tool_use("A"), stop_reason="end_turn"))  # so proxies say it
    assert end(await collect(case.backend, request())).stop_reason == "tool_use"
    return YES


@ability("calls written into the text")
async def reads_calls_in_text(case: Case) -> str:
    written = '<tool_call>\n{"name": "A", "arguments": {"x": 1}}\n</tool_call>'
    case.server.say(answer(text(written, chunks=3)))
    assert (
        said(await collect(case.backend, request(tools=(tool("A"),)))) == written
    )  # its server would have read them
    if case.kind != "openai-compatible":
        return "not needed: the provider reads them"
    backend = make_backend("x", replace(case.settings, text_calls=True))
    case.server.say(answer(text(written, chunks=3)))
    items = await collect(backend, request(tools=(tool("A"),)))
    assert [(call.name, call.input) for call in calls(items)] == [("A", {"x": 1})] and not said(items)
    return "from servers without a key, or with `text_calls`"


@ability("calls that are cut off or no JSON")
async def half_a_call(case: Case) -> str:
    case.server.say(answer(tool_use("A", json_text='{"path": '), stop_reason="max_tokens"))
    assert not calls(await collect(case.backend, request()))
    if case.kind == "gemini":
        case.server.say(*[answer(tool_use("A", json_text='{"path": '))] * 2, "then")
        assert said(await collect(case.backend, request())) == "then"
        return "yes: the provider reports it, and is asked again"
    case.server.say(answer(tool_use("A", json_text='{"path": ')))
    (call,) = calls(await collect(case.backend, request()))
    assert (call.input, call.unreadable) == ({}, '{"path": ')
    return YES


@ability("a conversation too long is told apart")
async def overflows(case: Case) -> str:
    for words in ("prompt is too long: 9 tokens > 8 maximum", "This model's maximum context length is 8 tokens"):
        case.server.say(refusal(400, "invalid_request_error", words))
        with pytest.raises(ContextOverflow, match=r"too long|maximum context"):
            await collect(case.backend, request())
    return YES


@ability("waits as long as the server asks")
async def retries(case: Case) -> str:
    case.server.say(refusal(429, "rate_limit_error", "slow down", headers={"retry-after-ms": "1"}), "then")
    items = await collect(case.backend, request())
    assert said(items) == "then" and len(case.server.requests) == 2
    assert "slow down" in str(items[0]) and "delay_s=0.001" in str(items[0])
    return YES


@ability("errors say what to do")
async def refuses(case: Case) -> str:
    for status, words in ((401, "API key"), (403, "another"), (404, "model"), (400, "settings")):
        case.server.say(refusal(status, "some_error", "in the server's words"))
        with pytest.raises(ProviderError, match="in the server's words") as caught:
            await collect(case.backend, request())
        assert not isinstance(caught.value, TransientProviderError) and words in caught.value.hint
        assert "sk-test" not in str(caught.value)
    return YES


@ability("an answer that breaks off keeps what came")
async def breaks_off(case: Case) -> str:
    case.server.say(answer(text("one two three four", chunks=4), cut_after=3 if case.kind == "gemini" else 6))
    items: list[Any] = []
    with pytest.raises(TransientProviderError):
        await flatten(case.backend.stream(request()), items)
    assert said(items).startswith("one")
    return YES


@ability("fields that a model refuses are left out")
async def concedes(case: Case) -> str:
    case.server.say(refusal(400, "invalid_request_error", "`temperature` is not supported with this model."), "one")
    assert said(await collect(case.backend, request(temperature=0.3))) == "one"
    assert "temperature" not in str(case.server.last.body)
    return YES


@ability("list of models")
async def lists(case: Case) -> str:
    if case.kind in ("bedrock", "vertex"):
        with pytest.raises(ProviderError, match="not listed"):
            await list_models("x", case.settings)
        return "no: name the model"
    case.server.models = ("small", "large")
    assert await list_models("x", case.settings) == ("small", "large")
    case.server.models = None
    with pytest.raises(ProviderError):
        await list_models("x", case.settings)
    return YES


def settings_of(kind: str, server: ModelServer) -> BackendSettings:
    """Return the settings of a backend of a kind that asks ``server``."""
    if needed := PACKAGES.get(kind):
        pytest.importorskip(needed)
    cloud = {"region": "us-east-1", "project": "p"} if kind in ("bedrock", "vertex") else {}
    return BackendSettings(kind=kind, base_url=server.url + KINDS[kind], api_key="sk-test", timeout_s=60, **cloud)  # type: ignore[arg-type]


@pytest_asyncio.fixture
async def asking(model_server: ModelServer) -> AsyncIterator[Callable[[str], Case]]:
    def case(kind: str) -> Case:
        settings = settings_of(kind, model_server)
        return Case(kind=kind, server=model_server, backend=make_backend("x", settings), settings=settings)

    yield case
    await close_backends()


@pytest.mark.parametrize("words", ABILITIES)
@pytest.mark.parametrize("kind", KINDS)
async def test_every_provider_can_do_what_the_document_says(
    kind: str, words: str, asking: Callable[[str], Case]
) -> None:
    shown = await ABILITIES[words](asking(kind))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in _table().splitlines()]
    column = rows[0].index(f"`{kind}`")
    stated = {row[0]: row[column] for row in rows[2:]}
    assert stated.get(words) == shown, f"docs/models.md: the row {words!r} should say {shown!r} for {kind}"
    assert set(stated) == set(ABILITIES), "docs/models.md: the table has other rows than the checks"


def _table() -> str:
    found = re.search(r"<!-- abilities -->\n(.*?)<!-- /abilities -->", DOCUMENT.read_text(), re.DOTALL)
    assert found is not None, "docs/models.md has no table of abilities"
    return found[1]


def _written() -> str:
    """Return the table as the checks have it."""
    import asyncio

    rows = []
    for words, check in ABILITIES.items():
        cells = []
        for kind in KINDS:

            async def shown(check: Ability = check, kind: str = kind) -> str:
                with ModelServer() as server:
                    settings = settings_of(kind, server)
                    case = Case(kind=kind, server=server, backend=make_backend("x", settings), settings=settings)
                    said = await check(case)
                    await close_backends()
                    return said

            cells.append(asyncio.run(shown()))
        rows.append(f"| {words} | {' | '.join(cells)} |\n")
    head = f"| | {' | '.join(f'`{kind}`' for kind in KINDS)} |\n|---|{'---|' * len(KINDS)}\n"
    return head + "".join(rows)


if __name__ == "__main__":
    before = DOCUMENT.read_text()
    DOCUMENT.write_text(
        re.sub(r"(<!-- abilities -->\n).*?(<!-- /abilities -->)", rf"\g<1>{_written()}\g<2>", before, flags=re.DOTALL)
    )
