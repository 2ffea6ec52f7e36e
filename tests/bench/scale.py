"""How many sessions answer at once in one daemon: its CPU time, its memory, and how long a question to it takes.

python -m tests.bench.scale --sessions 10 50 100
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

from tests.bench.measure import cpu_s, memory_mb, percentile
from tests.bench.world import World, new_world

_RATE, _SECONDS = 50, 6  # tokens a second, as a fast model streams, and for how long
_USERS, _EACH, _CORES = 50, 5, 16  # a team, how many sessions of each answer all the time, and its host


@dataclass(frozen=True, slots=True)
class Measured:
    """What a number of sessions took of the daemon: CPU time in seconds, memory in MB before and after."""

    sessions: int
    cpu_s: float
    idle_mb: float
    busy_mb: float


def measured(world: World, number: int) -> Measured:
    """Have so many sessions answer at once, each watched; print a row of the table, and return what they took."""
    pid = world.daemon()
    idle_mb = memory_mb(pid)
    branches = [world.session(f"s-{number}-{each}") for each in range(number)]
    with world.client() as client, world.client() as asking:
        for branch in branches:
            world.view(client, branch)
        began, cpu, took = time.monotonic(), cpu_s(pid), []
        for branch in branches:
            client.call("prompt", branch=str(branch), text=f"paced {_RATE} {_SECONDS}")
        started_s, ended, last = time.monotonic() - began, 0, 0.0
        for event in client.events(timeout=120):
            if time.monotonic() - last > 0.2:
                last = time.monotonic()
                asking.call("status")
                took.append(1000 * (time.monotonic() - last))
            if event.kind == "run" and event.args[0]["phase"] == "finished":
                assert event.args[0]["reason"] == "done", event.args
                ended += 1
                if ended == number:
                    break
        wall_s, cpu = time.monotonic() - began, cpu_s(pid) - cpu
    print(
        f"| {number} | {started_s:.1f} | {wall_s:.1f} | {100 * cpu / wall_s:.0f} % | {memory_mb(pid):.0f} "
        f"| {percentile(took, 50):.0f} / {percentile(took, 95):.0f} |",
        flush=True,
    )
    return Measured(number, cpu, idle_mb, memory_mb(pid))


def extrapolated(rows: list[Measured]) -> str:
    """Return what a team takes of one host, by the row with the most sessions, a daemon for each of them."""
    most = max(rows, key=lambda row: row.sessions)
    core = most.cpu_s / most.sessions / _SECONDS  # of one core, for a session that answers
    own_mb = max(0.0, most.busy_mb - most.idle_mb) / most.sessions
    cores = _USERS * _EACH * core
    memory_gb = _USERS * (most.idle_mb + _EACH * own_mb) / 1000
    return (
        f"A session that answers takes {100 * core:.1f} % of a core and {own_mb:.2f} MB, a daemon "
        f"{most.idle_mb:.0f} MB.\n{_USERS} users with {_EACH} such sessions each, all the time: {cores:.1f} of "
        f"{_CORES} cores, {memory_gb:.1f} GB."
    )


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, nargs="+", default=[10, 50])
    print(f"Each session is sent {_RATE} tokens a second for {_SECONDS} s.\n")
    print("| sessions at once | s to start | s to the last end | CPU of one core | MB | ms for `status`, 50 / 95 % |")
    print("|---|---|---|---|---|---|")
    rows = []
    for number in parser.parse_args().sessions:
        with new_world(quick=True) as world:
            rows.append(measured(world, number))
    print(f"\n{extrapolated(rows)}")


if __name__ == "__main__":
    main()
