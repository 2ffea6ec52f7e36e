"""Twenty runs at once into twenty buffers, one of them visible and typed into."""

from __future__ import annotations

import contextlib
import random
import subprocess
import time
from collections.abc import Iterator

from tests.bench.figure import Fact, Figure, Result, at_most
from tests.bench.measure import Spent, percentile
from tests.bench.references import reference
from tests.bench.world import World
from tests.e2e.emacs import Emacs

_RATE = 200  # deltas a second and run


def crowd(world: World) -> Iterator[Result]:
    """Half of the time only watched, for the CPU time; the other half typed into, for the keys."""
    runs, half_s = (3, 1.0) if world.quick else (20, 6.0)
    prompt = f"clock {_RATE} {2 * half_s + 1:g}"
    bare = reference("crowd", world.url, f"clock {_RATE} {min(half_s, 4):g}")
    world.daemon()
    emacs = world.emacs()
    branches = [world.session(f"crowd-{number}") for number in range(runs)]
    for branch in branches:
        world.open(emacs, branch)
    with typist(emacs) as type_key:
        idle = _type(emacs, type_key, half_s)
        emacs.eval('(progn (delete-region (line-beginning-position) (point-max)) (insert "### ") t)')
        emacs.eval("(progn (bench-reset) (bench-note-inserts t) t)")
        for branch in branches:
            emacs.eval(f'(with-current-buffer (get-file-buffer "{branch}/session.md") (bench-prompt "{prompt}"))')
        time.sleep(0.5)
        spent, frames = Spent(emacs.pid), emacs.eval("bench-frames")
        time.sleep(half_s)
        share, frames = spent.share(emacs.pid), (emacs.eval("bench-frames") - frames) / half_s
        typed = _type(emacs, type_key, half_s)
    world.finished(emacs, runs)
    emacs.eval("(progn (bench-note-inserts nil) t)")
    inserted = world.value(emacs, "bench-inserted")
    lags = [1000 * (float(when) - float(sent)) for when, _, text in inserted for sent in text.split() if "." in sent]
    yield Fact(f"{runs} runs × {_RATE}/s: every token arrived", len(lags) == runs * int(_RATE * (2 * half_s + 1)))
    yield Figure(
        name="  token sent to inserted, p99",
        value=percentile(lags, 99),
        unit="ms",
        reference=bare.lag_ms,
        beside="bare HTTP readers",
    )
    yield Figure(
        name="  key typed to inserted, p99",
        value=percentile(typed, 99),
        unit="ms",
        reference=percentile(idle, 99),
        beside="same Emacs, no run",
    )
    yield Figure(name="  Emacs CPU", value=share, unit="%")
    yield Figure(
        name="  frames a second",
        value=frames,
        unit="/s",
        reference=float(runs * _RATE),
        beside="one a token",
        target=at_most(0.01, "ratio"),
    )


@contextlib.contextmanager
def typist(emacs: Emacs) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a client of the terminal that types without starting a process for each key."""
    with subprocess.Popen(
        ["tmux", "-S", str(emacs.socket.with_name("t")), "-C", "attach", "-t", "e"],
        env=emacs.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as client:
        time.sleep(0.3)
        yield client
        assert client.stdin is not None
        client.stdin.close()


def _type(emacs: Emacs, client: subprocess.Popen[bytes], seconds: float) -> list[float]:
    """Type for some time; return how long after each key was pressed its character was inserted, in ms."""
    emacs.eval("(progn (goto-char (point-max)) (setq bench-keys nil) t)")
    assert client.stdin is not None
    pressed = []
    chance = random.Random(1)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(chance.uniform(0.01, 0.06))
        pressed.append(time.time())
        client.stdin.write(b"send-keys -t e x\n")
        client.stdin.flush()
    emacs.wait(f"(= (length bench-keys) {len(pressed)})")
    shown = reversed(emacs.eval("bench-keys"))
    return [1000 * (float(later) - earlier) for earlier, later in zip(pressed, shown, strict=True)]
