"""Several Emacsen show one session, and each of them may edit it; the daemon writes the file."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.e2e.conftest import System
from tests.e2e.emacs import Emacs, wait_for
from tests.e2e.test_conversation import FINISHED, converse, open_session, send
from tests.e2e.test_loss import gone
from tests.e2e.test_manners import WORDS, arrived, body, role_of, valve
from tests.server import ModelServer

ATTACHED = "(and (eq pyagentd-attach-state t) (not buffer-read-only))"
ANSWER = "".join(WORDS)


def opened(system: System, branch: Path) -> Emacs:
    """Return another Emacs that shows the session."""
    emacs = system.emacs()
    open_session(emacs, branch)
    emacs.wait(ATTACHED)
    return emacs


def pair(system: System) -> tuple[Emacs, Emacs, Path]:
    """Return two Emacsen that show a new session, and the branch."""
    _, branch = system.new()
    return opened(system, branch), opened(system, branch), branch


def type_(emacs: Emacs, text: str) -> None:
    """Type at the end, as a person would: nothing is typed where that is not allowed."""
    emacs.eval(f"(progn (goto-char (point-max)) (barf-if-buffer-read-only) (insert {json.dumps(text)}) t)")


def shows(emacs: Emacs, text: str) -> None:
    wait_for(lambda: body(emacs) == text, f"{text!r} to be shown, not {body(emacs)!r}")


def saved(branch: Path, text: str) -> None:
    wait_for(lambda: on_disk(branch) == text, f"{text!r} to be saved")


def on_disk(branch: Path) -> str:
    return (branch / "session.md").read_text().partition("\n\n<!-- Local Variables")[0]


def messages(emacs: Emacs) -> str:
    return str(emacs.eval('(with-current-buffer "*Messages*" (buffer-string))'))


def test_what_no_file_holds_moves_nothing(system: System) -> None:
    one, other, branch = pair(system)
    one.eval(r'(progn (goto-char (point-max)) (insert #xd800 (string-to-multibyte "\303\244") "|") (save-buffer) t)')
    shows(other, "### \ufffd\ufffd\ufffd|")
    type_(one, "typed")
    one.eval("(progn (goto-char 8) (insert 32) (pyagentd-sync-flush) t)")
    shows(other, "### \ufffd\ufffd\ufffd |typed")
    saved(branch, "### \ufffd\ufffd\ufffd |typed")


def test_what_is_typed_in_one_appears_in_the_other_and_moves_nothing(system: System) -> None:
    one, other, branch = pair(system)
    type_(one, "".join(f"line {number}\n" for number in range(50)))
    shows(other, body(one))
    other.eval("(progn (goto-char 100) (push-mark 50 t) t)")
    one.eval('(progn (goto-char 8) (insert "NEW ") t)')
    shows(other, body(one))
    assert other.eval("(list (point) (mark t) (buffer-modified-p))") == [104, 54, None]
    other.eval('(progn (goto-char 1) (search-forward "line 49") (replace-match "The end") t)')
    shows(one, body(other))
    saved(branch, body(one))
    for emacs in (one, other):
        emacs.wait("(not (buffer-modified-p))")
        assert emacs.eval("(verify-visited-file-modtime)") and on_disk(branch) == body(emacs)


def test_both_may_write_at_once_and_undo_what_is_theirs(system: System) -> None:
    one, other, branch = pair(system)
    type_(one, "Hello")
    shows(other, "### Hello")
    one.eval('(progn (goto-char (point-max)) (undo-boundary) (insert " from one") (undo-boundary) t)')
    other.eval('(progn (goto-char 1) (search-forward "### ") (insert "Well. ") t)')
    for emacs in (one, other):
        shows(emacs, "### Well. Hello from one")
    one.eval("(progn (undo-boundary) (setq last-command nil) (undo) t)")
    for emacs in (one, other):
        shows(emacs, "### Well. Hello")
    type_(one, " from one")
    saved(branch, "### Well. Hello from one")
    one.eval('(progn (goto-char 1) (search-forward "Hello") (replace-match "HELLO" t) t)')
    other.eval('(progn (goto-char 1) (search-forward "Hello") (replace-match "hello" t) t)')
    wait_for(lambda: body(one) == body(other) == on_disk(branch), "all to agree")
    assert "HELLO" in body(one) and "hello" in body(one), "nothing of either is lost"


def test_a_save_is_answered_when_the_file_holds_the_text(system: System) -> None:
    one, _, branch = pair(system)
    type_(one, "Saved at once")
    one.eval("(progn (save-buffer) t)")
    one.wait("(not (buffer-modified-p))")
    assert on_disk(branch) == "### Saved at once"


def test_more_than_a_call_can_have_is_saved_and_shown_in_the_other(system: System) -> None:
    one, other, branch = pair(system)
    one.eval(
        r'(progn (goto-char (point-max)) (dotimes (_ 20) (insert (make-string 999999 ?a) "\n")) (save-buffer) t)'
    )
    one.wait("(not (buffer-modified-p))")
    assert "Not saved" not in messages(one)
    assert len(on_disk(branch)) >= 20_000_000
    other.wait("(>= (buffer-size) 20000000)")
    one.eval("(progn (delete-region 5 (point-max)) (save-buffer) t)")
    saved(branch, "### ")
    shows(other, "### ")


def test_the_answer_and_edits_above_it_appear_while_it_streams(system: System, model_server: ModelServer) -> None:
    system.use_server(model_server.url)
    one, other, branch = pair(system)
    said = valve(WORDS)
    model_server.say(said)
    send(one, "Count.")
    said.let(10)
    for emacs in (one, other):
        arrived(emacs, WORDS[8])
    other.eval('(progn (goto-char 1) (search-forward "Count") (insert " them all") t)')
    arrived(one, "Count them all.")
    type_(one, "one's draft ")
    said.let(10)
    for emacs in (one, other):
        arrived(emacs, WORDS[18])
    arrived(other, "one's draft ")
    type_(other, "other's draft ")
    said.open()
    whole = f"### Count them all.\n\n{ANSWER}\n\n### one's draft other's draft "
    for emacs in (one, other):
        emacs.wait(FINISHED)
        shows(emacs, whole)
    saved(branch, whole)
    assert role_of(other, "word5") == "response" == role_of(one, "word5")


@pytest.mark.parametrize(
    "leave",
    [
        None,
        "(kill-buffer)",
        "(pyagentd-mode -1)",
        '(write-file (expand-file-name "elsewhere.md" "~"))',
    ],
    ids=["killed", "kill-buffer", "mode off", "write-file"],
)
def test_when_one_leaves_the_other_goes_on(system: System, model_server: ModelServer, leave: str | None) -> None:
    system.use_server(model_server.url)
    one, other, branch = pair(system)
    type_(one, "Half a question")
    if leave is None:
        shows(other, "### Half a question")
        one.kill()
    else:
        one.eval(f"(progn {leave} t)")
        shows(other, "### Half a question")
    model_server.say("A whole answer.")
    converse(other, ", and the other half.")
    saved(branch, "### Half a question, and the other half.\n\nA whole answer.\n\n### ")


def test_the_daemon_may_die_while_two_watch(system: System, model_server: ModelServer) -> None:
    system.use_server(model_server.url)
    one, other, branch = pair(system)
    type_(one, "Before. ")
    shows(other, "### Before. ")
    pid = system.daemon_pid()
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: gone(pid), "the daemon to be gone")
    type_(one, "Without it. ")
    saved(branch, "### Before. Without it. ")
    system.ok("serve", "--detach")
    for emacs in (one, other):
        emacs.wait(ATTACHED)
        shows(emacs, "### Before. Without it. ")
    model_server.say("Yes.")
    converse(other, "After?")
    shows(one, "### Before. Without it. After?\n\nYes.\n\n### ")


def test_one_that_does_not_answer_loses_nothing_and_hinders_nobody(system: System, model_server: ModelServer) -> None:
    system.use_server(model_server.url)
    frozen, other, branch = pair(system)
    type_(frozen, "Question")
    shows(other, "### Question")
    frozen.eval('(progn (setq pyagentd-autosave-enabled nil) (goto-char 5) (insert "My ") t)')
    os.kill(frozen.pid, signal.SIGSTOP)
    try:
        model_server.say("An answer.")
        converse(other, " of another")
    finally:
        os.kill(frozen.pid, signal.SIGCONT)
    frozen.eval("(progn (setq pyagentd-autosave-enabled t) (pyagentd-session-save) t)")
    answered = "### My Question of another\n\nAn answer.\n\n### "
    for emacs in (frozen, other):
        shows(emacs, answered)
    saved(branch, answered)


def test_what_another_program_writes_comes_into_all(system: System) -> None:
    one, other, branch = pair(system)
    type_(one, "A line\n")
    saved(branch, "### A line\n")
    file = branch / "session.md"
    file.write_text(file.read_text().replace("A line", "Another line"))
    type_(one, "typed")
    one.eval("(progn (pyagentd-sync--look) (save-buffer) t)")
    for emacs in (one, other):
        shows(emacs, "### Another line\ntyped")
    saved(branch, "### Another line\ntyped")
