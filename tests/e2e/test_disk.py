"""Disks that really are full or read-only, and Emacs's own saves: who types there loses nothing and is told why."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import System
from tests.e2e.emacs import ROOT, Emacs, wait_for

_TEXT = "### Hi\n\nHello. 👋\n\n### "
_BLOCK = "<!-- Local Variables: -->\n<!-- gptel--bounds: ((response (9 17))) -->\n<!-- End: -->\n"
_FILE = f"{_TEXT}\n\n{_BLOCK}"


def _mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"mounting is not permitted here: {done.stderr.strip()}")


@pytest.fixture
def small(system: System) -> Iterator[Path]:
    """A file system of half a megabyte."""
    place = system.home / "small"
    place.mkdir()
    _mount("-t", "tmpfs", "-o", "size=512k,mode=755", "small", str(place))
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=False)


@contextlib.contextmanager
def _full(place: Path) -> Iterator[None]:
    """Fill a file system to the last page, and free it again."""
    filler = place / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    yield
    filler.unlink()


@contextlib.contextmanager
def _read_only(place: Path) -> Iterator[None]:
    """Let nobody write below a directory, not even root."""
    _mount("--bind", str(place), str(place))
    try:
        _mount("-o", "remount,bind,ro", str(place))
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=False)


def _session(place: Path) -> Path:
    branch = place / "demo-20260205143052" / "branches" / "main"
    branch.mkdir(parents=True)
    (branch / "session.md").write_text(_FILE)
    return branch / "session.md"


def _visit(emacs: Emacs, file: Path) -> None:
    emacs.eval(f'(progn (setq pyagentd-autosave-idle-time 0.1) (switch-to-buffer (find-file-noselect "{file}")) t)')


def _type(emacs: Emacs, text: str) -> None:
    emacs.eval(f'(progn (goto-char (point-max)) (insert "{text}") t)')


def _said(emacs: Emacs, text: str) -> int:
    form = f'(with-current-buffer "*Messages*" (how-many (regexp-quote "{text}") (point-min)))'
    return int(emacs.eval(form))


def _assert_refused(emacs: Emacs, file: Path, cause: str) -> None:
    """The user learns which file and why, once, however often it is tried; nothing is lost."""
    _type(emacs, "first words")
    trouble = emacs.wait("pyagentd-session-trouble")
    assert trouble == f"Not saved: {cause}, {_abbreviated(emacs, file)}"
    assert cause in emacs.eval("(substring-no-properties pyagentd-status--line)")
    tries = """(let ((tries 0))
      (advice-add 'pyagentd-write :before (lambda (&rest _) (setq tries (1+ tries))) '((name . tries)))
      (unwind-protect (progn (while (< tries 2) (sleep-for 0.05)) t) (advice-remove 'pyagentd-write 'tries)))"""
    emacs.eval(f"(progn (setq pyagentd-autosave--longest-delay 0.2) {tries})")
    assert _said(emacs, f": {cause}, ") == 1
    assert emacs.eval('(list (buffer-modified-p) (string-suffix-p "first words" (buffer-string)))') == [True, True]
    failed = "(condition-case err (save-buffer) (file-error (error-message-string err)))"
    assert emacs.eval(failed) == f"Not saved: {cause}, {file}"
    assert file.read_text() == _FILE
    assert [entry.name for entry in file.parent.iterdir()] == ["session.md"]


def _assert_saved(emacs: Emacs, file: Path) -> None:
    """When the disk works again, what was typed is saved, without anybody asking for it."""
    _type(emacs, " and last ones")
    emacs.wait("(not (buffer-modified-p))")
    assert emacs.eval("pyagentd-session-trouble") is None
    assert _said(emacs, "is saved again") == 1
    assert file.read_text() == f"{_TEXT}first words and last ones\n\n{_BLOCK}"


def _abbreviated(emacs: Emacs, file: Path) -> str:
    return str(emacs.eval(f'(abbreviate-file-name "{file}")'))


def test_emacs_on_a_full_disk(system: System, small: Path) -> None:
    file, emacs = _session(small), system.emacs()
    _visit(emacs, file)
    with _full(small):
        _assert_refused(emacs, file, "No space left on device")
    _assert_saved(emacs, file)


def test_emacs_on_a_read_only_disk(system: System) -> None:
    file, emacs = _session(system.home / "sessions"), system.emacs()
    _visit(emacs, file)
    with _read_only(file.parent):
        _assert_refused(emacs, file, "Read-only file system")
    _assert_saved(emacs, file)


def _as_somebody(system: System) -> tuple[str, ...]:
    """Give the home to a user whom permissions stop, and return what runs a program as that user."""
    prefix = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not installed")
    if subprocess.run([*prefix, "test", "-r", str(ROOT / "elisp")]).returncode != 0:
        pytest.skip(f"{ROOT} is for root alone")
    (system.home / "e0").mkdir()  # Emacs's
    subprocess.run(["chown", "-R", "65534:65534", str(system.home)], check=True)
    return prefix


def test_emacs_in_a_directory_that_is_not_the_users(system: System) -> None:
    file = _session(system.home / "sessions")
    emacs = system.emacs(prefix=_as_somebody(system) if os.getuid() == 0 else ())
    _visit(emacs, file)
    file.parent.chmod(0o500)
    _assert_refused(emacs, file, "Permission denied")
    file.parent.chmod(0o700)
    _assert_saved(emacs, file)


def test_emacs_in_a_directory_that_is_gone(system: System) -> None:
    file, emacs = _session(system.home / "sessions"), system.emacs()
    _visit(emacs, file)
    _type(emacs, "")
    away = file.parent.with_name("away")
    file.parent.rename(away)
    _type(emacs, "words")
    trouble = emacs.wait("pyagentd-session-trouble")
    assert trouble == f"Not saved: No such file or directory, {_abbreviated(emacs, file)}"
    assert (away / "session.md").read_text() == _FILE
    away.rename(file.parent)
    emacs.wait("(not (buffer-modified-p))")
    assert file.read_text() == f"{_TEXT}words\n\n{_BLOCK}"


def test_two_causes_are_both_told(system: System, small: Path) -> None:
    file, emacs = _session(small), system.emacs()
    _visit(emacs, file)
    with _full(small):
        _type(emacs, "a")
        emacs.wait("pyagentd-session-trouble")
        subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
        emacs.wait('(string-search "Read-only" pyagentd-session-trouble)')
        assert _said(emacs, ": No space left on device, ") == 1
        assert _said(emacs, ": Read-only file system, ") == 1
        subprocess.run(["mount", "-o", "remount,rw", str(small)], check=True)
    emacs.wait("(not (buffer-modified-p))")


@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
def test_a_conversation_goes_on_when_the_disk_does(system: System, known: bool) -> None:
    """A prompt is sent when it is known that the disk is full, or at once."""
    system.sessions.mkdir()
    _mount("-t", "tmpfs", "-o", "size=2m,mode=755", "small", str(system.sessions))
    try:
        _, branch = system.new()
        file = branch / "session.md"
        emacs = system.emacs()
        _visit(emacs, file)
        emacs.wait("(eq pyagentd-attach-state t)")
        _ask(emacs, "one")
        before = file.read_text()
        with _full(system.sessions):
            _type(emacs, "two")
            if known:
                emacs.wait("pyagentd-session-trouble")
            emacs.eval("(progn (pyagentd-send) t)")
            trouble = emacs.wait("pyagentd-session-trouble")
            assert trouble == f"Not saved: No space left on device, {_abbreviated(emacs, file)}"
            assert trouble in emacs.eval("(substring-no-properties pyagentd-status--line)")
            state = emacs.wait("(and (eq (plist-get pyagentd-status :state) 'error) pyagentd-status)")
            assert "No space left on device" in str(state)
            assert emacs.eval('(list (buffer-modified-p) (and (search-backward "### two" nil t) t))') == [True, True]
            assert file.read_text() == before
        emacs.wait("(not (or (buffer-modified-p) pyagentd-session-trouble))")
        assert _said(emacs, "is saved again") == 1
        # Nothing of it was recorded, and it can be gone on with.
        assert file.read_text().startswith(before.split("<!--")[0].rstrip() + " two\n")
        _ask(emacs, " or three")
        text = file.read_text()
        assert text.count("two") == 1 and "### two or three\n\n" in text
    finally:
        system.run("stop")
        subprocess.run(["umount", "--lazy", str(system.sessions)], check=False)


def _ask(emacs: Emacs, prompt: str) -> None:
    """Send a prompt, and return when its answer is there and saved."""
    emacs.eval("(setq finished nil)")
    emacs.eval("(progn (add-hook 'pyagentd-run-finished-functions (lambda (run) (push run finished))) t)")
    _type(emacs, prompt)
    emacs.eval("(progn (pyagentd-send) t)")
    assert str(emacs.wait("(plist-get (car finished) :reason)")) == "done"
    wait_for(lambda: not emacs.eval("(buffer-modified-p)"), "the answer to be saved")
