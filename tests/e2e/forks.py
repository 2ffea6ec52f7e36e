"""``pyagentd`` in processes that are forked from one which has everything loaded.

Loading the command line and the provider's SDK takes two seconds of a processor; most tests start a daemon and some
commands. Each is a process of its own as ever, with its own environment, directory, streams and signals; only its
modules were imported before. ``preloaded/sitecustomize.py`` has them begin this way, whoever starts them.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TELL_STACKS = signal.SIGUSR2  # a fork writes the stacks of its threads to ``~/stacks-PID``
PRELOADED = Path(__file__).with_name("preloaded")


@functools.cache
def environment() -> dict[str, str]:
    """Return the variables that have commands begin as forks; starts what is forked, which ends with this process."""
    if not sys.platform.startswith("linux"):
        return {}
    home = tempfile.mkdtemp(prefix="pf-", dir="/tmp")
    address = f"{home}/s"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.e2e.forks", address],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,  # its end is that of this process
        stdout=subprocess.PIPE,
    )
    atexit.register(process.kill)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n", "what is forked does not start"
    return {"PYAGENTD_TEST_FORKS": address, "PYTHONPATH": os.pathsep.join([str(PRELOADED), str(ROOT)])}


def _serve(address: str) -> None:
    for name in ("pyagentd.cli.app", "pyagentd.cli.serve", "pyagentd.daemon"):
        importlib.import_module(name)
    importlib.import_module("pyagentd.llm.factory").warm()
    assert threading.active_count() == 1, threading.enumerate()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)
    os.write(1, b"ready\n")
    gc.collect()
    gc.freeze()
    while True:
        ready, _, _ = select.select([listener, 0], [], [], 1.0)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if 0 in ready:
            break
        if listener in ready:
            link, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _keep(link)
            link.close()
    Path(address).unlink()
    Path(address).parent.rmdir()


def _keep(link: socket.socket) -> None:
    """Run one command and tell how it ended; does not return."""
    try:
        head, streams, _, _ = socket.recv_fds(link, 4, 3)
        with link.makefile("rb") as file:
            order = json.loads(file.read(int.from_bytes(head, "big")).decode("utf-8", "surrogateescape"))
        worker = os.fork()
        if worker == 0:
            link.close()
            _work(order, streams)
        for stream in (0, 1, 2, *streams):
            os.close(stream)
        _say_end(link, worker)
    finally:
        os._exit(0)


def _say_end(link: socket.socket, worker: int) -> None:
    pidfd = os.pidfd_open(worker)
    attended = [link]
    while True:
        ready, _, _ = select.select([pidfd, *attended], [], [])
        if pidfd in ready:
            status = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
            link.send(bytes([max(status, 0), max(-status, 0)]))  # exit code, signal
            return
        if numbers := link.recv(16):
            for number in numbers:
                signal.pidfd_send_signal(pidfd, number)
        else:  # killed, and the command with it
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            attended = []


def _work(order: dict[str, Any], streams: list[int]) -> None:
    """Become the process of a command; does not return."""
    code = 1
    try:
        _become(order, streams)
        try:
            runpy.run_module("pyagentd", run_name="__main__", alter_sys=True)
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
            if isinstance(end.code, str):
                print(end.code, file=sys.stderr)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        threading._shutdown()  # type: ignore[attr-defined]  # what Python does at its end
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
    finally:
        os._exit(code)


def _become(order: dict[str, Any], streams: list[int]) -> None:
    if order["leads"]:
        os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.umask(order["umask"])
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    time.tzset()
    with contextlib.suppress(OSError):
        stacks = Path(order["env"]["HOME"], f"stacks-{os.getpid()}").open("w")  # noqa: SIM115
        faulthandler.register(TELL_STACKS, file=stacks, all_threads=True)
    sys.argv = ["pyagentd", *order["arguments"]]
    sys.stdin = os.fdopen(0, encoding="utf-8", errors="surrogateescape")
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors="surrogateescape")
    sys.stderr = os.fdopen(2, "w", 1, encoding="utf-8", errors="backslashreplace")


if __name__ == "__main__":
    _serve(sys.argv[1])
