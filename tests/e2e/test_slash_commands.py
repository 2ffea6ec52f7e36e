"""Slash commands typed into a session in a real Emacs, and on the command line."""

from __future__ import annotations

import json

import pytest

from tests.e2e.conftest import System
from tests.e2e.emacs import wait_for
from tests.e2e.test_conversation import FINISHED, open_session, send
from tests.e2e.test_manners import body
from tests.e2e.test_several_emacsen import saved
from tests.server import ModelServer, answer, text, tool_use

ASKED = "(and (eq (plist-get pyagentd-status :state) 'waiting) (pyagentd-ask-here) t)"
IGNORED = "(seq-every-p (lambda (at) (eq (get-text-property at 'gptel) 'ignore)) (number-sequence %d %d))"


@pytest.mark.spec("003", "Context Restore 3: the context is replaced")
def test_commands_are_answered_in_the_buffer_and_no_model_is_asked(system: System, model_server: ModelServer) -> None:
    system.use_server(model_server.url)
    session, branch = system.new()
    emacs = system.emacs()
    open_session(emacs, branch)
    model_server.say("First.", "Second.", answer(text("Looking."), tool_use("Bash", command="true")), "Third.")

    def typed(command: str, answered: str) -> None:
        send(emacs, command)
        emacs.wait(f"(and (eq (plist-get pyagentd-status :state) 'idle) (string-search {json.dumps(answered)} "
                   "(buffer-string)) (string-suffix-p \"### \" (buffer-string)))")  # fmt: skip

    send(emacs, "One")
    emacs.wait(f'(and {FINISHED} (string-search "First." (buffer-string)))')
    typed("/context save the first", "Context saved: [")
    id = body(emacs).split("Context saved: [")[1][:8]
    typed("/context clear", "Context cleared.")
    send(emacs, "Two")
    emacs.wait(f'(and {FINISHED} (string-search "Second." (buffer-string)))')
    typed(f"/context restore {id}", "Restoring the context")
    wait_for(lambda: body(emacs).count("First.") == 2 and body(emacs).endswith("First.\n\n### "), "what was saved")
    send(emacs, "Three")
    emacs.wait(ASKED)
    send(emacs, "/tasks")
    emacs.wait('(with-current-buffer "*Messages*" (string-search "No running tasks" (buffer-string)))')
    assert "/tasks" not in body(emacs)
    emacs.eval("(progn (goto-char (point-max)) (pyagentd-allow-once) t)")
    emacs.wait(f'(and {FINISHED} (string-search "Third." (buffer-string)))')
    emacs.eval("(progn (save-buffer) t)")
    saved(branch, body(emacs))
    seen = [part.get("text") for message in model_server.last.messages for part in message["content"]]
    assert [each for each in seen if each] == ["One", "First.", "Three", "Looking."]
    assert "/context" not in json.dumps(model_server.last.body)
    start = body(emacs).index("### /context save")
    end = body(emacs).index("### Two")
    emacs.wait(IGNORED % (start + 1, end - 2))
    told = json.loads(system.ok("send", session, "/context history", "--json"))
    assert [row["description"] for row in told["data"]["contexts"]] == ["the first"]
