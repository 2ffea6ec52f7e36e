"""What surrounds the code: Makefile, Cask, licence, README, distribution."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from pyagentd import __version__
from pyagentd.cli.app import cli

ROOT = Path(__file__).resolve().parents[1]
MAKEFILE = (ROOT / "Makefile").read_text()
README = (ROOT / "README.md").read_text()
COMMANDS = (ROOT / "docs" / "command-line.md").read_text()
DEPENDENCIES = (ROOT / "docs" / "dependencies.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def make(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    # An outer make hands down its flags by environment.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(["make", *words], cwd=ROOT, env={**inherited, **env}, capture_output=True, text=True)


def stand_in(directory: Path, name: str, script: str) -> None:
    file = directory / name
    assert not file.is_symlink()  # writing through it would change the real program
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


def test_make_alone_lists_the_targets() -> None:
    listed = set(re.findall(r"^  ([a-z0-9-]+) ", make().stdout, re.MULTILINE))
    wanted = "setup demo test test-py test-el test-e2e lint lint-el check bench clean help"
    assert set(wanted.split()) <= listed


def test_make_runs_every_end_to_end_test() -> None:
    named = re.search(r"pytest .*-m e2e (.+)", make("-n", "-o", "setup", "test-e2e").stdout)
    assert named is not None
    places = [ROOT / name for name in named[1].split()]
    marked = [file for file in (ROOT / "tests").rglob("test_*.py") if "pytest.mark.e2e" in file.read_text("utf-8")]
    assert [file for file in marked if not any(file.is_relative_to(place) for place in places)] == [
        ROOT / "tests/test_packaging.py"  # which says it here
    ]


def test_where_cask_is_installed_the_emacs_tests_run_through_ert_runner(tmp_path: Path) -> None:
    said = tmp_path / "said"
    stand_in(tmp_path, "cask", f'echo "cask $*" >> {said}; [ "$1" = exec ] && shift && exec "$@"; exit 0')
    stand_in(tmp_path, "ert-runner", f'echo "ert-runner $*" >> {said}')
    run = make("-o", "setup", "test-el", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert run.returncode == 0, run.stderr
    arguments = "-L elisp -L tests/elisp tests/elisp"
    assert said.read_text().splitlines() == [
        "cask install",
        f"cask exec ert-runner {arguments}",
        f"ert-runner {arguments}",
    ]


def test_a_failing_ert_runner_fails_make(tmp_path: Path) -> None:
    stand_in(tmp_path, "cask", '[ "$1" = exec ] && exit 1; exit 0')
    assert make("-o", "setup", "test-el", PATH=f"{tmp_path}:{os.environ['PATH']}").returncode != 0


def test_without_cask_emacs_runs_them_itself(tmp_path: Path) -> None:
    said = tmp_path / "said"
    stand_in(tmp_path, "emacs", f'echo "emacs $*" > {said}')
    run = make("-o", "setup", "test-el", "CASK=", f"EMACS={tmp_path}/emacs")
    assert run.returncode == 0, run.stderr
    assert said.read_text() == "emacs -Q --batch -l tests/elisp/run.el\n"


def test_what_ert_runner_loads_exists() -> None:
    tests = list((ROOT / "tests" / "elisp").glob("*-test.el"))
    assert tests, "ert-runner loads *-test.el only"


def test_cask_can_be_read_and_names_the_main_file(tmp_path: Path) -> None:
    # The words of Cask's language that we use, each recording itself: proves balanced and known forms.
    script = r"""
