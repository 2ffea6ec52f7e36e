"""A real Emacs beside a real daemon: agents work in its buffers and call its functions."""

from __future__ import annotations

import json

import pytest

from tests.e2e.conftest import System
from tests.e2e.test_sessions_screen import visit
from tests.e2e.test_terminal import shows, type_text
from tests.server import ModelServer, answer, tool_use

TOOLS = """
(progn
  (pyagentd-make-tool
   :name "double" :function (lambda (n) (* 2 n)) :description "Doubles"
   :args '((:name "n" :type integer :description "A number")))
  (pyagentd-make-tool
   :name "later" :async t :description "Says it later"
   :function (lambda (callback text options)
               (run-at-time 0.05 nil callback
                            (format "%s %S" (upcase text) options)))
   :args '((:name "text" :type string :description "What")
           (:name "options" :type object :optional t :description "How"
            :properties (:loud (:type boolean)) :required [])))
  nil)
"""

NOTES = """
(with-current-buffer (find-file-noselect "{file}")
  (setq-local buffer-file-coding-system 'latin-1-dos)
  (buffer-enable-undo)
  (add-hook 'after-save-hook (lambda () (setq saved-by-hook t)) nil t)
  (goto-char (point-max))
  (insert "unsaved\\n")
  (search-backward "three")
  (setq notes-marker (copy-marker (point)))
  nil)
"""


@pytest.fixture
def scripted(system: System, model_server: ModelServer) -> System:
    system.use_server(model_server.url)
    return system


def test_agents_work_in_buffers_and_call_functions_of_emacs(scripted: System, model_server: ModelServer) -> None:
    file = scripted.project / "notes.txt"
    file.write_bytes("one\r\ntwo\r\nthree é\r\n".encode("latin-1"))
    session, directory = scripted.new("buffers")
    preset = directory / "preset.md"
    preset.write_text(preset.read_text().replace("tools:\n", "tools:\n  - emacs\n", 1))
    emacs = scripted.emacs()
    emacs.eval(TOOLS)
    emacs.eval(NOTES.format(file=file))
    emacs.eval(f'(progn (find-file "{directory}/session.md") nil)')
    emacs.wait("pyagentd-attach-state")
    emacs.wait("(not (or pyagentd-offer--timer pyagentd-rpc--pending))")
    model_server.say(
        answer(tool_use("Read", file_path="notes.txt")),
        answer(tool_use("Edit", file_path="notes.txt", old_string="two", new_string="two\ntwo and a half")),
        answer(tool_use("double", n=21), tool_use("later", text="hey", options={"loud": False})),
        answer(tool_use("emacs_describe", name="car-safe")),
        "Done.",
    )
    scripted.ok("send", session, "Go.", "--headless", "--allow", "tool:.*")
    told = [
        block["content"] if isinstance(block["content"], str) else block["content"][0]["text"]
        for message in model_server.last.messages
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_result"
    ]
    assert "Unsaved text of the buffer notes.txt" in told[0] and "unsaved" in told[0]
    assert "and saved, together with changes of the user's" in told[1]
    assert told[2:4] == ["42", "HEY (:loud :json-false)"]
    assert told[4].startswith("Function (car-safe")
    assert file.read_bytes() == "one\r\ntwo\r\ntwo and a half\r\nthree é\r\nunsaved\r\n".encode("latin-1")
    seen = emacs.eval(
        """
(with-current-buffer "notes.txt"
  (list (buffer-modified-p) saved-by-hook (looking-at "three")
        (equal (point) (marker-position notes-marker))
        (progn (setq last-command nil) (undo) (buffer-string))))
"""
    )
    assert seen == [None, True, True, True, "one\ntwo\nthree é\nunsaved\n"], json.dumps(seen)


def test_what_is_asked_about_shows_the_buffer_and_evaluation_is_always_asked_about(
    scripted: System, model_server: ModelServer
) -> None:
    file = scripted.project / "notes.txt"
    file.write_text("one\n")
    _, directory = scripted.new("asked")
    preset = directory / "preset.md"
    preset.write_text(preset.read_text().replace("tools:\n", "tools:\n  - emacs\n", 1))
    emacs = scripted.emacs(terminal=True, size=(130, 48))
    emacs.eval(f'(with-current-buffer (find-file-noselect "{file}") (insert "unsaved ") nil)')
    visit(emacs, directory / "session.md")
    emacs.wait("(not (or pyagentd-offer--timer pyagentd-rpc--pending))")
    model_server.say(
        answer(tool_use("Edit", file_path="notes.txt", old_string="unsaved one", new_string="uno")),
        answer(tool_use("emacs_eval", expression='(setq told "by an agent")')),
        "Done.",
    )
    emacs.keys("M->")
    type_text(emacs, "Go on")
    emacs.keys("C-c", "Enter")
    shows(emacs, "Allow Edit", "-unsaved one", "+uno")
    emacs.keys("C-c", "C-c", "y")
    shows(emacs, "Allow emacs_eval", "by an agent")
    assert emacs.eval("(boundp 'told)") is None
    emacs.keys("C-c", "C-c", "y")
    shows(emacs, "Ready", "Done.")
    assert file.read_text() == "uno\n"
    assert emacs.eval("told") == "by an agent"
