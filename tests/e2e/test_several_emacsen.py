"""Several Emacsen show one session: one of them writes, the others follow it, and any of them can take over."""

from __future__ import annotations

import json
import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.e2e.conftest import System
from tests.e2e.emacs import Emacs, EmacsError, wait_for
from tests.e2e.test_conversation import FINISHED, converse, open_session, send
from tests.e2e.test_loss import gone
from tests.e2e.test_manners import WORDS, arrived, body, role_of, valve
from tests.server import ModelServer

EDITS = "(and (eq pyagentd-attach-state t) (not pyagentd-session-viewing) (not buffer-read-only))"
FOLLOWS = "(and (eq pyagentd-attach-state t) pyagentd-session-viewing buffer-read-only)"
ANSWER = "".join(WORDS)


def opened(system: System, branch: Path, expected: str) -> Emacs:
    """Return another Emacs that shows the session."""
    emacs = system.emacs()
    open_session(emacs, branch)
    emacs.wait(expected)
    return emacs


def pair(system: System) -> tuple[Emacs, Emacs, Path]:
    """Return one Emacs that writes a new session, one that follows it, and the branch."""
    _, branch = system.new()
    writer = opened(system, branch, EDITS)
    return writer, opened(system, branch, FOLLOWS), branch


def type_(emacs: Emacs, text: str) -> None:
    """Type at the end, as a person would: nothing is typed where that is not allowed."""
    emacs.eval(f"(progn (goto-char (point-max)) (barf-if-buffer-read-only) (insert {json.dumps(text)}) t)")


def shows(emacs: Emacs, text: str) -> None:
    wait_for(lambda: body(emacs) == text, f"{text!r} to be shown")


def saved(branch: Path, text: str) -> None:
    wait_for(lambda: on_disk(branch) == text, f"{text!r} to be saved")


def on_disk(branch: Path) -> str:
    return (branch / "session.md").read_text().partition("\n\n<!-- Local Variables")[0]


def take_over(emacs: Emacs) -> None:
    emacs.eval("(progn (driver-call #'pyagentd-take-over) t)")
    assert emacs.eval(EDITS)


def messages(emacs: Emacs) -> str:
    return str(emacs.eval('(with-current-buffer "*Messages*" (buffer-string))'))


# Following


def test_what_is_typed_in_one_appears_in_the_other_and_moves_nothing(system: System) -> None:
    writer, follower, branch = pair(system)
    type_(writer, "".join(f"line {number}\n" for number in range(50)))
    shows(follower, body(writer))
    follower.eval("(progn (goto-char 100) (push-mark 50 t) t)")
    writer.eval('(progn (goto-char 8) (insert "NEW ") t)')
    shows(follower, body(writer))
    assert follower.eval("(list (point) (mark t) (buffer-modified-p))") == [104, 54, None]
    writer.eval('(progn (goto-char 1) (search-forward "line 49") (replace-match "The end") t)')
    shows(follower, body(writer))
    assert follower.eval("(point)") == 104
    assert follower.eval("(verify-visited-file-modtime)") and on_disk(branch) == body(writer)


def test_the_answer_and_edits_above_it_appear_while_it_streams(system: System, model_server: ModelServer) -> None:
    system.use_server(model_server.url)
    writer, follower, _ = pair(system)
    said = valve(WORDS)
    model_server.say(said)
    send(writer, "Count.")
    said.let(10)
    for emacs in (writer, follower):
        arrived(emacs, WORDS[8])
    writer.eval('(progn (goto-char 1) (search-forward "Count") (insert " them all") (save-buffer) t)')
    arrived(follower, "Count them all.")
    said.let(10)
    arrived(follower, WORDS[18])
    said.open()
    for emacs in (writer, follower):
        emacs.wait(FINISHED)
        shows(emacs, f"### Count them all.\n\n{ANSWER}\n\n### ")
    assert role_of(follower, "word5") == "response"


