"""The same conversation through a server of others, LiteLLM's proxy, which translates it into the other protocol.

``make test-litellm`` installs it in an environment of its own; without it these tests are skipped.
"""

import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyagentd.llm.factory import BackendSettings, close_backends, make_backend
from pyagentd.messages import Media, ToolResult
from tests.llm.requests import assistant, calls, collect, end, parts, request, said, tool, user
from tests.server import ModelServer, answer, text, tool_use

PROGRAM = Path(os.environ.get("PYAGENTD_LITELLM") or Path(__file__).parents[2] / ".litellm" / "bin" / "litellm")
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
START_S = 180.0

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="LiteLLM is not installed: make test-litellm")


@pytest.fixture(scope="module")
def behind() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture(scope="module")
def proxy(behind: ModelServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("litellm")
    names = {
        "openai-format": ("openai/chat", f"{behind.url}/v1"),
        "anthropic-format": ("anthropic/claude", behind.url),
    }
    models = [
        {"model_name": name, "litellm_params": {"model": model, "api_base": base, "api_key": "sk-behind"}}
        for name, (model, base) in names.items()
    ]
    (home / "config.yaml").write_text(json.dumps({"model_list": models}))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    env = {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # fetches nothing
        "NO_DOCS": "True",
    }
    command = [PROGRAM, "--config", home / "config.yaml", "--host", "127.0.0.1", "--port", str(port)]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=home, env=env, stdout=log, stderr=log)
    url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + START_S
    try:
        while not _answers(f"{url}/health/liveliness"):
            assert process.poll() is None and time.monotonic() < deadline, (home / "log").read_text()[-3000:]
            time.sleep(0.5)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except OSError:
        return False


@pytest.mark.parametrize(
    ("kind", "path", "model", "asked"),
    [
        ("anthropic", "", "openai-format", ("/v1/chat/completions", "/v1/responses")),
        ("openai-compatible", "/v1", "anthropic-format", ("/v1/messages",)),
    ],
)
async def test_a_conversation_goes_through_it(
    kind: str, path: str, model: str, asked: tuple[str, ...], proxy: str, behind: ModelServer
) -> None:
    settings = BackendSettings(kind=kind, base_url=proxy + path, api_key="sk-front")  # type: ignore[arg-type]
    backend, offered = make_backend("x", settings), (tool("Read", {"path": {"type": "string"}}),)
    usage = {"input_tokens": 12, "output_tokens": 7}
    use = (tool_use("Read", id="call_1", path="ä.md"), tool_use("Read", id="call_2", path="b.md"))
    behind.say(answer(text("I look at both.", chunks=3), *use, usage=usage))
    try:
        first = user(Media(type="image/png", data=PNG), "What is there?")
        items = await collect(backend, request(first, model=model, tools=offered, system="Be brief."))
        assert said(items) == "I look at both."
        assert [call.input for call in calls(items)] == [{"path": "ä.md"}, {"path": "b.md"}]
        assert (end(items).stop_reason, end(items).usage.total) == ("tool_use", 19)
        assert behind.last.path in asked
        sent = json.dumps(behind.last.body)
        assert PNG in sent and "Be brief." in sent
        results = user(
            ToolResult(id=calls(items)[0].id, text="it is there"),
            ToolResult(id=calls(items)[1].id, text="no such file", is_error=True),
        )
        behind.say(answer(text("One of them.", chunks=2)))
        after = request(first, assistant(*parts(items)), results, model=model, tools=offered)
        items = await collect(backend, after)
        assert said(items) == "One of them." and end(items).stop_reason == "end_turn"
        sent = json.dumps(behind.last.messages)
        assert "it is there" in sent and "no such file" in sent and "call_2" in sent
    finally:
        await close_backends()
