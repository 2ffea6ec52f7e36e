"""What a turn with a tool costs, recording and authority included."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from pyagentd.wire.client import DaemonClient
from tests.bench.figure import Figure, Result, at_most
from tests.bench.measure import Spent, median
from tests.bench.references import reference
from tests.bench.world import World
from tests.e2e.emacs import wait_for

_GROWS_BY = 20  # turns of a run
_PAIRS = 5  # runs of a long session and of a new one
AFTER_MS = 40  # how long the model takes, so that short requests and long ones are answered alike
_NOWHERE = "nothing"  # a word that is searched for
_QUIET = 6  # halves of a second in which nothing happens


def turns(world: World) -> Iterator[Result]:
    """A run of twenty turns that read a file, beside a loop written by hand."""
    count, times = (3, 1) if world.quick else (20, 5)
    prompt = f"turns {count}"
    daemon = world.daemon()
    costs = []
    with world.client() as client:
        for number in range(times):
            branch = world.session(f"turns-{number}")
            world.view(client, branch)
            spent = Spent(daemon)
            world.run(client, branch, prompt)
            costs.append(spent.cpu(daemon))
    by_hand = [reference("turns", world.url, prompt, cwd=world.system.project).cpu_s for _ in range(times)]
    yield Figure(
        name=f"CPU per turn of a run of {count} tool turns",
        value=1000 * median(costs) / count,
        unit="ms",
        reference=1000 * median(by_hand) / count,
        beside="hand-written loop that records",
        target=at_most(2.0, "ratio"),
    )
    if not world.quick:
        yield _growth(world, daemon)


def _growth(world: World, daemon: int) -> Figure:
    """A turn of a conversation that has four hundred already, beside its twenty first ones.

    The bytes of a request grow with the conversation whoever sends them: what a client pays that only sends as many
    is taken off. What the daemon does behind the turns, the index for search above all, is counted with the turns it
    is for: both are measured from rest to rest, three times, the last ones around turn 390. The model begins a while
    after a request: it takes longer to read a long one, and a daemon that has nothing else to do meanwhile reads the
    answer in more pieces than one that still notes what it sent.
    """
    prompt = f"turns {_GROWS_BY} after {AFTER_MS}"
    runs = 400 // _GROWS_BY
    with world.client() as client:

        def cost_ms(branch: Path) -> float:
            _rest(client, daemon)
            spent = Spent(daemon)
            world.run(client, branch, prompt)
            _rest(client, daemon)
            return 1000 * spent.cpu(daemon) / _GROWS_BY

        long = world.session("turns-growth")
        world.view(client, long)
        for _ in range(runs - (_PAIRS + 1) // 2):
            world.run(client, long, prompt)
        first, last = [], []
        for number in range(_PAIRS):
            last.append(cost_ms(long))
            short = world.session(f"turns-growth-{number}")
            world.view(client, short)
            first.append(cost_ms(short))
        size = (long / "session.md").stat().st_size * (2 * runs - 1) / (2 * runs + _PAIRS - 1)  # at turn 390
    few, many = (_post_ms(world, round(each)) for each in (size / (2 * runs - 1), size))
    return Figure(
        name=f"the same, turns {400 - _GROWS_BY} to 400, without sending {size / 1e6:.1f} MB ({many - few:.1f} ms)",
        value=median(last) - (many - few),
        unit="ms",
        reference=median(first),
        beside=f"its first {_GROWS_BY}",
        target=at_most(1.05, "ratio"),
    )


def _rest(client: DaemonClient, daemon: int) -> None:
    """Return when the daemon has nothing to do: the index, which waits before it goes on, is brought up to date."""
    wait_for(lambda: not client.call("search", query=_NOWHERE)["indexing"], "the index")
    wait_for(lambda: all(_share(daemon) < 1.0 for _ in range(_QUIET)), "the daemon to rest")


def _share(daemon: int) -> float:
    """Return which percentage of a core the daemon takes for a moment."""
    spent = Spent(daemon)
    time.sleep(0.5)
    return spent.share(daemon)


def _post_ms(world: World, size: int) -> float:
    """Return the CPU time of sending a request with so many bytes of conversation."""
    return 1000 * median([reference("posts", world.url, f"{_GROWS_BY} {size}").cpu_s for _ in range(3)]) / _GROWS_BY
