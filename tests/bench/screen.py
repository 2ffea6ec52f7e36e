"""A graphical Emacs on a display that nobody sees, and keys pressed on it as a keyboard would.

The keys go through the XTEST extension of the X server: Emacs gets them as events of its keyboard.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import shutil
import subprocess
from collections.abc import Iterator

from tests.e2e.emacs import ROOT, wait_for

_SIZE = "1600x1000x24"
_LIBRARIES = ("libX11.so.6", "libXtst.so.6")


class Keyboard:
    """The keyboard of a display."""

    def __init__(self, display: str) -> None:
        self._x11, self._xtst = map(ctypes.CDLL, _LIBRARIES)
        self._x11.XOpenDisplay.restype = ctypes.c_void_p
        self._x11.XStringToKeysym.restype = ctypes.c_ulong
        found = wait_for(lambda: self._x11.XOpenDisplay(display.encode()), f"the display {display}", 10)
        self._display = ctypes.c_void_p(found)

    def close(self) -> None:
        """Leave the display."""
        self._x11.XCloseDisplay(self._display)

    def press(self, key: str) -> None:
        """Press and release a key, by its name in X (``x``, ``space``, ``Return``)."""
        code = self._code(key)
        for down in (1, 0):
            self._xtst.XTestFakeKeyEvent(self._display, code, down, ctypes.c_ulong(0))
        self._x11.XFlush(self._display)

    @functools.cache  # noqa: B019  # as long as the benchmark
    def _code(self, key: str) -> int:
        keysym = ctypes.c_ulong(self._x11.XStringToKeysym(key.encode()))
        return int(self._x11.XKeysymToKeycode(self._display, keysym))


def graphical() -> tuple[str, ...] | None:
    """Return the command of an Emacs that draws, None where there is none or nothing to press its keys with."""
    if shutil.which("Xvfb") is None:
        return None
    try:
        for name in _LIBRARIES:
            ctypes.CDLL(name)
    except OSError:
        return None
    # Only what is there: a benchmark does not install anything.
    for command in _candidates():
        check = [*command, "--batch", "--eval", "(unless (fboundp 'x-open-connection) (kill-emacs 1))"]
        if subprocess.run(check, capture_output=True, check=False).returncode == 0:
            return command
    return None


def _candidates() -> Iterator[tuple[str, ...]]:
    yield ("emacs",)
    place = ROOT / ".graphical"  # see scripts/graphical-emacs.sh
    for binary in place.glob("**/bin/emacs-gtk"):
        for dump in place.glob("**/emacs.pdmp"):
            yield (str(binary), f"--dump-file={dump}")


@contextlib.contextmanager
def display() -> Iterator[str]:
    """Run an X server and yield the name of its display."""
    read, write = os.pipe()
    # Without -noreset it would start anew when its only client leaves.
    server = subprocess.Popen(
        ["Xvfb", "-displayfd", str(write), "-screen", "0", _SIZE, "-nolisten", "tcp", "-noreset"],
        pass_fds=(write,),
        stderr=subprocess.DEVNULL,
    )
    os.close(write)
    with os.fdopen(read, encoding="ascii") as said:
        try:
            yield f":{int(said.readline())}"
        finally:
            server.terminate()
            server.wait()
