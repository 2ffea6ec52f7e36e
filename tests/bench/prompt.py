"""What a person feels: sending from a long session, and stopping a run."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tests.bench.figure import Figure, Result, at_most
from tests.bench.measure import median
from tests.bench.references import reference
from tests.bench.world import World


def send(world: World) -> Iterator[Result]:
    """``C-c RET``, typed in a session of a megabyte, to the first token on the screen."""
    size = 20_000 if world.quick else 1_000_000
    times = 1 if world.quick else 11
    world.daemon()
    emacs = world.emacs()
    world.open(emacs, world.filled("big", size))
    sdk = [reference("sdk", world.url, "arrival", before=size) for _ in range(times)]
    stalls, leaves, shown = [], [], []
    for _ in range(times):
        before = emacs.eval("(buffer-size)")
        world.type(emacs, "arrival")
        emacs.eval("(progn (setq bench-visible t) (bench-note-inserts t) (bench-watch) t)")
        emacs.keys("C-c", "Enter")
        world.finished(emacs)
        stalls.append(emacs.eval("(bench-unwatch)")[0])
        start = emacs.eval("(car bench-sent)")
        shown.append(emacs.eval("bench-visible") - start)
        leaves.append(float(world.text(emacs)[before:].split()[1]) - start)
        emacs.eval("(progn (bench-note-inserts nil) t)")
    yield Figure(name="C-c RET in 1 MB: Emacs blocked", value=max(stalls), unit="ms")
    yield Figure(
        name="  key to request at the model",
        value=1000 * median(leaves),
        unit="ms",
    )
    yield Figure(
        name="  key to first token on the screen",
        value=1000 * median(shown),
        unit="ms",
        reference=1000 * median([cost.first_s for cost in sdk]),
        beside="raw SDK, call to first token",
        target=at_most(3, "ratio"),
    )


def abort(world: World) -> Iterator[Result]:
    """``C-c C-k`` to the end of the run and of its text."""
    times = 1 if world.quick else 5
    world.daemon()
    emacs = world.emacs()
    world.open(emacs, world.session("abort"))
    closing = [reference("abort", world.url, "paced 200 30") for _ in range(times)]
    silences = []
    for _ in range(times):
        world.type(emacs, "paced 200 30")
        emacs.eval("(progn (bench-note-inserts t) (pyagentd-send) t)")
        emacs.wait("(> (length bench-inserted) 10)")
        start = emacs.eval("(prog1 (float-time) (pyagentd-abort))")
        end = world.finished(emacs)
        time.sleep(0.2)
        silences.append(max(end, emacs.eval("(car (car bench-inserted))")) - start)
        emacs.eval("(progn (bench-note-inserts nil) t)")
    yield Figure(
        name="abort to silence, worst",
        value=1000 * max(silences),
        unit="ms",
        reference=1000 * max(cost.total_s for cost in closing),
        beside="raw SDK, close of the stream",
        target=at_most(100),
    )
