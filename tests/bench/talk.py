"""A conversation of 200 turns with compactions: what a turn costs early and late, beside the SDK sending the same.

With the conversation grows, per turn: the file, which is written anew (when a turn begins and when it ends) and
compared, and copies of text and of tuples in memory; after a compaction the next turn aligns the whole document once.
A document that an editor saved is parsed once per turn.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

from pyagentd.store import paths
from pyagentd.store.trace import read_trace
from pyagentd.wire.client import DaemonClient
from tests.bench.figure import Figure, Result, at_most
from tests.bench.measure import Spent, median
from tests.bench.references import reference
from tests.bench.world import World

_WORDS = 250  # of an answer, about 1.5 kB


def talk(world: World) -> Iterator[Result]:
    """Take turns in one session; after every twenty of them it is compacted."""
    marks, window, every = ((2, 4), 1, 3) if world.quick else ((20, 100, 200), 10, 20)
    daemon = world.daemon()
    branch = world.session("talk")
    costs: list[float] = []
    waits: list[float] = []
    with world.client() as client:
        world.view(client, branch)
        for number in range(1, marks[-1] + 1):
            spent, began = Spent(daemon), time.monotonic()
            world.run(client, branch, f"burst {_WORDS}")
            waits.append(time.monotonic() - began)
            costs.append(spent.cpu(daemon))
            if number % every == 0:
                _compact(client, branch)
    bodies = [step.body for step in read_trace(branch) if step.purpose == "step"]
    first = 1000 * median(costs[marks[0] - window : marks[0]])
    for mark in marks:
        last = slice(mark - window, mark)
        kilobytes = median([len(json.dumps(body)) / 1000 for body in bodies[last]])
        yield Figure(
            name=f"CPU of turn {mark} ({kilobytes:.0f} kB sent)",
            value=1000 * median(costs[last]),
            unit="ms",
            reference=1000 * _sdk(world, bodies[last]),
            beside="raw SDK, same bodies",
        )
        yield Figure(name="    to its end", value=1000 * median(waits[last]), unit="ms")
    after = [1000 * cost for cost in costs[every::every]]  # each the first after a compaction
    yield Figure(
        name="    first turn after a compaction",
        value=median(after[-3:]),
        unit="ms",
        reference=after[0],
        beside="after the first one",
    )
    size_kb = paths.session_file(branch).stat().st_size / 1000
    yield Figure(name="    document, written twice a turn", value=size_kb, unit="kB")
    yield Figure(
        name=f"CPU of turn {marks[-1]}, beside turn {marks[0]}",
        value=1000 * median(costs[-window:]),
        unit="ms",
        reference=first,
        beside=f"turn {marks[0]}",
        target=None if world.quick else at_most(1.5, "ratio"),
    )


def _compact(client: DaemonClient, branch: Path) -> None:
    done = client.call("compact", branch=str(branch), wait=True)
    assert done["reason"] == "done", done
    for event in client.events(timeout=60):  # what the compaction told, so that the next turn's end is its own
        if event.kind == "run" and event.args[0]["phase"] == "finished":
            return


def _sdk(world: World, bodies: list[dict[str, object]]) -> float:
    """Return the seconds of CPU that the SDK takes for one of these requests."""
    file = world.system.home / "bodies.json"
    file.write_text(json.dumps(bodies), encoding="utf-8")
    return reference("bodies", world.url, str(file)).cpu_s / len(bodies)
