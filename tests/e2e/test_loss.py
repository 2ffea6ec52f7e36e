"""Killed processes lose nothing: what was shown is on disk, and everything is there once."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.e2e.conftest import System
from tests.e2e.emacs import wait_for
from tests.e2e.test_conversation import FINISHED, converse, open_session, send
from tests.server import ModelServer, answer, text

WORDS = " ".join(f"word{number}" for number in range(60))


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except (FileNotFoundError, ProcessLookupError):  # it went while it was read
        return True


def shown(emacs: object) -> str:
    return emacs.eval("(buffer-substring-no-properties (point-min) (point-max))")  # type: ignore[attr-defined]


@pytest.mark.parametrize("save_midway", [False, True], ids=["unsaved", "saved"])
def test_killing_emacs_loses_nothing(system: System, model_server: ModelServer, save_midway: bool) -> None:
    system.use_server(model_server.url)
    _, branch = system.new()
    model_server.say(answer(text(WORDS, chunks=60), pause_s=0.03))
    emacs = system.emacs()
    open_session(emacs, branch)
    send(emacs, "Count.")
    emacs.wait('(save-excursion (goto-char (point-min)) (search-forward "word9 " nil t))')
    if save_midway:
        emacs.eval("(progn (save-buffer) t)")
    emacs.kill()
    file = branch / "session.md"
    wait_for(lambda: system.json("status")["runs"] == 0, "the run to finish")
    wait_for(lambda: "word59" in file.read_text(), "the answer to be on disk")
    assert file.read_text().startswith(f"### Count.\n\n{WORDS}\n\n### ")
    again = system.emacs()
    open_session(again, branch)
    assert shown(again) == f"### Count.\n\n{WORDS}\n\n### "
    model_server.say("Done.")
    converse(again, "More?")
    assert shown(again) == f"### Count.\n\n{WORDS}\n\n### More?\n\nDone.\n\n### "


def test_an_emacs_that_comes_back_while_the_model_streams_follows_live(
    system: System, model_server: ModelServer
) -> None:
    system.use_server(model_server.url)
    _, branch = system.new()
    model_server.say(answer(text(WORDS, chunks=60), pause_s=0.05))
    emacs = system.emacs()
    open_session(emacs, branch)
    send(emacs, "Count.")
    emacs.wait('(save-excursion (goto-char (point-min)) (search-forward "word9 " nil t))')
    emacs.kill()
    again = system.emacs()
    open_session(again, branch)
    again.wait(f"(and (eq pyagentd-attach-state t) {FINISHED})")
    assert shown(again) == f"### Count.\n\n{WORDS}\n\n### "


def test_killing_the_daemon_loses_nothing_that_was_shown(system: System, model_server: ModelServer) -> None:
    system.use_server(model_server.url)
    _, branch = system.new()
    model_server.say(answer(text(WORDS, chunks=60), pause_s=0.03))
    emacs = system.emacs()
    open_session(emacs, branch)
    send(emacs, "Count.")
    emacs.wait('(save-excursion (goto-char (point-min)) (search-forward "word9 " nil t))')
    pid = system.daemon_pid()
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: gone(pid), "the daemon to be gone")
    emacs.wait("(not (pyagentd-rpc-connected-p))")
    before = shown(emacs)
    model_server.say("Here I am again.")
    send(emacs, " Go on.")
    emacs.wait('(save-excursion (goto-char (point-min)) (search-forward "Here I am again." nil t))')
    emacs.wait(FINISHED)
    after = shown(emacs)
    assert after.count("word9 ") == 1
    answered = before.removeprefix("### Count.\n\n").rstrip()
    assert answered in after
    assert answered in str(model_server.last.messages)


def test_a_daemon_killed_while_it_writes_headless_heals_the_document(
    system: System, model_server: ModelServer
) -> None:
    system.use_server(model_server.url)
    session, branch = system.new()
    model_server.say(answer(text(WORDS, chunks=60), pause_s=0.03))
    system.ok("send", session, "Count.", "--no-wait")
    journal = branch / "messages.jsonl"
    wait_for(lambda: "word20" in journal.read_text(), "some of the answer to be recorded")
    os.kill(system.daemon_pid(), signal.SIGKILL)
    recorded = system.json("show", session)["messages"][-1]["parts"][-1]["data_json"]["text"]
    body = (branch / "session.md").read_text()
    assert recorded and body.count(recorded) == 1
    assert WORDS.startswith(recorded)
    model_server.say("And on.")
    system.ok("send", session, "Go on.")
    assert body.split("### ")[1] in (branch / "session.md").read_text()
