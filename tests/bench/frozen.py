"""An Emacs that stands still while an answer streams."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

from tests.bench import corpus
from tests.bench.figure import Fact, Figure, Result, at_most
from tests.bench.measure import memory_mb
from tests.bench.world import World
from tests.e2e.emacs import Emacs


def frozen(world: World) -> Iterator[Result]:
    """Ten seconds without Emacs at 10,000 deltas a second, beside the same run with it."""
    rate, seconds = (2_000, 1) if world.quick else (10_000, 10)
    prompt, count = f"paced {rate} {seconds + 1}", rate * (seconds + 1)
    daemon = world.daemon()
    emacs = world.emacs(terminal=False)  # tmux wakes a process that stopped
    growth = {}
    for freeze in (False, True):
        world.open(emacs, world.session(f"frozen-{freeze}"))
        world.type(emacs, prompt)
        start = memory_mb(daemon)
        emacs.eval("(progn (pyagentd-send) t)")
        most, woken = _watch(emacs, daemon, seconds, freeze=freeze)
        growth[freeze] = max(0.0, most - start)  # the daemon may give memory back meanwhile
        caught_up = world.finished(emacs) - woken
    exact = world.text(emacs).endswith(f"{prompt}\n\n{corpus.text(count)}\n\n### ")
    yield Fact(f"Emacs frozen for {seconds} s of {count:,} deltas: text exact", exact)
    yield Figure(
        name="  daemon's memory grows by",
        value=growth[True],
        unit="MB",
        reference=growth[False],
        beside="Emacs not frozen",
        target=at_most(8, "excess"),
    )
    yield Figure(name="  thawed or last delta, to run finished", value=1000 * caught_up, unit="ms")


def _watch(emacs: Emacs, daemon: int, seconds: float, *, freeze: bool) -> tuple[float, float]:
    """Let the time pass; return the most memory the daemon had, and the time at the end."""
    time.sleep(0.5)
    if freeze:
        emacs.kill(signal.SIGSTOP)
    most = 0.0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        most = max(most, memory_mb(daemon))
        time.sleep(0.1)
    if freeze:
        emacs.kill(signal.SIGCONT)
    return most, time.time()
