"""One daemon, found by its runtime file, gone without a trace."""

from __future__ import annotations

import errno
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from pyagentd.errors import ConfigError, StoreError, Unreachable, UserError
from pyagentd.wire.lifecycle import Instance, private_directory, read_runtime
from tests.wire.conftest import run_emacs


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def sessions(tmp_path: Path) -> Path:
    return tmp_path / "sessions"


def test_everything_is_private_and_nothing_but_locks_is_left(run: Path, sessions: Path) -> None:
    with Instance(run, sessions) as instance:
        instance.bind_unix().close()
        instance.publish(version="1", port=4711, token="secret")
        assert _mode(run) == _mode(sessions) == 0o700
        assert {path.name: _mode(path) for path in run.iterdir()} == {
            "daemon.lock": 0o600,
            "daemon.sock": 0o600,
            "daemon.eld": 0o600,
        }
    assert [path.name for path in run.iterdir()] == ["daemon.lock"]


def test_binding_leaves_the_process_mask_as_it_was(run: Path, sessions: Path) -> None:
    before = os.umask(0o022)
    try:
        with Instance(run, sessions) as instance:
            instance.bind_unix().close()
            assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)


def test_the_runtime_file_is_read_back(run: Path, sessions: Path) -> None:
    with Instance(run, sessions) as instance:
        published = instance.publish(version="1.2", port=4711, token="secret")
        assert read_runtime(run) == published
    assert (published.pid, published.host, published.token) == (os.getpid(), "127.0.0.1", "secret")


def test_without_tcp_there_is_neither_port_nor_token(run: Path, sessions: Path) -> None:
    with Instance(run, sessions) as instance:
        runtime = instance.publish(version="1", token="secret")
    assert (runtime.host, runtime.port, runtime.token) == (None, None, None)


async def test_emacs_reads_the_runtime_file(run: Path, sessions: Path) -> None:
    with Instance(run, sessions) as instance:
        instance.publish(version="1.2", port=4711, token="s3")
        script = f"""
          (let ((r (with-temp-buffer (insert-file-contents "{run}/daemon.eld") (read (current-buffer)))))
            (princ (list (plist-get r :proto) (plist-get r :port) (plist-get r :token) (plist-get r :socket))))"""
        assert await run_emacs(script) == f"(1 4711 s3 {run}/daemon.sock)"


@pytest.mark.parametrize("content", [None, b"", b"(:proto", b"(:proto 1)", b"42"])
def test_no_readable_runtime_file_means_no_daemon(run: Path, content: bytes | None) -> None:
    run.mkdir()
    if content is not None:
        (run / "daemon.eld").write_bytes(content)
    with pytest.raises(Unreachable):
        read_runtime(run)


def test_a_runtime_file_of_a_newer_daemon_is_understood(run: Path) -> None:
    run.mkdir()
    (run / "daemon.eld").write_text('(:proto 1 :pid 7 :socket "/s" :novelty (1 2))')
    assert read_runtime(run).pid == 7


# The lock is asked for by another process, as another daemon would.
ANOTHER = """
import sys
from pathlib import Path
from pyagentd.errors import UserError
from pyagentd.wire.lifecycle import Instance
try:
    with Instance(Path(sys.argv[1]), Path(sys.argv[2])) as instance:
        instance.bind_unix()
        print("entered", flush=True)
        sys.stdin.read()
except UserError as error:
    print(error.message, "/", error.hint)
"""


