"""``send`` and its neighbours with a real daemon: what comes out, what it exits with, what a terminal is asked."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
import pytest

from pyagentd.cli.app import cli, main
from tests.e2e.conftest import System
from tests.e2e.conftest import system as whole_system
from tests.e2e.emacs import wait_for
from tests.e2e.test_waiting import asleep
from tests.e2e.valve import Valve
from tests.mcp.servers import plain, table
from tests.server import ModelServer, answer, refusal, text, tool_use

__all__ = ["whole_system"]  # a fixture

pytestmark = pytest.mark.e2e

WRITE = answer("I write it.", tool_use("Write", file_path="new.txt", content="from the model\n"))


class Terminal:
    """A process whose stdin, stdout and stderr are one terminal."""

    def __init__(self, command: list[str], system: System) -> None:
        self._master, slave = pty.openpty()
        env = {**system.env, "TERM": "xterm", "NO_COLOR": "1"}
        self._process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=env, cwd=system.project, start_new_session=True
        )
        os.close(slave)
        self.screen = ""

    def expect(self, pattern: str, timeout_s: float = 20.0) -> None:
        """Read until what was printed since the last match has ``pattern``."""
        deadline = time.monotonic() + timeout_s
        while not (found := re.search(pattern, self.screen)):
            readable, _, _ = select.select([self._master], [], [], max(0, deadline - time.monotonic()))
            assert readable, f"{pattern!r} was not printed in time; this was: {self.screen!r}"
            try:
                self.screen += os.read(self._master, 65536).decode(errors="replace")
            except OSError:  # how Linux says that the other side is closed
                raise AssertionError(f"{pattern!r} was not printed; this was: {self.screen!r}") from None
        self.screen = self.screen[found.end() :]

    def type(self, line: str) -> None:
        os.write(self._master, line.encode() + b"\n")

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def exit_code(self, timeout_s: float = 20.0) -> int:
        return self._process.wait(timeout_s)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._master)


@pytest.fixture
def system(whole_system: System) -> System:
    # The directory of the configuration is protected from tools, so it must not hold the project.
    (whole_system.home / "config").mkdir()
    whole_system.env["PYAGENTD_CONFIG"] = str(whole_system.home / "config" / "config.toml")
    return whole_system


@pytest.fixture
def terminal(system: System) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def start(*arguments: str) -> Terminal:
        opened.append(Terminal(system.command(*arguments), system))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


@pytest.fixture
def server(system: System, model_server: ModelServer) -> ModelServer:
    system.use_server(model_server.url)
    return model_server


def idle(system: System, session: str) -> bool:
    return all(one["state"] != "busy" for one in system.json("sessions") if one["session_id"] == session)


def wait_until_idle(system: System, session: str) -> None:
    deadline = time.monotonic() + 20
    while not idle(system, session):
        assert time.monotonic() < deadline, "the run does not end"


def test_new_prints_where_the_session_is(system: System) -> None:
    made = system.json("new", "Tidy Up")
    assert re.fullmatch(r"tidy-up-\d{14}", made["session_id"])
    assert set(made) == {"session_id", "session_dir", "branch_dir"}
    assert (Path(made["branch_dir"]) / "session.md").read_text() == ""


@pytest.mark.cold
def test_send_streams_the_answer_and_only_that_to_a_pipe(system: System, server: ModelServer) -> None:
    session, _ = system.new()
    server.say(answer(text("Grüße, 世界.\nDone.", chunks=5)))
    assert system.ok("send", session, "hello") == "Grüße, 世界.\nDone.\n"


def test_a_prefix_or_a_path_means_the_same_session(system: System, server: ModelServer) -> None:
    session, branch = system.new("notes")
    server.say("by prefix", "by path")
    assert system.ok("send", "not", "hello") == "by prefix\n"
    relative = os.path.relpath(branch, system.project)
    assert relative.startswith(".")
    assert system.ok("send", relative, "hello") == "by path\n"
    assert "by path" in system.ok("show", session)


def test_send_reads_its_text_from_stdin(system: System, server: ModelServer) -> None:
    session, branch = system.new()
    system.ok("send", session, "-", input="line one\nline two")
    assert (branch / "session.md").read_text().startswith("### line one\nline two\n\n")


@pytest.mark.cold
def test_what_comes_from_stdin_is_no_command_unless_it_is_meant_as_one(system: System, server: ModelServer) -> None:
    session, _ = system.new()
    server.say("That looks like a command.")
    sent = system.run("send", session, "-", "--headless", input="/context clear")
    assert "That looks like a command." in sent.stdout and "only with --command" in sent.stderr
    refused = system.run("send", session, "/context clear", "--headless")
    assert refused.returncode == 1 and "nobody is there who typed it" in refused.stderr
    assert "Context cleared" in system.ok("send", session, "-", "--command", input="/context clear")


def test_a_command_that_sends_a_message_is_followed_to_its_answer(system: System, server: ModelServer) -> None:
    Path(system.env["PYAGENTD_CONFIG"]).write_text(table("notes", plain()))
    session, branch = system.new()
    system.ok("mcp", "test", "notes")
    server.say("Looks good.")
    said = system.ok("send", session, "--command", "/notes:review a.py")
    assert said.endswith("Looks good.\n") and said.count("Looks good.") == 1
    assert "Review a.py carefully." in json.dumps(server.last.messages) and "/notes:" not in json.dumps(
        server.last.body
    )
    assert "/notes:review a.py" in (branch / "session.md").read_text()


def test_a_server_that_the_daemon_has_not_read_yet_is_told_apart_from_an_unknown_one(system: System) -> None:
    system.new()
    system.ok("mcp", "add", "files", "--", "npx", "some-server")
    listed = system.run("mcp", "list")
    assert "also has files. The daemon reads it when it starts" in listed.stderr and "No MCP" not in listed.stderr
    for what in ("get", "test"):
        unread, unknown = system.run("mcp", what, "files"), system.run("mcp", what, "other")
        assert unread.returncode == unknown.returncode == 1
        assert f"{system.env['PYAGENTD_CONFIG']} has files. The daemon reads it when it starts" in unread.stderr
        assert "The daemon reads" not in unknown.stderr
    system.ok("stop")
    assert "files" in system.ok("mcp", "get", "files")


def test_compacting_by_a_command_is_waited_for(system: System, server: ModelServer) -> None:
    session, branch = system.new()
    server.say("Red.", "## Goal\nColours")
    system.ok("send", session, "A colour?")
    done = system.run("send", session, "--command", "/compact")
    said = done.stdout + done.stderr
    assert done.returncode == 0 and said.count("is summarised") == 1 and "compacted (2 messages" in said
    assert "## Goal\nColours" in (branch / "session.md").read_text()
    again = system.run("send", session, "--command", "/compact")
    assert again.returncode == 1 and "nothing to compact" in again.stderr


def test_with_json_events_every_line_is_an_event_and_the_last_one_the_result(
    system: System, server: ModelServer
) -> None:
    session, branch = system.new()
    server.say(answer(text("some text", chunks=3)))
    events = [json.loads(line) for line in system.ok("send", session, "hello", "--json-events").splitlines()]
    result = events.pop()
    assert (result["kind"], result["answer"], result["reason"]) == ("result", "some text", "done")
    assert all({"kind", "branch", "seq"} <= set(event) for event in events)
    assert {event["branch"] for event in events} == {str(branch)}
    said = [event["text"] for event in events if event["kind"] == "insert" and event["role"] == "response"]
    assert "".join(said) == "some text"
    assert (events[-1]["kind"], events[-1]["phase"], events[-1]["reason"]) == ("run", "finished", "done")
    numbers = [event["seq"] for event in events if event["seq"]]
    assert numbers == sorted(numbers)


def test_a_tool_is_one_line_and_its_result_is_left_to_the_document(system: System, server: ModelServer) -> None:
    (system.project / "a.txt").write_text("alpha\n")
    session, branch = system.new()
    server.say(answer("Let me look.", tool_use("Read", file_path="a.txt")), "It says alpha.")
    done = system.run("send", session, "read it")
    assert done.stdout == "Let me look.\n\nIt says alpha.\n" and done.stderr == "• Read a.txt\n"
    assert "alpha\n" in (branch / "session.md").read_text()


def test_show_prints_the_document_and_with_json_the_messages(system: System, server: ModelServer) -> None:
    session, _ = system.new()
    server.say("fine")
    system.ok("send", session, "how are you?")
    assert system.ok("show", session) == "### how are you?\n\nfine\n\n### \n"
    shown = system.json("show", session)
    assert [one["message"]["role"] for one in shown["messages"]] == ["user", "assistant"]
    assert shown["session"]["id"] == session


@pytest.mark.parametrize("lost", [Path.unlink, lambda file: file.write_text("")], ids=["gone", "empty"])
def test_a_conversation_without_its_document_is_listed_and_shown(
    system: System, server: ModelServer, lost: Callable[[Path], object]
) -> None:
    session, branch = system.new("talk")
    server.say("fine")
    system.ok("send", session, "how are you?")
    lost(branch / "session.md")
    assert [one["session_id"] for one in system.json("sessions")] == [session]
    assert system.ok("show", "talk").startswith("### how are you?\n\nfine\n")
    assert "fine" in (branch / "session.md").read_text()


def test_a_refused_request_exits_with_1_and_says_why_on_stderr(system: System, server: ModelServer) -> None:
    session, _ = system.new()
    server.say(refusal(400, "invalid_request_error", "the model is on holiday"))
    done = system.run("send", session, "hello", "--json")
    assert done.returncode == 1
    error = json.loads(done.stderr)["error"]
    assert error["code"] == "run-failed"
    assert "the model is on holiday" in error["message"]


def test_no_wait_returns_at_once_and_the_run_goes_on(system: System, server: ModelServer) -> None:
    session, branch = system.new()
    server.say("later")
    said = system.json("send", session, "hello", "--no-wait")
    assert said["run"].startswith("run_")
    wait_until_idle(system, session)
    assert "later" in (branch / "session.md").read_text()


def test_a_timeout_stops_the_waiting_and_not_the_run(system: System, server: ModelServer) -> None:
    session, _ = system.new()
    server.say(answer("half", hang_after=4))
    done = system.run("send", session, "hello", "--timeout", "0.5", "--json")
    assert done.returncode == 1
    assert json.loads(done.stderr)["error"]["code"] == "timeout"
    assert not idle(system, session)
    system.ok("abort", session)
    wait_until_idle(system, session)


def test_a_timeout_is_the_one_error_of_a_daemon_that_hangs(system: System, server: ModelServer) -> None:
    session, branch = system.new()
    server.say(answer("half", hang_after=4))
    with subprocess.Popen(
        system.command("send", session, "hello", "--timeout", "3", "--json"), env=system.env, stderr=subprocess.PIPE
    ) as process:
        wait_for(lambda: "half" in (branch / "session.md").read_text(), "the run")
        with asleep(system):
            _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert json.loads(said)["error"]["code"] == "timeout"


@pytest.mark.parametrize(("extra", "most"), [("off", 2), ("on", 4)])
def test_with_extra_requests_off_a_model_is_asked_only_what_was_typed(
    system: System, server: ModelServer, extra: str, most: int
) -> None:
    del system.env["PYAGENTD_TITLES"]
    system.env["PYAGENTD_EXTRA_REQUESTS"] = extra
    session, _ = system.new("")
    server.say(*[answer("Yes.")] * 6)
    system.ok("send", session, "one")
    system.ok("send", session, "two")
    system.ok("context", "save", session)
    system.ok("stop")
    assert len(server.requests) == most


def test_abort_ends_what_another_client_waits_for(system: System, server: ModelServer) -> None:
    session, _ = system.new()
    server.say(answer("half", hang_after=4))
    with subprocess.Popen(
        system.command("send", session, "hello"),
        env=system.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        server.wait_until(lambda: server.requests)
        system.ok("abort", session)
        _, error = process.communicate(timeout=20)
    assert process.returncode == 1
    assert error == "pyagentd: The run was aborted\n"


def test_abort_of_an_idle_session_says_so_and_is_no_error(system: System) -> None:
    session, _ = system.new()
    done = system.run("abort", session)
    assert (done.returncode, done.stderr) == (0, f"pyagentd: {session} has no run to abort\n")


@pytest.mark.cold
def test_a_daemon_that_dies_under_a_send_is_exit_code_3(system: System, server: ModelServer) -> None:
    session, _ = system.new()
    server.say(answer("half", hang_after=4))
    with subprocess.Popen(
        system.command("send", session, "hello"),
        env=system.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        server.wait_until(lambda: server.requests)
        os.kill(system.daemon_pid(), signal.SIGKILL)
        _, error = process.communicate(timeout=20)
    assert process.returncode == 3
    assert error.count("\n") == 1


def test_what_needs_approval_is_denied_where_nobody_can_be_asked(system: System, server: ModelServer) -> None:
    session, _ = system.new()
    server.say(WRITE, "I could not.")
    system.ok("send", session, "write it")
    assert not (system.project / "new.txt").exists()


def test_allow_lets_matching_actions_do_without_asking(system: System, server: ModelServer) -> None:
    session, _ = system.new()
    server.say(WRITE, "Written.")
    system.ok("send", session, "write it", "--allow", "tool:Write:.*")
    assert (system.project / "new.txt").read_text() == "from the model\n"


@pytest.mark.parametrize(("reply", "written"), [("y", True), ("r not there", False)])
def test_a_terminal_is_asked_and_its_answer_counts(
    reply: str, written: bool, system: System, server: ModelServer, terminal: Callable[..., Terminal]
) -> None:
    session, _ = system.new()
    server.say(WRITE, "That was it.")
    screen = terminal("send", session, "write it")
    screen.expect(r"Allow Write \S*new\.txt\?")
    screen.expect(r"from the model")
    screen.expect(r"y allow once")
    screen.type(reply)
    screen.expect("That was it.")
    assert screen.exit_code() == 0
    assert (system.project / "new.txt").exists() == written
    assert ("not there" in json.dumps(server.last.body)) == (not written)


def test_aborting_on_a_question_ends_the_run(
    system: System, server: ModelServer, terminal: Callable[..., Terminal]
) -> None:
    session, _ = system.new()
    server.say(WRITE)
    screen = terminal("send", session, "write it")
    screen.expect(r"y allow once")
    screen.type("k")
    screen.expect("The run was aborted")
    assert screen.exit_code() == 1
    assert not (system.project / "new.txt").exists()


def test_headless_asks_nobody_even_on_a_terminal(
    system: System, server: ModelServer, terminal: Callable[..., Terminal]
) -> None:
    session, _ = system.new()
    server.say(WRITE, "I could not.")
    screen = terminal("send", session, "write it", "--headless")
    screen.expect("I could not.")
    assert screen.exit_code() == 0
    assert "llow once" not in screen.screen


def test_one_interrupt_detaches_and_the_run_goes_on(
    system: System, server: ModelServer, terminal: Callable[..., Terminal]
) -> None:
    session, _ = system.new()
    server.say(answer("half", hang_after=4))
    screen = terminal("send", session, "hello")
    screen.expect("half")
    screen.interrupt()
    screen.expect("detached; the run goes on")
    screen.expect(f"pyagentd abort {session}")
    assert screen.exit_code() == 130
    assert not idle(system, session)
    system.ok("abort", session)


def test_a_second_interrupt_aborts(system: System, server: ModelServer, terminal: Callable[..., Terminal]) -> None:
    session, _ = system.new()
    server.say(answer("half", hang_after=4))
    screen = terminal("send", session, "hello")
    screen.expect("half")
    screen.interrupt()
    screen.expect("detached; the run goes on")
    screen.interrupt()
    screen.expect("The run was aborted")
    assert screen.exit_code() == 130
    wait_until_idle(system, session)


_EAGER = """
import os, signal, sys
from pyagentd.cli import main
from pyagentd.wire.client import DaemonClient
call = DaemonClient.call
def interrupted(self, method, /, *given, **arguments):
    answer = call(self, method, *given, **arguments)
    if method in ("prompt", "mission"):
        os.kill(os.getpid(), signal.SIGINT)
    return answer
