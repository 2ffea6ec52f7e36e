"""A conversation as its user has it: in Emacs, on the command line, and on disk, all the same."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pyagentd.store.document.text import gptel_messages
from tests.e2e.conftest import System
from tests.e2e.emacs import Emacs
from tests.server import ModelServer, answer, text, thinking, tool_use

FINISHED = "(memq (plist-get pyagentd-status :state) '(idle error))"


def open_session(emacs: Emacs, branch: Path) -> None:
    emacs.eval(f'(progn (find-file "{branch}/session.md") t)')
    emacs.eval('(progn (goto-char (point-max)) (when (= 1 (point)) (insert "### ")) t)')


def send(emacs: Emacs, prompt: str) -> None:
    emacs.eval(f"(progn (goto-char (point-max)) (insert {json.dumps(prompt)}) (pyagentd-send) t)")


def converse(emacs: Emacs, prompt: str) -> None:
    send(emacs, prompt)
    emacs.wait(FINISHED)
    emacs.eval("(progn (save-buffer) t)")


def script(server: ModelServer) -> None:
    """Two turns with everything a document can hold."""
    server.say(
        answer(
            thinking("Let me look.", chunks=3),
            text("I shall read 𝔱𝔴𝔬 files.\n", chunks=4),
            tool_use("Read", id="toolu_a", file_path="a.txt"),
            tool_use("Read", id="toolu_b", file_path="missing.txt"),
        ),
        answer("One is there: ```a``` — é.", stop_reason="end_turn"),
        answer(text("And more.", chunks=3)),
    )


def normalised(body: str) -> str:
    return re.sub(r"-\d{14}", "-TIME", body)


def test_headless_and_emacs_write_the_same_bytes(system: System, model_server: ModelServer) -> None:
    system.use_server(model_server.url)
    (system.project / "a.txt").write_text("alpha\nbeta\n")
    files = []
    for place in ("headless", "emacs"):
        session, branch = system.new("same")
        script(model_server)
        if place == "headless":
            system.ok("send", session, "What is in the files?")
            system.ok("send", session, "Is that all?")
        else:
            emacs = system.emacs()
            open_session(emacs, branch)
            converse(emacs, "What is in the files?")
            converse(emacs, "Is that all?")
        files.append(normalised((branch / "session.md").read_text()))
    assert files[0] == files[1]
    assert "gptel--bounds" in files[0]


def test_a_reader_that_follows_gptel_gets_the_messages_the_model_saw(
    system: System, model_server: ModelServer
) -> None:
    system.use_server(model_server.url)
    (system.project / "a.txt").write_text("alpha\n")
    session, branch = system.new()
    script(model_server)
    system.ok("send", session, "What is in the files?")
    messages = gptel_messages((branch / "session.md").read_text())
    assert [message["role"] for message in messages] == [
        "user", "assistant", "assistant", "user", "assistant", "user", "assistant",
    ]  # fmt: skip
    assert messages[0]["content"] == "What is in the files?"
    assert messages[2]["content"][0]["input"] == {"file_path": "a.txt"}
    assert messages[5]["content"][0]["tool_use_id"] == "toolu_b"
    assert messages[6]["content"] == "One is there: ```a``` — é."
    assert json.loads(system.ok("messages", str(branch / "session.md"))) == messages


def test_the_next_turn_sends_the_exact_parts_again(system: System, model_server: ModelServer) -> None:
    system.use_server(model_server.url)
    (system.project / "a.txt").write_text("alpha\n")
    session, _ = system.new()
    script(model_server)
    system.ok("send", session, "What is in the files?")
    system.ok("send", session, "Is that all?")
    before, after = (request.messages for request in model_server.requests[1:3])
    assert [_bare(message) for message in after[: len(before)]] == [_bare(message) for message in before]
    assert [block["type"] for block in after[1]["content"]] == ["thinking", "text", "tool_use", "tool_use"]


def _bare(message: dict) -> dict:
    blocks = (
        message["content"] if isinstance(message["content"], list) else [{"type": "text", "text": message["content"]}]
    )
    return {
        "role": message["role"],
        "content": [{k: v for k, v in b.items() if k != "cache_control"} for b in blocks],
    }


def test_an_edited_answer_is_what_the_model_sees_next(system: System, model_server: ModelServer) -> None:
    system.use_server(model_server.url)
    _, branch = system.new()
    model_server.say("The answer is wrong.", "Noted.")
    emacs = system.emacs()
    open_session(emacs, branch)
    converse(emacs, "Well?")
    emacs.eval('(progn (goto-char (point-min)) (search-forward "wrong") (replace-match "right" t) t)')
    converse(emacs, "Sure?")
    assert _bare(model_server.last.messages[1])["content"] == [{"type": "text", "text": "The answer is right."}]


def test_megabytes_that_are_pasted_are_saved_and_found_by_a_new_daemon(
    system: System, model_server: ModelServer
) -> None:
    system.use_server(model_server.url)
    _, branch = system.new()
    emacs = system.emacs()
    open_session(emacs, branch)
    emacs.wait("(pyagentd-attached-p)")
    emacs.eval(r"""(progn (insert (apply #'concat (make-list 60000 "a \"line\" of what was pasted\n"))) t)""")
    emacs.eval("(progn (save-buffer) t)")
    emacs.wait("(not (buffer-modified-p))")
    text = emacs.eval("(buffer-substring-no-properties (point-min) (point-max))")
    assert len(text) > 1_500_000 and (branch / "session.md").read_text().startswith(text)
    system.ok("stop")
    emacs.wait("(not (pyagentd-rpc-connected-p))")
    emacs.eval('(progn (goto-char (point-max)) (insert "typed without a daemon") t)')
    system.ok("serve", "--detach")
    emacs.wait("(and (pyagentd-attached-p) (not (buffer-modified-p)))")
    assert "typed without a daemon" in (branch / "session.md").read_text()


def test_text_typed_below_while_the_model_answers_stays_a_draft(system: System, model_server: ModelServer) -> None:
    system.use_server(model_server.url)
    _, branch = system.new()
    model_server.say(answer(text("one two three", chunks=6), pause_s=0.1))
    emacs = system.emacs()
    open_session(emacs, branch)
    send(emacs, "Count.")
    emacs.wait('(save-excursion (goto-char (point-min)) (search-forward "one" nil t))')
    emacs.eval('(progn (goto-char (point-max)) (insert "my draft") t)')
    emacs.wait(FINISHED)
    body = emacs.eval("(progn (save-buffer) (buffer-substring-no-properties (point-min) (point-max)))")
    assert body == "### Count.\n\none two three\n\n### my draft"
    assert len(model_server.requests) == 1


def test_a_second_emacs_opens_the_file_and_continues(system: System) -> None:
    (system.project / "notes.md").write_text("# Notes\n")
    first = system.emacs()
    first.eval('(progn (pyagentd-session "two") t)')
    first.wait("pyagentd--branch-dir")
    file = first.eval("buffer-file-name")
    converse(first, "Hello there.")
    first.close()
    second = system.emacs()
    second.eval(f'(progn (find-file "{file}") t)')
    converse(second, "Please read notes.md.")
    body = second.eval("(buffer-substring-no-properties (point-min) (point-max))")
    assert body.count("### Hello there.") == 1
    assert '(:name "Read"' in body


@pytest.mark.parametrize("kind", ["agent", "deny", "abort"])
def test_an_agent_is_asked_for_shown_and_answers(system: System, model_server: ModelServer, kind: str) -> None:
    system.use_server(model_server.url)
    (system.project / "a.txt").write_text("alpha\n")
    _, branch = system.new()
    call = tool_use(
        "PersistentAgent", id="toolu_agent", preset="explorer", description="look around", prompt="Read a.txt"
    )
    if kind == "agent":
        model_server.say(answer("I delegate.", call), answer(tool_use("Read", file_path="a.txt")))
        model_server.say(answer(text("It says alpha.", chunks=5), pause_s=0.15), "The agent says alpha.")
    else:
        model_server.say(answer("I delegate.", call), "Then not.")
    emacs = system.emacs()
    open_session(emacs, branch)
    send(emacs, "Delegate it.")
    emacs.wait("(pyagentd-ask-here)")
    decide = {"agent": "pyagentd-allow-once", "deny": "pyagentd-deny nil", "abort": "pyagentd-ask--abort"}[kind]
    emacs.eval(f"(progn ({decide}) t)")
    overlay = (
        "(seq-some (lambda (o) (and (overlay-get o 'pyagentd-agent) (overlay-get o 'after-string)))"
        " (overlays-in (point-min) (point-max)))"
    )
    if kind == "agent":
        shown = emacs.wait(
            f'(let ((s {overlay})) (and s (string-match-p "Calling Tools\\\\.\\\\.\\\\. (\\\\+1)" s) s))'
        )
        assert "Explorer Task: look around" in shown
    emacs.wait(FINISHED)
    assert emacs.eval(overlay) is None
    body = emacs.eval("(progn (save-buffer) (buffer-substring-no-properties (point-min) (point-max)))")
    agents = list((branch / "agents").glob("[!.]*")) if (branch / "agents").exists() else []
    if kind == "agent":
        assert "It says alpha." in body and "The agent says alpha." in body
        (agent,) = agents
        assert (agent / "session.md").read_text().startswith("Read a.txt\n\n")
        assert not (agent / "branches").exists() and not (agent / "current").exists()
    else:
        assert agents == []
        assert ("Then not." in body) == (kind == "deny")
