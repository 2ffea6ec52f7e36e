"""Typing in a long session while three agents stream into the same Emacs: its own answer and two in other windows.

Measured is the time from just before a key is pressed (XTEST on a graphical display, else a line to the terminal)
until the redisplay after its command is done, and on a graphical display until the X server has answered a request
that came after all the drawing. Nothing is left out: whatever Emacs does when the key comes, the key waits for.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pyagentd.store.document import text as document
from tests.bench import long_talk
from tests.bench.crowd import typist
from tests.bench.figure import Figure, Result, at_most
from tests.bench.measure import percentile
from tests.bench.screen import Keyboard, display, graphical
from tests.bench.world import World
from tests.e2e.emacs import Emacs, wait_for

_RATE = 60  # pieces a second and agent
_PAUSE_S = (0.06, 0.14)  # between two keys, about ten a second
_SIZES = ((1_000_000, 400, 25), (5_000_000, 2_000, 50))  # bytes, messages, ms
_TMUX = {"space": "Space", "Return": "Enter", "BackSpace": "BSpace"}

Press = Callable[[str], None]


def typing(world: World) -> Iterator[Result]:
    """On a graphical display if there is one, and in a terminal."""
    world.daemon()
    sizes = ((50_000, 20, 25),) if world.quick else _SIZES
    for name, screen in (("X", _graphical), ("terminal", _terminal)):
        with screen(world) as opened:
            if opened is None:
                continue
            emacs, press = opened
            for size, messages, bound in sizes:
                branches = [world.session(f"typing-{name}-{number}") for number in range(3)]
                long_talk.write(branches[0], messages=messages, size=size)
                yield from _Desk(world, emacs, press, name).results(branches, bound)
        world.close_editors()


@contextlib.contextmanager
def _graphical(world: World) -> Iterator[tuple[Emacs, Press] | None]:
    program = None if world.quick else graphical()
    if program is None:
        yield None
        return
    with display() as name, contextlib.closing(Keyboard(name)) as keyboard:
        world.system.env |= {"DISPLAY": name, "GSETTINGS_BACKEND": "memory", "NO_AT_BRIDGE": "1"}
        emacs = world.emacs(terminal=False, program=program)
        emacs.eval(
            "(progn (set-frame-position nil 0 0) (set-frame-size nil 170 50)"
            " (set-mouse-absolute-pixel-position 300 300) (x-focus-frame nil) t)"
        )
        yield emacs, keyboard.press


@contextlib.contextmanager
def _terminal(world: World) -> Iterator[tuple[Emacs, Press] | None]:
    emacs = world.emacs()
    with typist(emacs) as client:
        assert client.stdin is not None
        to_tmux = client.stdin

        def press(key: str) -> None:
            to_tmux.write(f"send-keys -t e {_TMUX.get(key, key)}\n".encode())
            to_tmux.flush()

        yield emacs, press


class _Desk:
    """Somebody who types in one session, with two more beside it."""

    def __init__(self, world: World, emacs: Emacs, press: Press, name: str) -> None:
        self._world, self._emacs, self._press, self._name = world, emacs, press, name
        self._stock_s, self._draft_s, self._inside_s = (0.5, 1.0, 0.5) if world.quick else (8.0, 25.0, 15.0)
        self._chance = random.Random(1)

    def results(self, branches: list[Path], bound: float) -> Iterator[Result]:
        stock = self._stock(branches[0])
        size = (branches[0] / "session.md").stat().st_size / 1e6
        self._stream(branches)
        draft = self._typed(self._draft_s)
        # In the answer of a while ago.
        self._emacs.eval('(progn (search-backward "That is *linear*" nil t 9) (recenter) t)')
        inside = self._typed(self._inside_s)
        assert self._world.quick or all(map(self._busy, branches)), "the answers ended too early"
        self._world.finished(self._emacs, len(branches))
        where = f"{size:.2g} MB, {self._name}"
        yield self._figure(f"{where}: {len(draft)} keys in the next prompt, p99", draft, stock, 99, bound)
        yield self._figure("    p50", draft, stock, 50)
        yield self._figure(f"  {len(inside)} keys in an old answer, p99", inside, stock, 99, bound)
        yield self._figure("    p50", inside, stock, 50)

    def _figure(self, name: str, keys: list[float], stock: list[float], percent: int, bound: float = 0) -> Figure:
        return Figure(
            name=name,
            value=percentile(keys, percent),
            unit="ms",
            reference=percentile(stock, percent),
            beside="markdown-mode, no stream",
            target=at_most(bound) if bound else None,
        )

    def _stock(self, branch: Path) -> list[float]:
        """Type at the end of the same text where it is not a session."""
        copy = self._world.system.home / "stock.md"
        copy.write_text(document.read(branch / "session.md").body)
        self._emacs.eval(
            f'(progn (delete-other-windows) (find-file "{copy}") (goto-char (point-max)) (insert "\\n") t)',
            timeout_s=600,  # what markdown-mode takes for megabytes, on a busy machine
        )
        self._typed(0.1, timeout_s=600)  # markdown-mode looks at all of it first
        keys = self._typed(self._stock_s)
        self._emacs.eval("(progn (set-buffer-modified-p nil) (kill-buffer) t)")
        return keys

    def _stream(self, branches: list[Path]) -> None:
        """Show three sessions and ask each for a long answer; put point where the next prompt goes."""
        emacs = self._emacs
        for branch in branches:
            self._world.open(emacs, branch)
        emacs.eval("(bench-reset)")
        buffers = [f'(get-file-buffer "{branch}/session.md")' for branch in branches]
        emacs.eval(f"(bench-windows {' '.join(buffers)})")
        seconds = 1.5 * (self._draft_s + self._inside_s)
        for buffer in buffers:
            emacs.eval(f'(with-current-buffer {buffer} (bench-prompt "spurts {_RATE} {seconds:g}"))')
        wait_for(lambda: self._world.quick or all(map(self._busy, branches)), "three answers")
        emacs.eval('(progn (goto-char (point-max)) (insert "\\n\\n### ") t)')
        time.sleep(1)

    def _busy(self, branch: Path) -> bool:
        """Return whether an answer streams into a session."""
        buffer = f'(get-file-buffer "{branch}/session.md")'
        return bool(self._emacs.eval(f"(eq 'busy (plist-get (buffer-local-value 'pyagentd-status {buffer}) :state))"))

    def _typed(self, seconds: float, timeout_s: float = 30) -> list[float]:
        """Type words for some time; return how long after each key was pressed it was painted, in ms."""
        emacs, chance = self._emacs, self._chance
        emacs.eval("(bench-note-paints t)")
        pressed = []
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(chance.uniform(*_PAUSE_S))
            key = chance.choices(("x", "space", "BackSpace", "Return"), (80, 14, 5, 1))[0]
            pressed.append(time.time())
            self._press(key)
        emacs.wait(f"(= (length bench-painted) {len(pressed)})", timeout_s)
        painted = reversed(emacs.eval("(prog1 bench-painted (bench-note-paints nil))"))
        return [1000 * (float(later) - earlier) for earlier, later in zip(pressed, painted, strict=True)]