DaemonClient.call = interrupted
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("words", [("ask",), ("mission", "--signature", ":string")])
def test_an_interrupt_just_after_sending_detaches(
    system: System, server: ModelServer, words: tuple[str, ...]
) -> None:
    server.say(answer("half", hang_after=4))
    left = subprocess.run(
        [sys.executable, "-c", _EAGER, words[0], "hello", *words[1:]],
        env=system.env, cwd=system.project, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert "detached; the run goes on" in left.stderr and "stop it with: pyagentd abort" in left.stderr
    assert left.returncode == 130


_PATIENT = """
import sys
from pyagentd.cli import follow, main
follow._SECOND_THOUGHTS_S = 60.0
sys.exit(main(sys.argv[1:]))
"""


def test_what_ends_while_a_second_interrupt_may_come_is_printed(
    system: System, server: ModelServer, terminal: Callable[..., Terminal], monkeypatch: pytest.MonkeyPatch
) -> None:
    session, _ = system.new()
    valve = Valve(answer(text("half the rest", chunks=2)))
    server.say(valve)
    monkeypatch.setattr(system, "command", lambda *words: [sys.executable, "-c", _PATIENT, *words])
    screen = terminal("send", session, "hello")
    valve.let(1)
    screen.expect("half")
    screen.interrupt()
    screen.expect("detached; the run goes on")
    valve.open()
    screen.expect("rest")
    assert screen.exit_code() == 130


def test_a_question_that_comes_after_an_interrupt_waits(
    system: System, server: ModelServer, terminal: Callable[..., Terminal], monkeypatch: pytest.MonkeyPatch
) -> None:
    session, _ = system.new()
    valve = Valve(answer("I write it.", tool_use("Write", file_path="new.txt", content="from the model\n")))
    server.say(valve)
    screen = terminal("send", session, "hello")
    valve.let(1)
    screen.expect("I write it")
    screen.interrupt()
    screen.expect("detached; the run goes on")
    valve.open()
    screen.expect("see it with")
    assert screen.exit_code() == 130
    assert [each["action"] for each in system.json("asks")] and "y allow once" not in screen.screen


def test_sessions_lists_what_there_is(system: System) -> None:
    first, _ = system.new("first")
    second, _ = system.new("second")
    assert [one["session_id"] for one in system.json("sessions")] == [first, second]
    assert f"{first}/main\tfirst\tidle\t" in system.ok("sessions")


def test_where_there_is_nothing_to_list_that_is_said(system: System) -> None:
    session, _ = system.new("blank")
    for words in (
        ("variants", session),
        ("branch", session, "--list"),
        ("rewind", session, "--list"),
        ("usage", session, "--chart"),
        ("queue", session),
        ("hooks",),
    ):
        told = system.run(*words)
        assert told.returncode == 0 and told.stderr.startswith("pyagentd: No"), words


def test_only_what_needs_the_working_directory_misses_it(system: System) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        script = 'mkdir gone && cd gone && rmdir ../gone && exec "$@"'
        return subprocess.run(
            ["sh", "-c", script, "sh", *system.command(*words)],
            env=system.env, cwd=system.project, capture_output=True, text=True, timeout=60,
        )  # fmt: skip

    session, _ = system.new()
    for words in (["status"], ["sessions"], ["models"], ["logs"], ["send", session, "Hello"], ["config", "show"]):
        assert run(*words).returncode == 0, words
    for words in (["ask", "Hello"], ["new", "here"], ["show", "./here"]):
        told = run(*words)
        assert told.returncode == 1
        assert told.stderr.endswith("pyagentd: The working directory is gone: go to another one with cd\n")
    assert "does not start" not in run("doctor").stdout


def test_presets_names_the_shipped_ones_and_the_users(system: System) -> None:
    (system.home / "config" / "presets").mkdir()
    (system.home / "config" / "presets" / "mine.md").write_text(
        "---\ndescription: Mine.\nbackend: Claude\nmodel: m\n---\nHi\n"
    )
    found = {one["name"]: one for one in system.json("presets")}
    assert found["mine"]["description"] == "Mine."
    assert "explorer" in found


@pytest.mark.cold
def test_status_and_stop(system: System) -> None:
    system.new()
    status = system.json("status")
    assert {"pid", "uptime", "clients", "runs", "memory"} <= set(status)
    assert system.ok("stop") == f"stopped (pid {status['pid']})\n"
    assert system.run("status").returncode == 3


def test_a_daemon_of_another_protocol_is_told_and_can_be_stopped(system: System) -> None:
    system.new()
    pid = system.daemon_pid()
    runtime = system.runtime / "daemon.eld"
    runtime.write_text(runtime.read_text().replace(":proto 1", ":proto 99"))
    refused = system.run("sessions")
    assert refused.returncode != 0
    assert "The daemon speaks protocol 99" in refused.stderr and "pyagentd stop" in refused.stderr
    assert system.ok("stop") == f"stopped (pid {pid})\n"


def test_doctor_finds_the_running_daemon(system: System) -> None:
    system.new()
    checks = {one["name"]: one for one in system.json("doctor")["checks"]}
    assert checks["daemon"]["detail"].startswith(f"running (pid {system.daemon_pid()}")


def test_a_daemon_of_another_sessions_directory_is_not_used_by_mistake(system: System) -> None:
    system.new()
    other = system.home / "other"
    served = system.env["PYAGENTD_SESSIONS_DIR"]
    system.env["PYAGENTD_SESSIONS_DIR"] = str(other)
    done = system.run("new", "x")
    assert done.returncode == 1
    assert f"serves the sessions in {served}, not {other}" in done.stderr
    assert not other.exists()


@pytest.mark.cold
def test_serve_detached_returns_and_leaves_a_daemon(system: System) -> None:
    system.ok("serve", "--detach")
    deadline = time.monotonic() + 20
    while (status := system.run("status", "--json")).returncode == 3:
        assert time.monotonic() < deadline
    assert json.loads(status.stdout)["pid"]


@pytest.mark.cold
def test_what_the_key_is_stays_out_of_log_and_arguments(system: System, server: ModelServer) -> None:
    system.env["PYAGENTD_LOG_LEVEL"] = "debug"
    session, branch = system.new()
    system.ok("send", session, "hello")
    assert server.last.headers["x-api-key"] == "test-key"
    for file in [system.runtime / "daemon.log", *branch.rglob("*")]:
        assert not file.is_file() or b"test-key" not in file.read_bytes(), file
    assert b"test-key" not in Path(f"/proc/{system.daemon_pid()}/cmdline").read_bytes()


@pytest.mark.cold
def test_of_commands_at_once_one_starts_the_daemon_which_keeps_no_directory_busy(system: System) -> None:
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda _: system.json("sessions"), range(4))) == [[]] * 4
    process = Path(f"/proc/{system.daemon_pid()}")
    assert (process / "cwd").readlink() == Path("/")  # else where it was first needed could not be unmounted
    assert os.getsid(int(process.name)) not in (os.getsid(0), int(process.name))  # nor can it get a terminal


