"""A whole system per test: its own home, sessions root, runtime directory, daemon and Emacsen."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import forks
from tests.e2e.emacs import Emacs

ROOT = Path(__file__).resolve().parents[2]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.e2e)


class System:
    """The command line and Emacs of one user."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.sessions = home / "sessions"
        self.runtime = home / "run"
        self.project = home / "project"
        self.project.mkdir()
        self.env = {
            "HOME": str(home),
            "PYTHONPATH": str(ROOT),  # the tree these tests are in, wherever the package is installed from
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "LANG": "C.UTF-8",
            "PYAGENTD_SESSIONS_DIR": str(self.sessions),
            "PYAGENTD_RUNTIME_DIR": str(self.runtime),
            "PYAGENTD_CONFIG": str(home / "config.toml"),
            "PYAGENTD_BACKEND": "offline",
            "PYAGENTD_TITLES": "off",  # one more request would be one more answer of a script
        }
        self._emacsen: list[Emacs] = []

    def use_server(self, url: str) -> None:
        """Have the real SDK talk to a server of the test's."""
        self.env |= {"PYAGENTD_BACKEND": "anthropic", "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "test-key"}

    def run(
        self, *arguments: str, input: str | None = None, timeout: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """Run ``pyagentd`` and return what it said, whatever its exit code."""
        return subprocess.run(
            self.command(*arguments),
            env=self.env,
            cwd=self.project,
            input=input,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def command(self, *arguments: str) -> list[str]:
        """Return the argv of ``pyagentd``."""
        return [sys.executable, "-m", "pyagentd", *arguments]

    def ok(self, *arguments: str, **options: Any) -> str:
        """Run ``pyagentd``, which must succeed, and return its output."""
        done = self.run(*arguments, **options)
        assert done.returncode == 0, f"{arguments}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def json(self, *arguments: str) -> Any:
        """Run ``pyagentd … --json`` and return the value it printed."""
        return json.loads(self.ok(*arguments, "--json"))

    def new(self, name: str = "test", **options: str) -> tuple[str, Path]:
        """Create a session in the project and return its id and branch directory."""
        extra = [word for key, value in options.items() for word in (f"--{key}", value)]
        made = self.json("new", name, "--root", str(self.project), *extra)
        return made["session_id"], Path(made["branch_dir"])

    def daemon_pid(self) -> int:
        """Return the pid of the running daemon."""
        return int(self.json("status")["pid"])

    def emacs(self, **options: Any) -> Emacs:
        """Start an Emacs, in batch unless ``terminal=True``; it is ended with the test."""
        emacs = Emacs(self.home / f"e{len(self._emacsen)}", self.env, **options)
        self._emacsen.append(emacs)
        emacs.eval(f'(setq default-directory "{self.project}/")')
        return emacs

    def close(self) -> None:
        """End everything."""
        for emacs in self._emacsen:
            emacs.close()
        self.run("stop")


@pytest.fixture
def system(request: pytest.FixtureRequest) -> Iterator[System]:
    # Not pytest's tmp_path: the path of a socket has at most about 100 bytes.
    home = Path(tempfile.mkdtemp(prefix="pa-", dir="/tmp"))
    made = System(home)
    if not request.node.get_closest_marker("cold"):
        made.env |= forks.environment()
    yield made
    made.close()
    shutil.rmtree(home, ignore_errors=True)
