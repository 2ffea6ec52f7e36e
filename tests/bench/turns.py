"""What a turn with a tool costs, recording and authority included."""

from __future__ import annotations

from collections.abc import Iterator

from tests.bench.figure import Figure, Result, at_most
from tests.bench.measure import Spent, median
from tests.bench.references import reference
from tests.bench.world import World

_GROWS_BY = 20  # turns of a run


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
        beside="hand-written loop",
        target=at_most(2.0, "ratio"),
    )
    if not world.quick:
        yield _growth(world, daemon)


def _growth(world: World, daemon: int) -> Figure:
    """A turn of a conversation that has four hundred already, beside its twenty first ones."""
    branch = world.session("turns-growth")
    costs = []
    with world.client() as client:
        world.view(client, branch)
        for _ in range(400 // _GROWS_BY):
            spent = Spent(daemon)
            world.run(client, branch, f"turns {_GROWS_BY}")
            costs.append(1000 * spent.cpu(daemon) / _GROWS_BY)
    return Figure(
        name=f"the same, turns {400 - _GROWS_BY} to 400 of a conversation",
        value=costs[-1],
        unit="ms",
        reference=costs[0],
        beside=f"its first {_GROWS_BY}",
        target=at_most(1.05, "ratio"),
    )
