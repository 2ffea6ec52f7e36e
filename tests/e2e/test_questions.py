"""A model's questions, options and steps as a person meets them: a real Emacs on a terminal, a real daemon."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import System
from tests.e2e.emacs import wait_for
from tests.e2e.test_asks_emacs import branch, gone, opened, plays, send  # noqa: F401 - branch is a fixture
from tests.e2e.test_terminal import shows, type_text
from tests.runtime.test_approvals import results
from tests.server import ModelServer, answer, tool_use

PICKS = (
    "When the agent asks me to pick from options (and I may add free-text follow-up), how does the pick come back?"
)
ASKED = tool_use(
    "question",
    questions=[
        {
            "question": "Which database shall I use?",
            "header": "Database",
            "options": [{"label": "Postgres", "description": "A server"}, {"label": "SQLite"}],
        },
        {"question": "What is it for?"},
    ],
)


@pytest.mark.spec("002", PICKS)
def test_a_form_is_answered_after_the_daemon_was_killed(
    system: System,
    model_server: ModelServer,
    branch: Path,  # noqa: F811
) -> None:
    plays(model_server, {"Set it up": [answer("Let me see.", ASKED), answer("So be it.")]})
    emacs = opened(system, branch)
    send(emacs, "Set it up.")
    shows(emacs, "Question Which database shall I use? (and 1 more)", "( ) Postgres  A server", "( ) SQLite")
    shows(emacs, "Waiting for your answer", "C-c C-c in a form")
    (before,) = system.json("asks")
    os.kill(system.daemon_pid(), signal.SIGKILL)
    (again,) = wait_for(lambda: system.json("asks"), "the question to be asked again")
    assert again["id"] == before["id"] and again["questions"] == before["questions"]
    emacs.wait("(and (eq pyagentd-attach-state t) (pyagentd-ask-open) t)")
    emacs.keys("C-c", "C-c")
    shows(emacs, "1. Database: Which database shall I use?", "2. What is it for?", "Other:", "[Send]")
    emacs.keys("Tab", "Enter")  # SQLite, the second option
    emacs.keys("Tab", "Tab")
    type_text(emacs, "notes")
    emacs.keys("C-c", "C-c")
    shows(emacs, "So be it.", "Ready")
    gone(emacs, "Question Which")
    assert json.loads(results(model_server.last)[0]) == {"answers": [["SQLite"], ["notes"]]}


@pytest.mark.spec("002", PICKS)
def test_a_question_is_answered_from_the_command_line(
    system: System,
    model_server: ModelServer,
    branch: Path,  # noqa: F811
) -> None:
    plays(model_server, {"Set it up": [answer(ASKED), answer("So be it.")]})
    emacs = opened(system, branch)
    send(emacs, "Set it up.")
    shows(emacs, "Question Which database")
    (ask,) = system.json("asks")
    refused = system.run("answer", ask["id"], "--answers", '[["Postgres", "SQLite"], []]')
    assert refused.returncode and "takes one option" in refused.stderr
    system.ok("answer", ask["id"], "--answers", '[["Postgres", "version 16"], []]')
    shows(emacs, "So be it.", "Ready")
    gone(emacs, "Question Which")
    assert json.loads(results(model_server.last)[0]) == {"answers": [["Postgres", "version 16"], []]}
    late = system.run("answer", ask["id"], "--answers", '[["SQLite"], []]')
    assert late.returncode and "answered already" in late.stderr


@pytest.mark.spec("002", PICKS)
def test_steps_are_live_and_an_option_is_picked_by_a_key(
    system: System,
    model_server: ModelServer,
    branch: Path,  # noqa: F811
) -> None:
    def steps(first: str, second: str) -> Any:
        todos = [("Look", "Looking", first), ("Ask", "Asking", second)]
        return tool_use("TodoWrite", todos=[{"content": c, "activeForm": a, "status": s} for c, a, s in todos])

    plays(
        model_server,
        {
            "Help me": [
                answer(steps("completed", "in_progress")),
                answer("Which one?\n\n1. Tea\n2. Coffee"),
                answer(steps("completed", "completed")),
                answer("Here you are."),
            ]
        },
    )
    emacs = opened(system, branch)
    send(emacs, "Help me.")
    shows(emacs, "todo 1/2: Asking", "[x] Look", "[>] Asking", "1 Tea   2 Coffee")
    type_text(emacs, "with milk")
    emacs.keys("C-c", "2")
    shows(emacs, "### Coffee", "with milk", "Here you are.", "todo 2/2")
    gone(emacs, "1 Tea   2 Coffee", "[x] Look")
    users = [m["content"] for m in model_server.last.messages if m["role"] == "user"]
    assert any("Coffee\\n\\nwith milk" in json.dumps(each) for each in users)
    text = (branch / "session.md").read_text()
    assert "[x] Look" not in text and "1 Tea   2" not in text


def test_a_session_whose_document_was_emptied_asks_whether_its_conversation_was_to_be_removed(
    system: System,
    model_server: ModelServer,
    branch: Path,  # noqa: F811
) -> None:
    plays(model_server, {"Hello there": [answer("Good day.")]})
    system.ok("send", str(branch), "Hello there")
    (branch / "session.md").write_text("")
    emacs = opened(system, branch)
    shows(emacs, "Good day.", "session.md was empty, but its log has")
    emacs.keys("C-c", "C-c")
    shows(emacs, "pyagentd asks", "( ) Restore", "( ) Remove")
    emacs.keys("Tab", "Enter")
    emacs.keys("C-c", "C-c")
    wait_for(lambda: "Context cleared" in emacs.eval("(with-current-buffer (messages-buffer) (buffer-string))"), "it")
    assert system.json("asks") == []
