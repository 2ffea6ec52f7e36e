"""The workflows run what the Makefile has, on the versions that the package says it runs on."""

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def load(path: Path) -> dict[str, Any]:
    """Return what a YAML file says."""
    loaded: dict[str, Any] = YAML(typ="safe").load(path)
    return loaded


def jobs() -> list[tuple[str, dict[str, Any]]]:
    """Return the jobs of all workflows, with their names."""
    return [(f"{path.stem}/{name}", job) for path in WORKFLOWS for name, job in load(path)["jobs"].items()]


@pytest.mark.parametrize(("name", "job"), jobs(), ids=lambda value: value if isinstance(value, str) else "")
def test_each_command_is_a_target_that_exists(name: str, job: dict[str, Any]) -> None:
    """One `make TARGET` a step, after the checkout; `make -n` reads it as the workflow would."""
    commands = [step["run"] for step in job["steps"] if "run" in step]
    for command in commands:
        found = re.fullmatch(r"make ([a-z0-9-]+)(?: TAG=\$GITHUB_REF_NAME)?", command)
        assert found and found[1] in TARGETS, command
        words = ["make", "-n", "-o", "setup", found[1], "TAG=v0"]
        assert subprocess.run(words, cwd=ROOT, capture_output=True, check=False).returncode == 0
    assert not commands or job["steps"][0]["uses"].startswith("actions/checkout@")
    assert job["timeout-minutes"] <= 30


def test_workflows_may_only_read_but_where_a_job_says_more() -> None:
    """A pull request of a stranger gets no rights."""
    for path in WORKFLOWS:
        assert load(path)["permissions"] == {"contents": "read"}
        text = path.read_text()
        assert "pull_request_target" not in text
        # What others wrote, such as a title, must not become a shell's words.
        assert not re.search(r"run:.*\$\{\{", text)


def test_the_versions_are_those_that_the_packages_declare() -> None:
    """Pythons are the classifiers', the first Emacs is of the series that the package needs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = [each.rpartition(" ")[2] for each in project["classifiers"] if re.search(r":: 3\.\d+$", each)]
    matrices = {name: job["strategy"]["matrix"] for name, job in jobs() if "strategy" in job}
    assert matrices["ci/python"]["python"] == declared
    needed = re.search(r'\(emacs "(\d+)\.', (ROOT / "elisp/pyagentd.el").read_text())
    assert needed and matrices["ci/emacs"]["emacs"][0].split(".")[0] == needed[1]


def test_hooks_before_a_commit_are_targets_too() -> None:
    """They need nothing but what `make setup` installs."""
    (repository,) = load(ROOT / ".pre-commit-config.yaml")["repos"]
    assert {hook["entry"].removeprefix("make ") for hook in repository["hooks"]} <= TARGETS


def test_forms_of_issues_can_be_read() -> None:
    """GitHub shows a form that it cannot read as nothing at all."""
    for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"):
        form = load(path)
        if path.stem != "config":
            assert form["name"] and form["description"]
            ids = [field["id"] for field in form["body"]]
            assert len(ids) == len(set(ids))


def test_a_tag_of_another_version_is_no_release() -> None:
    """What is released has the version of its tag."""
    words = ["make", "-s", "-o", "setup", "check-tag", "TAG=v99.0.0"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode and "v99.0.0" in done.stderr