(defvar said nil)
(defmacro package-file (file) `(push (list 'package-file ,file) said))
(defmacro files (&rest patterns) `(push (list 'files ,@patterns) said))
(defmacro source (name &optional url) `(push (list 'source ',name ,url) said))
(defmacro depends-on (name &rest _) `(push (list 'depends-on ,name) said))
(defmacro development (&rest body) `(progn ,@body))
(load (expand-file-name "Cask") nil t t)
(princ (prin1-to-string said))"""
    (tmp_path / "read.el").write_text(script)
    command = ["emacs", "-Q", "--batch", "-l", str(tmp_path / "read.el")]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert '(package-file "elisp/pyagentd.el")' in said
    assert '(depends-on "ert-runner")' in said
    headers = (ROOT / "elisp" / "pyagentd.el").read_text()
    assert re.search(r'^;; Package-Requires: .*\(epc "', headers, re.MULTILINE)


def test_set_up_with_everything_in_place_does_nothing_and_is_silent() -> None:
    run = subprocess.run([ROOT / "scripts" / "setup.sh"], capture_output=True, text=True, timeout=120)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


@pytest.mark.skipif(os.geteuid() != 0, reason="gives up being root")
def test_set_up_that_may_not_install_prints_the_line_to_run(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    (checkout / "scripts").mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "setup.sh", checkout / "scripts")
    shutil.copy(ROOT / "pyproject.toml", checkout)
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "dirname", "cksum", "cat", "xargs", "env", "echo"):
        (tools / name).symlink_to(shutil.which(name) or name)
    (tools / "python3").symlink_to(sys.executable)
    stand_in(tools, "id", "echo 1000")
    run = subprocess.run(
        [tools / "bash", checkout / "scripts" / "setup.sh"], env={"PATH": str(tools)}, capture_output=True, text=True
    )
    assert run.returncode == 1
    assert "sudo apt-get update && sudo apt-get install -y emacs-nox elpa-epc" in run.stderr
    assert not (checkout / ".venv").exists()


@pytest.mark.parametrize("script", ["scripts/setup.sh", ".ci/run"])
def test_shell_scripts_parse_and_are_executable(script: str) -> None:
    assert os.access(ROOT / script, os.X_OK)
    subprocess.run(["bash", "-n", ROOT / script], check=True)


def test_ci_runs_make_test_within_its_time() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert re.search(r"timeout .* 1500 make test$", script, re.MULTILINE)


def test_the_licence_is_the_one_that_is_declared() -> None:
    assert PROJECT["license"] == "GPL-3.0-or-later"
    first = (ROOT / "LICENSE").read_text().split()[:6]
    assert first == ["GNU", "GENERAL", "PUBLIC", "LICENSE", "Version", "3,"]


def test_every_command_is_explained() -> None:
    missing = [name for name in cli.commands if f"`{name}" not in COMMANDS]
    assert missing == []


def test_every_dependency_has_a_reason() -> None:
    names = [re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0] for line in PROJECT["dependencies"]]
    missing = [name for name in names if not re.search(rf"^\| `{re.escape(name)}` \| \S", DEPENDENCIES, re.MULTILINE)]
    assert missing == []


def test_the_readme_names_every_make_target_it_uses() -> None:
    used = set(re.findall(r"(?:^ +|`)make ([a-z0-9-]+)", README, re.MULTILINE))
    defined = set(re.findall(r"^([a-z0-9-]+):", MAKEFILE, re.MULTILINE))
    assert used <= defined


def test_the_command_line_is_installed_as_a_script() -> None:
    assert PROJECT["scripts"] == {"pyagentd": "pyagentd.cli:main"}


def test_the_pages_that_are_linked_to_exist() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    links = ((page, link) for page in pages for link in re.findall(r"\]\(([^)#:\s]+)[)#]", page.read_text("utf-8")))
    missing = [f"{page.name}: {link}" for page, link in links if not (page.parent / link).exists()]
    assert missing == []


def test_the_package_and_its_server_are_the_same_version() -> None:
    core = (ROOT / "elisp" / "pyagentd-core.el").read_text()
    main = (ROOT / "elisp" / "pyagentd.el").read_text()
    assert f'(defconst pyagentd-version "{__version__}"' in core
    assert f";; Version: {__version__}\n" in main


def test_the_emacs_package_is_one_that_emacs_can_read(tmp_path: Path) -> None:
    package = tmp_path / f"pyagentd-{__version__}"
    shutil.copytree(ROOT / "elisp", package, ignore=shutil.ignore_patterns("*.elc"))
    (tmp_path / "elpa").mkdir()
    made = ["emacs", "--batch", "-l", "scripts/dist.el", "-f", "dist-package", str(package), str(tmp_path / "elpa")]
    subprocess.run(made, cwd=ROOT, check=True, capture_output=True)
    form = f"""(progn (require 'package) (find-file "{package}.tar")
      (let ((desc (package-tar-file-info)))
        (princ (list (package-desc-full-name desc) (mapcar #'car (package-desc-reqs desc))))))"""
    read = subprocess.run(["emacs", "-Q", "--batch", "--eval", form], capture_output=True, text=True, check=True)
    assert read.stdout == f"(pyagentd-{__version__} (emacs epc deferred))"
    contents = (tmp_path / "elpa" / "archive-contents").read_text()
    assert contents.startswith("(1 (pyagentd . [") and "(epc . [" in contents
