"""An agent that Emacs spawned has a buffer: looked at while it works, it follows; never looked at, it goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import System
from tests.e2e.emacs import Emacs, wait_for
from tests.e2e.test_terminal_paths import approve, script
from tests.server import ModelServer, answer, text

WORDS = " ".join(f"word{number}" for number in range(40))
AGENT = '(seq-some (lambda (b) (and (string-match-p "/agents/" (or (buffer-file-name b) "")) (buffer-name b)))'
AGENT += " (buffer-list))"


def delegate(system: System, server: ModelServer, pause_s: float) -> tuple[Emacs, Path]:
    system.use_server(server.url)
    _, branch = system.new()
    approve(branch)
    script(server, (answer(text(WORDS, chunks=40), pause_s=pause_s),))
    emacs = system.emacs(terminal=True)
    emacs.eval(f'(progn (find-file "{branch}/session.md") t)')
    emacs.wait("(eq pyagentd-attach-state t)")
    emacs.eval('(progn (goto-char (point-max)) (insert "Delegate.") (pyagentd-send) t)')
    return emacs, branch


@pytest.mark.spec("000", "Empty session.md created")
def test_who_looks_at_an_agent_sees_it_work(system: System, model_server: ModelServer) -> None:
    emacs, branch = delegate(system, model_server, 0.1)
    emacs.wait(AGENT)
    emacs.eval(f"(progn (switch-to-buffer {AGENT}) t)")
    emacs.wait('(save-excursion (goto-char (point-min)) (search-forward "word5 " nil t))')
    assert emacs.eval("pyagentd-attach-viewer") is None
    emacs.wait("(memq (plist-get pyagentd-status :state) '(idle))")
    shown = emacs.eval("(buffer-substring-no-properties (point-min) (point-max))")
    (agent,) = (branch / "agents").iterdir()
    assert shown == f"Look.\n\n{WORDS}\n\n### "
    emacs.wait(f'(with-current-buffer (get-file-buffer "{branch}/session.md") (null pyagentd-overlay--table))')
    assert emacs.eval("(buffer-live-p (current-buffer))")
    wait_for(lambda: (agent / "session.md").read_text().startswith(f"Look.\n\n{WORDS}"), "it to be saved")


def test_an_agent_that_nobody_looked_at_leaves_no_buffer(system: System, model_server: ModelServer) -> None:
    emacs, branch = delegate(system, model_server, 0.02)
    emacs.wait(AGENT)
    emacs.wait('(save-excursion (goto-char (point-min)) (search-forward "Done" nil t))')
    emacs.wait(f"(null {AGENT})")
    assert len(list((branch / "agents").iterdir())) == 1