# -- how calls came out, scripts, one question --------------------------------------------------------------------


def test_what_was_denied_because_nobody_could_be_asked_is_said_and_fails_when_strict(
    system: System, server: ModelServer
) -> None:
    session, _ = system.new()
    wants = answer(tool_use("Write", file_path="a.txt", content="x"))
    server.say(wants, "I could not.", wants, "Nor now.", wants, "Done.")
    done = system.run("send", session, "write it")
    assert (done.returncode, done.stdout) == (0, "I could not.\n")
    assert "• Write a.txt → denied, nobody could be asked\n" in done.stderr
    assert "1 tool call was denied" in done.stderr.splitlines()[-1] and "--allow" in done.stderr
    assert system.run("send", session, "write it", "--strict").returncode == 1
    done = system.run("send", session, "write it", "--strict", "--allow", "tool:Write:.*")
    assert done.returncode == 0 and "• Write a.txt +1 −0\n" in done.stderr and "denied" not in done.stderr


def test_a_mission_prints_its_object_alone_and_fails_when_strict_if_a_call_was_denied(
    system: System, server: ModelServer
) -> None:
    wants = '```clojure\n(call "Write" {:file_path "a.txt" :content "x"})\n```'
    ends = '```clojure\n(call "return" 1)\n```'
    server.say(answer(text(wants, chunks=2), pause_s=0.3), ends, answer(text(wants, chunks=2), pause_s=0.3), ends)
    told = ("mission", "Write it.", "--signature", ":int", "--tools", "Write", "--json")
    done = system.run(*told)
    assert done.returncode == 0 and json.loads(done.stdout)["value"] == 1 and "1 tool call was denied" in done.stderr
    done = system.run(*told, "--strict")
    assert done.returncode == 1 and json.loads(done.stdout)["value"] == 1


