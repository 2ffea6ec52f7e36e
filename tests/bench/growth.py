"""What each operation costs as a function of size: of a session, of the number of sessions, of agents at once.

A line has the operation at one size. Beside it is what must be flat at the smallest size, and ten times what reads or
says all that is there at a tenth of the size. All but the agents' is CPU time, of the daemon where it
does it. The last of the three sizes is that of ``--full``.
"""

from __future__ import annotations

import gc
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pyagentd.store.db.projection import Projection
from pyagentd.store.db.state import State
from pyagentd.store.document import text
from pyagentd.store.paths import ref_of
from pyagentd.store.registry import Registry
from pyagentd.wire.client import DaemonClient
from tests.bench import long_talk
from tests.bench.crowd_agents import Crowd, crowd_server, in_daemon
from tests.bench.crowd_server import FILE, NOTE
from tests.bench.figure import Fact, Figure, Result, at_least, at_most
from tests.bench.library import _daemon, _system
from tests.bench.measure import Spent, median
from tests.bench.references import reference
from tests.bench.shelves import fill, rare
from tests.bench.world import World

_FEW, _MANY = 5, 15  # turns with a tool, of a prompt


def growth(world: World) -> Iterator[Result]:
    """One session, many sessions, many agents."""
    yield from _sessions(world)
    yield from _shelves(world)
    yield from _agents(world)


def _sizes(world: World, few: tuple[int, ...], many: tuple[int, ...]) -> tuple[int, ...]:
    return few if world.quick else many if world.full else many[:-1]


def _sessions(world: World) -> Iterator[Result]:
    """A session of 20, 200 and 2,000 turns, of 10 kB each."""
    before: dict[str, float] = {}
    daemon = world.daemon()
    with world.client() as client:
        for turns in _sizes(world, (2, 20), (20, 200, 2_000)):
            branch = world.session(f"growth-{turns}")
            long_talk.write(branch, messages=2 * turns, size=10_000 * turns)
            size = (branch / "session.md").stat().st_size
            for name, value, flat in _operations(world, client, daemon, branch):
                known = before.get(name)
                before[name] = value if known is None or not flat else known
                yield Figure(
                    name=f"session of {turns:,} turns, {size / 1e6:.1f} MB: {name}",
                    value=value,
                    unit="ms",
                    reference=None if known is None else known * (1 if flat else 10),
                    beside="the smallest" if flat else "10 × a tenth of it",
                    target=None if known is None else at_most(1.2, "ratio"),
                )


def _operations(world: World, client: DaemonClient, daemon: int, branch: Path) -> Iterator[tuple[str, float, bool]]:
    """Yield name, ms of the daemon's CPU time, and whether it must be flat.

    The cost of a client that only sends as many bytes is taken off a turn.
    """
    sha256 = text.body_sha256(text.read(branch / "session.md").body)
    posting_ms = _posting_ms(world, (branch / "session.md").stat().st_size)

    def attach() -> float:
        spent = Spent(daemon)
        client.call("attach", branch=str(branch), sha256=sha256)
        return 1000 * spent.cpu(daemon)

    def prompt(turns: int) -> float:
        spent = Spent(daemon)
        world.run(client, branch, f"turns {turns}")
        return 1000 * spent.cpu(daemon)

    yield "first attach, which reads all of it", attach(), False
    while client.call("search", query="nothing")["indexing"]:
        pass
    again = []
    for _ in range(5):
        client.call("detach", branch=str(branch))
        again.append(attach())
    yield "attach again", median(again), True
    prompt(_FEW)
    few, many = (median([prompt(turns) for _ in range(3)]) for turns in (_FEW, _MANY))
    yield f"a prompt of {_FEW} tool turns, which writes all of it", few - _FEW * posting_ms, False
    yield "one more tool turn", (many - few) / (_MANY - _FEW) - posting_ms, True
    client.call("detach", branch=str(branch))
    yield "a prompt added to the index", _indexing_ms(branch), True


def _indexing_ms(branch: Path) -> float:
    """Return what the index takes for a turn that was added; this process has an index of its own for it."""
    costs = []
    with tempfile.TemporaryDirectory(prefix="pyagentd-index-") as place:
        state = State(Path(place))
        projection = Projection(state, branch.parents[2])
        projection.update(ref_of(branch))
        for number in range(5):
            long_talk.go_on(branch, number=100_000 + number, size=10_000)
            gc.collect()
            began = time.process_time()
            assert projection.update(ref_of(branch)) > 0
            costs.append(1000 * (time.process_time() - began))
        state.close()
    return median(costs)


def _posting_ms(world: World, size: int) -> float:
    return 1000 * median([reference("posts", world.url, f"{_FEW} {size}").cpu_s for _ in range(3)]) / _FEW


def _shelves(world: World) -> Iterator[Result]:
    """So many sessions of three branches each."""
    smallest: dict[str, float] = {}
    for count in _sizes(world, (4, 40), (100, 1_000, 10_000)):
        with _system() as system:
            fill(system.sessions, count)
            with _daemon(system) as client:
                client.call("reindex", 3600.0)
                asked: dict[str, tuple[Callable[[], object], bool]] = {
                    "list of sessions": (lambda client=client: client.call("sessions"), False),
                    "discovery": (Registry(system.sessions).scan, False),
                    "search for a word of one": (lambda client=client: client.call("search", query=rare(3)), True),
                    "status": (lambda client=client: client.call("status"), True),
                }
                for name, (ask, flat) in asked.items():
                    value = _least_cpu_ms(os.getpid() if name == "discovery" else system.daemon_pid(), ask)
                    before = smallest.get(name)
                    smallest[name] = value
                    yield Figure(
                        name=f"{count:,} sessions: {name}",
                        value=value,
                        unit="ms",
                        reference=None if before is None else before * (1 if flat else 10),
                        beside="a tenth of the sessions" if flat else "10 × a tenth of them",
                        target=None if before is None else at_most(2 if flat else 1.2, "ratio"),
                    )


def _least_cpu_ms(daemon: int, ask: Callable[[], object]) -> float:
    """Return the least CPU time of several times: what the daemon does beside that is not of the question."""
    ask()
    costs = []
    for _ in range(5):
        spent = Spent(daemon)
        ask()
        costs.append(1000 * spent.cpu(daemon))
    return min(costs)


def _agents(world: World) -> Iterator[Result]:
    """So many agents at once, each of a few turns, beside a fifth or a tenth of them."""
    (world.system.project / FILE).write_text(NOTE)
    before: Crowd | None = None
    with crowd_server() as url:
        daemon = world.daemon()
        for size in _sizes(world, (2, 4), (20, 200, 1_000)):
            crowd = in_daemon(world, url, daemon, size, 10, f"growth-{size}")
            yield Fact(f"{size:,} agents: each result once", crowd.results == size)
            beside = "" if before is None else f"{before.agents} agents"
            yield Figure(
                name=f"{size:,} agents: turns a second",
                value=crowd.turns / crowd.wall_s,
                unit="/s",
                reference=None if before is None else before.turns / before.wall_s,
                beside=beside,
                target=None if before is None else at_least(0.95, "ratio"),
            )
            yield Figure(
                name=f"{size:,} agents: CPU per tool turn",
                value=crowd.cpu_ms,
                unit="ms",
                reference=None if before is None else before.cpu_ms,
                beside=beside,
                target=None if before is None else at_most(1.05, "ratio"),
            )
            yield Figure(
                name=f"{size:,} agents: memory an agent",
                value=crowd.memory_mb / size,
                unit="MB",
                target=at_most(0.15) if size >= 200 else None,
            )
            before = crowd
