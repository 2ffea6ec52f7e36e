"""Agents in numbers: one, twenty and two hundred at once in one daemon, beside a bare loop on the SDK."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.bench.crowd_server import FILE, NOTE, PRESET
from tests.bench.figure import Fact, Figure, Result, at_least, at_most
from tests.bench.measure import Spent, median, memory_mb
from tests.bench.world import ROOT, World

_PARENT = "programming-assistant"  # a preset that may spawn
_GRANT = "tool:PersistentAgent:.*"
_MOST = 100  # agents of one session


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """What a crowd of agents cost."""

    agents: int
    turns: int  # of all of them
    cpu_s: float
    wall_s: float
    memory_mb: float  # above what the process had before
    results: int = 0  # that reached the parent

    @property
    def cpu_ms(self) -> float:
        """CPU time of a tool turn."""
        return 1000 * self.cpu_s / self.turns

    @property
    def wall_ms(self) -> float:
        """Time of a tool turn."""
        return 1000 * self.wall_s / self.turns


def agents(world: World) -> Iterator[Result]:
    """The same crowd in the daemon and in a bare loop, side by side."""
    sizes, turns, times = ((1, 5), 3, 1) if world.quick else ((1, 20, 200), 20, 5)
    (world.system.project / FILE).write_text(NOTE)
    with crowd_server() as url:
        daemon = world.daemon()
        in_daemon(world, url, daemon, 1, 2, "first")  # the loop, too, is measured after an agent of two turns
        costs = {}
        for size in sizes:
            repeat = times if size < 100 else 1
            ours = [in_daemon(world, url, daemon, size, turns, f"{size}-{number}") for number in range(repeat)]
            loops = [in_loop(world, url, size, turns) for _ in range(repeat)]
            costs[size] = cost, loop = _median(ours), _median(loops)
            yield Fact(f"{size} agents × {turns} turns: each result once", all(each.results == size for each in ours))
            yield Figure(
                name="  CPU per tool turn",
                value=cost.cpu_ms,
                unit="ms",
                reference=loop.cpu_ms,
                beside="bare loop on the SDK",
            )
            yield Figure(
                name="  time per tool turn",
                value=cost.wall_ms,
                unit="ms",
                reference=loop.wall_ms,
                beside="bare loop on the SDK",
            )
    yield from _judged(costs, turns)


def _judged(costs: dict[int, tuple[Crowd, Crowd]], turns: int) -> Iterator[Result]:
    one, many = costs[min(costs)], costs[max(costs)]
    yield Figure(
        name=f"turns a second, {many[0].agents} agents at once",
        value=many[0].turns / many[0].wall_s,
        unit="/s",
        reference=many[1].turns / many[1].wall_s,
        beside="bare loop on the SDK",
        target=at_least(0.65, "ratio"),
    )
    yield Figure(
        name="memory an agent",
        value=many[0].memory_mb / many[0].agents,
        unit="MB",
        reference=many[1].memory_mb / many[1].agents,
        beside="bare loop on the SDK",
        target=at_most(0.15),
    )
    yield Figure(
        name=f"a sub-agent of {turns} tool turns",
        value=1000 * one[0].wall_s,
        unit="ms",
        reference=1000 * one[1].wall_s,
        beside="bare loop on the SDK",
        target=at_most(2.0, "ratio"),
    )
    yield Figure(
        name=f"CPU per tool turn, {many[0].agents} agents beside one",
        value=many[0].cpu_ms,
        unit="ms",
        reference=one[0].cpu_ms,
        beside="one agent",
        target=at_most(1.2, "ratio"),
    )


def _median(crowds: list[Crowd]) -> Crowd:
    """Return the median of each cost."""
    cpu_s, wall_s = median([each.cpu_s for each in crowds]), median([each.wall_s for each in crowds])
    return replace(crowds[0], cpu_s=cpu_s, wall_s=wall_s, memory_mb=median([each.memory_mb for each in crowds]))


def in_daemon(world: World, url: str, daemon: int, size: int, turns: int, name: str) -> Crowd:
    """Have sessions spawn ``size`` agents at once, each as many as one answer may call tools."""
    shares = [min(_MOST, size - start) for start in range(0, size, _MOST)]
    branches = [world.session(f"crowd-{name}-{at}", preset=_PARENT) for at, _ in enumerate(shares)]
    with world.client() as client:
        for branch in branches:
            world.view(client, branch)
        before = memory_mb(daemon)
        with _watched(daemon) as peak:
            spent, start, running = Spent(daemon), time.perf_counter(), len(branches)
            for branch, share in zip(branches, shares, strict=True):
                client.call("prompt", branch=str(branch), text=f"agents {share} {turns}", **_options(url))
            for event in client.events(timeout=300):
                if event.kind == "run" and event.args[0]["phase"] == "finished":
                    assert event.args[0]["reason"] == "done", event.args
                    running -= 1
                    if not running:
                        break
            wall, cpu = time.perf_counter() - start, spent.cpu(daemon)
    return Crowd(
        agents=size,
        turns=size * turns,
        cpu_s=cpu,
        wall_s=wall,
        memory_mb=max(0.0, max(peak) - before),
        results=sum(map(results, branches)),
    )


def _options(url: str) -> dict[str, Any]:
    env = {"PYAGENTD_BACKEND": "anthropic", "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "test-key"}
    return {"env": env, "allow": [_GRANT]}


def in_loop(world: World, url: str, size: int, turns: int) -> Crowd:
    """Run the same by hand."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.crowd_loop", url, str(size), str(turns)],
        cwd=world.system.project,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
        check=True,
        capture_output=True,
        text=True,
    )
    return Crowd(agents=size, turns=size * turns, **json.loads(done.stdout))


def results(branch: Path) -> int:
    """Return how many agents' results the parent's log holds, each once and none lost."""
    parts: dict[str, Any] = {}
    for line in (branch / "messages.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row["type"] == "part" and row["data"]["type"] == "tool-PersistentAgent":
            parts[row["data"]["id"]] = row["data"]["data_json"]
    calls = {part["toolCallId"] for part in parts.values() if part.get("output") == "end"}
    made = [place for place in (branch / "agents").iterdir() if place.name.startswith(PRESET)]
    return len(calls) if len(calls) == len(parts) == len(made) else -1


@contextlib.contextmanager
def _watched(pid: int) -> Iterator[list[float]]:
    """Yield a list that grows by the resident memory of a process, until the block ends."""
    samples, stop = [memory_mb(pid)], threading.Event()

    def watch() -> None:
        while not stop.wait(0.05):
            samples.append(memory_mb(pid))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        stop.set()
        thread.join()


@contextlib.contextmanager
def crowd_server() -> Iterator[str]:
    """Run the model of crowds in a process of its own and yield its URL."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.crowd_server"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.stdin.close()
        process.wait()
