"""A whole system to measure: the model's process, the daemon's, and Emacsen with the package byte-compiled.

The daemon is started through the command line and Emacs runs on a terminal, as a user has them.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyagentd.store.document import text as document
from pyagentd.wire.client import DaemonClient, connect
from pyagentd.wire.sexp import decode
from tests.bench import corpus
from tests.bench.model import FILE
from tests.e2e.compiled import elisp, load_path
from tests.e2e.conftest import ROOT, System
from tests.e2e.emacs import Emacs, wait_for

HERE = Path(__file__).resolve().parent
_FILL = 25_000  # pieces, about 150 kB, of one answer that fills a session


class World:
    """One system; ``quick`` asks the benchmarks for a glance, ``full`` for the largest sizes."""

    def __init__(self, home: Path, url: str, *, quick: bool, full: bool = False) -> None:
        self.system = System(home)
        self.system.use_server(url)
        self.url = url
        self.quick = quick
        self.full = full
        self._compiled: Path | None = None
        self._editors: list[Emacs] = []
        (self.system.project / FILE).write_text(corpus.text(700))

    # -- the daemon ----------------------------------------------------------------------------------------------

    def daemon(self) -> int:
        """Return the pid of the daemon, started unless it runs, and warm."""
        if self.system.run("status").returncode != 0:
            self.system.ok("serve", "--detach")
        with self.client() as client:
            branch = self.session("warm")
            self.headless(client, branch, "burst 200")
        return self.system.daemon_pid()

    def stop_daemon(self) -> None:
        """Stop the daemon, and return when it is gone."""
        pid = self.system.daemon_pid()
        self.system.run("stop")
        wait_for(lambda: not Path(f"/proc/{pid}").exists(), "the daemon to end")

    def client(self) -> DaemonClient:
        """Return a connection to the daemon."""
        return connect(self.system.runtime)

    def session(self, name: str, *, preset: str = "explorer") -> Path:
        """Create a session and return its branch directory."""
        return self.system.new(name, preset=preset)[1]

    def headless(self, client: DaemonClient, branch: Path, prompt: str) -> None:
        """Run a prompt that no editor shows, and return when it has finished."""
        self.view(client, branch)
        self.run(client, branch, prompt)
        client.call("detach", branch=str(branch))

    def view(self, client: DaemonClient, branch: Path) -> None:
        """Watch a branch."""
        sha256 = document.body_sha256(document.read(branch / "session.md").body)
        client.call("attach", branch=str(branch), sha256=sha256)

    def run(self, client: DaemonClient, branch: Path, prompt: str) -> None:
        """Run a prompt of a branch that is watched, and return when it has finished."""
        client.call("prompt", branch=str(branch), text=prompt)
        for event in client.events(timeout=60):
            if event.kind == "run" and event.args[0]["phase"] == "finished":
                assert event.args[0]["reason"] == "done", event.args
                return
        raise TimeoutError(f"{prompt} in {branch}")

    def filled(self, name: str, size: int) -> Path:
        """Return a session whose document has at least ``size`` bytes, all of it answers."""
        branch = self.session(name)
        file = branch / "session.md"
        with self.client() as client:
            while file.stat().st_size < size:
                self.headless(client, branch, f"burst {_FILL if size > 100_000 else size // 6 + 10}")
        return branch

    # -- Emacs ---------------------------------------------------------------------------------------------------

    def emacs(self, *, terminal: bool = True, program: tuple[str, ...] = ("emacs", "--batch")) -> Emacs:
        """Return an Emacs that has loaded the package, byte-compiled, and the probes; ``program`` off a terminal."""
        emacs = self.system.emacs(terminal=terminal, program=program, load=())
        self._editors.append(emacs)
        emacs.eval(
            # Compiling natively behind the scenes would be measured too.
            "(setq native-comp-deferred-compilation nil native-comp-jit-compilation nil "
            f'pyagentd-command (list "{sys.executable}" "-m" "pyagentd"))'
        )
        emacs.eval(f"(progn (push \"{self._probes()}\" load-path) (require 'markdown-mode) (require 'bench) t)")
        return emacs

    def bare_emacs(self) -> Emacs:
        """Return an Emacs on a terminal that finds the package and has loaded nothing of it."""
        emacs = self.system.emacs(terminal=True, load=())
        self._editors.append(emacs)
        return emacs

    def close_editors(self) -> None:
        """End all Emacsen."""
        while self._editors:
            self._editors.pop().close()

    def open(self, emacs: Emacs, branch: Path) -> None:
        """Show a session in Emacs, attached, point at its end."""
        emacs.eval(f'(progn (switch-to-buffer (find-file-noselect "{branch}/session.md")) t)')
        emacs.wait("(eq pyagentd-attach-state t)")
        emacs.eval('(progn (goto-char (point-max)) (when (= 1 (point)) (insert "### ")) (recenter -1) t)')

    def type(self, emacs: Emacs, prompt: str) -> None:
        """Forget what was noted before, and type a prompt at the end of the current buffer."""
        emacs.eval(f'(progn (bench-reset) (goto-char (point-max)) (insert "{prompt}") t)')

    def finished(self, emacs: Emacs, runs: int = 1, timeout_s: float = 120.0) -> float:
        """Wait until ``runs`` runs have finished and return when the last did."""

        def done() -> Any:
            times = emacs.eval("bench-finished", timeout_s=30)
            return times if times and len(times) >= runs else None

        deadline = time.monotonic() + timeout_s
        while not (times := done()):
            assert time.monotonic() < deadline, "the run did not finish"
            time.sleep(0.1)
        return float(times[0][0])

    def text(self, emacs: Emacs) -> str:
        """Return the text of the current buffer."""
        file = Path(emacs.eval("(bench-text)"))
        return _taken(file)

    def value(self, emacs: Emacs, form: str) -> Any:
        """Return the value of a form that may be long."""
        return decode(_taken(Path(emacs.eval(f"(bench-dump {form})"))).encode())

    def _probes(self) -> Path:
        """Return a directory with the probes, byte-compiled; the package is so anyway."""
        if self._compiled is None:
            self._compiled = self.system.home / "elisp"
            self._compiled.mkdir()
            probes = shutil.copy(HERE / "bench.el", self._compiled)
            subprocess.run(
                ["emacs", "-Q", "--batch", *load_path(elisp()), "-f", "batch-byte-compile", str(probes)],
                env=self.system.env,
                check=True,
                capture_output=True,
            )
        return self._compiled


def _taken(file: Path) -> str:
    text = file.read_text(encoding="utf-8")
    file.unlink()
    return text


@contextlib.contextmanager
def new_world(*, quick: bool, full: bool = False) -> Iterator[World]:
    """Make a world and end it."""
    home = Path(tempfile.mkdtemp(prefix="pb-", dir="/tmp"))  # short, because sockets are in it
    with model_process() as url:
        world = World(home, url, quick=quick, full=full)
        try:
            yield world
        finally:
            world.system.close()
            shutil.rmtree(home, ignore_errors=True)


@contextlib.contextmanager
def model_process() -> Iterator[str]:
    """Run the model in a process of its own and yield its URL."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.model"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.stdin.close()
        process.wait()