def test_what_an_agent_was_denied_is_said_at_the_end_of_its_parents_run(system: System, server: ModelServer) -> None:
    session, _ = system.new()
    spawn = tool_use("PersistentAgent", preset="executor", description="write", prompt="Write it.")
    server.say(answer(spawn), answer(tool_use("Write", file_path="a.txt", content="x")), "No.", "It could not.")
    done = system.run("send", session, "have it written", "--strict", "--allow", "tool:PersistentAgent:.*")
    assert done.returncode == 1
    assert "(in executor-" in done.stderr.splitlines()[-1]
    assert "• executor: write · done, 1 tool\n" in done.stderr


def test_the_exit_code_of_a_command_is_in_its_line(system: System, server: ModelServer) -> None:
    session, _ = system.new()
    server.say(answer(tool_use("Bash", command="exit 3")), "It failed.")
    done = system.run("send", session, "run it", "--allow", "tool:Bash:.*")
    assert done.stderr == "• Bash exit 3 → exit 3\n"


def test_json_is_one_object_with_the_answer_the_usage_and_what_the_tools_did(
    system: System, server: ModelServer
) -> None:
    (system.project / "a.txt").write_text("alpha\n")
    session, branch = system.new()
    server.say(
        answer("Let me look.", tool_use("Read", file_path="a.txt")),
        answer(tool_use("Write", file_path="b.txt", content="x")),
        "It says alpha.",
    )
    told = json.loads(system.ok("send", session, "read it", "--json"))
    assert (told["session"], told["branch"], told["reason"]) == (session, str(branch), "done")
    assert told["answer"] == "Let me look.\n\nIt says alpha."
    assert told["usage"]["input"] == 30 and told["usage"]["output"] == 15
    assert [(each["name"], each["state"], each["denied"]) for each in told["tools"]] == [
        ("Read", "done", ""),
        ("Write", "failed", "nobody"),
    ]
    assert [each["tool"] for each in told["denied"]] == ["Write"]


