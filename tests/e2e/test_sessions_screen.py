"""Branches, search, the list of sessions and what is done with them, as a person sees them in a real Emacs."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyagentd.store.document.text import read
from tests.e2e.conftest import System
from tests.e2e.emacs import Emacs, wait_for
from tests.e2e.test_conversation import FINISHED, converse, open_session
from tests.e2e.test_terminal import below, shows, type_text
from tests.server import ModelServer


@pytest.fixture
def talk(system: System, model_server: ModelServer) -> tuple[str, Path]:
    """Return id and branch directory of a session with two turns."""
    system.use_server(model_server.url)
    session, main = system.new("tea time")
    for prompt, said in (("How do I make tea?", "Boil the water."), ("And coffee?", "Grind beans, boil water.")):
        model_server.say(said)
        system.ok("send", session, prompt)
    system.ok("rename", session, "Making tea")
    return session, main


def visit(emacs: Emacs, file: Path) -> None:
    emacs.eval(f'(progn (find-file "{file}") t)')
    emacs.wait("(eq pyagentd-attach-state t)")
    emacs.keys("M->")


def command(emacs: Emacs, name: str) -> None:
    emacs.keys("M-x")
    shows(emacs, "M-x")
    type_text(emacs, name)
    emacs.keys("Enter")


def show_list(emacs: Emacs, name: str) -> None:
    """Show a list by its name, as a person does."""
    command(emacs, "pyagentd-list")
    shows(emacs, "List:")
    type_text(emacs, name)
    emacs.keys("Enter")


def directories(main: Path) -> list[str]:
    return sorted(path.name for path in main.parent.iterdir())


def test_a_branch_by_keys_and_the_tree_that_shows_it(system: System, talk: tuple[str, Path]) -> None:
    _, main = talk
    emacs = system.emacs(terminal=True)
    visit(emacs, main / "session.md")
    shows(emacs, "Making tea", "Ready", "Grind beans")
    emacs.keys("C-c", "M-b")
    shows(emacs, "Branch at prompt (default 2 And coffee?):")
    emacs.keys("Tab", "Tab")
    offered = shows(emacs, "1  How do I make tea?", "2  And coffee?")
    assert offered.index("1  How do I") < offered.index("2  And coffee?")
    emacs.keys("1", "Tab", "Enter")
    shows(emacs, "include", "exclude")
    emacs.keys("i")
    shows(emacs, "Branch name (default branch):")
    type_text(emacs, "Green tea")
    emacs.keys("Enter")
    wait_for(lambda: "Boil the water" not in emacs.screen(), "the branch to be shown")
    shows(emacs, "-Green tea", "How do I make tea?", "Ready")

    emacs.keys("C-c", "C-v")
    shows(emacs, "* └ ", "Comes from")
    tree = below(emacs.screen(), " Branch")
    assert tree[1].split()[0] == "main"
    assert "-Green tea" in tree[2] and tree[2].rstrip().endswith("main")
    emacs.keys("M-<", "s")
    shows(emacs, " * main", "Current branch: main")
    assert (main.parents[1] / "current").resolve() == main
    emacs.keys("Down", "d")
    shows(emacs, "branch", "session")
    emacs.keys("b")
    asked = shows(emacs, "Move branch", "to the trash?")
    assert "of “Making tea”" in " ".join(asked.split())
    type_text(emacs, "yes")
    emacs.keys("Enter")
    wait_for(lambda: directories(main) == ["main"], "the branch to be in the trash")
    wait_for(lambda: "Green tea" not in below(emacs.screen(), " Branch")[2], "the tree to be without it")


def test_quitting_a_branch_leaves_nothing(system: System, talk: tuple[str, Path]) -> None:
    _, main = talk
    emacs = system.emacs(terminal=True)
    visit(emacs, main / "session.md")
    before = (main / "session.md").read_bytes()
    steps = [("Branch at prompt", ["Enter"]), ("include", ["e"]), ("Branch name", [])]
    for quit_at in range(len(steps)):
        emacs.keys("C-c", "M-b")
        for number, (prompt, keys) in enumerate(steps):
            shows(emacs, prompt)
            if number == quit_at:
                emacs.keys("C-g")
                shows(emacs, "Quit")
                break
            emacs.keys(*keys)
    assert directories(main) == ["main"]
    assert (main.parents[1] / "current").resolve() == main
    assert (main / "session.md").read_bytes() == before


def test_an_excluded_prompt_is_asked_anew(system: System, talk: tuple[str, Path], model_server: ModelServer) -> None:
    _, main = talk
    emacs = system.emacs()
    open_session(emacs, main)
    emacs.eval('(progn (pyagentd-branch "again" \'exclude 2) t)')
    emacs.wait('(string-suffix-p "-again" pyagentd--branch-dir)')
    place = Path(emacs.eval("pyagentd--branch-dir"))
    # The heading of the next prompt is put there once the buffer is attached.
    emacs.wait('(string-suffix-p "Boil the water.\n\n### " (buffer-string))')
    emacs.wait("(not (buffer-modified-p))")
    written = (place / "session.md").read_text()
    assert "Boil the water.\n\n### \n" in written and "And coffee" not in written
    model_server.say("Milk first.")
    converse(emacs, "And milk?")
    asked = [message["content"][0]["text"] for message in model_server.last.body["messages"]]
    assert asked == ["How do I make tea?", "Boil the water.", "And milk?"]


def test_a_branch_without_its_prompt_in_which_another_is_asked_again_is_the_same_on_disk(
    system: System, talk: tuple[str, Path], model_server: ModelServer
) -> None:
    _, main = talk
    emacs = system.emacs()
    open_session(emacs, main)
    emacs.eval('(progn (pyagentd-branch "again" \'exclude 2) t)')
    emacs.wait('(string-suffix-p "Boil the water.\n\n### " (buffer-string))')
    place = Path(emacs.eval("pyagentd--branch-dir"))
    model_server.say("Boil much water.")
    emacs.eval("(progn (goto-char (point-min)) (pyagentd-regenerate) t)")
    emacs.wait('(string-suffix-p "Boil much water.\n\n### " (buffer-string))')
    emacs.wait(FINISHED)
    emacs.eval('(progn (goto-char (point-max)) (insert "hey you") t)')
    emacs.wait("(not (buffer-modified-p))")
    assert read(place / "session.md").body == emacs.eval("(buffer-substring-no-properties 1 (point-max))")


def test_search_by_keys_leads_to_the_message(system: System, talk: tuple[str, Path]) -> None:
    _, main = talk
    emacs = system.emacs(terminal=True)
    command(emacs, "pyagentd-search")
    shows(emacs, "Search sessions")
    type_text(emacs, "boil water")
    emacs.keys("Enter")
    found = shows(emacs, "2 messages", "Making tea", "Boil the water.", "Grind beans, boil water.").splitlines()
    hits = [line.split() for line in found if "oil" in line and line.startswith("  ")]
    assert [words[0] for words in hits] == ["Model", "Model"]
    emacs.keys("M-<", "n", "n")
    shows(emacs, "*pyagentd preview*")
    assert emacs.eval(f'(find-buffer-visiting "{main}/session.md")') is None
    emacs.keys("Enter")
    shows(emacs, "Ready", "### And coffee?")
    place = emacs.eval('(list pyagentd-mode (line-number-at-pos) (looking-at "boil"))')
    assert place == [True, 7 if "Grind" in hits[1] else 3, True]


def test_search_finds_text_that_moved_since_it_was_saved(system: System, talk: tuple[str, Path]) -> None:
    _, main = talk
    emacs = system.emacs()
    open_session(emacs, main)
    emacs.eval('(progn (setq pyagentd-autosave-enabled nil) (goto-char 1) (insert (make-string 500 ?x) "\\n") t)')
    emacs.eval('(progn (pyagentd-search "grind") t)')
    emacs.wait("pyagentd-table-rows")
    emacs.eval("(progn (pyagentd-list--visit) t)")
    emacs.wait('(looking-at "Grind beans")')
    emacs.eval("(progn (set-buffer-modified-p nil) t)")


def test_the_list_shows_the_tree_archives_and_deletes(system: System, talk: tuple[str, Path]) -> None:
    session, main = talk
    system.new("old one")
    branch = system.json("branch", session, "--at", _first_prompt(system, session), "--name", "x")["branch_name"]
    emacs = system.emacs(terminal=True)
    command(emacs, "pyagentd-sessions")
    shown = shows(emacs, "Making tea", "└ main", "old one", "programming-assistant")
    lines = {name: next(line for line in shown.splitlines() if name in line) for name in ("Making tea", "└ main")}
    assert branch in lines["Making tea"] and session[:12] in lines["Making tea"]
    emacs.keys("/")
    shows(emacs, "Filter")
    type_text(emacs, "tea main")
    emacs.keys("Enter")
    wait_for(lambda: "old one" not in emacs.screen() and "└ main" in emacs.screen(), emacs.screen())
    emacs.keys("/", "C-a", "C-k", "Enter")
    shows(emacs, "old one")

    emacs.eval('(progn (goto-char 1) (search-forward "old one") t)')
    emacs.keys("a")
    shows(emacs, "Archived, or listed again: old one")
    wait_for(
        lambda: not any("old one" in line for line in below(emacs.screen(), " Title")[:5]),
        "the archived session to go",
    )
    emacs.keys("A")
    shows(emacs, "archived too", "old one")

    emacs.eval('(progn (goto-char 1) (search-forward "Making tea") t)')
    emacs.keys("d")
    shows(emacs, "Delete (")
    emacs.keys("s")
    asked = shows(emacs, "to the trash?")
    assert "session “Making tea” with 2 branches" in " ".join(asked.split())
    type_text(emacs, "yes")
    emacs.keys("Enter")
    wait_for(lambda: not main.exists(), "the session to be in the trash")
    assert (system.home / ".local/share/Trash/files" / session).is_dir()


def test_a_session_is_renamed_copied_exported_and_imported(system: System, talk: tuple[str, Path]) -> None:
    session, main = talk
    emacs = system.emacs()
    open_session(emacs, main)
    emacs.eval('(progn (pyagentd-rename "Two cups") t)')
    emacs.wait('(equal pyagentd-status-title "Two cups")')
    assert "Two cups" in emacs.eval("(substring-no-properties pyagentd-status--line)")
    out = system.home / "chat.md"
    emacs.eval(f'(progn (pyagentd-export "md" "{out}") t)')
    wait_for(out.exists, "the export")
    assert "Grind beans" in out.read_text()
    emacs.eval(f'(progn (pyagentd-import "{out}" "back again") t)')
    emacs.wait('(string-prefix-p "back-again-" pyagentd--session-id)')
    emacs.wait("(eq pyagentd-attach-state t)")
    assert "Grind beans" in emacs.eval("(buffer-string)")
    emacs.eval(f'(progn (find-file "{main}/session.md") (pyagentd-duplicate "copy") t)')
    emacs.wait('(string-prefix-p "copy-" pyagentd--session-id)')
    copy = emacs.eval("pyagentd--session-id")
    assert "Grind beans" in emacs.eval("(buffer-string)")
    listed = {each["session_id"]: each for each in system.json("sessions")}
    assert {session, copy} <= set(listed) and listed[session]["title"] == "Two cups"


def test_a_deleted_session_leaves_its_text_in_the_buffer(system: System, talk: tuple[str, Path]) -> None:
    _, main = talk
    emacs = system.emacs()
    open_session(emacs, main)
    emacs.wait("(eq pyagentd-attach-state t)")
    emacs.eval('(progn (goto-char (point-max)) (insert "typed just now") t)')
    emacs.eval("(progn (fset 'yes-or-no-p #'always) (pyagentd-delete) t)")
    emacs.wait("(not (bound-and-true-p pyagentd-mode))")
    assert not main.exists()
    assert emacs.eval("(list (bound-and-true-p pyagentd-mode) buffer-file-name (buffer-modified-p))") == [None] * 3
    assert "typed just now" in emacs.eval("(buffer-string)")
    assert emacs.eval("(buffer-name)") == "*Deleted: Making tea*"


def test_the_index_is_made_anew_from_emacs(system: System, talk: tuple[str, Path]) -> None:
    emacs = system.emacs(terminal=True)
    emacs.eval("(progn (pyagentd-reindex) t)")
    emacs.wait('(with-current-buffer "*Messages*" (string-search "Indexed " (buffer-string)))')
    assert emacs.eval('(length (plist-get (pyagentd-rpc-call \'search (list :query "grind")) :hits))') == 1


def _first_prompt(system: System, session: str) -> str:
    return str(system.json("show", session)["messages"][0]["message"]["id"])
