"""The daemon of another machine: a real sshd on the loopback interface, behind a line that is slow, silent or cut.

The host has a home and an environment of its own, Emacs another; only the ssh between them joins the two. Run with
``-s`` it prints how long keys and the first token take on the line and without it.
"""

import asyncio
import contextlib
import getpass
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyagentd import __version__
from tests.e2e.conftest import ROOT, System
from tests.e2e.emacs import Emacs, wait_for
from tests.e2e.test_conversation import FINISHED, open_session, send
from tests.e2e.valve import Valve
from tests.server import ModelServer, answer, text, tool_use

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
pytestmark = pytest.mark.skipif(
    not (SSHD and shutil.which("ssh")), reason="needs sshd and ssh: apt-get install openssh-server"
)


class Line:
    """What lies between Emacs and the host: delays each way, falls silent, or is cut.

    Attributes:
        delay_s: How long a byte takes, one way.
    """

    def __init__(self, port: int) -> None:
        self.delay_s, self._far = 0.0, port
        self._writers: set[asyncio.StreamWriter] = set()
        self._refuses = False
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        self._started.wait()

    async def _serve(self) -> None:
        self._loop, self._end, self._flows = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        self._flows.set()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._end.wait()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuses:
            writer.close()
            return
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._far)
        pair = {writer, far_writer}
        self._writers |= pair
        with contextlib.suppress(asyncio.CancelledError):  # the end of the test
            await asyncio.gather(self._carry(reader, far_writer), self._carry(far_reader, writer))
        self._writers -= pair
        for each in pair:
            each.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def deliver() -> None:
            data = b"-"
            with contextlib.suppress(ConnectionError):
                while data:
                    due, data = await queue.get()
                    await asyncio.sleep(max(0.0, due - time.monotonic()))
                    await self._flows.wait()
                    writer.write(data)
                    await writer.drain()
            writer.close()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(deliver())
            data = b"-"
            while data:
                try:
                    data = await reader.read(1 << 16)
                except ConnectionError:
                    data = b""
                queue.put_nowait((time.monotonic() + self.delay_s, data))

    def silence(self, silent: bool) -> None:
        """Hold back every byte, without an end of a connection; or let them go."""
        self._loop.call_soon_threadsafe(self._flows.clear if silent else self._flows.set)

    def cut(self) -> None:
        """End every connection, and take no more."""
        self._refuses = True
        self._loop.call_soon_threadsafe(lambda: [writer.transport.abort() for writer in self._writers])

    def mend(self) -> None:
        """Take connections again."""
        self._refuses = False

    def close(self) -> None:
        self.cut()
        self.silence(False)
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()


