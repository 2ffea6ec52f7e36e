"""What the manual says can be done: its commands run, the commands and keys of Emacs that it names exist."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.compiled import load_path
from tests.e2e.conftest import System
from tests.e2e.emacs import wait_for

ROOT = Path(__file__).resolve().parents[2]
MANUAL = (ROOT / "docs" / "manual" / "pyagentd.org").read_text("utf-8")
TUTORIAL = MANUAL.partition("* Ten minutes")[2].partition("\n* How to")[0]
PAGES = "".join(page.read_text("utf-8") for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))))
NAMED = MANUAL + PAGES


def blocks(language: str) -> list[str]:
    return re.findall(rf"^#\+begin_src {language}\n(.*?)^#\+end_src$", MANUAL, re.MULTILINE | re.DOTALL)


@pytest.mark.e2e
def test_the_tutorial_can_be_walked_in_a_real_emacs(system: System) -> None:
    """Its prompts are typed and its keys pressed, in its order; Emacs is killed where it says so."""
    said, write, hand_on = (
        block.strip() for block in re.findall(r"#\+begin_example\n(.*?)#\+end_example", TUTORIAL, re.S)
    )
    (system.project / "README.md").write_text("# Tea\n\nIt boils water.\n")
    emacs = system.emacs(terminal=True)

    def until(*texts: str) -> None:
        try:
            wait_for(lambda: all(text in emacs.screen() for text in texts), f"{texts}", 60)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{emacs.screen()}") from None

    def send(prompt: str) -> None:
        emacs.keys("M->")
        emacs.keys("-l", prompt)
        emacs.keys("C-c", "Enter")

    def command(name: str) -> None:
        assert f"M-x {name}" in TUTORIAL
        emacs.keys("M-x")
        until("M-x")
        emacs.keys("-l", name)
        until(f"M-x {name}")
        emacs.keys("Enter")

    command("pyagentd-session")
    until("Session name")
    emacs.keys("-l", "first")
    emacs.keys("Enter")
    until("Ready", "###")
    (document,) = system.sessions.rglob("session.md")
    send(said)
    until("Read README.md", "begins with", "Ready")
    send(write)
    until("Allow", "notes.txt")
    assert not (system.project / "notes.txt").exists()
    emacs.keys("C-c", "C-c")
    emacs.keys("y")
    wait_for((system.project / "notes.txt").exists, "what was allowed")
    until("Ready")
    send(hand_on)
    until("Allow", "explorer")
    emacs.keys("C-c", "C-c")
    emacs.keys("y")
    until("explorer:", "Ready")
    command("pyagentd-agents")
    until("look at README.md", "finished")
    emacs.keys("q")
    until("Ready")
    send("What is in README.md? Read it yourself, after Emacs is gone.")
    wait_for(lambda: "after Emacs is gone" in document.read_text(), "the prompt to be with the daemon")
    emacs.kill()
    emacs = system.emacs(terminal=True)
    command("pyagentd-sessions")
    until("first")
    emacs.keys("Enter")
    until("Ready")
    emacs.keys("M->")
    until("after Emacs is gone", "begins with")
    assert "~C-c M-u~" in TUTORIAL
    emacs.keys("C-r")
    emacs.keys("-l", "after Emacs is gone")
    emacs.keys("Enter")
    emacs.keys("C-c", "M-u")
    until("1 turn rewound")
    assert "~C-c C-t~ is a menu" in TUTORIAL
    emacs.keys("C-c", "C-t")
    until("Model")


@pytest.mark.e2e
def test_every_shell_example_of_the_manual_runs_in_order(system: System, tmp_path: Path) -> None:
    (system.project / "README.md").write_text("# A project\n\nIt has words.\n")
    script = tmp_path / "manual.sh"
    script.write_text("set -euo pipefail\n" + "\n".join(blocks("sh")))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    usual = {"PYAGENTD_CONFIG", "PYAGENTD_PRESETS_DIR"}  # the manual is about where these are by themselves
    env = {name: value for name, value in system.env.items() if name not in usual}
    done = subprocess.run(
        ["bash", "-x", str(script)],
        cwd=system.project,
        env={**env, "PATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (system.project / "result.txt").read_text().strip() == "ok"


def test_commands_options_and_keys_that_are_named_exist(tmp_path: Path) -> None:
    commands = sorted(set(re.findall(r"M-x (pyagentd-[a-z-]*[a-z])", NAMED)))
    options = sorted(set(re.findall(r"\(setq (pyagentd-[a-z-]+)", NAMED)))
    keys = sorted(set(re.findall(r"[~`](?:C-u )*(C-c (?:[CM]-[^ ~`]|RET|[][.,0-9]))[~`]", NAMED)))
    assert len(commands) > 30 and options and len(keys) > 25
    names = " ".join(f'"{name}"' for name in commands)
    form = f"""(progn (require 'pyagentd) (require 'pyagentd-form) (setq pyagentd-reply-options t)
      (princ (list (seq-remove (lambda (name) (commandp (intern name))) '({names}))
                   (seq-remove #'custom-variable-p '({" ".join(options)}))
                   (seq-remove (lambda (key) (seq-some (lambda (map) (commandp (lookup-key map (kbd key))))
                                                        (list pyagentd-mode-map pyagentd-question-mode-map)))
                               '({" ".join(f'"{key}"' for key in keys)})))))"""
    where = [*load_path(ROOT / "elisp"), "--eval", form]
    said = subprocess.run(["emacs", "-Q", "--batch", *where], capture_output=True, text=True, check=True).stdout
    assert said == "(nil nil nil)"


def test_functions_for_lisp_take_the_arguments_that_the_manual_names() -> None:
    named = re.findall(r"^- ~\((jf/\S+?)((?: [A-Z&a-z-]+)*)\)~ ::", MANUAL, re.MULTILINE)
    assert len(named) > 10
    wanted = []
    for name, arguments in named:
        needed, _, optional = arguments.partition("&optional")
        wanted.append((name, len(needed.split()), len(needed.split()) + len(optional.split())))
    # One that is a command too has a last argument that tells so; it is not for programs.
    form = """(progn (require 'pyagentd-jf)
      (prin1 (mapcar (pcase-lambda (`(,name ,least ,most))
                       (pcase-let ((`(,min . ,max) (func-arity name)))
                         (and (= min least) (= max (if (commandp name) (1+ most) most)) name)))
                     '({}))))""".format(" ".join(f"({name} {least} {most})" for name, least, most in wanted))
    where = [*load_path(ROOT / "elisp"), "--eval", form]
    said = subprocess.run(["emacs", "-Q", "--batch", *where], capture_output=True, text=True, check=True).stdout
    assert said == f"({' '.join(name for name, *_ in wanted)})"
