"""A whole system per test: its own home, sessions root, runtime directory, daemon and Emacsen."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyagentd.wire.lifecycle import read_runtime
from tests.e2e import forks
from tests.e2e.emacs import Emacs

ROOT = Path(__file__).resolve().parents[2]


STATE = (
    "(list pyagentd-status pyagentd-attach-state pyagentd-edit--sent pyagentd-edit--pending"
    " pyagentd-attach-awaited pyagentd-rpc--pending pyagentd-outbox--held pyagentd-events--next)"
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.e2e)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Add what the daemon and each Emacs of a failed test were doing."""
    report = yield
    system = getattr(item, "funcargs", {}).get("system")
    if report.when == "call" and report.failed and isinstance(system, System):
        report.sections += system.explain()
    return report


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

    def explain(self) -> Iterator[tuple[str, str]]:
        """Yield a title and a text for each thing that tells why a test failed."""
        with contextlib.suppress(Exception):
            os.kill(read_runtime(self.runtime).pid, forks.TELL_STACKS)
            time.sleep(0.5)
        for file in (*self.home.glob("stacks-*"), *self.runtime.glob("*.log")):
            yield file.name, file.read_text(errors="replace")[-8000:]
        for number, emacs in enumerate(self._emacsen):
            for what in ('(with-current-buffer "*Messages*" (buffer-string))', f'(format "%S" {STATE})'):
                try:
                    text = emacs.eval(what, 5)
                except Exception as error:
                    text = repr(error)
                yield f"Emacs {number}: {what}", str(text)[-4000:]

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
