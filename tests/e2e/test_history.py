"""Turns taken back and asked again: a real daemon, the command line, and an Emacs that has the session open."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pyagentd.store.document.text import format_file, gptel_messages, read
from tests.e2e.conftest import System
from tests.e2e.emacs import Emacs, wait_for
from tests.e2e.test_conversation import converse, open_session
from tests.server import ModelServer

IDLE = "(memq (plist-get pyagentd-status :state) '(idle error))"


def prompts(system: System, session: str) -> list[str]:
    shown = system.json("show", session)["messages"]
    return [each["message"]["id"] for each in shown if each["message"]["role"] == "user"]


def sent(main: Path) -> list[str]:
    """What stock gptel would send of the saved document."""
    return [str(message["content"]) for message in gptel_messages(format_file(read(main / "session.md")))]


def asked(server: ModelServer) -> list[str]:
    return [block["text"] for message in server.last.body["messages"] for block in message["content"]]


@pytest.fixture
def talk(system: System, model_server: ModelServer) -> tuple[str, Path, Emacs]:
    """A session with two answered prompts, open in an Emacs on a terminal."""
    system.use_server(model_server.url)
    session, main = system.new("talk")
    emacs = system.emacs(terminal=True)
    open_session(emacs, main)
    for prompt, said in (("First question?", "First answer."), ("Second question?", "Second answer.")):
        model_server.say(said)
        converse(emacs, prompt)
    emacs.eval("(progn (save-buffer) t)")
    return session, main, emacs


def shows(emacs: Emacs, *wanted: str, without: tuple[str, ...] = ()) -> None:
    """Wait until the screen shows all that is wanted, and nothing else of what is not."""

    def right() -> bool:
        screen = emacs.screen()
        return all(each in screen for each in wanted) and not any(each in screen for each in without)

    try:
        wait_for(right, f"{wanted} on the screen, not {without}")
    except AssertionError:
        raise AssertionError(emacs.screen()) from None


def test_a_rewind_folds_what_is_not_sent_any_more_and_can_be_reversed(
    talk: tuple[str, Path, Emacs], model_server: ModelServer
) -> None:
    _, main, emacs = talk
    shows(emacs, "Second answer.")
    text = emacs.eval("(buffer-substring-no-properties 1 (point-max))")
    emacs.eval("(progn (goto-char 5) (call-interactively #'pyagentd-rewind) t)")
    told = ("… 2 turns rewound", "2 turns rewound; C-u C-c M-u undoes it")
    shows(emacs, "First question?", *told, without=("First answer.", "Second question?"))
    assert emacs.eval("(buffer-substring-no-properties 1 (point-max))") == text
    emacs.eval("(progn (save-buffer) t)")
    wait_for(lambda: sent(main) == ["First question?"], "the file to say so")
    emacs.eval("(progn (pyagentd-history--show-hidden) t)")
    shows(emacs, "First answer.", "Second question?")
    emacs.eval("(let ((current-prefix-arg '(4))) (call-interactively #'pyagentd-rewind) t)")
    shows(emacs, "Second answer.", "2 turns back", without=("rewound",))
    model_server.say("Third answer.")
    converse(emacs, "Third question?")
    assert asked(model_server)[:4] == ["First question?", "First answer.", "Second question?", "Second answer."]


def test_another_answer_is_a_variant_that_emacs_cycles(
    talk: tuple[str, Path, Emacs], model_server: ModelServer
) -> None:
    _, main, emacs = talk
    model_server.say("Another answer.")
    emacs.eval("(progn (goto-char (point-max)) (pyagentd-regenerate) t)")
    shows(emacs, "Another answer.", without=("Second answer.",))
    emacs.wait(IDLE)
    assert asked(model_server) == ["First question?", "First answer.", "Second question?"]
    emacs.eval("(progn (save-buffer) t)")
    shows(emacs, "variant 2/2", "… 1 turn of another variant")
    emacs.eval("(progn (goto-char (point-max)) (pyagentd-history--previous-variant) t)")
    shows(emacs, "variant 1/2", "Second answer.", without=("Another answer.",))
    emacs.eval("(progn (save-buffer) t)")
    wait_for(
        lambda: sent(main) == ["First question?", "First answer.", "Second question?", "Second answer."],
        "the file to say so",
    )
    emacs.eval("(progn (goto-char (point-max)) (pyagentd-history--next-variant) t)")
    shows(emacs, "variant 2/2", "Another answer.", without=("Second answer.",))
    model_server.say("Third answer.")
    converse(emacs, "Third question?")
    assert asked(model_server)[3:] == ["Another answer.", "Third question?"]


def test_a_prompt_is_edited_in_place_or_in_a_buffer_and_sent_instead(
    talk: tuple[str, Path, Emacs], model_server: ModelServer, system: System
) -> None:
    session, main, emacs = talk
    model_server.say("A third answer.")
    emacs.eval(
        '(progn (goto-char (point-min)) (search-forward "Second q") (replace-match "Better q")'
        " (pyagentd-edit-prompt) t)"
    )
    shows(
        emacs,
        "A third answer.",
        "Better question?",
        "… 1 turn of the prompt before it was edited",
        without=("Second answer.",),
    )
    emacs.wait(IDLE)
    assert asked(model_server) == ["First question?", "First answer.", "Better question?"]
    emacs.eval("(progn (save-buffer) t)")
    assert "Second question?" in (main / "session.md").read_text(), "what was edited in place is put back"
    model_server.say("A fourth answer.")
    emacs.eval('(progn (goto-char (point-min)) (search-forward "First q") (pyagentd-edit-prompt) t)')
    emacs.wait("(bound-and-true-p pyagentd-edit-mode)")
    assert emacs.eval("(buffer-string)") == "First question?"
    emacs.eval('(progn (erase-buffer) (insert "Zeroth question?") (pyagentd-edit--finish) t)')
    shows(emacs, "Zeroth question?", "A fourth answer.", without=("First answer.", "Better question?"))
    assert asked(model_server) == ["Zeroth question?"]
    by = {
        each["message"]["metadata_json"].get("hidden_by")
        for each in system.json("show", session)["messages"]
        if each["message"]["metadata_json"].get("hidden_at")
    }
    assert by == {"edit"}


def test_the_command_line_takes_back_what_an_emacs_has_open(
    talk: tuple[str, Path, Emacs], system: System, model_server: ModelServer
) -> None:
    session, main, emacs = talk
    first, second = prompts(system, session)
    told = system.json("rewind", session, "--to", first)
    assert (len(told["hidden"]), told["turns"]) == (3, 2)
    shows(emacs, "… 2 turns rewound", without=("Second answer.",))
    wait_for(lambda: sent(main) == ["First question?"], "the editor to save")
    failed = system.run("rewind", session, "--to", second)
    assert failed.returncode and first in failed.stderr and "First question?" in failed.stderr
    assert system.ok("unrewind", session) == "Shown again: 2 turns\n"
    shows(emacs, "Second answer.")
    model_server.say("Once more.")
    system.ok("regenerate", session)
    shows(emacs, "Once more.", without=("Second answer.",))
    shows(emacs, "variant 2/2")
    (found,) = system.json("variants", session)
    assert [(one["n"], one["text"], one["current"]) for one in found["of"]] == [
        (1, "Second answer.", False),
        (2, "Once more.", True),
    ]
    system.ok("variants", session, "--choose", "1")
    shows(emacs, "Second answer.", without=("Once more.",))
    made = system.json("fork", session, "--at", second)
    assert {"session_id", "dir", "branch_dir", "file"} <= set(made)
    assert read(Path(made["file"])).body == "### First question?\n\nFirst answer.\n\n### Second question?"
    assert [each["session_id"] for each in system.json("fork", session, "--list")] == [made["session_id"]]
    assert re.fullmatch(r"[\w-]+-\d{14}(-\d+)?", made["session_id"])
