"""The process that runs one background command, keeps its output and exit status, and outlives the daemon.

A separate program: it is started by path and imports nothing of pyagentd. It is the parent of the process that
confines the command, which ends with its parent: so the command does not end with the daemon.

Its argument is the path of the result file; a later daemon recognises it by that path. It reads a line of JSON from
standard input, and starts the command when another byte follows. If the input is closed without one it exits, so that
no command runs that was not recorded. SIGTERM ends the command: first with SIGTERM, then with SIGKILL.

The JSON: ``argv``, ``leader`` and ``files`` (see ``tools.process``, ``tools.sandbox.enclosure``), ``output`` (the
file for the last ``most`` bytes of output), ``timeout_s``, ``grace_s``, ``temporary`` (a directory to remove). The
result file: ``exit_code`` (128 + number of a signal), ``reason`` ("", "killed", "timeout", or why it could not be
run), ``ended_at`` (seconds since the epoch).
"""

import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

_CHUNK = 65_536
_REST_S = 0.2  # for the rest of the pipe after the command has ended
_POLL_S = 0.02
_LAUNCHER_S = 2.0
_WRITE = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class _Output:
    """The output file; it keeps the last ``most`` bytes."""

    def __init__(self, path: str, most: int) -> None:
        self._path, self._most = path, most
        self._file = os.open(path, _WRITE, 0o600)
        self._size = os.fstat(self._file).st_size
        self._gone = 0

    def add(self, data: bytes) -> None:
        """Append output; a full disk does not end the command."""
        with suppress(OSError):
            if self._size + len(data) > self._most:
                self._shorten()
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._file, rest) :]
            self._size += len(data)

    def _shorten(self) -> None:
        """Start a new file with the second half; readers of the old one keep it open."""
        with open(self._path, "rb") as file:  # noqa: PTH123
            file.seek(max(0, self._size - self._most // 2))
            kept = file.read()
        kept = kept[kept.find(b"\n") + 1 :]
        self._gone += self._size - len(kept)
        head = f"[{self._gone} bytes before this were dropped]\n".encode()
        new = f"{self._path}.new"
        descriptor = os.open(
            new, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        os.write(descriptor, head + kept)
        os.replace(new, self._path)  # noqa: PTH105
        os.close(self._file)
        self._file, self._size = descriptor, len(head) + len(kept)
        self._gone -= len(head)


class _Command:
    """The command and the process that confines it, as one process group."""

    def __init__(self, spec: dict[str, Any], stdout: int) -> None:
        self._leader = spec["leader"]
        self.process = subprocess.Popen(
            spec["argv"],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stdout,
            start_new_session=True,
            pass_fds=spec["files"],
        )

    def stop(self, grace_s: float) -> int:
        """End the whole group, with SIGTERM first; return its status."""
        self._ask()
        self._wait(grace_s)
        if self._leader == "launcher" and self.process.poll() is None:
            self.process.send_signal(signal.SIGUSR1)
            self._wait(_LAUNCHER_S)
        self._signal(signal.SIGKILL)
        return self.process.wait()

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and (self.process.poll() is None or self._rest()):
            time.sleep(_POLL_S)

    def _rest(self) -> bool:
        return self._leader == "command" and self._signal(0)

    def _ask(self) -> None:
        if self._leader != "monitor":
            self._signal(signal.SIGTERM)
            return
        for name in os.listdir("/proc"):  # noqa: PTH208 - who confines it would end the others before they tidied up
            with suppress(OSError, ValueError):
                if int(name) != self.process.pid and os.getpgid(int(name)) == self.process.pid:
                    os.kill(int(name), signal.SIGTERM)

    def _signal(self, number: int) -> bool:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)
            return True
        return False


def _run(spec: dict[str, Any], wakeup: int) -> tuple[int, str]:
    """Run the command to its end; return its exit code, and why it was stopped or ""."""
    output = _Output(spec["output"], spec["most"])
    read, write = os.pipe()
    command = _Command(spec, write)
    os.close(write)
    for descriptor in spec["files"]:
        os.close(descriptor)
    os.set_blocking(read, False)
    deadline = time.monotonic() + spec["timeout_s"]
    reason = ""
    with selectors.DefaultSelector() as selector:
        selector.register(read, selectors.EVENT_READ)
        selector.register(wakeup, selectors.EVENT_READ)
        while command.process.poll() is None:
            left = deadline - time.monotonic()
            if left <= 0 or _STOP:
                reason = "killed" if _STOP else "timeout"
                break
            for key, _ in selector.select(left):
                _read_chunk(key.fd, None if key.fd == wakeup else output, selector)
        status = command.stop(spec["grace_s"] if reason else 0)
        until = time.monotonic() + _REST_S
        while read in selector.get_map() and time.monotonic() < until:
            for key, _ in selector.select(until - time.monotonic()):
                _read_chunk(key.fd, None if key.fd == wakeup else output, selector)
    return (128 - status if status < 0 else status), reason


def _read_chunk(descriptor: int, output: _Output | None, selector: selectors.BaseSelector) -> None:
    try:
        data = os.read(descriptor, _CHUNK)
    except BlockingIOError:
        return
    if output is not None:
        output.add(data)
    if not data:
        selector.unregister(descriptor)


def _tell(path: str, exit_code: int, reason: str) -> None:
    """Write the result file atomically."""
    text = json.dumps({"exit_code": exit_code, "reason": reason, "ended_at": time.time()})
    new = f"{path}.new"
    descriptor = os.open(new, _WRITE | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)  # noqa: PTH105


_STOP: list[int] = []  # the termination signals received


def main() -> int:
    """Run the command of the specification on standard input."""
    spec = json.loads(sys.stdin.buffer.readline())
    wakeup, signalled = os.pipe()
    os.set_blocking(signalled, False)
    os.set_blocking(wakeup, False)
    signal.set_wakeup_fd(signalled, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda number, frame: _STOP.append(number))
    signal.signal(signal.SIGCHLD, lambda number, frame: None)  # wakes the selector
    signal.signal(signal.SIGINT, lambda number, frame: None)  # handlers: the command inherits ignored signals
    signal.signal(signal.SIGHUP, lambda number, frame: None)
    try:
        if not sys.stdin.buffer.read(1):
            return 1
        try:
            exit_code, reason = _run(spec, wakeup)
        except OSError as error:
            exit_code, reason = 126, f"it could not be run: {error}"
        _tell(sys.argv[1], exit_code, reason)
    finally:
        if spec["temporary"]:
            shutil.rmtree(spec["temporary"], ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
