"""Which of our files and functions a prompt passes: ``python -m tests.bench.trace_prompt [--list]``.

The daemon runs in this process, with a real socket, a real client and a server that speaks the Messages API. Printed
are, for a warm session, the functions entered from the frame of ``prompt`` to the HTTP request, and from the request's
answer with one tool call to the recorded result of that call.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from pyagentd.wire.client import DaemonClient, connect

import pyagentd
from pyagentd.config import load_config
from pyagentd.daemon import serve
from tests.server import ModelServer, Request, answer
from tests.server.answers import Scripted, tool_use

_PACKAGE = str(Path(pyagentd.__file__).parent) + os.sep


class Trace:
    """The functions of ours that are entered, in all threads, while it is on."""

    def __init__(self) -> None:
        self.on = False
        self.entered: list[tuple[str, str]] = []

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Note a call; ``sys.setprofile`` has this called."""
        if self.on and event == "call" and frame.f_code.co_filename.startswith(_PACKAGE):
            file = frame.f_code.co_filename.removeprefix(_PACKAGE)
            self.entered.append((file, frame.f_code.co_qualname))

    def taken(self) -> list[tuple[str, str]]:
        """Return what was entered, and begin anew."""
        self.on = False
        entered, self.entered = self.entered, []
        return entered


def told(name: str, entered: list[tuple[str, str]], *, listed: bool) -> str:
    """Return what a trace says in one line, or in a line for each file, in the order they are first entered."""
    functions = list(dict.fromkeys(entered))
    files = list(dict.fromkeys(file for file, _ in entered))
    switches = sum(before[0] != after[0] for before, after in zip(entered, entered[1:], strict=False))
    lines = [f"{name}: {len(files)} files, {len(functions)} functions, {switches} switches of file"]
    if listed:
        lines += [f"  {file}: {', '.join(what for where, what in functions if where == file)}" for file in files]
    return "\n".join(lines)


def traced(home: Path, trace: Trace) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield the name and the trace of each way, from a client that talks to the daemon of this process."""
    reached = threading.Event()
    replies: list[Scripted] = []
    ways: list[tuple[str, list[tuple[str, str]]]] = []

    def rule(request: Request) -> Scripted:
        if trace.on:
            ways.append(("frame to request" if not ways else "first byte to recorded call", trace.taken()))
        reply = replies.pop(0) if replies else answer("ok")
        trace.on = bool(replies)
        reached.set()
        return reply

    with ModelServer(rule=rule) as server:
        os.environ["ANTHROPIC_BASE_URL"] = server.url
        project = home / "project"
        project.mkdir()
        (project / "notes.txt").write_text("one line\n")
        with _connected(home) as client:
            made = client.call("create-session", name="trace", preset="explorer", root=str(project))
            branch = made["branch-dir"]
            client.call("attach", branch=branch, sha256="", mode="view")
            for prompt in ("first", "second"):
                _prompt(client, branch, prompt)
            replies += [answer(tool_use("Read", file_path=str(project / "notes.txt"))), answer("done")]
            trace.on = True
            _prompt(client, branch, "third")
            trace.on = False
            client.call("stop")
    yield from ways


def _prompt(client: DaemonClient, branch: str, text: str) -> None:
    client.call("prompt", branch=branch, text=text)
    for event in client.events(timeout=60):
        if event.kind == "run" and event.args[0]["phase"] == "finished":
            return
    raise TimeoutError(text)


@contextlib.contextmanager
def _connected(home: Path) -> Iterator[DaemonClient]:
    deadline = threading.Event()
    for _ in range(1200):
        with contextlib.suppress(Exception):
            client = connect(home / "run")
            break
        deadline.wait(0.05)
    with client:
        yield client


def main() -> None:
    """Run the daemon here, and a client beside it; print the ways."""
    trace = Trace()
    threading.setprofile(trace)
    with tempfile.TemporaryDirectory(prefix="pa-") as directory:
        home = Path(directory)
        (home / "run").mkdir(mode=0o700)
        os.environ.update(
            HOME=directory,
            ANTHROPIC_API_KEY="test-key",
            PYAGENTD_SESSIONS_DIR=str(home / "sessions"),
            PYAGENTD_RUNTIME_DIR=str(home / "run"),
        )
        found: list[tuple[str, list[tuple[str, str]]]] = []
        client = threading.Thread(target=lambda: found.extend(traced(home, trace)))
        client.start()
        sys.setprofile(trace)
        serve(load_config(), detach=False, tcp_port=None)
        sys.setprofile(None)
        client.join()
    for name, entered in found:
        print(told(name, entered, listed="--list" in sys.argv))


if __name__ == "__main__":
    main()
