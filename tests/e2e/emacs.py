"""A real Emacs under a test's control: in batch, or on a terminal whose screen can be read."""

from __future__ import annotations

import base64
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyagentd.wire.sexp import decode
from tests.e2e.compiled import ELPA, ROOT, elisp, load_path, native

__all__ = ["ELPA", "ROOT", "Emacs", "EmacsError", "wait_for"]

DRIVER = ROOT / "tests" / "e2e" / "driver.el"


def wait_for(condition: Callable[[], Any], what: str, timeout_s: float = 60.0) -> Any:
    """Return the first true value of ``condition``, polled; fail the test when it stays false."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"waited {timeout_s} s for: {what}")


def _share_native(directory: Path) -> None:
    # Emacs compiles what it loads for a terminal before it reads any option.
    cache = directory / "eln-cache"
    if not os.path.lexists(cache):
        directory.mkdir(exist_ok=True)
        cache.symlink_to(native())


class EmacsError(AssertionError):
    """The form signalled an error."""


class Emacs:
    """One Emacs process with the package loaded."""

    def __init__(
        self,
        directory: Path,
        env: Mapping[str, str],
        *,
        terminal: bool = False,
        load: tuple[str, ...] = ("pyagentd",),
        size: tuple[int, int] = (100, 40),
        prefix: tuple[str, ...] = (),
        program: tuple[str, ...] = ("emacs", "--batch"),
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.socket = directory / "d"
        self.env = {**env, "DRIVER_SOCKET": str(self.socket), "TERM": "xterm-256color"}
        requires = [argument for name in load for argument in ("--eval", f"(require '{name})")]
        # In a new home everything would be compiled now, with windows full of warnings; and two that compile the same
        # trampoline at once in one home take it from each other.
        quiet = ["--eval", "(setq native-comp-deferred-compilation nil comp-enable-subr-trampolines nil)"]
        command = ["emacs", "-Q", *quiet, *load_path(elisp()), *requires, "-l", str(DRIVER)]
        self._tmux: str | None = None
        self._process: subprocess.Popen[bytes] | None = None
        if terminal:
            self._tmux = str(directory / "t")
            _share_native(Path(env["HOME"]) / ".emacs.d")
            self._start_tmux([command[0], "-nw", *command[1:]], size)
        else:
            log = (directory / "emacs.log").open("wb")
            self._process = subprocess.Popen(
                [*prefix, *program, *command[1:]],
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                restore_signals=False,  # ignoring SIGPIPE, as an Emacs with a person in front of it does
            )
        wait_for(self._listens, f"Emacs to start, see {directory}")
        # The test answers for a person, and a slow machine is no daemon that does not answer.
        self.pid = int(self.eval("(progn (setq pyagentd-human t pyagentd-call-timeout 60) (emacs-pid))"))

    def _listens(self) -> bool:
        with socket.socket(socket.AF_UNIX) as link:
            return link.connect_ex(str(self.socket)) == 0

    def eval(self, form: str, timeout_s: float = 60.0) -> Any:
        """Evaluate one form and return its value, decoded."""
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(timeout_s)
            link.connect(str(self.socket))
            link.sendall(base64.b64encode(form.encode()) + b"\n")
            line = link.makefile("rb").readline()
        kind, value = decode(base64.b64decode(line)) if line else ("error", "Emacs is gone")
        if kind != "ok":
            raise EmacsError(f"{value}\nin {form}")
        return value

    def wait(self, form: str, timeout_s: float = 60.0) -> Any:
        """Wait until ``form`` is non-nil and return its value."""
        try:
            return wait_for(lambda: self.eval(form), form, timeout_s)
        except AssertionError as error:
            error.add_note(str(self.eval('(with-current-buffer "*Messages*" (buffer-string))')))
            raise

    def screen(self, *, colour: bool = False) -> str:
        """Return what the terminal shows."""
        assert self._tmux is not None, "a batch Emacs has no screen"
        return self._run_tmux("capture-pane", "-p", *(["-e"] if colour else []), "-t", "e").stdout

    def keys(self, *keys: str) -> None:
        """Type keys in tmux's notation (``C-c``, ``Enter``, ``hello``)."""
        self._run_tmux("send-keys", "-t", "e", *keys)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send Emacs a signal, and wait for its end when that kills it."""
        os.kill(self.pid, number)
        if number == signal.SIGKILL:
            self.close()

    def close(self) -> None:
        """End Emacs, whatever it does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        elif self._tmux is not None:
            subprocess.run(["tmux", "-S", self._tmux, "kill-server"], capture_output=True, check=False)
        self.socket.unlink(missing_ok=True)

    def _start_tmux(self, command: list[str], size: tuple[int, int]) -> None:
        if shutil.which("tmux") is None:
            raise AssertionError("tmux is not installed; run make setup")
        width, height = size
        self._run_tmux(
            "-f", "/dev/null", "new-session", "-d", "-s", "e", "-x", str(width), "-y", str(height), *command
        )

    def _run_tmux(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        assert self._tmux is not None
        command = ["tmux", "-S", self._tmux, *arguments]
        return subprocess.run(command, env=self.env, capture_output=True, text=True, check=True)
