"""What surrounds the code: Makefile, Cask, licence, README, distribution."""

import base64
import email
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from pyagentd import __version__
from pyagentd.cli import doctor
from pyagentd.cli.app import cli

ROOT = Path(__file__).resolve().parents[1]
MAKEFILE = (ROOT / "Makefile").read_text()
README = (ROOT / "README.md").read_text()
COMMANDS = (ROOT / "docs" / "command-line.md").read_text()
DEPENDENCIES = (ROOT / "docs" / "dependencies.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
DECLARED = PROJECT["dependencies"] + [
    each for name in ("acp", "anthropic", "daemon", "epc", "mcp", "openai") for each in EXTRAS[name]
]


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
    assert ';; Package-Requires: ((emacs "28.1") (transient "0"))' in headers


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
    assert "sudo apt-get update && sudo apt-get install -y emacs-nox " in run.stderr
    assert not (checkout / ".venv").exists()


@pytest.mark.parametrize("script", ["scripts/setup.sh", ".ci/run"])
def test_shell_scripts_parse_and_are_executable(script: str) -> None:
    assert os.access(ROOT / script, os.X_OK)
    subprocess.run(["bash", "-n", ROOT / script], check=True)


def test_ci_runs_make_test_within_its_time() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert re.search(r"timeout .* 2700 make test$", script, re.MULTILINE)


def test_the_licence_is_the_one_that_is_declared() -> None:
    assert PROJECT["license"] == "GPL-3.0-or-later"
    first = (ROOT / "LICENSE").read_text().split()[:6]
    assert first == ["GNU", "GENERAL", "PUBLIC", "LICENSE", "Version", "3,"]


def test_every_command_is_explained() -> None:
    missing = [name for name in cli.list_commands(click.Context(cli)) if f"`{name}" not in COMMANDS]
    assert missing == []


def test_every_command_that_a_page_names_exists() -> None:
    pages = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "docs/manual/pyagentd.org"]
    wrong = []
    for page in pages:
        for name, word in re.findall(r"(?:^ +|`|~)pyagentd ([a-z]+) ([a-z][a-z-]+)\b", page.read_text("utf-8"), re.M):
            command = cli.get_command(click.Context(cli), name)
            if command is None or (isinstance(command, click.Group) and word not in command.commands):
                wrong.append(f"{page.name}: pyagentd {name} {word}")
    assert wrong == []


def test_every_dependency_has_a_reason() -> None:
    names = [
        re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0] for line in DECLARED if not line.startswith("pyagentd[")
    ]
    missing = [name for name in names if not re.search(rf"^\| `{re.escape(name)}` \| \S", DEPENDENCIES, re.MULTILINE)]
    assert missing == []


def test_the_readme_names_the_files_that_are_built(dist: Path) -> None:
    named = re.findall(r"dist/(pyagentd-[^\s`'\[]+)", README)
    assert set(named) == {file.name for file in dist.iterdir()}


def test_the_readme_names_every_make_target_it_uses() -> None:
    used = set(re.findall(r"(?:^ +|`)make ([a-z0-9-]+)", README, re.MULTILINE))
    defined = set(re.findall(r"^([a-z0-9-]+):", MAKEFILE, re.MULTILINE))
    assert used <= defined


def test_the_command_line_is_installed_as_a_script() -> None:
    assert PROJECT["scripts"] == {"pyagentd": "pyagentd.cli:main"}


def test_messages_name_nodes_of_the_manual_that_exist_and_no_page_of_the_repository() -> None:
    """Whoever has the package has the manual, and not ``docs/``."""
    titles = (page.read_text().splitlines()[0].removeprefix("# ") for page in (ROOT / "docs").glob("*.md"))
    chapters = re.findall(r"^\*+ (.+)$", (ROOT / "docs" / "manual" / "pyagentd.org").read_text(), re.MULTILINE)
    nodes = {re.sub(r"[.,:()@{}`*“”\"]", "", title) for title in (*titles, *chapters)}
    for file in (*(ROOT / "elisp").glob("*.el"), *(ROOT / "pyagentd").rglob("*.py")):
        text = re.sub(r"^\s*;.*$", "", file.read_text(), flags=re.MULTILINE) if file.suffix == ".el" else ""
        assert not re.findall(r"docs/[a-z-]+\.md", text), file
        for name in re.findall(r"`\(pyagentd\)\s([^'\\]+)\\*'", file.read_text()):
            assert " ".join(name.split()) in nodes, f"{file} names the node {name}"


