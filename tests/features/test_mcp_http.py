"""A server on the web that speaks the newest protocol: tools, changes of them, tokens, and its absence."""

from __future__ import annotations

import contextlib
import gzip
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from pyagentd.errors import ToolError
from pyagentd.features.mcp import Servers
from pyagentd.tools import mcp
from pyagentd.tools.mcp.connection import Connection, Launch
from tests.features.test_mcp import call, having, notices, offered
from tests.mcp.servers import HERE, table
from tests.runtime.test_approvals import results
from tests.runtime.world import World

TOKEN = "a-secret-token-of-mine"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    file = tmp_path_factory.mktemp("mcp") / "port"
    process = subprocess.Popen([sys.executable, str(HERE / "modern.py"), str(file), TOKEN])
    try:
        deadline = time.monotonic() + 60
        while not file.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        yield f"http://127.0.0.1:{file.read_text()}/mcp"
    finally:
        process.kill()
        process.wait()


def configured(url: str, **values: object) -> str:
    return table("web", url=url, headers={"Authorization": "Bearer ${WEB_TOKEN}"}, **values)


async def test_a_server_on_the_web_is_used_with_a_token_and_tells_of_changes(
    world: World, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEB_TOKEN", TOKEN)
    async with having(world, configured(url)) as talk:
        await talk.say(
            call("web_add", a=1, b=2), call("web_ask"), call("web_add", a="x", b=2), call("web_grow"), "Done.",
            grants=world.granted("mcp:web:.*").grants,
        )  # fmt: skip
        assert await talk.end() == "grown"
        told = [results(request)[0] for request in world.server.requests[1:4]]
        assert '"total": 3' in told[0] and "Error executing tool ask" in told[1] and "must be an integer" in told[2]
        (server,) = world.kernel.feature(Servers).pool.all()
        assert server.catalog is not None and server.catalog.protocol >= "2026"
        await talk.watcher.until(lambda: "new: grown" in notices(talk))
        await talk.say("Done.")
        await talk.watcher.finished(talk.branch)
        assert "web_grown" in offered(world)


async def test_a_server_that_refuses_or_is_not_there_is_told(world: World, url: str) -> None:
    gone = table("gone", url="http://127.0.0.1:9/mcp")
    oauth = table("login", url=url, headers={"Authorization": "Bearer oauth"})
    async with having(world, configured(url).replace("WEB_TOKEN", "NO_TOKEN:-wrong"), gone, oauth) as talk:
        await talk.say("Done.")
        await talk.watcher.finished(talk.branch)
        assert "401" in notices(talk) and "`headers`" in notices(talk) and "gone is unavailable" in notices(talk)
        assert "401 Unauthorized: it wants a login (OAuth), which is not done here" in notices(talk)
        assert offered(world) == ["Read"]


class Forgetful(BaseHTTPRequestHandler):
    """A server of an older protocol that knows its clients by a session, and forgets them."""

    protocol_version = "HTTP/1.1"
    session = "one"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method, known = asked["method"], self.headers.get("mcp-session-id") == self.session
        if "id" not in asked:
            self._say(202, b"")
        elif method != "initialize" and not known:
            self._say(400, b"No session")
        else:
            can = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
            results = {
                "initialize": {**can, "serverInfo": {"name": "forgetful", "version": "1"}},
                "tools/list": {"tools": [{"name": "who", "inputSchema": {"type": "object"}}]},
                "tools/call": {"content": [{"type": "text", "text": self.session}]},
            }
            answer = {"jsonrpc": "2.0", "id": asked["id"], "result": results.get(method, {})}
            self._say(200, json.dumps(answer).encode())

    def do_GET(self) -> None:
        self._say(405, b"")

    do_DELETE = do_GET

    def _say(self, code: int, data: bytes) -> None:
        self.send_response(code)
        for name, value in (
            ("content-type", "application/json" if code == 200 else "text/plain"),
            ("mcp-session-id", self.session),
            ("content-length", str(len(data))),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


class Endless(Forgetful):
    """A server that answers a call with more than anybody wants to have in memory."""

    headers_of_answer: tuple[tuple[str, str], ...] = ()
    answer_bytes = b""

    def _say(self, code: int, data: bytes) -> None:
        if b'"content"' not in data:
            return super()._say(code, data)
        self.send_response(code)
        for name, value in self.headers_of_answer:
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(OSError):  # it is not read to its end
            self.wfile.write(self.answer_bytes)
        self.close_connection = True
        return None


@pytest.mark.parametrize(
    ("headers", "answer", "said"),
    [
        ({"content-type": "Application/JSON"}, b" " * 2_000_000, "message of more than"),
        ({"content-type": "application/json", "content-encoding": "gzip"}, gzip.compress(b" " * 2_000_000), "JSON"),
    ],
)
async def test_a_message_without_end_is_not_read(
    monkeypatch: pytest.MonkeyPatch, headers: dict[str, str], answer: bytes, said: str
) -> None:
    monkeypatch.setattr(mcp.link, "MOST_BYTES", 1_000_000)
    monkeypatch.setattr(Endless, "headers_of_answer", tuple(headers.items()))
    monkeypatch.setattr(Endless, "answer_bytes", answer)
    with ThreadingHTTPServer(("127.0.0.1", 0), Endless) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        web = Connection(Launch(name="web", url=f"http://127.0.0.1:{server.server_port}/mcp"))
        with pytest.raises(ToolError) as failed:
            await web.call("who", {})
        assert said in str(failed.value) and "column 2000000" not in str(failed.value)
        await web.close()
        server.shutdown()


async def test_a_server_that_was_started_anew_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Forgetful) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        web = Connection(Launch(name="web", url=f"http://127.0.0.1:{server.server_port}/mcp"))
        assert (await web.call("who", {})).pieces[0].text == "one"
        monkeypatch.setattr(Forgetful, "session", "two")
        assert (await web.call("who", {})).pieces[0].text == "two" and not web.problem
        await web.close()
        server.shutdown()
