"""A daemon that does not answer: Emacs goes on, and what was to be done is done when it wakes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from tests.e2e.conftest import System
from tests.e2e.emacs import wait_for
from tests.e2e.test_conversation import FINISHED, open_session
from tests.e2e.test_manners import body
from tests.server import ModelServer


@contextmanager
def asleep(system: System) -> Iterator[None]:
    """Stop the daemon where it is, and let it go on afterwards."""
    pid = system.daemon_pid()
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_prompt_sent_while_the_daemon_sleeps_is_answered_when_it_wakes(
    system: System, model_server: ModelServer
) -> None:
    system.use_server(model_server.url)
    _, branch = system.new()
    model_server.say("Four.")
    emacs = system.emacs(terminal=True)
    with asleep(system):
        open_session(emacs, branch)
        assert emacs.eval("pyagentd-attach-state") == "pending"
        emacs.keys("Two and two?", "C-c", "Enter", "Enter", "Enter", "and a draft")
        emacs.wait('(string-match-p "and a draft" (buffer-string))')
        assert emacs.eval("(plist-get pyagentd-status :state)") == "sending"
        emacs.keys("M-x", "pyagentd-sessions", "Enter")  # what else one does meanwhile
        emacs.wait('(equal (buffer-name (window-buffer)) "*pyagentd sessions*")')
        emacs.keys("q")
        emacs.wait("pyagentd-mode")
    emacs.wait(f'(and {FINISHED} (string-match-p "Four" (buffer-string)))')
    assert body(emacs) == "### Two and two?\n\nFour.\n\n### \n\nand a draft"
    (asked,) = model_server.requests
    assert asked.messages[-1]["content"][-1]["text"] == "Two and two?"


def test_the_first_prompt_is_typed_before_there_is_a_session(system: System, model_server: ModelServer) -> None:
    system.use_server(model_server.url)
    system.new("another")
    model_server.say("Four.")
    emacs = system.emacs(terminal=True)
    emacs.eval(f'(progn (setq default-directory "{system.project}/") t)')
    with asleep(system):
        emacs.keys("M-x", "pyagentd-session", "Enter", "Two cups", "Enter")
        emacs.wait('(equal (buffer-name (window-buffer)) "Two cups")')
        emacs.keys("Two and two?", "C-c", "Enter", "and a draft")
        emacs.wait('(string-match-p "and a draft" (buffer-string))')
        emacs.eval("(progn (setq its-buffer (window-buffer)) t)")
    emacs.wait(f'(and {FINISHED} (string-match-p "Four" (buffer-string)))')
    assert emacs.eval("(and (eq its-buffer (window-buffer)) (buffer-name))") == "Two cups"
    assert body(emacs) == "### Two and two?\n\nFour.\n\n### and a draft"
    assert [session["title"] for session in system.json("sessions")] == ["another", "Two cups"]


def test_saving_goes_on_while_the_daemon_sleeps(system: System) -> None:
    _, branch = system.new()
    emacs = system.emacs()
    open_session(emacs, branch)
    emacs.wait("(pyagentd-attached-p)")
    text = "### " + 400 * "x"
    with asleep(system):
        emacs.eval('(dotimes (_ 400) (insert "x") (save-buffer))')
        kept = branch / "#session.md#"
        abbreviated = emacs.eval(f'(abbreviate-file-name "{kept}")')
        said = f"Not saved yet: the daemon does not answer; kept in {abbreviated}"
        assert emacs.wait("pyagentd-session-trouble") == said
        assert said in emacs.eval("(substring-no-properties pyagentd-status--line)")
        assert emacs.eval("(buffer-modified-p)")
        assert kept.read_text().startswith(text)
        emacs.eval('(progn (insert "y") t)')
        wait_for(lambda: kept.read_text().startswith(text + "y"), "what is typed later to be kept, too")
    emacs.wait("(not (or (buffer-modified-p) pyagentd-session-trouble pyagentd-outbox--held))")
    assert (branch / "session.md").read_text().startswith(text + "y")
    assert not kept.exists()


def test_what_is_typed_while_a_prompt_waits_for_the_daemon_is_the_next_one(
    system: System, model_server: ModelServer
) -> None:
    system.use_server(model_server.url)
    _, branch = system.new()
    model_server.say("Four.")
    emacs = system.emacs(terminal=True)
    open_session(emacs, branch)
    emacs.wait("(pyagentd-attached-p)")
    with asleep(system):
        emacs.keys("Two and two?", "C-c", "Enter", "and")
        wait_for(lambda: "The daemon does not answer" in emacs.screen(), "it to be said")
        emacs.keys(" a draft")
        emacs.wait('(and (string-suffix-p "a draft" (buffer-string)) pyagentd-session-trouble)')
        assert body(emacs) == "### Two and two?\n\n\n### and a draft"
    emacs.wait(f'(and {FINISHED} (string-match-p "Four" (buffer-string)))')
    wait_for(lambda: body(emacs) == "### Two and two?\n\nFour.\n\n### and a draft", "one heading")
    wait_for(lambda: "does not answer" not in emacs.screen(), "the header to say so no more")
    (asked,) = model_server.requests
    assert asked.messages[-1]["content"][-1]["text"] == "Two and two?"
