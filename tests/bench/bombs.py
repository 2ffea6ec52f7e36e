"""What programs that want all memory get of it: the daemon's peak while it runs missions made of the bomb corpus."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from tests.bench.figure import Fact, Figure, Result, at_most
from tests.bench.world import World
from tests.lisp.bombs.corpus import BOMBS

_EVERY = 4
"""One of so many is taken: a bomb that only burns time takes five seconds."""


def bombs(world: World) -> Iterator[Result]:
    """Run bombs as missions of a real daemon, with the limits missions have."""
    pid = world.daemon()
    idle = peak_mb(pid)
    chosen = [number for number, bomb in enumerate(BOMBS) if bomb.tools is None and len(bomb.program) < 200]
    chosen = chosen[:3] if world.quick else chosen[::_EVERY]
    ends = [_end(world, number) for number in chosen]
    yield Figure(
        name=f"{len(chosen)} bombs as missions: peak of the daemon",
        value=peak_mb(pid),
        unit="MB",
        reference=idle,
        beside="before",
        target=at_most(512, "excess"),
    )
    documented = [end in BOMBS[number].reasons for number, end in zip(chosen, ends, strict=True)]
    yield Fact(name="  each ended with a documented reason", met=all(documented))
    yield Fact(name="  the daemon lives", met=world.daemon() == pid)


def _end(world: World, number: int) -> str:
    """Return the reason a mission failed for, or "return"."""
    about = ("--signature", ":any", "--tools", "", "--max-turns", "1", "--json")
    said = json.loads(world.system.run("mission", f"bomb {number}", *about).stdout)
    return said["fail"]["reason"] if said["fail"] else "return"


def peak_mb(pid: int) -> float:
    """Return the most resident memory a process has had."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(pid)
