"""What another program did to a session is mended where it can be and said, and a disk that refuses is shown."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pyagentd.store.document import text as document
from tests.e2e.conftest import System
from tests.e2e.emacs import wait_for
from tests.e2e.test_conversation import FINISHED, converse, send
from tests.e2e.test_manners import body, role_of
from tests.e2e.test_several_emacsen import ATTACHED, messages, on_disk, opened
from tests.server import ModelServer, answer, text, tool_use


def written(system: System, server: ModelServer) -> tuple[str, Path]:
    """A conversation with a tool, and no daemon."""
    system.use_server(server.url)
    (system.project / "a.txt").write_text("alpha\n")
    session, branch = system.new()
    server.say(answer("I shall look.", tool_use("Read", file_path="a.txt")), "It says alpha.", "You are welcome.")
    system.ok("send", session, "What does it say?")
    system.ok("send", session, "Thanks.")
    return session, branch


def test_roles_that_were_lost_come_back_in_emacs_and_in_the_file(system: System, model_server: ModelServer) -> None:
    _, branch = written(system, model_server)
    file = branch / "session.md"
    whole = file.read_bytes()
    file.write_text(document.parse(whole.decode()).body)
    emacs = opened(system, branch)
    assert [role_of(emacs, said) for said in ("It says alpha", "Thanks.", "You are")] == [
        "response",
        None,
        "response",
    ]
    assert "recovered from the log" in messages(emacs)
    wait_for(lambda: file.read_bytes() == whole, "the roles to be saved, byte for byte as they were")
    emacs.eval("(progn (driver-call #'pyagentd-sync--show-recovery) t)")
    diff = emacs.eval("(buffer-string)")
    assert "+model" in diff and "It says alpha." in diff
    emacs.eval(f'(progn (switch-to-buffer (get-file-buffer "{file}")) t)')
    model_server.say("Yes.")
    converse(emacs, "Really?")
    assert "'tool_use'" in str(model_server.last.messages)


def test_what_was_found_in_a_document_is_told_once(system: System, model_server: ModelServer) -> None:
    _, branch = written(system, model_server)
    file = branch / "session.md"
    file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    model_server.say("Yes.")
    done = system.run("send", str(branch), "Really?")
    assert done.stderr.count("end with CR LF") == 1 and "Yes." in done.stdout, done


def test_a_second_emacs_sees_the_recovered_roles_too(system: System, model_server: ModelServer) -> None:
    _, branch = written(system, model_server)
    file = branch / "session.md"
    writer = opened(system, branch)
    text = file.read_text()
    writer.close()
    file.write_text(text.replace("### What", "\n\n### What", 1))  # a formatter
    first = opened(system, branch)
    second = opened(system, branch)
    for emacs in (first, second):
        assert role_of(emacs, "It says alpha") == "response" and role_of(emacs, "Thanks.") is None


@contextmanager
def read_only(directory: Path) -> Iterator[None]:
    place = str(directory)
    if os.geteuid() != 0 or subprocess.run(["mount", "--bind", place, place], check=False).returncode != 0:
        pytest.skip("only root mounts")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", place], check=True)
        yield
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def test_a_medium_that_cannot_be_written_is_read_and_says_why(system: System, model_server: ModelServer) -> None:
    session, branch = written(system, model_server)
    before = on_disk(branch)
    with read_only(branch):
        emacs = system.emacs()
        emacs.eval(f'(progn (find-file "{branch}/session.md") t)')
        emacs.wait("(eq pyagentd-attach-state t)")
        assert emacs.eval("buffer-read-only") and body(emacs) == before
        assert "Read-only file system" in emacs.eval("(substring-no-properties pyagentd-status--line)")
        assert "Read-only file system" in emacs.eval("(driver-call #'pyagentd-send)")
        refused = system.run("send", session, "And now?")
        assert refused.returncode != 0 and "Read-only file system" in refused.stderr and str(branch) in refused.stderr
        assert len(system.json("show", session)["messages"]) == 4
    model_server.say("Yes.")
    emacs.eval("(progn (goto-char (point-max)) t)")
    assert "no prompt" in emacs.eval("(driver-call #'pyagentd-send)")
    emacs.wait(ATTACHED)
    converse(emacs, "And now?")
    assert on_disk(branch) == before + "And now?\n\nYes.\n\n### "


def test_a_model_chosen_in_the_buffer_is_used_shown_and_kept(system: System, model_server: ModelServer) -> None:
    system.use_server(model_server.url)
    _, branch = system.new()
    emacs = opened(system, branch)
    converse(emacs, "Hi.")
    usual = model_server.last.body["model"]
    emacs.eval("(progn (setq-local gptel-model 'model-of-mine) t)")  # as gptel's menu does
    converse(emacs, "And now?")
    assert model_server.last.body["model"] == "model-of-mine" != usual
    assert "model-of-mine*" in emacs.eval("(substring-no-properties pyagentd-status--line)")
    follower = opened(system, branch)
    assert "model-of-mine*" in follower.eval("(substring-no-properties pyagentd-status--line)")
    converse(follower, "And there?")
    assert model_server.last.body["model"] == "model-of-mine"
    follower.eval("(progn (driver-call #'pyagentd-sync--keep-settings) t)")
    assert "model: model-of-mine\n" in (branch / "preset.md").read_text()
    assert "*" not in follower.eval("(substring-no-properties pyagentd-status--line)")
    emacs.eval("(progn (setq-local gptel-model 'yet-another) (driver-call #'pyagentd-sync--drop-settings) t)")
    converse(emacs, "And last?")
    assert model_server.last.body["model"] == "model-of-mine"


def test_a_session_edited_elsewhere_while_it_answers_and_one_types_comes_in_whole(
    system: System, model_server: ModelServer
) -> None:
    system.use_server(model_server.url)
    _, branch = system.new()
    file = branch / "session.md"
    emacs = opened(system, branch)
    model_server.say(answer(text("word " * 200 + "end.", chunks=100), pause_s=0.01), "Yes.")
    send(emacs, "Tell me.")
    emacs.wait('(string-match-p "word word" (buffer-string))')
    emacs.eval('(progn (goto-char (point-max)) (insert "My draft.") t)')
    file.write_text("### Tell me.\n\nEdited elsewhere.\n\n")
    emacs.wait(f'(and {FINISHED} (string-match-p "end\\." (buffer-string)))')
    emacs.wait("(and (pyagentd-attached-p) (not (buffer-modified-p)))")
    assert emacs.eval("pyagentd-session-trouble") is None
    shown = body(emacs)
    assert shown.endswith("My draft.") and on_disk(branch) == shown
    assert shown.count("end.") == shown.count("Edited elsewhere.") == shown.count("My draft.") == 1
    assert role_of(emacs, "end.") == "response" and role_of(emacs, "My draft") is None
    converse(emacs, " Really?")
    assert "Yes." in body(emacs)
    wait_for(lambda: on_disk(branch) == body(emacs), "the file to have it all")
    sent = str(model_server.last.messages)
    assert "Edited elsewhere." in sent and "My draft. Really?" in sent


def test_a_prompt_typed_while_another_program_saves_is_sent_with_the_text_of_both(
    system: System, model_server: ModelServer
) -> None:
    system.use_server(model_server.url)
    _, branch = system.new()
    file = branch / "session.md"
    emacs = opened(system, branch)
    model_server.say("Four.", "Six.", "Done.")
    converse(emacs, "Two and two?")
    wait_for(lambda: on_disk(branch) == body(emacs), "the first answer to be saved")
    emacs.eval('(progn (goto-char (point-max)) (insert "Three and three?") t)')
    file.write_text(file.read_text().replace("Two and two?", "2 + 2?"))  # its block of variables is as it was
    emacs.eval("(progn (pyagentd-send) t)")
    emacs.wait(f'(and {FINISHED} (string-match-p "Six" (buffer-string)))')
    assert body(emacs) == "### 2 + 2?\n\nFour.\n\n### Three and three?\n\nSix.\n\n### "
    assert role_of(emacs, "Four") == role_of(emacs, "Six") == "response"
    assert "2 + 2?" in str(model_server.last.messages) and "Three and three?" in str(model_server.last.messages)
    # Nothing of ours to be put back: what the other one saves is simply there.
    wait_for(lambda: on_disk(branch) == body(emacs), "the second answer to be saved")
    file.write_text(file.read_text().replace("2 + 2?", "2 and 2?"))
    emacs.eval('(progn (goto-char (point-max)) (execute-kbd-macro "Goodbye.") (pyagentd-send) t)')
    emacs.wait(f'(and {FINISHED} (string-match-p "Done" (buffer-string)))')
    assert body(emacs).startswith("### 2 and 2?\n\nFour.") and body(emacs).endswith("Goodbye.\n\nDone.\n\n### ")
    wait_for(lambda: on_disk(branch) == body(emacs), "the file to have it all")
