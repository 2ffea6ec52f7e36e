"""How many sessions answer at once in one daemon: its CPU time, its memory, and how long a question to it takes.

python -m tests.bench.scale --sessions 10 50 100
"""

from __future__ import annotations

import argparse
import time

from tests.bench.measure import cpu_s, memory_mb, percentile
from tests.bench.world import World, new_world

_RATE, _SECONDS = 50, 6  # tokens a second, as a fast model streams, and for how long


def measured(world: World, number: int) -> str:
    """Have so many sessions answer at once, each watched, and return a row of the table."""
    pid = world.daemon()
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
    return (
        f"| {number} | {started_s:.1f} | {wall_s:.1f} | {100 * cpu / wall_s:.0f} % | {memory_mb(pid):.0f} "
        f"| {percentile(took, 50):.0f} / {percentile(took, 95):.0f} |"
    )


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, nargs="+", default=[10, 50])
    print(f"Each session is sent {_RATE} tokens a second for {_SECONDS} s.\n")
    print("| sessions at once | s to start | s to the last end | CPU of one core | MB | ms for `status`, 50 / 95 % |")
    print("|---|---|---|---|---|---|")
    for number in parser.parse_args().sessions:
        with new_world(quick=True) as world:
            print(measured(world, number), flush=True)


if __name__ == "__main__":
    main()