# Who leaves


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
def test_when_the_one_that_writes_leaves_another_one_writes(
    system: System, model_server: ModelServer, leave: str | None
) -> None:
    system.use_server(model_server.url)
    writer, follower, branch = pair(system)
    type_(writer, "Half a question")
    writer.eval("(progn (save-buffer) t)")
    shows(follower, "### Half a question")
    if leave is None:
        writer.kill()
    else:
        writer.eval(f"(progn {leave} t)")
    follower.wait(EDITS)
    model_server.say("A whole answer.")
    converse(follower, ", and the other half.")
    assert on_disk(branch) == "### Half a question, and the other half.\n\nA whole answer.\n\n### "


def test_when_the_one_that_writes_dies_while_text_streams_no_byte_is_lost(
    system: System, model_server: ModelServer
) -> None:
    system.use_server(model_server.url)
    writer, follower, branch = pair(system)
    third = opened(system, branch, FOLLOWS)
    said = valve(WORDS)
    model_server.say(said)
    send(writer, "Count.")
    said.let(10)
    arrived(follower, WORDS[8])
    writer.eval('(progn (goto-char 1) (search-forward "Count") (insert " them") (save-buffer) t)')
    said.let(10)
    arrived(writer, WORDS[18])
    writer.kill()
    wait_for(lambda: [e for e in (follower, third) if e.eval(EDITS)], "one of the two to write")
    said.open()
    for emacs in (follower, third):
        emacs.wait(FINISHED)
        shows(emacs, f"### Count them.\n\n{ANSWER}\n\n### ")
    assert sorted(bool(emacs.eval(EDITS)) for emacs in (follower, third)) == [False, True]
    saved(branch, f"### Count them.\n\n{ANSWER}\n\n### ")


# Taking over


def test_taking_over_and_back_while_text_streams_loses_and_doubles_nothing(
    system: System, model_server: ModelServer
) -> None:
    system.use_server(model_server.url)
    one, two, branch = pair(system)
    said = valve(WORDS)
    model_server.say(said)
    send(one, "Count.")
    said.let(10)
    arrived(one, WORDS[8])
    type_(one, "one's draft ")
    take_over(two)
    one.wait(FOLLOWS)
    assert "another Emacs (emacs" in messages(one)
    said.let(10)
    for emacs in (one, two):
        arrived(emacs, WORDS[18])
    type_(two, "two's draft ")
    take_over(one)
    two.wait(FOLLOWS)
    said.open()
    whole = f"### Count.\n\n{ANSWER}\n\n### one's draft two's draft "
    for emacs in (one, two):
        emacs.wait(FINISHED)
        shows(emacs, whole)
    saved(branch, whole)


def test_two_that_take_over_at_once_take_turns(system: System) -> None:
    writer, second, branch = pair(system)
    third = opened(system, branch, FOLLOWS)
    type_(writer, "typed just now")
    with ThreadPoolExecutor(2) as pool:
        outcomes = [pool.submit(emacs.eval, "(driver-call #'pyagentd-take-over)") for emacs in (second, third)]
    for outcome in outcomes:  # who was asked to give way at once says so
        assert re.search("You now write|at the same time|took over", outcome.result())
    emacsen = (writer, second, third)
    wait_for(lambda: sorted(bool(e.eval(EDITS)) for e in emacsen) == [False, False, True], "one to write")
    for emacs in emacsen:
        shows(emacs, "### typed just now")
    (last,) = [emacs for emacs in emacsen if emacs.eval(EDITS)]
    type_(last, " and later")
    for emacs in emacsen:
        shows(emacs, "### typed just now and later")
    saved(branch, "### typed just now and later")