def test_what_is_piped_in_is_part_of_the_prompt(system: System, server: ModelServer) -> None:
    session, branch = system.new()
    system.ok("send", session, "What failed?", input="line 1\nline 2\n")
    system.ok("send", session, input="Only this\n")
    body = (branch / "session.md").read_text()
    assert "### What failed?\n\nline 1\nline 2\n" in body and "### Only this\n" in body


def test_ask_makes_a_session_prints_the_answer_and_goes_on_where_it_was(system: System, server: ModelServer) -> None:
    server.say("Blue.", "As the sky.", "Elsewhere.")
    assert system.ok("ask", "Which colour?") == "Blue.\n"
    assert system.ok("ask", "--continue", "Like what?") == "As the sky.\n"
    assert [each["content"][0]["text"] for each in server.last.messages] == ["Which colour?", "Blue.", "Like what?"]
    elsewhere = system.home / "elsewhere"
    elsewhere.mkdir()
    done = system.run("ask", "--continue", "And here?", "--root", str(elsewhere))
    assert done.returncode == 1 and "has no session yet" in done.stderr
    assert len(system.json("sessions")) == 1


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (["--model", "nope/x"], "nope"),
        (["--agent", "nope"], "nope"),
        (["--attach", "large.bin"], "large.bin has more than 50 MB"),
        (["--attach", "/proc/self/mem"], "/proc/self/mem cannot be read: Input/output error"),  # for root too
    ],
)
def test_a_question_that_is_refused_leaves_no_session(system: System, wrong: list[str], error: str) -> None:
    with (system.project / "large.bin").open("wb") as file:
        file.truncate(50_000_001)
    refused = system.run("ask", *wrong, "Which colour?")
    assert refused.returncode == 1 and error in refused.stderr
    assert system.json("sessions") == []


