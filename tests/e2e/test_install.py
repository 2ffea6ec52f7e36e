"""From the package's file to the first answer, as a new user would go: an empty home, two commands, one question.

It makes the package, compiles it in Emacs, and fetches the server's Python packages, which takes as long as it takes:
it only runs by ``make test-install``.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyagentd import __version__
from tests.e2e.emacs import wait_for

ROOT = Path(__file__).resolve().parents[2]
WIDTH, HEIGHT = 100, 40


@pytest.fixture
def package() -> Path:
    """The package's file, made just now."""
    subprocess.run([ROOT / "scripts" / "dist.sh"], check=True, capture_output=True)
    return ROOT / "dist" / f"pyagentd-{__version__}.tar"


class Terminal:
    """An Emacs of its own in tmux, started as a user starts it."""

    def __init__(self, home: Path) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYAGENTD_", "XDG_"))}
        kept |= {"HOME": str(home), "TERM": "xterm-256color", "LANG": "C.UTF-8", "PYAGENTD_BACKEND": "offline"}
        kept["PATH"] = "/usr/local/bin:/usr/bin:/bin"
        self._env = kept
        self._socket = str(home / "t")
        size = ["-x", str(WIDTH), "-y", str(HEIGHT)]
        self._tmux("-f", "/dev/null", "new-session", "-d", "-s", "e", *size, "-c", str(home), "emacs", "-nw")
        self.until("GNU Emacs")

    def _tmux(self, *arguments: str) -> str:
        command = ["tmux", "-S", self._socket, *arguments]
        return subprocess.run(command, env=self._env, capture_output=True, text=True, check=True).stdout

    def screen(self) -> str:
        return self._tmux("capture-pane", "-p", "-t", "e")

    def until(self, text: str, timeout_s: float = 240.0) -> None:
        wait_for(lambda: text in self.screen(), f"{text!r} on the screen", timeout_s)

    def command(self, name: str, prompt: str, answer: str) -> None:
        """Call a command that asks one thing, and answer that."""
        self._tmux("send-keys", "-t", "e", "M-x")
        self.until("M-x")
        self._tmux("send-keys", "-t", "e", name, "Enter")
        self.until(prompt)
        self._tmux("send-keys", "-t", "e", answer, "Enter")

    def keys(self, *keys: str) -> None:
        self._tmux("send-keys", "-t", "e", *keys)

    def close(self) -> None:
        subprocess.run(["tmux", "-S", self._socket, "kill-server"], env=self._env, capture_output=True, check=False)
        stop = [sys.executable, "-m", "pyagentd", "stop"]
        subprocess.run(stop, env={**self._env, "PYTHONPATH": str(ROOT)}, capture_output=True, check=False)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """An empty home whose name is short enough for a socket below it."""
    directory = Path(subprocess.check_output(["mktemp", "-d", "/tmp/pa-XXXXXX"], text=True).strip())
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.mark.e2e
@pytest.mark.skipif(not os.environ.get("PYAGENTD_TEST_INSTALL"), reason="make test-install")
def test_from_the_package_to_the_first_answer_in_two_steps(package: Path, home: Path) -> None:
    (home / "notes.txt").write_text("alpha\n")
    emacs = Terminal(home)
    try:
        began = time.monotonic()
        emacs.command("package-install-file", "Package file name", str(package))
        wait_for((home / ".emacs.d" / "elpa").exists, "the package's directory")
        emacs.until("Done (Total of")
        emacs.command("pyagentd-session", "Session name", "first")
        emacs.until("Install the server")
        emacs.keys("y")
        emacs.until("Ready")
        emacs.keys("What is in notes.txt? Read it yourself.", "C-c", "Enter")
        emacs.until("begins with “alpha”")
        print(f"from the package to the first answer: {time.monotonic() - began:.0f} s")
    finally:
        print(emacs.screen())
        emacs.close()
