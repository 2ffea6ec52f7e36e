"""What differs on macOS and Windows, with stand-ins for what this system has not: no such system runs these tests."""

import os
import signal
import socket
import struct
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pyagentd.cli import doctor
from pyagentd.config import runtime_dir
from pyagentd.llm import http
from pyagentd.store import sessions
from pyagentd.tools import process
from pyagentd.tools.sandbox import enclosure
from pyagentd.wire import connection


@pytest.fixture
def macos(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")


def test_without_a_runtime_directory_of_the_system_ours_is_in_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/Users/ann")
    assert runtime_dir({}) == Path("/Users/ann/.local/state/pyagentd/run")
    socket_name = runtime_dir({}) / "daemon.sock"
    assert len(str(socket_name)) < 104  # the longest name of a socket there


class Peer:
    """A connection whose other end is a user's, as macOS tells it."""

    family = socket.AF_UNIX

    def __init__(self, uid: int) -> None:
        self.uid = uid

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        if (level, option) != (0, 1):  # SOL_LOCAL, LOCAL_PEERCRED
            raise OSError("not here")
        return struct.pack("=IIh16I", 0, self.uid, 1, *([self.uid] * 16))[:size]


@pytest.mark.usefixtures("macos")
@pytest.mark.parametrize(("uid", "allowed"), [(os.geteuid(), True), (os.geteuid() + 1, False)])
def test_only_the_same_user_connects(uid: int, allowed: bool) -> None:
    assert (connection._peer_uid(Peer(uid)) == os.geteuid()) is allowed  # type: ignore[arg-type]


@pytest.mark.usefixtures("macos")
def test_who_cannot_be_told_apart_is_not_let_in() -> None:
    class Silent(Peer):
        def getsockopt(self, level: int, option: int, size: int) -> bytes:
            raise OSError("not here")

    assert connection._peer_uid(Silent(0)) is None  # type: ignore[arg-type]


@pytest.mark.usefixtures("macos")
def test_commands_run_as_they_are_and_their_question_can_say_so() -> None:
    made = enclosure._unconfined(("make", "test"), {"PATH": "/usr/bin"})
    assert (made.argv, made.leader, made.mechanism) == (("make", "test"), "command", None)


@pytest.mark.parametrize("gone", [False, True])
async def test_the_whole_group_of_a_command_is_ended_by_signals(
    monkeypatch: pytest.MonkeyPatch, *, gone: bool
) -> None:
    """Without the launcher of Linux, which ends what left the group, too."""
    sent: list[tuple[int, int]] = []

    def killpg(group: int, number: int) -> None:
        sent.append((group, number))
        if gone:
            raise ProcessLookupError

    async def ended() -> int:
        return 0

    monkeypatch.setattr(os, "killpg", killpg)
    child = object.__new__(process.Group)
    child.process = SimpleNamespace(pid=4711, returncode=None, wait=ended)  # type: ignore[assignment]
    child._leader = "command"
    child.kill()
    assert sent == [(4711, signal.SIGKILL)]
    assert child._signal(signal.SIGTERM) is not gone


@pytest.mark.usefixtures("macos")
def test_what_is_deleted_goes_to_the_trash_of_the_finder(tmp_path: Path) -> None:
    assert sessions.has_trash(tmp_path)


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_certificates_are_those_that_the_system_trusts(monkeypatch: pytest.MonkeyPatch, system: str) -> None:
    made: list[int] = []
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    monkeypatch.setattr(http.truststore, "SSLContext", lambda kind: made.append(kind) or "of the system")
    assert http._certificates() == "of the system" and made
    monkeypatch.setenv("SSL_CERT_FILE", "/dev/null")
    monkeypatch.setattr(http.ssl, "create_default_context", lambda: "of the file")
    assert http._certificates() == "of the file"


def test_an_upgrade_runs_the_python_of_windows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ran: list[tuple[str, ...]] = []
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(doctor, "_run", lambda *command: ran.append(command))
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    new = doctor.install_beside(tmp_path / "0.1.0", "pyagentd[daemon]")
    assert ran[-1][0] == str(new / "Scripts/python.exe")
