"""What cannot be read, or a daemon that cannot start: the message names the file and the cause."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import System, system

pytestmark = pytest.mark.e2e
__all__ = ["system"]

OUT_OF_READ = "/proc/self/mem"  # reading its beginning is an input/output error, for root too


def _make_directory(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def _make_unreadable(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(OUT_OF_READ)


@pytest.mark.parametrize(
    ("name", "spoil", "cause"),
    [
        ("messages.jsonl", _make_directory, "Is a directory"),
        ("messages.jsonl", _make_unreadable, "Too many levels of symbolic links"),  # links are not followed
        ("session.md", _make_unreadable, "It is a symbolic link"),
        ("preset.md", _make_unreadable, "It is a symbolic link"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_and_the_others_stay(
    system: System, name: str, spoil: Callable[[Path], None], cause: str
) -> None:
    session, branch = system.new()
    system.ok("send", session, "Hello.")
    before = {path.name: path.read_bytes() for path in branch.iterdir() if path.is_file()}
    spoil(branch / name)
    refused = system.run("send", session, "More.")
    assert refused.returncode == 1
    assert str(branch / name) in refused.stderr and cause in refused.stderr, refused.stderr
    assert {path.name: path.read_bytes() for path in branch.iterdir() if path.name != name} == {
        other: content for other, content in before.items() if other != name
    }
    system.ok("stop")
    (branch / name).rmdir() if (branch / name).is_dir() else (branch / name).unlink()
    (branch / name).write_bytes(before[name])
    system.ok("send", session, "And now?")


@pytest.mark.parametrize(
    ("place", "spoil", "cause"),
    [
        ("run", lambda path: path.write_text(""), "File exists"),
        ("run/daemon.log", _make_directory, "Is a directory"),
        ("run/daemon.lock", _make_directory, "Is a directory"),
        ("run/daemon.sock", _make_directory, "Is a directory"),
        ("run/daemon.eld", _make_directory, "Is a directory"),
        ("sessions", lambda path: path.write_text(""), "Not a directory"),
        ("sessions/.pyagentd.lock", _make_directory, "Is a directory"),
    ],
)
def test_a_daemon_that_cannot_start_says_which_file_and_why(
    system: System, place: str, spoil: Callable[[Path], object], cause: str
) -> None:
    path = system.home / place
    path.parent.mkdir(mode=0o700, exist_ok=True)
    spoil(path)
    refused = system.run("new", "test")
    assert refused.returncode != 0
    assert f"{path}" in refused.stderr and cause in refused.stderr, refused.stderr
    assert "Traceback" not in refused.stderr and len(refused.stderr.splitlines()) == 1