def test_a_refused_prompt_is_not_what_is_gone_on_with(system: System, server: ModelServer) -> None:
    server.say("Blue.", "As the sky.")
    system.ok("ask", "Which colour?")
    _, branch = system.new()
    refused = system.run("send", str(branch), "--model", "nope/x", "And then?")
    assert refused.returncode == 1 and "nope" in refused.stderr
    assert system.ok("ask", "--continue", "Like what?") == "As the sky.\n"
    assert [each["content"][0]["text"] for each in server.last.messages] == ["Which colour?", "Blue.", "Like what?"]


def test_a_session_of_which_nothing_was_said_yet_is_gone_on_with_if_there_is_no_other(
    system: System, server: ModelServer
) -> None:
    _, branch = system.new()
    server.say("Blue.")
    system.ok("ask", "--continue", "Which colour?")
    assert "Blue." in (branch / "session.md").read_text()


def test_a_file_is_sent_along(system: System, server: ModelServer) -> None:
    picture, notes = system.home / "red dot.png", system.home / "notes.txt"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(20))
    notes.write_text("remember")
    told = json.loads(system.ok("ask", "What is it?", "--attach", str(picture), "--attach", str(notes), "--json"))
    said = server.last.messages[-1]["content"]
    assert [each["source"]["media_type"] for each in said if each["type"] == "image"] == ["image/png"]
    kept = sorted(each.name for each in (Path(told["branch"]) / "files").iterdir())
    assert kept == ["notes.txt", "red dot.png"] and "files/notes.txt" in str(said)


