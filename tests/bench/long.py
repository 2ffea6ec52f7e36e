"""A session of years in Emacs: five megabytes, two thousand messages, with tools; as Markdown and as plain text.

Blocked is how long Emacs neither reads a key nor redisplays; what it computes of that does not depend on what else
the machine does.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.bench import long_talk
from tests.bench.crowd import typist
from tests.bench.figure import Figure, Result, Target, at_most
from tests.bench.measure import median, percentile
from tests.bench.world import World
from tests.e2e.emacs import Emacs

_STALL = at_most(200)
_MODES = ("markdown-mode", "text-mode")
_CHANGE = '(goto-char (point-max)) (insert "x")'
_AFTERMATH_S = 2.0


def long(world: World) -> Iterator[Result]:
    """Open, look, type, save, send, attach again, and close."""
    messages, size = (20, 100_000) if world.quick else (2_000, 5_000_000)
    world.daemon()
    for mode in _MODES:
        branch = world.session(f"long-{mode}")
        long_talk.write(branch, messages=messages, size=size)
        emacs = world.emacs()
        if mode == "text-mode":
            emacs.eval("(progn (setq auto-mode-alist (rassq-delete-all 'markdown-mode auto-mode-alist)) t)")
        yield from _Visit(world, emacs, branch, mode).results()
        world.close_editors()


class _Block(NamedTuple):
    """How long Emacs was not there for its user, in ms, and how much of that it computed."""

    blocked: float
    computed: float


class _Visit:
    """One session in one Emacs."""

    def __init__(self, world: World, emacs: Emacs, branch: Path, mode: str) -> None:
        self._world, self._emacs, self._mode = world, emacs, mode
        self._file = branch / "session.md"
        self._typing_s = 2.0 if world.quick else 17.0

    def results(self) -> Iterator[Result]:
        emacs = self._emacs
        bare_open, bare_save = self._bare()
        opened, after = self._watched(f'(find-file "{self._file}")', until="(eq pyagentd-attach-state t)")
        assert emacs.eval("(symbol-name major-mode)") == self._mode
        size = self._file.stat().st_size / 1e6
        yield _figure(f"{size:.1f} MB in {self._mode}: find-file to visible", opened)
        yield _figure("    the same text without us, as plain text", bare_open, target=None)
        yield _stall("  then, with attach: longest block", after)
        yield _figure("  M-> to visible", self._block("(goto-char (point-max))"))
        yield _figure("  M-> to visible after a change at the top", self._far())
        yield from self._typing()
        yield _figure("  C-x C-s", self._block(f"(progn {_CHANGE} (save-buffer))"))
        yield _figure("    the same text without us", bare_save, target=None)
        yield from self._sending()
        attached = emacs.eval(f"(bench-attach {1 if self._world.quick else 5})", timeout_s=60)
        yield Figure(
            name="  attach again, to its answer", value=1000 * median([float(s) for s in attached]), unit="ms"
        )
        yield _figure("  kill-buffer with unsaved text", self._block(f"(progn {_CHANGE} (kill-buffer))"))

    def _block(self, form: str) -> _Block:
        """Evaluate a form and redisplay."""
        time.sleep(0.5)
        blocked, computed = self._emacs.eval(f"(bench-block (lambda () {form}))", timeout_s=120)
        return _Block(1000 * float(blocked), 1000 * float(computed))

    def _watched(self, form: str, until: str) -> tuple[_Block, float]:
        """Evaluate a form; return its block, and the longest one while what it has begun goes on."""
        blocked = self._block(form)
        self._emacs.eval("(progn (bench-watch) t)")
        self._emacs.wait(until, timeout_s=60)
        time.sleep(_AFTERMATH_S)
        return blocked, float(self._emacs.eval("(bench-unwatch)")[0])

    def _bare(self) -> tuple[_Block, _Block]:
        """Have Emacs itself open and save the same text."""
        copy = self._world.system.home / "plain.txt"
        shutil.copy(self._file, copy)
        opened = self._block(f'(let ((find-file-hook nil)) (find-file "{copy}"))')
        saved = self._block(f"(progn {_CHANGE} (save-buffer))")
        self._emacs.eval("(kill-buffer)")
        return opened, saved

    def _far(self) -> _Block:
        """Go to the end after a change at the beginning, which is undone then."""
        change = '(goto-char (point-min)) (forward-line 2) (insert "\\n```\\nopen\\n") (redisplay t)'
        self._emacs.eval(f"(progn {change} t)")
        far = self._block("(goto-char (point-max))")
        self._emacs.eval("(progn (save-excursion (goto-char (point-min)) (forward-line 2) (delete-char 10)) t)")
        return far

    def _typing(self) -> Iterator[Result]:
        """Type ten keys a second across several saves, which are due after five seconds of it; then pause."""
        emacs = self._emacs
        emacs.eval("(progn (save-buffer) (goto-char (point-max)) (bench-reset) (bench-note-saves) (bench-watch) t)")
        with typist(emacs) as client:
            keys = self._keys(client)
        saves = emacs.eval("(prog1 bench-saves (bench-unwatch))")
        yield _stall(f"  key to shown, p99 of {len(keys)} at 10/s", percentile(keys, 99), at_most(50))
        yield _stall("    the slowest", max(keys), at_most(100))
        if not self._world.quick:
            yield Figure(name="    saves meanwhile", value=float(len(saves)), unit="", target=Target("≥", 3))
        emacs.eval("(progn (bench-watch) t)")
        time.sleep(_AFTERMATH_S)
        assert not emacs.eval("(buffer-modified-p)")
        yield _stall("  autosave in a pause: longest block", float(emacs.eval("(bench-unwatch)")[0]))

    def _keys(self, client: subprocess.Popen[bytes]) -> list[float]:
        """Return how long after it was pressed each key was on the screen, in ms."""
        assert client.stdin is not None
        pressed = []
        start = time.monotonic()
        number = 0
        while time.monotonic() < start + self._typing_s:
            number += 1
            time.sleep(max(0.0, start + number / 10 - time.monotonic()))
            pressed.append(time.time())
            client.stdin.write(b"send-keys -t e x\n" if number % 8 else b"send-keys -t e Space\n")
            client.stdin.flush()
        self._emacs.wait(f"(= (length bench-shown) {len(pressed)})")
        shown = reversed(self._emacs.eval("bench-shown"))
        return [1000 * (float(later) - earlier) for earlier, later in zip(pressed, shown, strict=True)]

    def _sending(self) -> Iterator[Result]:
        world, emacs = self._world, self._emacs
        world.type(emacs, "\\n\\n### arrival")
        time.sleep(0.2)
        emacs.eval("(progn (bench-watch) t)")
        emacs.keys("C-c", "Enter")
        world.finished(emacs)
        time.sleep(_AFTERMATH_S)
        stall = float(emacs.eval("(bench-unwatch)")[0])
        before, after = (float(when) for when in emacs.eval("bench-sent"))
        yield _stall("  C-c RET: blocked", 1000 * (after - before))
        yield _stall("    until the answer is there and saved: longest block", stall)


def _figure(name: str, block: _Block, target: Target | None = _STALL) -> Figure:
    return Figure(
        name=name, value=block.blocked, unit="ms", reference=block.computed, beside="of it computing", target=target
    )


def _stall(name: str, ms: float, target: Target = _STALL) -> Figure:
    return Figure(name=name, value=ms, unit="ms", target=target)
