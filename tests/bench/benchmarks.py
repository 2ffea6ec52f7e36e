"""All benchmarks by name, in the order they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.bench.bombs import bombs
from tests.bench.burst import burst, paced
from tests.bench.crowd import crowd
from tests.bench.crowd_agents import agents
from tests.bench.figure import Result
from tests.bench.frozen import frozen
from tests.bench.growth import growth
from tests.bench.library import library, record
from tests.bench.long import long
from tests.bench.programs import programs
from tests.bench.prompt import abort, send
from tests.bench.start import cold, command, idle, load, warm
from tests.bench.talk import talk
from tests.bench.turns import turns
from tests.bench.typist import typing
from tests.bench.wire import call, events
from tests.bench.world import World, new_world

BENCHMARKS: dict[str, Callable[[World], Iterator[Result]]] = {
    "call": call,
    "events": events,
    "cold": cold,
    "warm": warm,
    "idle": idle,
    "command": command,
    "load": load,
    "send": send,
    "abort": abort,
    "burst": burst,
    "paced": paced,
    "crowd": crowd,
    "turns": turns,
    "agents": agents,
    "frozen": frozen,
    "library": library,
    "record": record,
    "long": long,
    "growth": growth,
    "typing": typing,
    "talk": talk,
    "programs": programs,
    "bombs": bombs,
}


def measure(name: str, *, quick: bool, full: bool = False) -> Iterator[Result]:
    """Run one benchmark in a world of its own."""
    with new_world(quick=quick, full=full) as world:
        yield from BENCHMARKS[name](world)
