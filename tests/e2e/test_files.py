"""What an agent does to files, seen from Emacs and the command line: followed, listed, put back, forbidden."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import System
from tests.e2e.emacs import Emacs, wait_for
from tests.e2e.test_terminal_paths import approve
from tests.server import ModelServer, answer, tool_use


def opened(system: System, server: ModelServer) -> tuple[Emacs, str, Path]:
    """A session in an Emacs, whose tools may act."""
    system.use_server(server.url)
    session, branch = system.new()
    approve(branch)
    emacs = system.emacs(terminal=True)
    emacs.eval(f'(progn (find-file "{branch}/session.md") t)')
    emacs.wait("(eq pyagentd-attach-state t)")
    return emacs, session, branch


@pytest.mark.spec("002", "When an agent edits a document the user has open, does the open view stay in sync?")
def test_buffers_of_files_that_an_agent_edits_follow(system: System, model_server: ModelServer) -> None:
    for name in ("open", "mine", "run"):
        (system.project / name).write_text("one\ntwo\nthree\n")
    emacs, session, _ = opened(system, model_server)
    for name in ("open", "mine", "run"):
        emacs.eval(f'(with-current-buffer (find-file-noselect "{system.project}/{name}") (goto-char 5) t)')
    emacs.eval('(with-current-buffer "mine" (insert "X") t)')
    edit = tool_use("Edit", file_path="open", old_string="three", new_string="four")
    # A command knows of no buffers, unlike Edit: what is typed and not saved is kept from it.
    model_server.say(answer(edit, tool_use("Bash", command="sed -i s/three/five/ run mine")), "Done.")
    system.ok("send", session, "Go.", "--allow", "tool:.*")
    emacs.wait('(with-current-buffer "run" (equal (buffer-string) "one\\ntwo\\nfive\\n"))')
    emacs.wait('(with-current-buffer "open" (equal (buffer-string) "one\\ntwo\\nfour\\n"))')
    assert emacs.eval('(with-current-buffer "open" (list (point) (buffer-modified-p)))') == [5, None]
    assert emacs.eval('(with-current-buffer "mine" (buffer-string))') == "one\nXtwo\nthree\n"
    assert "mine: an agent changed the file" in emacs.eval('(with-current-buffer "*Messages*" (buffer-string))')


def test_changed_files_are_listed_and_put_back(system: System, model_server: ModelServer) -> None:
    (system.project / "a.txt").write_text("one\n")
    emacs, session, branch = opened(system, model_server)
    model_server.say(answer(tool_use("Bash", command="echo two > a.txt; echo new > b.txt")), "Done.")
    system.ok("send", session, "Go.", "--allow", "tool:.*")
    told = system.json("changes", session, "--at", "last")["files"]
    assert [(Path(row["path"]).name, row["change"]) for row in told] == [("a.txt", "restore"), ("b.txt", "delete")]

    emacs.eval(f'(progn (switch-to-buffer (get-file-buffer "{branch}/session.md")) (pyagentd-changes) t)')
    emacs.wait('(string-search "a.txt" (buffer-string))')
    emacs.eval('(progn (goto-char (point-min)) (search-forward "a.txt") (pyagentd-snapshots--diff) t)')
    assert "+one" in emacs.eval('(with-current-buffer "*File diff*" (buffer-string))')
    press = "(cl-letf (((symbol-function 'y-or-n-p) #'always)) (call-interactively (key-binding \"%s\")) t)"
    emacs.eval(press % "R")
    emacs.wait('(string-prefix-p "No changed files" (buffer-string))')
    assert (system.project / "a.txt").read_text() == "one\n" and not (system.project / "b.txt").exists()
    emacs.eval(press % "u")
    wait_for((system.project / "b.txt").exists, "what was created to be back")
    assert (system.project / "b.txt").read_text() == "new\n"
    refused = system.run("restore", session, "--to", "last", "--yes", "b.txt", "c.txt")
    assert refused.returncode == 1
    assert f"No changed file is called {system.project / 'c.txt'}" in refused.stderr
    assert (system.project / "b.txt").exists()
    done = system.json("restore", session, "--to", "last", "--yes", "src/../b.txt")
    assert done["restored"] == [str(system.project / "b.txt")]
    assert (system.project / "a.txt").read_text() == "two\n"


def test_a_function_of_emacs_forbids_a_call(system: System, model_server: ModelServer) -> None:
    emacs, session, _ = opened(system, model_server)
    emacs.eval(
        "(progn (pyagentd-add-hook 'tool.before"
        ' (lambda (facts) (list :block (format "no %s to %s" (plist-get facts :tool)'
        " (plist-get (plist-get facts :input) :file_path))))) t)"
    )
    model_server.say(answer(tool_use("Write", file_path="a.txt", content="x")), "Well.")
    system.ok("send", session, "Go.", "--allow", "tool:.*")
    assert "no Write to a.txt" in str(model_server.last.messages)
    assert not (system.project / "a.txt").exists()
    emacs.close()  # who has gone stops nobody
    model_server.say(answer(tool_use("Write", file_path="a.txt", content="x")), "Well.")
    system.ok("send", session, "Go.", "--allow", "tool:.*")
    assert (system.project / "a.txt").read_text() == "x"
