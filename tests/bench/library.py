"""Very many sessions, and a very long one: finding, listing, opening and searching.

What grows is measured at two sizes, one ten times the other; ten times the smaller is the reference. What must not
grow has the smaller itself beside it.
"""

from __future__ import annotations

import contextlib
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pyagentd.store.db.projection import Projection
from pyagentd.store.db.state import State
from pyagentd.store.document import text
from pyagentd.store.paths import BranchRef, ref_of
from pyagentd.store.registry import Registry
from pyagentd.wire.client import DaemonClient, connect
from tests.bench.figure import Fact, Figure, Result, at_most
from tests.bench.measure import timed_ms
from tests.bench.shelves import Talker, fill, rare, write
from tests.bench.world import World
from tests.e2e.conftest import System

_TOLERANCE = 1.5  # how far from linear growth, or from none, is still that
_TIMEOUT_S = 3600.0
_QUERIES = {  # by what they cost
    "a word of one session": rare(3),
    "two common words": "ba re",
    "the beginning of a word": "quiz",
    "a phrase": '"ba re ti"',
}


@dataclass
class _Measured:
    """Times in ms of one library, by what was done; ``branches`` there are in it."""

    branches: int
    times: dict[str, float] = field(default_factory=dict)
    is_found: bool = True


def library(world: World) -> Iterator[Result]:
    """Sessions with three branches each, some with agents."""
    few, many = (4, 20) if world.quick else (1000, 10_000)
    small, large = _measure(few), _measure(many)
    yield Fact(f"{many:,} sessions × 3: what is searched is found", small.is_found and large.is_found)
    for name, value in large.times.items():
        before = small.times[name]
        grows = not name.startswith("open")
        yield Figure(
            name=f"  {name}",
            value=value,
            unit="ms",
            reference=before * (10 if grows else 1),
            beside=f"10 × {few:,} sessions" if grows else f"{few:,} sessions",
            target=at_most(_TOLERANCE if grows else 2, "ratio"),
        )
    yield Figure(name="  reindex, a branch", value=large.times["reindex"] / large.branches, unit="ms")


def record(world: World) -> Iterator[Result]:
    """One session of 5 MB with 2,000 messages."""
    turns, words = (10, 40) if world.quick else (1000, 520)
    with _system() as system:
        place, talker = system.sessions / "long-20260205123052" / "branches" / "main", Talker()
        talk = talker.talk("A long one")
        for number in range(turns):
            talk.play(talker.turn(words, mark=rare(number)))
        write(place, talk, "long-20260205123052")
        size = sum((place / name).stat().st_size for name in ("messages.jsonl", "session.md")) / 2e6
        label = f"a session of {size:.1f} MB, {2 * turns:,} messages"
        with _daemon(system) as client:
            yield Figure(
                name=f"{label}: first index", value=timed_ms(lambda: client.call("reindex", _TIMEOUT_S)), unit="ms"
            )
            yield Figure(name="  re-attach", value=_median(5, lambda: _attach(client, place)), unit="ms")
            mark = rare(turns // 2)
            found = client.call("search", query=mark)["hits"][0]
            yield Figure(name="  search", value=_median(20, lambda: client.call("search", query=mark)), unit="ms")
            where = {"branch": str(place), "message": found["message_id"]}
            at = client.call("locate", **where)
            yield Fact("  what is found is located", talk.document.body.startswith(mark, at["position"] - 1))
            yield Figure(name="  locate", value=_median(3, lambda: client.call("locate", **where)), unit="ms")
        talk.play(talker.turn(words, mark="newest"))
        write(place, talk, "long-20260205123052")
        state = State(system.sessions)
        update = Projection(state, system.sessions).update
        yield Figure(name="  a turn added to the index", value=timed_ms(lambda: update(ref_of(place))), unit="ms")
        state.close()


def _measure(count: int) -> _Measured:
    with _system() as system:
        fill(system.sessions, count)
        registry = Registry(system.sessions)
        times = {"discovery": _median(3, registry.scan)}
        refs = registry.branches()
        measured = _Measured(len(refs), times)
        with _daemon(system) as client:
            times["open: attach, daemon just started"] = timed_ms(lambda: _attach(client, refs[0].branch_dir))
            times["reindex"] = timed_ms(lambda: client.call("reindex", _TIMEOUT_S))
            times["sessions, operation"] = _median(3, lambda: client.call("sessions", _TIMEOUT_S))
            times["sessions, command line"] = timed_ms(lambda: system.ok("sessions", "--json", timeout=_TIMEOUT_S))
            times["open: attach"] = statistics.median(_timed_attach(client, ref) for ref in refs[:: len(refs) // 10])
            exact = refs[-1].session_id
            times["open: an exact id resolved"] = _median(5, lambda: client.call("resolve", name=exact))
            for name, query in _QUERIES.items():
                times[f"search: {name}"] = _median(5, lambda query=query: client.call("search", query=query))
            measured.is_found = len(client.call("search", query=f"{rare(count - 1)} -session")["hits"]) == 1
        with _daemon(system) as client:  # its first search looks at every branch
            times["sweep, and a search"] = timed_ms(lambda: client.call("search", _TIMEOUT_S, query=rare(0)))
        return measured


@contextlib.contextmanager
def _system() -> Iterator[System]:
    home = Path(tempfile.mkdtemp(prefix="pl-", dir="/tmp"))  # short, because sockets are in it
    system = System(home)
    try:
        system.sessions.mkdir()
        yield system
    finally:
        system.close()
        shutil.rmtree(home, ignore_errors=True)


@contextlib.contextmanager
def _daemon(system: System) -> Iterator[DaemonClient]:
    system.ok("serve", "--detach")
    pid = system.daemon_pid()
    with connect(system.runtime) as client:
        yield client
    system.run("stop")
    subprocess.run(["tail", f"--pid={pid}", "-f", "/dev/null"], check=True, timeout=60)


def _attach(client: DaemonClient, place: Path) -> None:
    sha256 = text.body_sha256(text.read(place / "session.md").body)
    client.call("attach", branch=str(place), sha256=sha256)
    client.call("detach", branch=str(place))


def _timed_attach(client: DaemonClient, ref: BranchRef) -> float:
    return timed_ms(lambda: _attach(client, ref.branch_dir))


def _median(times: int, action: Callable[[], object]) -> float:
    return statistics.median(timed_ms(action) for _ in range(times))
