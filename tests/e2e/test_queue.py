"""Prompts sent while a run is in progress: from Emacs and from the command line, seen from both."""

from __future__ import annotations

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.e2e.conftest import System
from tests.e2e.emacs import wait_for
from tests.e2e.test_conversation import FINISHED, open_session, send
from tests.e2e.test_manners import body
from tests.e2e.test_several_emacsen import saved
from tests.server import ModelServer, answer, text, tool_use

LAPTOP = "If the user closes their laptop mid-turn and reconnects later, can the turn resume without a new message?"
WAITS = "(and (eq (plist-get pyagentd-status :state) 'waiting) (pyagentd-ask-here) t)"


def test_prompts_sent_while_a_run_is_in_progress_stay_where_they_were_typed(
    system: System, model_server: ModelServer
) -> None:
    system.use_server(model_server.url)
    session, branch = system.new()
    model_server.say(
        answer(text("Looking."), tool_use("Bash", command="true")), "First.", "Second.", "Third.", "Last."
    )
    emacs = system.emacs()
    open_session(emacs, branch)
    send(emacs, "One")
    emacs.wait(WAITS)
    for number, prompt in enumerate(("Two", "Three", "Never"), 1):
        send(emacs, prompt)
        emacs.wait(f"(= {number} (length pyagentd-queued-items))")
    queued = json.loads(system.ok("queue", session, "--json"))
    assert [item["text"] for item in queued] == ["Two", "Three", "Never"]
    assert emacs.eval("(length (seq-filter (lambda (o) (overlay-get o 'face)) (overlays-in 1 (point-max))))") >= 3
    assert "3 queued" in emacs.eval("(substring-no-properties pyagentd-status--line)")
    assert system.ok("queue", session, "--cancel", queued[2]["id"]).strip() == "Never"
    sent = json.loads(system.ok("send", session, "From afar", "--no-wait", "--json"))
    assert sent["queued"] is True and sent["run"] is None
    emacs.wait("(= 3 (length pyagentd-queued-items))")
    emacs.eval("(progn (goto-char (point-max)) (pyagentd-allow-once) t)")
    emacs.wait(f'(and {FINISHED} (null pyagentd-queued-items) (string-search "Last." (buffer-string)))')
    turns = "First.\n\n### Two\n\nSecond.\n\n### Three\n\nThird.\n\n### From afar\n\nLast.\n\n### Never"
    wait_for(lambda: turns in body(emacs), f"{turns!r}, not {body(emacs)!r}")
    emacs.eval("(progn (save-buffer) t)")
    saved(branch, body(emacs))
    said = [request.messages[-1]["content"][-1].get("text") for request in model_server.requests[2:]]
    assert said == ["Two", "Three", "From afar"]


def test_what_is_said_to_a_run_is_read_at_its_next_step(system: System, model_server: ModelServer) -> None:
    system.use_server(model_server.url)
    _, branch = system.new()
    model_server.say(answer(text("Looking."), tool_use("Bash", command="true")), "As you say.")
    emacs = system.emacs()
    open_session(emacs, branch)
    send(emacs, "One")
    emacs.wait(WAITS)
    emacs.eval('(progn (goto-char (point-max)) (insert "Left, please") (call-interactively #\'pyagentd-steer) t)')
    emacs.wait("(= 1 (length pyagentd-queued-items))")
    assert "Left" not in body(emacs)
    emacs.eval("(progn (goto-char (point-max)) (pyagentd-allow-once) t)")
    emacs.wait(f'(and {FINISHED} (string-search "As you say." (buffer-string)))')
    assert body(emacs).endswith("```\n\n\n### Left, please\n\nAs you say.\n\n### ")
    assert model_server.last.messages[-1]["content"][-1]["text"] == "Left, please"


@pytest.mark.spec("002", LAPTOP)
def test_what_waits_when_the_daemon_is_killed_is_answered_by_the_next_one(
    system: System, model_server: ModelServer
) -> None:
    system.use_server(model_server.url)
    session, branch = system.new()
    model_server.say(answer(text("Hello", chunks=2), hang_after=4), "Second.")
    assert not system.json("send", session, "One", "--no-wait")["queued"]
    assert system.json("send", session, "Two", "--no-wait")["queued"]
    wait_for(lambda: "Hel" in json.dumps(system.json("show", session)), "the answer to begin")
    os.kill(system.daemon_pid(), signal.SIGKILL)
    system.ok("sessions")  # any command starts the next daemon
    wait_for(lambda: "Second." in on_disk(branch), "the second answer")
    shown = system.json("show", session)["messages"]
    assert [each["message"]["role"] for each in shown] == ["user", "assistant", "user", "assistant"]


def test_who_sends_to_a_busy_session_follows_the_answer_to_that_message(
    system: System, model_server: ModelServer
) -> None:
    system.use_server(model_server.url)
    session, _ = system.new()
    model_server.say(answer(text("Hello", chunks=2), hang_after=4), "Second.")
    system.ok("send", session, "One", "--no-wait")
    with ThreadPoolExecutor() as pool:
        second = pool.submit(system.ok, "send", session, "Two")
        wait_for(lambda: model_server.requests and system.json("queue", session), "the message to wait")
        system.ok("abort", session)
        assert second.result(timeout=60) == "Second.\n"


def on_disk(branch: Path) -> str:
    return (branch / "session.md").read_text()