PNG = b"\x89PNG\r\n\x1a\n"


def test_what_comes_on_stdin_is_sent_along(system: System, server: ModelServer) -> None:
    command = system.command("ask", "What is it?", "--attach", "-")
    done = subprocess.run(command, env=system.env, cwd=system.project, input=PNG + bytes(20), capture_output=True)
    assert done.returncode == 0, done.stderr
    said = server.last.messages[-1]["content"]
    assert [each["type"] for each in said] == ["image", "text"] and "What is it?" in said[1]["text"]
    assert system.run("ask", "-", "--attach", "-", input="x").returncode == 2
    assert "stdin is empty" in system.run("ask", "What?", "--attach", "-", input="").stderr


@pytest.mark.parametrize("name", ["two\nlines.png", "no-utf8-\udcff.png", "a]b(c.png", "pipe"])
def test_a_file_is_sent_along_whatever_it_is_called(system: System, server: ModelServer, name: str) -> None:
    file = system.project / name
    if name == "pipe":  # as of <(COMMAND)
        os.mkfifo(file)
        threading.Thread(target=file.write_bytes, args=(PNG + bytes(20),), daemon=True).start()
    else:
        file.write_bytes(PNG + bytes(20))
    system.ok("ask", "What is it?", "--attach", str(file))
    assert [each["type"] for each in server.last.messages[-1]["content"]] == ["image", "text"]


