"""Wrong input gets a clear error and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from pathlib import Path

from pyagentd.wire.sexp import decode
from tests.e2e.conftest import System
from tests.e2e.emacs import EmacsError, wait_for
from tests.server import ModelServer, refusal


def fails(system: System, *arguments: str, code: int = 1) -> str:
    """Run a command that must fail with ``code`` and one line, and return that line."""
    done = system.run(*arguments)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    return done.stderr


def sessions_on_disk(system: System) -> list[str]:
    return sorted(path.name for path in system.sessions.iterdir() if path.is_dir())


def test_an_unknown_preset_is_named_and_no_session_is_made(system: System) -> None:
    said = fails(system, "new", "x", "--preset", "nonesuch")
    assert "nonesuch" in said and "programming-assistant" in said
    assert sessions_on_disk(system) == []


def test_a_malformed_preset_names_file_and_line(system: System) -> None:
    _, branch = system.new()
    preset = branch / "preset.md"
    preset.write_text("---\nbackend: Claude\nmodel: m\ntools: [Read\n---\nHi\n")
    said = fails(system, "send", str(branch), "hello")
    assert f"{preset}:" in said
    assert (branch / "session.md").read_text() == ""
    assert "message" not in {json.loads(line)["type"] for line in (branch / "messages.jsonl").open()}


def test_a_missing_preset_says_so(system: System) -> None:
    _, branch = system.new()
    (branch / "preset.md").unlink()
    assert "Failed to load preset from" in fails(system, "send", str(branch), "hello")


def test_without_a_key_nothing_is_sent_and_the_hint_is_named(system: System) -> None:
    system.env.pop("PYAGENTD_BACKEND")
    _, branch = system.new()
    said = fails(system, "send", str(branch), "hello")
    assert "ANTHROPIC_API_KEY" in said and "PYAGENTD_BACKEND=offline" in said
    assert (branch / "session.md").read_text() == ""


def test_an_unreachable_server_ends_the_run_with_its_address(system: System) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
    system.use_server(url)
    _, branch = system.new()
    fails(system, "send", str(branch), "hello")
    body = (branch / "session.md").read_text()
    assert body.startswith("### hello\n\n``` error\n") and "127.0.0.1" in body


def test_a_refused_key_is_said_with_its_hint(system: System, model_server: ModelServer) -> None:
    system.use_server(model_server.url)
    _, branch = system.new()
    model_server.say(refusal(401, "authentication_error", "invalid x-api-key"))
    assert "key" in fails(system, "send", str(branch), "hello")
    assert "test-key" not in (branch / "messages.jsonl").read_text()


def test_a_prompt_from_a_buffer_that_is_no_session_is_refused(system: System) -> None:
    emacs = system.emacs()
    try:
        emacs.eval('(with-temp-buffer (insert "hello") (pyagentd-send))')
    except EmacsError as error:
        assert "Not a session" in str(error)
    else:
        raise AssertionError("it was sent")
    assert not (system.runtime / "daemon.sock").exists()


def test_a_second_daemon_is_told_who_serves(system: System) -> None:
    system.ok("new", "x")
    pid = system.daemon_pid()
    assert str(pid) in fails(system, "serve")
    assert str(pid) in fails(system, "serve", "--detach")
    assert system.daemon_pid() == pid


def test_what_a_killed_daemon_left_is_no_obstacle(system: System) -> None:
    system.ok("new", "x")
    os.kill(system.daemon_pid(), signal.SIGKILL)
    assert (system.runtime / "daemon.sock").exists()
    assert len(system.json("sessions")) == 1


def test_a_taken_port_is_said(system: System) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert str(port) in fails(system, "serve", "--tcp", str(port))
    assert not (system.runtime / "daemon.eld").exists()


def test_a_wrong_token_is_dropped_without_a_word(system: System) -> None:
    system.ok("serve", "--detach", "--tcp", "0")
    runtime = decode((system.runtime / "daemon.eld").read_bytes())
    port = runtime[runtime.index(":port") + 1]
    body = b'(call 1 hello ((:proto 1 :token "wrong")))\n'
    with socket.create_connection(("127.0.0.1", port), timeout=10) as link:
        link.sendall(f"{len(body):06x}".encode() + body)
        assert link.recv(1) == b""
    assert system.daemon_pid()


def test_garbage_and_a_huge_frame_do_not_hurt_the_daemon(system: System) -> None:
    system.ok("new", "x")
    pid = system.daemon_pid()
    for said in (b"\x00" * 4096, b"GET / HTTP/1.1\r\n\r\n", b"ffffff" + b"x" * 1000):
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(10)
            link.connect(str(system.runtime / "daemon.sock"))
            link.sendall(said)
            assert link.recv(1) == b""
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(10)
        link.connect(str(system.runtime / "daemon.sock"))
        hello = b"(call 1 hello ((:proto 1)))\n"
        link.sendall(f"{len(hello):06x}".encode() + hello)
        assert b"return 1" in link.recv(4096)
        huge = b'(call 2 status ((:text "' + b"x" * 0xFFFF00 + b'")))'
        link.sendall(f"{len(huge):06x}".encode() + huge)
        assert b"return-error 2 (bad-request" in link.recv(4096)
    assert system.daemon_pid() == pid


def test_a_17_mb_prompt_is_refused_before_it_is_sent(system: System) -> None:
    _, branch = system.new()
    done = system.run("send", str(branch), "-", input="x" * 17_000_000)
    assert done.returncode == 1
    assert "send it as a file: --attach FILE" in done.stderr
    assert (branch / "session.md").read_text() == ""


def test_a_runtime_directory_others_may_enter_is_refused(system: System) -> None:
    system.runtime.mkdir(mode=0o755)
    Path(system.runtime).chmod(0o755)
    done = system.run("serve")
    assert done.returncode != 0 and "chmod 700" in done.stderr


def test_a_daemon_that_cannot_start_is_said_to_whoever_needs_it(system: System) -> None:
    system.sessions.write_text("a file where the directory should be")
    done: subprocess.CompletedProcess[str] = system.run("new", "x")
    assert done.returncode == 3 and str(system.sessions) in done.stderr


def test_serve_ends_on_sigterm_and_leaves_no_socket(system: System) -> None:
    system.ok("serve", "--detach")
    os.kill(system.daemon_pid(), signal.SIGTERM)
    wait_for(lambda: not (system.runtime / "daemon.sock").exists(), "the socket to be removed")
    wait_for(lambda: not (system.runtime / "daemon.eld").exists(), "the runtime file to be removed")


def test_lists_and_pages_say_what_they_are_about(system: System) -> None:
    session, _ = system.new("tea")
    assert "pyagentd list queue SESSION" in fails(system, "list", "queue", code=2)
    assert "no single session" in fails(system, "list", "sessions", session, code=2)
    assert "pyagentd report inspect SESSION" in fails(system, "report", "inspect", code=2)
    assert "--id" in fails(system, "report", "decision", code=2)
    assert "'x' is not" in fails(system, "report", "decision", "--id", "x", code=2)