def test_the_daemon_may_die_while_two_watch(system: System, model_server: ModelServer) -> None:
    system.use_server(model_server.url)
    writer, follower, branch = pair(system)
    type_(writer, "Before. ")
    shows(follower, "### Before. ")
    pid = system.daemon_pid()
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: gone(pid), "the daemon to be gone")
    type_(writer, "Without it. ")
    saved(branch, "### Before. Without it. ")
    system.ok("serve", "--detach")
    wait_for(lambda: sorted(bool(e.eval(EDITS)) for e in (writer, follower)) == [False, True], "one to write")
    shows(follower, "### Before. Without it. ")
    take_over(follower)
    model_server.say("Yes.")
    converse(follower, "After?")
    shows(writer, "### Before. Without it. After?\n\nYes.\n\n### ")


def test_after_a_restart_who_wrote_goes_on_writing_whoever_started_the_daemon(system: System) -> None:
    _, branch = system.new()
    first = opened(system, branch, EDITS)
    second = system.emacs(terminal=True)  # one in batch is told of no files
    open_session(second, branch)
    second.wait(FOLLOWS)
    take_over(second)
    system.ok("stop")
    second.wait("(and (null pyagentd-attach-state) (timerp pyagentd-connect--retry))")
    # As if it had looked for a daemon in vain so often that it waits long before it looks again.
    second.eval("(progn (cancel-timer pyagentd-connect--retry) t)")
    type_(second, "ty")
    first.eval("(progn (pyagentd-connect) t)")
    second.wait(EDITS)
    type_(second, "ping in the second")
    saved(branch, "### typing in the second")
    shows(first, "### typing in the second")
    assert first.eval(FOLLOWS)


def test_one_that_does_not_answer_loses_its_turn_and_overwrites_nothing(
    system: System, model_server: ModelServer
) -> None:
    system.use_server(model_server.url)
    frozen, other, branch = pair(system)
    type_(frozen, "Question")
    shows(other, "### Question")
    frozen.eval('(progn (setq pyagentd-autosave-enabled nil) (goto-char (point-max)) (insert " of mine") t)')
    os.kill(frozen.pid, signal.SIGSTOP)
    try:
        with pytest.raises(EmacsError, match="read-only"):
            type_(other, "not yet")
        other.eval("(progn (driver-call #'pyagentd-take-over) t)", timeout_s=30)
        model_server.say("An answer.")
        converse(other, " of another")
    finally:
        os.kill(frozen.pid, signal.SIGCONT)
    answered = "### Question of another\n\nAn answer.\n\n### "
    frozen.wait(FOLLOWS)
    shows(frozen, answered)
    assert "what you wrote comes back" in messages(frozen)
    kept = '(seq-find (lambda (b) (string-match-p "not saved" (buffer-name b))) (buffer-list))'
    assert frozen.eval(f"(with-current-buffer {kept} (buffer-string))") == "### Question of mine"
    with pytest.raises(EmacsError, match="Another client writes"):
        frozen.eval("(progn (set-buffer-modified-p t) (save-buffer))")
    assert on_disk(branch) == answered == body(other)
    frozen.eval("(progn (set-buffer-modified-p nil) (setq pyagentd-autosave-enabled t) t)")
    take_over(frozen)
    other.wait(FOLLOWS)
    for emacs in (frozen, other):
        shows(emacs, answered + " of mine")
    assert not frozen.eval(kept)
    saved(branch, answered + " of mine")


def test_one_that_wakes_up_before_anything_was_written_overwrites_nothing_either(system: System) -> None:
    frozen, other, branch = pair(system)
    frozen.eval('(progn (insert "never saved") (setq pyagentd-autosave--deadline nil) t)')
    os.kill(frozen.pid, signal.SIGSTOP)
    try:
        other.eval("(progn (driver-call #'pyagentd-take-over) t)", timeout_s=30)
    finally:
        os.kill(frozen.pid, signal.SIGCONT)
    frozen.wait(FOLLOWS)
    assert on_disk(branch) == ""
    type_(other, "written")
    saved(branch, "### written")
    shows(frozen, "### written")
    take_over(frozen)
    saved(branch, "### writtennever saved")
