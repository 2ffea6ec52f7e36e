"""The whole life of a named agent, with a real Emacs, across restarts of the daemon at each point (SPEC 003)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import System
from tests.e2e.emacs import wait_for
from tests.e2e.test_conversation import FINISHED, converse, send
from tests.e2e.test_restart import end_daemon
from tests.server import ModelServer, answer, tool_use

SLEEP = f"sleep {86000 + os.getpid()}"  # like no other command
PROMPT = "You keep the notes."
REFINED = "You keep the notes, and keep them short."
SUMMARY = "Notes were begun; a command sleeps."


class Life:
    """One agent, its user's Emacs, and a model that says what it is told to say."""

    def __init__(self, system: System, server: ModelServer) -> None:
        system.use_server(server.url)
        self.system, self.server = system, server
        self.place = Path(f"{system.sessions}-agents") / "keeper"
        self.emacs = system.emacs()
        self.emacs.eval("(progn (require 'pyagentd-views) t)")
        self.pid = 0  # of its command in the background
        self._ends = cycle(("kill", "stop", "terminate"))

    @property
    def document(self) -> Path:
        return self.place / "branches" / "main" / "session.md"

    @property
    def config(self) -> dict[str, Any]:
        read: dict[str, Any] = json.loads((self.place / "agent.json").read_text())
        return read

    @property
    def told(self) -> str:
        """What the model was told to be last."""
        return "".join(block["text"] for block in self.server.last.body["system"])

    @property
    def seen(self) -> str:
        """The conversation that the model was shown last."""
        return json.dumps(self.server.last.body["messages"])

    def restart(self) -> None:
        """End the daemon, each time in another way; the next one is there, and an Emacs with a session has it."""
        end_daemon(self.system, next(self._ends))
        assert [each["name"] for each in self.system.json("agent", "list")["agents"]] in (["keeper"], [])
        self.emacs.wait("(or (pyagentd-rpc-connected-p) (null (pyagentd-place-buffers)))")

    def make(self, prompt: str = "") -> None:
        """Make the agent in Emacs, which shows its conversation."""
        self.emacs.eval(f'(progn (pyagentd-agents--init "keeper" "{prompt}") t)')
        self.show()

    def show(self) -> None:
        self.emacs.wait(f'(and (equal buffer-file-name "{self.document}") (eq pyagentd-attach-state t))')

    def say(self, text: str, *answers: Any) -> str:
        """Say something to the agent and return what the model was shown last."""
        self.show()
        self.server.say(*answers)
        converse(self.emacs, text)
        return self.seen

    def approve(self, tool: str) -> None:
        """Allow in Emacs what is asked there, which must be for a tool."""
        self.emacs.wait(f'(equal "{tool}" (plist-get (pyagentd-ask-here) :tool))')
        self.emacs.eval("(progn (pyagentd-allow-once) t)")

    def saved(self) -> list[dict[str, Any]]:
        """Return the conversations that were saved, the last one first."""
        rows: list[dict[str, Any]] = self.system.json("context", "history", "keeper")
        return rows

    def restore(self, saved: dict[str, Any]) -> None:
        """Take a saved conversation up again, from the list in Emacs."""
        self.show()
        self.emacs.eval("(progn (pyagentd-context--history) t)")
        self.emacs.wait("pyagentd-table-rows")
        assert self.emacs.eval(f'(and (string-search "{saved["id"][:8]}" (buffer-string)) t)')
        self.emacs.eval(
            f"""(progn (goto-char (point-min)) (search-forward "{saved["id"][:8]}") (beginning-of-line)
                (cl-letf (((symbol-function 'y-or-n-p) (lambda (_) t)))
                  (call-interactively (key-binding (kbd "RET"))))
                t)"""
        )
        messages = '(with-current-buffer "*Messages*" (buffer-string))'
        self.emacs.wait(f'(and (string-search "Restored " {messages}) t)')
        self.emacs.eval("(progn (quit-window) t)")
        self.emacs.eval('(with-current-buffer "*Messages*" (let ((inhibit-read-only t)) (erase-buffer)) t)')

    def destroy(self, *, keep: bool) -> str:
        """Destroy the agent in Emacs and return what its user was told to be lost."""
        self.emacs.eval(
            "(progn (defvar asked nil) (setq asked nil) (advice-add 'yes-or-no-p :override (lambda (prompt) "
            "(setq asked prompt) t)) t)"
        )
        self.emacs.eval(f'(progn (pyagentd-destroy "keeper" {"t" if keep else "nil"}) t)')
        wait_for(lambda: self.system.json("agent", "list")["agents"] == [], "the agent to be destroyed")
        self.emacs.wait(f'(not (get-file-buffer "{self.document}"))')  # no session any more
        return str(self.emacs.eval("asked"))

    def tasks(self) -> list[tuple[str, int]]:
        return [(each["status"], each["pid"]) for each in self.system.json("tasks", "keeper")]


