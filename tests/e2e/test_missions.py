"""Missions as a person meets them: on the command line, in Emacs, and when the daemon is killed."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.cli.test_run import Terminal
from tests.e2e.conftest import System
from tests.e2e.emacs import wait_for
from tests.e2e.test_terminal import shows, type_text
from tests.server import ModelServer

FILES = "{files [{path :string, lines :int}], total :int}"


def program(text: str) -> str:
    return f"I look.\n\n```clojure\n{text}\n```"


@pytest.mark.spec("004", "CLI Commands")
def test_the_command_line_prints_the_value_and_the_session_has_all_of_it(system: System) -> None:
    (system.project / "a.md").write_text("one\ntwo\n")
    (system.project / "b.md").write_text("three\n")
    prompt = "How many lines has each of *.md?"
    told = json.loads(system.ok("mission", prompt, "--signature", FILES, "--json", "--trace"))
    assert told["usage"]["cost_usd"] == system.json("usage")["together"]["cost_usd"] == 0
    assert told["ok"] and told["value"]["total"] == 3 and told["state"] == "done"
    assert sorted(call["name"] for turn in told["turns"] for call in turn["calls"]) == ["Glob", "Read", "Read"]
    traced = system.run("mission", prompt, "--signature", FILES, "--trace")
    assert json.loads(traced.stdout) == told["value"]
    assert "turn 1" in traced.stderr and '(call "return"' in traced.stderr and "→ Read" in traced.stderr
    assert system.ok("audit", told["session"]).count("tool:Read:") == 2
    wrong = system.run("mission", prompt, "--signature", "{files [:strng]}")
    assert wrong.returncode == 1 and "       ^" in wrong.stderr and ":string" in wrong.stderr


def test_a_mission_goes_on_after_its_daemon_was_killed(system: System, model_server: ModelServer) -> None:
    system.use_server(model_server.url)
    begun = system.project / "begun"
    waits = f'(call "Bash" {{:command "touch {begun}; sleep 600"}})'
    model_server.say(program("(do (memory/put :seen [1 2 3]) nil)"), program(waits))
    grant = ("--allow", "tool:Bash:.*")
    session = system.ok("mission", "Count.", "--signature", ":int", "--tools", "Bash", "--no-wait", *grant).strip()
    wait_for(lambda: begun.exists() or len(model_server.requests) > 1, "the second program")
    os.kill(system.daemon_pid(), signal.SIGKILL)
    model_server.say(program('(call "return" (count memory/seen))'))
    told = json.loads(system.ok("mission", "--resume", session, "--json"))
    assert told["ok"] and told["value"] == 3
    assert "The daemon ended before this was done" in system.ok("show", session)
    assert system.run("mission", "--resume", session).returncode == 1, "it is over"


def test_a_question_that_was_there_before_the_terminal_is_put_to_it(
    system: System, model_server: ModelServer
) -> None:
    """Also by ``--resume``, which follows a mission that goes on."""
    system.use_server(model_server.url)
    model_server.say(program('(call "return" (count (call "Bash" {:command "echo hi"})))'))
    starts = Terminal(system.command("mission", "Count.", "--tools", "Bash", "--no-wait"), system)
    starts.expect(r"count-\d{14}")
    assert starts.exit_code() == 0
    wait_for(lambda: "Bash" in system.ok("asks"), "the question")
    session = next(iter(system.sessions.glob("count-*"))).name
    screen = Terminal(system.command("mission", "--resume", session), system)
    screen.expect(r"Allow Bash")
    screen.expect(r"y allow once")
    screen.type("y")
    assert screen.exit_code() == 0


def test_emacs_checks_the_signature_and_shows_the_trace_as_an_outline(system: System) -> None:
    (system.project / "a.md").write_text("one\ntwo\n")
    emacs = system.emacs(terminal=True, size=(110, 40))
    emacs.keys("M-x")
    type_text(emacs, "pyagentd-mission\n")
    shows(emacs, "Mission (the task):")
    type_text(emacs, "How many lines has each of *.md?\n")
    shows(emacs, "Returns")
    type_text(emacs, "{total :imt}\n")
    shows(emacs, "Did you mean")
    emacs.keys("C-a", "C-k")
    type_text(emacs, FILES + "\n")
    shows(emacs, "* done", "** Turn 1", "→ Read")
    trace = str(emacs.eval("(buffer-substring-no-properties (point-min) (point-max))"))
    assert "** Turn 2" in trace and "** Value" in trace and '"total": 2' in trace
    file = Path(emacs.eval("(plist-get pyagentd-list-arguments :branch)")) / "session.md"
    wait_for(lambda: '"total": 2' in file.read_text(), "the conversation on disk")
    assert file.read_text().count("###") == 2, "one before the prompt, one for the next"
