"""Messages that files and requests cause."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import re
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import System
from tests.e2e.emacs import wait_for
from tests.server import ModelServer

SECRET = "correct horse battery staple"
KNOWN = {"Authorization": f"Bearer {SECRET}"}


@contextmanager
def running(system: System, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command in the background until the end of the block, once it has said its first line."""
    process = subprocess.Popen(
        system.command(*arguments),
        env={**system.env, "PYAGENTD_WEBHOOK_SECRET": SECRET},
        cwd=system.project,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(20)
        assert process.stderr is not None
        process.stderr.close()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    return process.stderr.readline()


class _Unix(http.client.HTTPConnection):
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.host)


def post(
    connection: http.client.HTTPConnection, body: str = "", headers: Mapping[str, str] | None = None
) -> tuple[int, Any]:
    connection.request("POST", "/", body.encode(), dict(headers or {}))
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text) if text[:1] == b"{" else text


def prompts(model_server: ModelServer) -> list[str]:
    return [json.dumps(request.body["messages"][-1]) for request in model_server.requests]


@pytest.fixture
def session(system: System, model_server: ModelServer) -> str:
    system.use_server(model_server.url)
    made, _ = system.new("hooked", preset="explorer")
    return made


def test_a_request_that_knows_the_secret_is_one_message(
    system: System, model_server: ModelServer, session: str
) -> None:
    with running(system, "webhook", session, "A build failed.", "--port", "0") as process:
        port = int(re.search(r":(\d+)/", said(process))[1])  # type: ignore[index]
        there = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        assert post(there, "hello", {"Idempotency-Key": "1"})[0] == 401
        assert post(there, "hello", {"Authorization": f"Bearer {SECRET}x", "Idempotency-Key": "1"})[0] == 401
        assert post(there, "hello", {"Authorization": "Bearer \xff", "Idempotency-Key": "1"})[0] == 401
        assert post(there, "hello", KNOWN)[0] == 400
        status, first = post(there, '{"job": "```4711"}', {**KNOWN, "Idempotency-Key": "1"})
        assert status == 202 and not first["duplicate"]
        wait_for(lambda: model_server.requests, "the request")
        assert "A build failed." in prompts(model_server)[0] and "````" in prompts(model_server)[0]
        assert post(there, "again", {**KNOWN, "Idempotency-Key": "1"}) == (
            202,
            {"message": first["message"], "duplicate": True},
        )
        assert post(there, "x" * 200_000, {**KNOWN, "Idempotency-Key": "2"})[0] == 413
        signed = hmac.new(SECRET.encode(), b"by github", hashlib.sha256).hexdigest()
        github = {"X-Hub-Signature-256": f"sha256={signed}", "X-GitHub-Delivery": "d-1", "X-GitHub-Event": "push"}
        assert post(there, "by someone", github)[0] == 401
        system.ok("stop")  # the next one starts a daemon
        assert post(there, "by github", github)[0] == 202
        wait_for(lambda: len(model_server.requests) == 2, "the second request")
    shown = system.ok("show", session, "--json")
    assert '"source": "webhook"' in shown and '"x-github-event": "push"' in shown


def test_a_unix_socket_is_private_and_a_secret_is_needed(
    system: System, model_server: ModelServer, session: str
) -> None:
    place = system.home / "hook.sock"
    with running(system, "webhook", session, "Look.", "--socket", str(place)) as process:
        said(process)
        assert stat.S_IMODE(place.stat().st_mode) == 0o600
        assert post(_Unix(str(place), timeout=30), "", {**KNOWN, "Idempotency-Key": "1"})[0] == 202
    refused = system.run("webhook", session, "Look.", "--port", "0")
    assert refused.returncode == 1 and "PYAGENTD_WEBHOOK_SECRET" in refused.stderr
    (system.home / "file").write_text("mine")
    system.env["PYAGENTD_WEBHOOK_SECRET"] = SECRET
    refused = system.run("webhook", session, "Look.", "--socket", str(system.home / "file"))
    assert refused.returncode == 1 and (system.home / "file").read_text() == "mine"
    refused = system.run("webhook", session, "Look.", "--socket", str(system.home / "none" / "hook.sock"))
    assert refused.returncode == 1 and f"Cannot listen on {system.home}/none/hook.sock" in refused.stderr


@pytest.mark.parametrize(
    "words", [("watch", "Look.", "."), ("webhook", "Look.", "--port", "0")], ids=lambda words: words[0]
)
def test_what_waits_knows_its_session_and_ends_quietly(system: System, session: str, words: tuple[str, ...]) -> None:
    if words[0] == "watch":
        pytest.importorskip("watchfiles")
    system.env["PYAGENTD_WEBHOOK_SECRET"] = SECRET
    refused = system.run(words[0], "nope", *words[1:], timeout=30)
    assert refused.returncode == 1 and "nope" in refused.stderr and refused.stderr.count("\n") == 1
    with running(system, words[0], session, *words[1:]) as process:
        said(process)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130 and said(process) == "\n", "below ^C"


def test_files_that_change_are_told_together(system: System, model_server: ModelServer, session: str) -> None:
    pytest.importorskip("watchfiles")
    src = system.project / "src"
    src.mkdir()
    system.ok("status")
    with running(system, "watch", session, "Look again.", str(src), "--match", "*.py", "--settle", "0.3") as process:
        said(process)

        def told() -> bool:
            (src / "notes.txt").write_text("no")
            Path(src / "a.py").write_text(f"{len(model_server.requests)}")  # until watching has begun
            (src / "b.py").write_text("two")
            return bool(model_server.requests)

        wait_for(told, "the message")
    asked = prompts(model_server)[0]
    assert "Look again." in asked and "a.py" in asked and "b.py" in asked and "notes.txt" not in asked
