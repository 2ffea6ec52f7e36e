"""Branches and deletion while Emacs has the session open."""

from __future__ import annotations

import json

from pyagentd.store.document.text import read
from tests.e2e.conftest import System
from tests.e2e.test_conversation import converse, open_session
from tests.server import ModelServer


def prompts(system: System, session: str) -> list[str]:
    shown = system.json("show", session)["messages"]
    return [each["message"]["id"] for each in shown if each["message"]["role"] == "user"]


def test_a_branch_made_in_emacs_answers_the_prompt_it_ends_with(system: System, model_server: ModelServer) -> None:
    system.use_server(model_server.url)
    session, main = system.new("talk")
    emacs = system.emacs()
    open_session(emacs, main)
    for prompt, said in (("One?", "Yes."), ("Two?", "No.")):
        model_server.say(said)
        converse(emacs, prompt)
    before = (main / "session.md").read_bytes()
    emacs.eval('(progn (pyagentd-branch "other way" \'include 1) t)')
    emacs.wait('(string-suffix-p "-other way" pyagentd--branch-dir)')
    place = emacs.eval("pyagentd--branch-dir")
    assert emacs.eval("(buffer-string)") == "### One?"
    model_server.say("Perhaps.")
    emacs.eval("(progn (goto-char (point-max)) (pyagentd-send) t)")
    emacs.wait("(memq (plist-get pyagentd-status :state) '(idle error))")
    emacs.eval("(progn (save-buffer) t)")
    asked = [message["content"][0]["text"] for message in model_server.last.body["messages"]]
    assert asked == ["One?"]
    assert emacs.eval("(buffer-string)") == "### One?\n\nPerhaps.\n\n### "
    assert (main / "session.md").read_bytes() == before
    listed = system.json("branches", session)
    assert [(each["name"], each["current"]) for each in listed] == [("main", False), (place.rsplit("/", 1)[1], True)]


def test_the_saved_document_is_branched_while_an_editor_has_it(system: System, model_server: ModelServer) -> None:
    system.use_server(model_server.url)
    session, main = system.new("talk")
    emacs = system.emacs()
    open_session(emacs, main)
    model_server.say("Yes.")
    converse(emacs, "One?")
    emacs.eval('(progn (goto-char (point-max)) (insert "A draft") (save-buffer) t)')
    emacs.wait("(not (buffer-modified-p))")  # the file holds it then
    made = system.json("branch", session, "--at", prompts(system, session)[0])
    assert read(main / "session.md").body.endswith("### A draft")
    emacs.eval('(progn (insert " that grows") (save-buffer) t)')
    emacs.wait("(not (buffer-modified-p))")
    assert read(main / "session.md").body.endswith("### A draft that grows")
    model_server.say("Well.")
    system.ok("send", session, "And here?")
    assert made["branch_name"] in system.json("branches", session)[1]["branch_dir"]
    assert "Well." in system.ok("show", session) and "Well." not in (main / "session.md").read_text()


def test_emacs_lets_go_of_a_session_that_is_deleted(system: System, model_server: ModelServer) -> None:
    system.use_server(model_server.url)
    session, main = system.new("talk")
    emacs = system.emacs()
    open_session(emacs, main)
    model_server.say("Yes.")
    converse(emacs, "One?")
    trashed = json.loads(system.ok("delete", session, "--yes", "--json"))["trashed"]
    assert trashed == [str(main.parents[1])]
    emacs.wait("(not (bound-and-true-p pyagentd-mode))")
    assert "Yes." in emacs.eval("(buffer-string)")
    assert not main.parents[1].exists()
    assert (system.home / ".local/share/Trash/files" / session / "branches/main/messages.jsonl").is_file()