def _another(run: Path, sessions: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", ANOTHER, str(run), str(sessions)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("shared", ["run", "sessions"])
def test_a_second_daemon_is_told_who_is_first(tmp_path: Path, run: Path, sessions: Path, shared: str) -> None:
    with Instance(run, sessions) as instance:
        listener = instance.bind_unix()
        other = _another(
            run if shared == "run" else tmp_path / "r2", sessions if shared == "sessions" else tmp_path / "s2"
        )
        said, _ = other.communicate(timeout=30)
        assert f"(pid {os.getpid()})" in said
        assert str(run if shared == "run" else sessions) in said
        assert "pyagentd stop" in said
        with listener, socket.socket(socket.AF_UNIX) as client:
            client.connect(str(run / "daemon.sock"))  # the second one took nothing away


def test_one_lock_held_by_another_gives_the_other_back(tmp_path: Path, run: Path, sessions: Path) -> None:
    with Instance(run, sessions):
        with pytest.raises(UserError), Instance(tmp_path / "r2", sessions):
            pass
        with Instance(tmp_path / "r2", tmp_path / "s2"):
            pass


def test_what_a_killed_daemon_left_does_not_hinder_the_next(run: Path, sessions: Path) -> None:
    other = _another(run, sessions)
    assert other.stdout is not None
    assert other.stdout.readline() == "entered\n"
    other.kill()
    other.communicate(timeout=30)
    (run / "daemon.eld").write_text('(:proto 1 :pid 1 :socket "/stale")')
    assert (run / "daemon.sock").exists()
    with Instance(run, sessions) as instance:
        with pytest.raises(Unreachable):  # the stale address is gone before the new one is known
            read_runtime(run)
        with instance.bind_unix(), socket.socket(socket.AF_UNIX) as client:
            client.connect(str(run / "daemon.sock"))


def test_the_same_process_may_serve_again(run: Path, sessions: Path) -> None:
    for _ in range(2):
        with Instance(run, sessions) as instance:
            instance.bind_unix().close()


def test_a_socket_path_the_kernel_would_cut_is_refused(tmp_path: Path, sessions: Path) -> None:
    deep = tmp_path / ("d" * 100)
    with Instance(deep, sessions) as instance, pytest.raises(ConfigError, match="bytes long") as caught:
        instance.bind_unix()
    assert "PYAGENTD_RUNTIME_DIR" in caught.value.hint


def test_a_directory_others_may_enter_is_refused(run: Path) -> None:
    run.mkdir()
    run.chmod(0o750)
    with pytest.raises(ConfigError, match="Other users") as caught:
        private_directory(run)
    assert f"chmod 700 {run}" in caught.value.hint


def test_a_directory_of_somebody_else_is_refused(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run.mkdir(mode=0o700)
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    with pytest.raises(ConfigError, match="another user"):
        private_directory(run)


def test_a_file_where_the_directory_belongs_is_refused(run: Path) -> None:
    run.write_text("")
    with pytest.raises(ConfigError, match="File exists"):
        private_directory(run)


def test_a_file_where_the_sessions_belong_is_refused(run: Path, sessions: Path) -> None:
    sessions.write_text("")
    with pytest.raises(StoreError, match="sessions cannot be the sessions directory: Not a directory") as caught:
        Instance(run, sessions).__enter__()
    assert "PYAGENTD_SESSIONS_DIR" in caught.value.hint


def test_sessions_that_nobody_may_read_are_not_an_empty_list(
    run: Path, sessions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    sessions.mkdir()
    monkeypatch.setattr(Path, "iterdir", refuse)  # root may read everything
    with pytest.raises(StoreError, match="cannot be the sessions directory: Permission denied"):
        Instance(run, sessions).__enter__()


@pytest.mark.parametrize("port", [70_000, -1])
def test_an_impossible_port_is_refused(run: Path, sessions: Path, port: int) -> None:
    with Instance(run, sessions) as instance, pytest.raises(UserError, match=str(port)):
        instance.bind_tcp(port)


def test_a_taken_port_is_named(run: Path, sessions: Path) -> None:
    with Instance(run, sessions) as instance, instance.bind_tcp() as first:
        port = first.getsockname()[1]
        assert first.getsockname()[0] == "127.0.0.1"
        with pytest.raises(UserError, match=f"Port {port} cannot be used: it is taken"):
            instance.bind_tcp(port)