def test_what_is_asked_about_is_no_part_of_the_json(system: System, server: ModelServer) -> None:
    (system.project / "a.txt").write_text("one\n")
    session, _ = system.new()
    server.say(answer(tool_use("Write", file_path="a.txt", content="two\n")), "Done.")
    system.ok("send", session, "Go.", "--allow", "tool:.*")
    keyboard, stdin = pty.openpty()
    command = system.command("restore", session, "--to", "last", "--json")
    os.write(keyboard, b"y\n")
    done = subprocess.run(command, env=system.env, cwd=system.project, stdin=stdin, capture_output=True, text=True)
    os.close(stdin), os.close(keyboard)
    assert json.loads(done.stdout)["restored"] == [str(system.project / "a.txt")], done
    assert "changed\t" in done.stderr and "Put them back?" in done.stderr


def test_bytes_on_stdin_that_are_no_utf8_are_sent_as_replacements(system: System, server: ModelServer) -> None:
    env = {**system.env, "PYTHONIOENCODING": "utf-8:strict"}  # as in most locales; "C" is lenient
    command = system.command("ask", "What failed?")
    done = subprocess.run(command, env=env, cwd=system.project, input=b"caf\xe9 ok", capture_output=True)
    assert done.returncode == 0, done.stderr
    assert "caf\ufffd ok" in str(server.last.messages[-1]["content"])


def test_a_picture_that_is_mentioned_is_sent_along(system: System, server: ModelServer) -> None:
    (system.project / "dot.png").write_bytes(PNG + bytes(20))
    (system.project / "a.txt").write_text("alpha\n")
    system.ok("ask", "What is @dot.png, and @a.txt, and @nothing.png?")
    assert [each["type"] for each in server.last.messages[-1]["content"]] == ["image", "text"]
    system.ok("ask", "-", input="Others say: look at @dot.png")
    assert [each["type"] for each in server.last.messages[-1]["content"]] == ["text"]


def test_what_no_model_could_be_shown_is_refused_before_it_is_sent(system: System, server: ModelServer) -> None:
    (system.project / "large.png").write_bytes(PNG + bytes(4_000_000))
    done = system.run("ask", "What is @large.png?")
    assert done.returncode == 1 and "large.png has 4.0 MB" in done.stderr and not server.requests


@pytest.mark.parametrize("words", [[], ["mcp"], ["config"]])
def test_a_group_alone_prints_its_help_in_lines(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert err == "" and out.count("\n") > 5 and max(map(len, out.splitlines())) <= 80


def test_help_begins_with_what_to_type_and_has_every_command_in_a_section(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    first = lines.index("Begin with:")
    assert [line.split()[:2] for line in lines[first + 1 : first + 4]] == [
        ["pyagentd", "doctor"],
        ["pyagentd", "ask"],
        ["pyagentd", "ask"],
    ]
    listed = {line.split()[0] for line in lines[first + 4 :] if line.startswith("  ") and line.strip()}
    assert set(cli.list_commands(click.Context(cli))) <= listed
    assert not any(line.endswith("...") for line in lines[first:])


def test_lists_have_their_header_in_a_pipe_too(system: System) -> None:
    assert system.run("sessions").stdout == "session\ttitle\tstate\tpreset\tupdated\n"
    assert "No sessions yet" in system.run("sessions").stderr
    session, _ = system.new()
    assert system.ok("usage").startswith("day\trequests\tinput\t")
    assert system.ok("usage", session).startswith("what\tmodel\t")
