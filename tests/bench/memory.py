"""Whether the daemon gives memory back: ``python -m tests.bench.memory [--clients N]`` (make bench-memory).

Prints the resident memory of a daemon before, at its peak and after: one call with 10 MB of arguments, clients that
attach, clients with three turns each, and as many again in sessions of their own, which tells a leak from a
high-water mark. "After" is the
least of the time in which the daemon gives memory back by itself. Reference: the warm daemon.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from pyagentd.wire.client import DaemonClient
from tests.bench.measure import memory_mb
from tests.bench.world import World, new_world

_PROMPT = "burst 400"
_TURNS = 3
_AT_ONCE = 16  # clients with a turn in flight
_RETURN_S = 70.0  # the daemon looks every 30 s, and then takes a moment


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.memory", description=__doc__)
    parser.add_argument("--clients", type=int, default=400)
    options = parser.parse_args()
    with new_world(quick=False) as world:
        for name, before, peak, after in measured(world, options.clients):
            print(f"{name:34}{before:9.0f} MB{peak:9.0f} MB{after:9.0f} MB{after / before:7.2f}×", flush=True)
    return 0


def measured(world: World, clients: int, return_s: float = _RETURN_S) -> Iterator[tuple[str, float, float, float]]:
    """Yield each case with the memory before all, at its peak and after, in MB."""
    pid = world.daemon()
    waves = [_sessions(world, f"wave-{number}", clients) for number in range(3)]
    before = memory_mb(pid)
    cases: Sequence[tuple[str, Callable[[], None]]] = (
        ("one call of 10 MB", lambda: large_call(world)),
        (f"{clients} clients attach", lambda: _wave(world, waves[0], 0)),
        (f"{clients} clients, {_TURNS} turns each", lambda: _wave(world, waves[0], _TURNS)),
        ("as many again", lambda: _wave(world, waves[1], _TURNS)),
        ("and again", lambda: _wave(world, waves[2], _TURNS)),
    )
    for name, act in cases:
        peak = max(during(act, pid))
        yield name, before, peak, _least(pid, return_s)


def _sessions(world: World, name: str, count: int) -> list[Path]:
    root = str(world.system.project)
    with world.client() as client:
        names = [f"{name}-{number}" for number in range(count)]
        made = [client.call("create-session", name=name, preset="explorer", root=root) for name in names]
    return [Path(each["branch_dir"]) for each in made]


def large_call(world: World) -> None:
    with world.client() as client:
        branch = world.session("large", preset="programming-assistant")
        world.view(client, branch)
        client.call("prompt", branch=str(branch), text="call 10000000")
        for event in client.events(timeout=60):
            if event.kind == "run" and event.args[0]["phase"] == "finished":
                return
            if event.kind == "ask":
                client.call("answer", id=event.args[0]["id"], decision="deny")


def _wave(world: World, branches: Sequence[Path], turns: int) -> None:
    with ExitStack() as stack, ThreadPoolExecutor(_AT_ONCE) as pool:

        def serve(client: DaemonClient, branch: Path) -> None:
            world.view(client, branch)
            for _ in range(turns):
                world.run(client, branch, _PROMPT)

        clients = [stack.enter_context(world.client()) for _ in branches]
        for done in [pool.submit(serve, client, branch) for client, branch in zip(clients, branches, strict=True)]:
            done.result()


def during(act: Callable[[], None], pid: int) -> Iterator[float]:
    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(act)
        while not going.done():
            yield memory_mb(pid)
            time.sleep(0.05)
        yield memory_mb(pid)
        going.result()


def _least(pid: int, seconds: float) -> float:
    end, least = time.monotonic() + seconds, memory_mb(pid)
    while time.monotonic() < end:
        time.sleep(0.5)
        least = min(least, memory_mb(pid))
    return least


if __name__ == "__main__":
    raise SystemExit(main())
