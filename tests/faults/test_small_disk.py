"""A disk that really is full or read-only, under the daemon: who asked is told which file and why, and goes on."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import System, system
from tests.e2e.emacs import wait_for
from tests.e2e.test_conversation import FINISHED, open_session
from tests.faults.files import branch_problems
from tests.server import ModelServer, answer, text

pytestmark = pytest.mark.e2e
__all__ = ["system"]

_INSIDE = "PYAGENTD_TEST_NAMESPACE"
_LONG = " ".join(f"word{number:05}" for number in range(30_000))  # 300 kB, each word its own
_LEFT = 100 * 1024  # bytes that are free when the model begins to speak


@pytest.fixture(autouse=True)
def mounts(request: pytest.FixtureRequest) -> None:
    """Let tests mount: as root, or in a namespace of their own, where each is run again."""
    if os.geteuid() == 0 or os.environ.get(_INSIDE):
        return
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
        pytest.skip("mounting needs root, or user namespaces (unshare -rm), and neither is permitted here")
    command = ["unshare", "-rm", sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", request.node.nodeid]
    done = subprocess.run(
        command, cwd=request.config.rootpath, env={**os.environ, _INSIDE: "1"}, capture_output=True, text=True
    )
    if done.returncode:
        pytest.fail(done.stdout + done.stderr)
    pytest.skip("ran in a namespace of its own, and passed")


def _mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"mounting is not permitted here: {done.stderr.strip()}")


@pytest.fixture
def small(system: System, model_server: ModelServer) -> Iterator[System]:
    """A system whose sessions are on a disk of their own, of 2 MB."""
    system.use_server(model_server.url)
    system.env["PYAGENTD_TITLES"] = "off"
    system.sessions.mkdir()
    _mount("-t", "tmpfs", "-o", "size=2m,mode=700", "small", str(system.sessions))
    yield system
    system.run("stop")
    subprocess.run(["umount", "--lazy", str(system.sessions)], check=False)


@contextlib.contextmanager
def _nearly_full(place: Path) -> Iterator[None]:
    """Leave ``_LEFT`` bytes, and free the rest afterwards."""
    state = os.statvfs(place)
    filler = place / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        file.write(bytes(max(0, state.f_bavail * state.f_frsize - _LEFT)))
    try:
        yield
    finally:
        filler.unlink()


@contextlib.contextmanager
def _read_only(place: Path) -> Iterator[None]:
    _mount("--bind", str(place), str(place))
    try:
        _mount("-o", "remount,bind,ro", str(place))
        yield
    finally:
        subprocess.run(["mount", "-o", "remount,bind,rw", str(place)], check=True)
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def _words(said: str) -> list[str]:
    return re.findall(r"word\d{5}", said)


def _assert_all_there_once(branch: Path, shown: str) -> None:
    """What was shown is in the document, in order and once, and every file can be read."""
    body = (branch / "session.md").read_text()
    assert _words(shown)[:-1], "something was shown before the disk was full"
    assert "".join(_words(shown)[:-1]) in "".join(_words(body))  # the last word may be cut
    assert len(_words(body)) == len(set(_words(body)))
    from pyagentd.store import paths

    assert branch_problems(paths.ref_of(branch)) == []


def test_a_disk_that_fills_while_the_model_speaks_stops_the_command_with_file_and_cause(
    small: System, model_server: ModelServer
) -> None:
    session, branch = small.new()
    model_server.say(answer(text(_LONG, chunks=600), pause_s=0.002), "Here I am again.")
    with _nearly_full(small.sessions):
        done = small.run("send", session, "Say much.")
        assert done.returncode == 1
        assert re.search(rf"{branch}/(messages\.jsonl|session\.md): No space left on device", done.stderr), (
            done.stderr
        )
        shown = small.ok("show", session)
        assert "Say much." in shown
    assert small.ok("send", session, "Go on.").strip().startswith("Here I am again.")
    text_of = (branch / "session.md").read_text()
    assert "host restart" not in text_of and text_of.count("No space left on device") == 1
    log = small.ok("logs")
    assert "Traceback" not in log, log
    assert len(re.findall(r"ERROR .*runtime", log)) == 1, log
    small.ok("stop")
    _assert_all_there_once(branch, done.stdout)
    assert "Go on." in (branch / "session.md").read_text()


def test_a_disk_that_fills_while_the_model_speaks_is_told_in_emacs(small: System, model_server: ModelServer) -> None:
    _, branch = small.new()
    model_server.say(answer(text(_LONG, chunks=600), pause_s=0.002), "Here I am again.")
    emacs = small.emacs()
    open_session(emacs, branch)
    with _nearly_full(small.sessions):
        emacs.eval('(progn (goto-char (point-max)) (insert "Say much.") (pyagentd-send) t)')
        emacs.wait("(eq (plist-get pyagentd-status :state) 'error)", 40)
        said = emacs.eval("(plist-get pyagentd-status :message)")
        assert re.search(rf"{branch}/(messages\.jsonl|session\.md): No space left on device", said), said
        assert "No space left on device" in emacs.eval("(substring-no-properties pyagentd-status--line)")
        shown = emacs.eval("(buffer-substring-no-properties (point-min) (point-max))")
    emacs.wait(
        "(progn (ignore-errors (driver-attach))"
        " (and (eq pyagentd-attach-state t) (not (buffer-modified-p)) (not buffer-read-only)))",
        40,
    )
    emacs.eval('(progn (goto-char (point-max)) (insert "Go on.") (pyagentd-send) t)')
    emacs.wait(
        f'(and {FINISHED} (save-excursion (goto-char (point-min)) (search-forward "Here I am again." nil t)))', 40
    )
    emacs.eval("(progn (save-buffer) t)")
    emacs.close()
    small.ok("stop")
    _assert_all_there_once(branch, shown)


def test_a_session_in_a_read_only_directory_is_read_and_not_written(system: System) -> None:
    session, branch = system.new()
    system.ok("send", session, "Hello.")
    emacs = system.emacs()
    with _read_only(branch):
        open_session(emacs, branch)
        emacs.wait("(eq pyagentd-attach-state t)")
        assert "### Hello." in system.ok("show", session)
        refused = system.run("send", session, "More.")
        assert refused.returncode == 1
        assert re.search(rf"{branch}\S*: (the file system is read-only|Read-only file system)", refused.stderr)
        hindrance = emacs.eval("pyagentd-status-hindrance")
        assert "read-only" in hindrance.lower() and str(branch) in hindrance
        emacs.close()
    assert "### More." not in (branch / "session.md").read_text()
    system.ok("send", session, "Again.")  # the same daemon
    assert "### Again." in (branch / "session.md").read_text()


def test_sessions_on_a_read_only_medium_are_read_by_a_daemon_of_its_own(system: System) -> None:
    session, branch = system.new()
    system.ok("send", session, "Hello.")
    system.ok("stop")
    with _read_only(system.sessions):
        assert "### Hello." in system.ok("show", session)
        assert [each["session_id"] for each in system.json("sessions")] == [session]
        refused = system.run("send", session, "More.")
        assert refused.returncode == 1 and "read-only" in refused.stderr.lower()
        refused = system.run("new", "another")
        assert refused.returncode == 1 and f"{system.sessions}" in refused.stderr
        system.ok("stop")
    system.ok("send", session, "Again.")
    wait_for(lambda: "### Again." in (branch / "session.md").read_text(), "the message")


def test_a_full_disk_makes_no_session_and_says_so(small: System) -> None:
    with _nearly_full(small.sessions):
        with (small.sessions / "more").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))
        refused = small.run("new", "another")
        assert refused.returncode == 1
        assert "No space left on device" in refused.stderr and str(small.sessions) in refused.stderr
        (small.sessions / "more").unlink()
    left = [path.name for path in small.sessions.iterdir() if path.is_dir()]
    assert left == []
    small.new("another")
