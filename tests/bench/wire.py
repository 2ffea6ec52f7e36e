"""The wire alone: a call and its answer, and events as fast as they come."""

from __future__ import annotations

from collections.abc import Iterator

from pyagentd.events import Event
from pyagentd.wire.connection import Outbox
from tests.bench import peers
from tests.bench.figure import Figure, Result, at_least, at_most
from tests.bench.measure import median
from tests.bench.world import World
from tests.e2e.emacs import Emacs


def call(world: World) -> Iterator[Result]:
    """A synchronous call from Emacs to the daemon."""
    count = 100 if world.quick else 3000
    world.daemon()
    emacs = world.emacs()
    emacs.eval("(progn (bench-calls 20) t)")
    ours = world.value(emacs, f"(bench-calls {count})")
    for serve, beside, target in (
        (peers.echo, "raw socket echo", at_most(2.5, "ratio")),
        (peers.asyncio_echo, "echo by asyncio", None),
    ):
        with peers.listening(world.system.home, serve) as socket:
            raw = world.value(emacs, f'(bench-echo "{socket}" {count})')
        yield Figure(
            name="synchronous call from Emacs, p50",
            value=1000 * median(ours),
            unit="ms",
            reference=1000 * median(raw),
            beside=beside,
            target=target,
        )


def events(world: World) -> Iterator[Result]:
    """A flood of events, one a frame and as the daemon batches them."""
    count = 2_000 if world.quick else 40_000
    emacs = world.emacs()
    single, batched = _frames(count, 1), _frames(count, 1000)
    for limit in (4096, 1 << 20):
        emacs.eval(f"(setq read-process-output-max {limit})")
        raw = _rate(world, emacs, single, count, "#'bench-count-lines")
        for name, data in (("one a frame", single), ("batched", batched)):
            yield Figure(
                name=f"events {name}, read-process-output-max {limit >> 10} kB",
                value=_rate(world, emacs, data, count, "nil"),
                unit="/s",
                reference=raw,
                beside="raw lines",
                target=at_least(0.1, "ratio"),
            )


def _rate(world: World, emacs: Emacs, data: bytes, count: int, reader: str) -> float:
    """Return how many events a second Emacs takes in, the best of three."""
    seconds = []
    for _ in range(1 if world.quick else 3):
        with peers.listening(world.system.home, peers.flood(data)) as socket:
            form = f'(progn (garbage-collect) (bench-flood "{socket}" {reader} {count}))'
            seconds.append(emacs.eval(form, timeout_s=60))
    return count / min(seconds)


def _frames(count: int, together: int) -> bytes:
    """Return ``count`` events as the daemon's outbox sends them, ``together`` in a beat."""
    frames: list[bytes] = []
    outbox = Outbox(frames.append, lambda *_, **urgent: None)
    for number in range(count):
        outbox.push(Event("bench", f"/branch/{number % 20}", number + 1, (number,)))
        if number % together == together - 1:
            outbox.flush()
    outbox.flush()
    return b"".join(frames)