class Host:
    """Another machine: its home, its environment, its sshd."""

    def __init__(self, near: System) -> None:
        self.home = near.home / "far"
        self.project = self.home / "project"
        self.project.mkdir(parents=True)
        self.near = near
        self._keys = near.home / "keys"
        self._keys.mkdir(mode=0o700)
        for name in ("host", "user"):
            made = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self._keys / name))
            subprocess.run(made, check=True, capture_output=True)
        shutil.copy(self._keys / "user.pub", self._keys / "authorized")
        self.env = {
            "HOME": str(self.home),
            "PATH": f"{self.home}/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "PYTHONPATH": near.env["PYTHONPATH"],
            "PYAGENTD_TITLES": "off",
            **{name: value for name, value in near.env.items() if name == "PYAGENTD_TEST_FORKS"},
        }
        self.install()
        self.port = self._free_port()
        self._sshd = self._start()
        self.line = Line(self.port)
        self.config = self._keys / "config"
        self.config.write_text(
            f"Host far\n HostName 127.0.0.1\n Port {self.line.port}\n User {getpass.getuser()}\n"
            f" IdentityFile {self._keys}/user\n IdentitiesOnly yes\n StrictHostKeyChecking no\n"
            f" UserKnownHostsFile {self._keys}/known\n LogLevel ERROR\n"
        )

    def install(self) -> None:
        """Put the server on the host's path."""
        program = self.home / "bin" / "pyagentd"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m pyagentd "$@"\n')
        program.chmod(0o755)

    @staticmethod
    def _free_port() -> int:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return int(probe.getsockname()[1])

    def _start(self) -> subprocess.Popen[bytes]:
        assert SSHD is not None
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        self.login()
        shell = self._keys / "shell"
        config = self._keys / "sshd_config"
        config.write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {self._keys}/host\nPidFile none\nUsePAM no\n"
            f"AuthorizedKeysFile {self._keys}/authorized\nStrictModes no\nPermitRootLogin yes\n"
            f"PasswordAuthentication no\nForceCommand {shell}\nAllowTcpForwarding no\n"
            "AllowStreamLocalForwarding yes\n"
        )
        log = (self._keys / "log").open("wb")
        process = subprocess.Popen([SSHD, "-D", "-e", "-f", str(config)], stdout=log, stderr=log)

        def listens() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", self.port)) == 0

        wait_for(listens, "sshd")
        return process

    def login(self) -> None:
        """Let logins have the host's environment. They print, as many do; what follows must be found all the same."""
        told = " ".join(f"'{name}={value}'" for name, value in self.env.items())
        shell = self._keys / "shell"
        shell.write_text(f'#!/bin/sh\necho Welcome\nexec env -i {told} sh -c "$SSH_ORIGINAL_COMMAND"\n')
        shell.chmod(0o755)

    def run(self, *words: str) -> str:
        """Run ``pyagentd`` on the host, as somebody there does."""
        command = [f"{self.home}/bin/pyagentd", *words]
        done = subprocess.run(command, env=self.env, cwd=self.project, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def emacs(self, **options: object) -> Emacs:
        """Start an Emacs that uses the host's daemon."""
        emacs = self.near.emacs(**options)
        ssh = json.dumps(["ssh", "-F", str(self.config)]).replace("[", "(").replace("]", ")").replace(",", "")
        emacs.eval(f"(progn (require 'pyagentd-host) (setq pyagentd-host-ssh '{ssh} pyagentd-host--silence 1) t)")
        emacs.eval('(setq pyagentd-host "far")')
        return emacs

    def close(self) -> None:
        with contextlib.suppress(AssertionError):
            self.run("stop")
        self.line.close()
        self._sshd.kill()
        self._sshd.wait()


@pytest.fixture
def host(system: System, model_server: ModelServer) -> Iterator[Host]:
    system.env.pop("PYAGENTD_SESSIONS_DIR")  # nothing of here holds there
    made = Host(system)
    made.env |= {
        "PYAGENTD_BACKEND": "anthropic",
        "ANTHROPIC_BASE_URL": model_server.url,
        "ANTHROPIC_API_KEY": "far-key",
    }
    made.login()
    yield made
    made.close()


def new_session(emacs: Emacs, host: Host) -> Path:
    """Make a session in the host's project, visit it, and return its directory on the host."""
    emacs.eval(f'(progn (setq default-directory "/ssh:far:{host.project}/") (pyagentd-session "work") t)')
    wait(emacs, "(eq pyagentd-attach-state t)")
    branch = emacs.eval("(pyagentd-host-local-name pyagentd--branch-dir)")
    return Path(str(branch))


def wait(emacs: Emacs, form: str) -> object:
    """Wait for ``form``; where it stays nil, say what Emacs said."""
    try:
        return emacs.wait(form, 30)
    except AssertionError as error:
        said = emacs.eval("(concat (buffer-string) (with-current-buffer (messages-buffer) (buffer-string)))")
        raise AssertionError(f"{error}\n{said}") from None


def on_host(branch: Path) -> str:
    return (branch / "session.md").read_text()


def test_a_conversation_is_the_hosts(host: Host, model_server: ModelServer) -> None:
    emacs = host.emacs()
    branch = new_session(emacs, host)
    assert branch.is_relative_to(host.home / ".gptel/sessions")
    (host.project / "a.txt").write_text("alpha of the host\n")
    model_server.say(answer(tool_use("Read", file_path="a.txt")), "It says alpha.")
    send(emacs, "What is in a.txt?")
    wait(emacs, FINISHED)
    emacs.eval("(progn (save-buffer) t)")
    wait_for(lambda: "It says alpha." in on_host(branch), "the answer, in the host's file")
    assert "alpha of the host" in on_host(branch)
    assert "gptel--bounds" in on_host(branch), "with its roles, as any session has them"
    assert {request.headers["x-api-key"] for request in model_server.requests} == {"far-key"}
    wait(emacs, f'(equal (buffer-string) (with-temp-buffer (insert-file-contents "{branch}/session.md")'
               " (pyagentd-block-strip) (buffer-string)))")  # fmt: skip
    # Another Emacs, later, and the same conversation; somebody on the host goes on with it meanwhile.
    emacs.close()
    model_server.say("And more.")
    host.run("send", branch.parent.parent.name, "Anything else?")
    other = host.emacs()
    assert "Tramp" not in str(other.eval("(with-current-buffer (messages-buffer) (buffer-string))"))
    other.eval("(progn (pyagentd-start #'ignore) t)")
    wait(other, "(pyagentd-rpc-connected-p)")
    open_session(other, Path(str(other.eval(f'(pyagentd-host-name "{branch}")'))))
    wait(other, '(string-search "And more." (buffer-string))')
    wait(other, "(eq pyagentd-attach-state t)")


def test_what_is_typed_before_the_session_is_there_is_kept(host: Host) -> None:
    emacs = host.emacs()
    host.line.delay_s = 0.3
    emacs.eval(
        f'(progn (setq default-directory "/ssh:far:{host.project}/") (pyagentd-session "work")'
        ' (insert "typed early ") t)'
    )
    wait(emacs, "(bound-and-true-p pyagentd-mode)")
    emacs.eval('(progn (goto-char (point-max)) (insert "and later") t)')
    wait(emacs, "(eq pyagentd-attach-state t)")
    branch = Path(str(emacs.eval("(pyagentd-host-local-name pyagentd--branch-dir)")))
    wait_for(lambda: on_host(branch).startswith("### typed early and later"), "what was typed, on the host")
    assert emacs.eval("(buffer-string)") == "### typed early and later"


def test_what_is_typed_while_the_link_is_cut_is_kept_and_comes_in(host: Host, model_server: ModelServer) -> None:
    emacs = host.emacs(terminal=True)
    branch = new_session(emacs, host)
    valve = Valve(answer(text("one two three four five six seven eight.", chunks=8)))
    model_server.say(valve)
    send(emacs, "Count.")
    valve.let(3)
    wait(emacs, '(string-search "two" (buffer-string))')
    host.line.cut()
    wait(emacs, "(not (pyagentd-rpc-connected-p))")
    emacs.eval('(progn (goto-char (point-max)) (insert "My next prompt") t)')
    valve.open()  # the run goes on, nobody watches
    wait_for(lambda: "eight." in on_host(branch), "the end of the answer, on the host")
    wait_for(lambda: "link to far lost" in emacs.screen(), "the header line")
    assert "My next prompt" not in on_host(branch)
    host.line.mend()
    wait(emacs, "(eq pyagentd-attach-state t)")
    body = str(wait(emacs, '(and (string-search "eight." (buffer-string)) (buffer-string))'))
    assert body.index("eight.") < body.index("My next prompt") and body.count("My next prompt") == 1
    wait_for(lambda: "My next prompt" in on_host(branch), "what was typed, on the host")
    model_server.say("Welcome back.")
    emacs.eval("(progn (goto-char (point-max)) (pyagentd-send) t)")
    wait(emacs, '(string-search "Welcome back." (buffer-string))')


def test_keys_and_the_first_token(host: Host, model_server: ModelServer, capsys: pytest.CaptureFixture[str]) -> None:
    """A line of 100 ms each way, then one that says nothing: Emacs goes on, and an answer costs one round trip."""
    emacs = host.emacs(terminal=True)
    new_session(emacs, host)
    emacs.eval(f"(progn {KEYS} t)")
    figures: dict[str, tuple[float, float]] = {}
    for name, delay_s in (("direct", 0.0), ("100 ms each way", 0.1)):
        host.line.delay_s = delay_s
        keys = _keys_ms(emacs)
        firsts = []
        for number in range(3):
            model_server.say(f"Answer {number}, {name}.")
            began = time.monotonic()
            send(emacs, f"Ask {number}.")
            wait(emacs, f'(string-search "Answer {number}, {name}." (buffer-string))')
            firsts.append(1000 * (time.monotonic() - began))
            wait(emacs, FINISHED)
        figures[name] = keys, statistics.median(firsts)
    host.line.silence(True)
    began = time.monotonic()
    figures["silent"] = _keys_ms(emacs), float("nan")
    assert time.monotonic() - began < 30, "Emacs waited for the line"
    wait_for(lambda: "silent for" in emacs.screen() or "lost" in emacs.screen(), "the header line")
    host.line.silence(False)
    wait(emacs, "(and (pyagentd-rpc-connected-p) (eq pyagentd-attach-state t))")
    with capsys.disabled():
        print()
        for name, (keys, first) in figures.items():
            print(f"{name:16} slowest of 100 keys {keys:6.1f} ms, to the first token {first:7.1f} ms")


KEYS = """
(defun test-type ()
  (let ((slowest 0))
    (dotimes (number 100)
      (let ((begun (float-time)))
        (goto-char (point-max))
        (let ((last-command-event ?x)) (run-hooks 'pre-command-hook) (self-insert-command 1)
          (run-hooks 'post-command-hook))
        (setq slowest (max slowest (- (float-time) begun)))
        (accept-process-output nil 0.01)))
    (delete-region (- (point-max) 100) (point-max))
    slowest))
"""


def _keys_ms(emacs: Emacs) -> float:
    return 1000 * float(emacs.eval("(test-type)"))


def refused(emacs: Emacs) -> str:
    """Return why no daemon can be used."""
    start = "(pyagentd-start #'ignore (lambda (err) (setq said (pyagentd-error-text err))))"
    return str(emacs.eval(f"(let (said) {start} (driver-wait (lambda () said)))"))


def test_versions_and_absence_are_told(host: Host) -> None:
    (host.home / "bin" / "pyagentd").rename(host.home / "hidden")
    emacs = host.emacs()
    said = refused(emacs)
    assert "not installed on far" in said and "pyagentd-install-server" in said
    host.install()
    host.run("serve", "--detach")
    told = host.home / ".local/state/pyagentd/run/daemon.eld"  # a daemon of an older version runs
    told.write_text(told.read_text().replace(__version__, "0.0.9"))
    said = refused(emacs)
    assert "version 0.0.9" in said and "pyagentd-install-server" in said and "on far" in said
    told.write_text(told.read_text().replace("0.0.9", __version__))
    emacs.eval("(progn (pyagentd-start #'ignore) t)")
    wait(emacs, "(pyagentd-rpc-connected-p)")


@pytest.mark.skipif("PYAGENTD_TEST_INSTALL" not in os.environ, reason="fetches packages: PYAGENTD_TEST_INSTALL=1")
def test_the_server_is_installed_there_after_asking(host: Host) -> None:
    (host.home / "bin" / "pyagentd").unlink()
    (host.home / "bin" / "python3").symlink_to(Path(sys.executable).resolve())
    host.env |= {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_"))}
    host.env.pop("PYTHONPATH")
    host.login()
    emacs = host.emacs()
    assert "not installed on far" in refused(emacs)
    emacs.eval(f'(progn (require \'pyagentd-install) (setq pyagentd-server-requirement "{ROOT}[daemon]") t)')
    install = "(call-interactively #'pyagentd-install-server)"
    asked = "(cl-letf (((symbol-function 'y-or-n-p) (lambda (text) (push text asked) t)) (noninteractive nil))"
    assert "on far" in str(emacs.eval(f"(let (asked) {asked} {install}) (car asked))"))
    emacs.wait("(pyagentd-rpc-connected-p)", 600)
    program = host.home / ".local/share/pyagentd/server/bin/pyagentd"
    (host.home / "bin" / "pyagentd").symlink_to(program)
    assert json.loads(host.run("status", "--json"))["pid"]


def test_the_command_line_of_the_host(host: Host) -> None:
    near = host.near
    near.env |= {"PYAGENTD_HOST": "far", "PYAGENTD_SSH": f"ssh -F {host.config}"}
    made = json.loads(near.ok("new", "over there", "--root", str(host.project), "--json").removeprefix("Welcome\n"))
    assert Path(made["branch_dir"]).is_relative_to(host.home)
    near.env.pop("PYAGENTD_HOST")
    assert made["session_id"] in near.ok("--host", "far", "sessions")
    assert near.run("--host", "far", "show", "none").returncode not in (0, 127), "its exit status is ours"


def test_a_picture_of_this_machine_reaches_the_model(host: Host, model_server: ModelServer) -> None:
    picture = b"\x89PNG\r\n\x1a\n" + bytes(20)
    (host.near.home / "cup.png").write_bytes(picture)
    emacs = host.emacs()
    branch = new_session(emacs, host)
    emacs.eval(f'(progn (goto-char (point-max)) (pyagentd-add--attach-file "{host.near.home}/cup.png") t)')
    model_server.say("A cup.")
    send(emacs, "What is it?")
    wait(emacs, FINISHED)
    (kept,) = (branch / "files").glob("cup-*.png")
    assert kept.read_bytes() == picture
    assert model_server.requests[0].messages[0]["content"][0]["type"] == "image"