def alive(pid: int) -> bool:
    """Return whether a process is there, and no zombie."""
    try:
        return bool(pid and Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return False


@pytest.fixture
def life(system: System, model_server: ModelServer) -> Iterator[Life]:
    made = Life(system, model_server)
    yield made
    if alive(made.pid):  # it would outlive the daemon
        system.run("tasks", "keeper", "--kill", "task_001")


def works(life: Life) -> None:
    notes = life.place / "workspace" / "notes.md"
    write = tool_use("Write", file_path=str(notes), content="# Notes\n")
    life.say("Begin the notes.", answer(write), "They are begun.")
    assert notes.read_text() == "# Notes\n" and PROMPT in life.told


def refines_itself(life: Life) -> None:
    life.show()
    life.server.say(
        answer(tool_use("self_edit_system_prompt", new_prompt=REFINED)),
        answer(tool_use("self_edit_docs", path="habits.md", content="Notes are in notes.md.\n")),
        "I am refined.",
    )
    send(life.emacs, "Be brief, and remember where your notes are.")
    life.emacs.wait("(pyagentd-ask-here)")
    life.restart()
    assert life.config["system_prompt"] == PROMPT
    life.approve("self_edit_system_prompt")
    life.approve("self_edit_docs")
    life.emacs.wait(FINISHED)
    assert life.config["system_prompt"] == REFINED
    assert REFINED in life.told and "Notes are in notes.md." in life.told
    rows = [row for row in life.system.json("audit", "keeper") if "self_edit" in row["action"]]
    assert [row["decision"] for row in rows] == ["ask_approved"] * 2


def starts_a_task(life: Life) -> None:
    life.show()
    life.server.say(answer(tool_use("Bash", command=SLEEP, run_in_background=True)), "It runs.")
    send(life.emacs, "Sleep behind my back.")
    life.approve("Bash")
    life.emacs.wait(FINISHED)
    ((status, life.pid),) = life.tasks()
    assert status == "running" and alive(life.pid)


def idles_out(life: Life) -> dict[str, Any]:
    life.system.ok("settings", "idle_timeout", "1")
    life.server.say("I am.", SUMMARY)
    life.system.ok("send", "keeper", "Are you there?")
    wait_for(lambda: life.saved()[0]["trigger"] == "idle_timeout", "the conversation to be put away")
    last = life.saved()[0]
    assert (last["description"], last["message_count"]) == (SUMMARY, 2)
    life.system.ok("settings", "idle_timeout", "30min")
    return last


def test_the_life_of_an_agent(life: Life) -> None:
    life.make(PROMPT)
    assert life.config["permissions"] == "standard"
    life.restart()
    works(life)
    life.restart()
    refines_itself(life)
    life.restart()
    starts_a_task(life)

    life.emacs.kill()
    end_daemon(life.system, "kill")
    assert life.tasks() == [("running", life.pid)]
    last = idles_out(life)

    life.emacs = life.system.emacs()
    life.emacs.eval(f'(progn (find-file "{life.document}") t)')
    life.restore(last)
    life.restart()
    assert life.saved()[0]["trigger"] == "shutdown"
    life.restore(last)
    assert "Are you there?" in life.say("Go on.", "I do.") and life.tasks() == [("running", life.pid)]
    life.restart()

    asked = life.destroy(keep=True)
    assert SLEEP in asked and "Its files stay" in asked
    wait_for(lambda: not alive(life.pid), "the end of its command")
    life.restart()
    life.make()
    assert life.config["system_prompt"] == REFINED
    assert (life.place / "workspace" / "notes.md").exists() and (life.place / "docs" / "habits.md").exists()
    life.restore(last)
    assert "Are you there?" in life.say("And again.", "Again.")
    life.restart()

    assert "1 file in its workspace not committed" in life.destroy(keep=False)
    assert not life.place.exists()
    assert list((life.system.home / ".local/share/Trash/files").iterdir()) == [
        life.system.home / ".local/share/Trash/files/keeper"
    ]
    life.restart()
    life.make("Anew.")
    assert "Are you there?" not in life.say("Hello?", "Hello.") and "Anew." in life.told
    assert not (life.place / "docs" / "habits.md").exists()