def test_the_package_and_its_server_are_the_same_version() -> None:
    core = (ROOT / "elisp" / "pyagentd-core.el").read_text()
    main = (ROOT / "elisp" / "pyagentd.el").read_text()
    assert f'(defconst pyagentd-version "{__version__}"' in core
    assert f";; Version: {__version__}\n" in main


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make dist` makes where there is nothing but Emacs, Python without any package, and no home."""
    place = tmp_path_factory.mktemp("dist")
    tools = place / "bin"
    tools.mkdir()
    (tools / "emacs").symlink_to(shutil.which("emacs") or "emacs")
    made = [sys.executable, "-I", "-S", "scripts/dist.py", str(place / "dist")]
    env = {"PATH": str(tools), "HOME": str(place / "home"), "SOURCE_DATE_EPOCH": "1700000000"}
    subprocess.run(made, cwd=ROOT, env=env, check=True, capture_output=True)
    return place / "dist"


def test_a_stock_emacs_installs_the_package_without_any_archive(dist: Path, tmp_path: Path) -> None:
    script = f"""
(setq package-archives nil package-user-dir "{tmp_path}/elpa")
(package-initialize)
(package-install-file "{dist}/pyagentd-{__version__}.tar")
(require 'pyagentd)
(require 'pyagentd-install)
(princ (list (featurep 'pyagentd-rpc) (locate-library "epc") (pyagentd-install-requirement)))"""
    (tmp_path / "install.el").write_text(script)
    command = ["emacs", "-Q", "--batch", "-l", str(tmp_path / "install.el")]
    run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "HOME": str(tmp_path)})
    assert run.returncode == 0, run.stderr
    there = f"{tmp_path}/elpa/pyagentd-{__version__}"
    assert run.stdout == f"(t nil {there}/pyagentd-{__version__}-py3-none-any.whl[daemon])"


def test_the_package_has_the_manual_also_where_it_was_built_without_makeinfo(dist: Path, tmp_path: Path) -> None:
    with tarfile.open(dist / f"pyagentd-{__version__}.tar") as tar:
        tar.extractall(tmp_path, filter="data")
    (place,) = tmp_path.iterdir()
    script = r"""
(require 'info)
(let* ((place (file-name-as-directory (pop command-line-args-left)))
       (Info-directory-list (list place))
       (file (expand-file-name "pyagentd.info" place))
       (count 0) lost nodes)
  (info "(dir)")
  (Info-menu "pyagentd")
  (dolist (node (mapcar #'car (Info-toc-nodes file)))
    (push node nodes))
  (dolist (node nodes)
    (Info-goto-node (format "(%s)%s" file node))
    (unless (equal Info-current-node node) (push node lost))
    (goto-char (point-min))
    (while (re-search-forward "^\\* \\([^:\n]+\\)::\\|\\*note[ \n]+\\([^:]+\\)::" nil t)
      (let ((there (replace-regexp-in-string "[ \n]+" " " (or (match-string 1) (match-string 2)))))
        (setq count (1+ count))
        (unless (member there nodes) (push there lost)))))
  (prin1 (list (length nodes) count lost)))"""
    (tmp_path / "read.el").write_text(script)
    command = ["emacs", "-Q", "--batch", "-l", str(tmp_path / "read.el"), str(place)]
    run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "HOME": str(tmp_path)})
    assert run.returncode == 0, run.stderr
    text = (place / "pyagentd.info").read_text("utf-8")
    assert not re.search(r"^@|@(?:code|kbd|strong|pxref|item)\b", text, re.MULTILINE)
    said = re.search(r"\((\d+) (\d+) nil\)$", run.stdout)
    assert said is not None, run.stdout
    assert int(said[1]) == text.count("\x1f\nFile: ") > 200
    assert int(said[2]) >= int(said[1])


def test_the_wheel_is_installed_as_it_was_built(dist: Path, tmp_path: Path) -> None:
    wheel = dist / f"pyagentd-{__version__}-py3-none-any.whl"
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", str(tmp_path)]
    subprocess.run([*command, str(wheel)], check=True, capture_output=True)
    for line in (tmp_path / f"pyagentd-{__version__}.dist-info/RECORD").read_text().splitlines():
        name, hashed, _ = line.rsplit(",", 2)
        if hashed and not name.endswith(".pyc") and not name.startswith("../"):
            found = base64.urlsafe_b64encode(hashlib.sha256((tmp_path / name).read_bytes()).digest())
            assert hashed == f"sha256={found.decode().rstrip('=')}", name
    ask = "from pyagentd.installation import shipped as s; print(*sorted(f.stem for f in s('presets').glob('*.md')))"
    command, env = [sys.executable, "-c", ask], {**os.environ, "PYTHONPATH": str(tmp_path)}
    presets = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    ).stdout.split()
    assert (tmp_path / "pyagentd/presets").is_dir()
    assert presets == sorted(path.stem for path in (ROOT / "presets").glob("*.md"))


def test_the_metadata_say_what_the_project_declares(dist: Path) -> None:
    with zipfile.ZipFile(dist / f"pyagentd-{__version__}-py3-none-any.whl") as wheel:
        text = wheel.read(f"pyagentd-{__version__}.dist-info/METADATA").decode()
    said = email.message_from_string(text)
    assert (said["Name"], said["Version"], said["Author"]) == ("pyagentd", __version__, "The pyagentd authors")
    assert said.get_all("Classifier") == PROJECT["classifiers"]
    assert said.get_all("Provides-Extra") == list(EXTRAS)
    wanted = [*PROJECT["dependencies"], *(f'{e}; extra == "{name}"' for name in EXTRAS for e in EXTRAS[name])]
    assert said.get_all("Requires-Dist") == wanted
    assert said.get_payload() == README


def test_without_the_extras_a_library_works_and_the_rest_says_what_to_install(tmp_path: Path) -> None:
    script = """
import asyncio, sys
for name in ("acp", "epc", "mcp", "mcp_types", "sexpdata"):
    sys.modules[name] = None  # importing it fails as if it were absent
import pyagentd.daemon, pyagentd.mission
from pyagentd.cli.app import cli
from pyagentd.errors import PyagentdError
from pyagentd.mission import Scripted, delegate
from pyagentd.tools.mcp.connection import Connection, Launch
print(delegate("?", signature="() -> {a :int}", llm=Scripted("(return {:a 1})")).value)
for work in (
    lambda: asyncio.run(Connection(Launch(name="s", command=("true",))).offers()),
    lambda: __import__("pyagentd.wire.scripting"),
    lambda: cli.main(["acp"], standalone_mode=False),
):
    try:
        work()
    except PyagentdError as error:
        print(error)
"""
    command = [sys.executable, "-c", script]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "HOME": str(tmp_path)})
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert lines[0] == "{'a': 1}"
    for line, extra in zip(lines[1:], ("mcp", "epc", "acp"), strict=True):
        assert line.endswith(f"Run `pyagentd install {extra}`, or M-x pyagentd-install-extra in Emacs.")


def test_what_can_be_installed_later_is_declared() -> None:
    later = doctor.EXTRAS
    assert set(later) == set(EXTRAS) - {"anthropic", "daemon", "dev", "full", "gemini", "openai"}
    assert all("pyagentd" not in each for name in later for each in doctor.requirements(name))
    assert doctor.requirements("mcp") == EXTRAS["mcp"]
    listed = CliRunner().invoke(doctor.install, [])
    assert [line.split()[0] for line in listed.output.splitlines()] == list(later)


def test_a_feature_is_installed_also_where_emacs_left_pip_out(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path], check=True)
    for _ in range(2):
        command = [*doctor.pip_install(str(tmp_path / "bin/python")), "--help"]
        assert "Install packages" in subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_sdist_builds_the_same_wheel(dist: Path, tmp_path: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
        when = int(archive.getmembers()[0].mtime)
    (tree,) = tmp_path.iterdir()
    assert (tree / "PKG-INFO").is_file() and (tree / "LICENSE").is_file()
    build = ["-c", "import sys; sys.path.insert(0, 'scripts'); import dist; print(dist.build_wheel('.'))"]
    env = os.environ | {"SOURCE_DATE_EPOCH": str(when)}
    name = subprocess.run([sys.executable, *build], cwd=tree, env=env, capture_output=True, text=True, check=True)
    wheel = name.stdout.strip()
    assert (tree / wheel).read_bytes() == (dist / wheel).read_bytes()


def test_the_library_needs_only_what_the_plain_distribution_brings(tmp_path: Path) -> None:
    """With every other package away, missions run; a model and the command line say what to install."""
    script = """
import sys
from importlib.metadata import packages_distributions
kept = {"pyagentd", "google-re2", "msgspec", "platformdirs", "regex"}
for name, brought_by in packages_distributions().items():
    if name not in sys.stdlib_module_names and not kept & set(brought_by):
        sys.modules[name] = None
from pyagentd.mission import Mission, Model, Plan, Scripted, delegate
step = Mission("?", signature="() -> {a :int}", llm=Scripted("(return {:a (inc 1)})"), isolation="process").run()
print(step.unwrap())
print(delegate("?", llm=Model("claude-haiku-4-5"), max_turns=1).fail.message)
import pyagentd.cli
"""
    command = [sys.executable, "-c", script]
    env = {**os.environ, "HOME": str(tmp_path), "ANTHROPIC_API_KEY": "none"}
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=env)
    assert run.stdout, run.stderr
    first, second = run.stdout.splitlines()
    assert first == "{'a': 2}"
    assert "Install pyagentd[anthropic]." in second
    assert run.stderr == ("pyagentd: only the library is installed. The command line needs pyagentd[daemon]\n")
