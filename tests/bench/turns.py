"""What a turn with a tool costs, recording and authority included."""

from __future__ import annotations

from collections.abc import Iterator

from tests.bench.figure import Figure, Result, at_most
from tests.bench.measure import Spent, median
from tests.bench.references import reference
from tests.bench.world import World


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
        target=at_most(2.7, "ratio"),
    )
