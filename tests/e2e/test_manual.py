"""What the manual says can be done: its commands run, the commands and keys of Emacs that it names exist."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.compiled import load_path
from tests.e2e.conftest import System

ROOT = Path(__file__).resolve().parents[2]
MANUAL = (ROOT / "docs" / "manual" / "pyagentd.org").read_text("utf-8")
NAMED = MANUAL + (ROOT / "README.md").read_text("utf-8") + (ROOT / "docs" / "privacy.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^#\+begin_src {language}\n(.*?)^#\+end_src$", MANUAL, re.MULTILINE | re.DOTALL)


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
    keys = sorted(set(re.findall(r"~(C-c (?:[CM]-.|RET|\.|,))~", MANUAL)))
    assert len(commands) > 10 and options and len(keys) > 10
    names = " ".join(f'"{name}"' for name in commands)
    form = f"""(progn (require 'pyagentd)
      (princ (list (seq-remove (lambda (name) (commandp (intern name))) '({names}))
                   (seq-remove #'custom-variable-p '({" ".join(options)}))
                   (seq-remove (lambda (key) (seq-some (lambda (map) (commandp (lookup-key map (kbd key))))
                                                        (list pyagentd-mode-map pyagentd-ask-mode-map)))
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
