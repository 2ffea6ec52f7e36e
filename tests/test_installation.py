"""What the daemon runs for itself comes from the machine, and where it is installed no tool writes."""

import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

import pyagentd
from pyagentd import installation
from pyagentd.config import load_config
from pyagentd.policy.action import first_match
from pyagentd.runtime.run_setup import protected_paths
from pyagentd.runtime.system_prompt import environment
from pyagentd.tools.sandbox import enclosure, plan
from tests.tools.confined import needs_bubblewrap

PACKAGE = Path(pyagentd.__file__).parent


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs in a directory that is first on ``PATH``, each leaves a mark in the directory that is returned."""
    programs, marks = tmp_path / ".venv/bin", tmp_path / "marks"
    programs.mkdir(parents=True)
    marks.mkdir()
    for name in ("git", "bwrap", "bash", "sh", "env"):
        (programs / name).write_text(f"#!/bin/sh\n: >{marks}/{name}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return marks


def test_a_repository_without_commits_is_one(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", "-b", "trunk", str(tmp_path)], check=True)
    assert "Git: on branch trunk, without commits" in environment(tmp_path, datetime.now(UTC))


def test_a_branch_may_have_a_name_that_is_not_utf_8(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".git/HEAD").write_bytes(b"ref: refs/heads/f\xfcr\n")
    assert "Git: on branch f\ufffdr, without commits" in environment(tmp_path, datetime.now(UTC))


def test_a_program_planted_on_the_path_is_not_run(
    planted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enclosure, "_bubblewrap", enclosure._bubblewrap.__wrapped__)
    (tmp_path / ".gitconfig").write_text("[user]\n\tname = Ann\n")
    assert "Git: not a repository" in environment(tmp_path, datetime.now(UTC))
    assert "Ann" in plan.configuration({"HOME": str(tmp_path), "PATH": os.environ["PATH"]})
    found = enclosure._bubblewrap()
    assert found is None or Path(found[0]).parent != planted.parent
    assert list(planted.iterdir()) == []


def test_no_module_of_the_daemon_looks_a_program_up_by_name() -> None:
    by_name = re.compile(r'\bwhich\(|\[\s*"(git|bwrap|bash|sh|rg|env)",|(Popen|run|exec|start)\(\s*\[?"[^/"]')
    daemons = [path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] != "cli"]
    assert [str(path) for path in daemons if by_name.search(path.read_text("utf-8"))] == []


def test_a_machine_without_a_program_has_none() -> None:
    assert installation.program("no-such-program-7f3a") is None


@needs_bubblewrap
def test_a_bubblewrap_that_vanished_is_looked_up_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, moved = installation.program("bwrap"), tmp_path / "bwrap"
    assert real is not None
    moved.symlink_to(real)
    enclosure._bubblewrap.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(installation, "program", lambda name: str(moved))
        found = enclosure.bubblewrap()
        assert found is not None and found[0] == str(moved)
    moved.unlink()
    again = enclosure.bubblewrap()
    assert again is not None and again[0] == real


@pytest.mark.parametrize("place", [f"{PACKAGE}/daemon.py", f"{Path(sys.prefix).resolve()}/bin/pyagentd", os.__file__])
def test_where_it_is_installed_nothing_is_written_by_a_tool(tmp_path: Path, place: str) -> None:
    config = load_config({"PYAGENTD_SESSIONS_DIR": f"{tmp_path}/s", "PYAGENTD_CONFIG": f"{tmp_path}/c/config.toml"})
    assert first_match(protected_paths(config), place) is not None


@pytest.mark.parametrize("prefix", ["/usr", "/", str(Path.home()), str(Path.home() / ".local")])
def test_what_others_share_is_not_ours(monkeypatch: pytest.MonkeyPatch, prefix: str) -> None:
    monkeypatch.setattr(sys, "prefix", prefix)
    monkeypatch.setattr(sys, "base_prefix", prefix)
    assert Path(prefix) not in installation.code_directories()
