"""Missions over items on a Dask scheduler with two worker processes, one of which is killed in the middle."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import System
from tests.e2e.emacs import wait_for
from tests.server import ModelServer
from tests.server.answers import answer
from tests.server.http import Request

pytestmark = pytest.mark.skipif(importlib.util.find_spec("distributed") is None, reason="needs the extra dask")

ITEMS = 60
KEY = "key-of-the-workers"


@contextmanager
def cluster(
    env: dict[str, str], *, workers: int = 2, threads: int = 2
) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """Run a scheduler and workers; yield its HOST:PORT and the workers' processes."""
    with tempfile.TemporaryDirectory(prefix="pa-dask-") as home:
        started: list[subprocess.Popen[bytes]] = []

        def start(*words: str) -> None:
            command = [sys.executable, "-m", "distributed.cli.dask_" + words[0], *words[1:]]
            with (Path(home) / "log").open("ab") as log:
                started.append(subprocess.Popen(command, env=env, cwd=home, stdout=log, stderr=log))

        told = Path(home) / "scheduler.json"
        try:
            start("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(told))
            wait_for(lambda: told.exists() and told.read_text().strip().endswith("}"), "the scheduler")
            address = json.loads(told.read_text())["address"].removeprefix("tcp://")
            for _ in range(workers):
                start("worker", address, "--nthreads", str(threads), "--no-nanny", "--no-dashboard")
            log = Path(home) / "log"
            wait_for(lambda: log.read_text("utf-8", "replace").count("Registered to:") >= workers, "the workers")
            yield address, started[1:]
        finally:
            for process in started:
                process.kill()
                process.wait()


@contextmanager
def task_graphs(address: str) -> Iterator[Callable[[], bytes]]:
    """Yield a function that returns what the scheduler holds of the tasks that wait and run."""
    from distributed import Client

    def held(dask_scheduler: Any = None) -> bytes:
        import cloudpickle

        return b"".join(cloudpickle.dumps(task.run_spec) for task in dask_scheduler.tasks.values())

    with Client(f"tcp://{address}", set_as_default=False) as client:
        yield lambda: bytes(client.run_on_scheduler(held))


def item_of(request: Request) -> str:
    return re.findall(r"item-\d+", json.dumps(request.body["messages"]))[-1]


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_every_item_comes_out_once_though_a_worker_is_killed(system: System, model_server: ModelServer) -> None:
    output, late = system.project / "out.jsonl", []

    def rule(request: Request) -> Any:
        item = item_of(request)
        if f'"item": "{item}"' in (output.read_text() if output.exists() else ""):
            late.append(item)  # paid for again, though its result was written
        return answer(f'```clojure\n(call "return" "{item}")\n```', pause_s=0.05)

    model_server.rule = rule
    system.use_server(model_server.url)
    (system.project / "items.jsonl").write_text("".join(f'"item-{number}"\n' for number in range(ITEMS)))
    worker_env = {**system.env, "ANTHROPIC_API_KEY": KEY}
    system.env["ANTHROPIC_API_KEY"] = "key-of-the-client"
    with cluster(worker_env) as (address, workers), task_graphs(address) as graph_of:
        words = ("mission", "Say {{x}}", "--over", "items.jsonl", "--executor", f"dask://{address}")
        more = ("-s", ":string", "--model", "claude-haiku-4-5", "--output", "out.jsonl", "--json")
        running = subprocess.Popen(
            system.command(*words, *more), env=system.env, cwd=system.project, stdout=subprocess.PIPE, text=True
        )
        graph = wait_for(graph_of, "tasks")
        assert b"item-" in graph and KEY.encode() not in graph and b"key-of-the-client" not in graph
        wait_for(lambda: len(rows(output)) >= ITEMS // 4, "a quarter of the rows")
        os.kill(workers[0].pid, signal.SIGKILL)
        out, _ = running.communicate(timeout=120)
    assert json.loads(out)["done"] == ITEMS and running.returncode == 0
    assert Counter(row["value"] for row in rows(output)) == {f"item-{number}": 1 for number in range(ITEMS)}
    assert late == [] and len(model_server.requests) <= ITEMS + 16, "only what the killed worker had not handed over"
    assert {request.headers["x-api-key"] for request in model_server.requests} == {KEY}
    again = system.json(*words[:4], *more[:-1], "--resume")
    assert (again["before"], again["done"]) == (ITEMS, 0)


def test_the_client_is_killed_and_the_next_one_goes_on(system: System, model_server: ModelServer) -> None:
    model_server.rule = lambda request: answer(f'```clojure\n(call "return" "{item_of(request)}")\n```', pause_s=0.05)
    system.use_server(model_server.url)
    output = system.project / "items.jsonl.out.jsonl"
    (system.project / "items.jsonl").write_text("".join(f'"item-{number}"\n' for number in range(20)))
    words = ("mission", "Say {{x}}", "--over", "items.jsonl", "-s", ":string", "--model", "claude-haiku-4-5")
    running = subprocess.Popen(
        system.command(*words, "--concurrency", "2"), env=system.env, cwd=system.project, stderr=subprocess.PIPE
    )
    wait_for(lambda: len(rows(output)) >= 5, "some rows")
    running.kill()
    running.communicate()
    time.sleep(0.1)
    before = len(rows(output))
    came = system.json(*words, "--resume")
    assert came["before"] == before and came["done"] == 20 - before
    assert sorted(row["item"] for row in rows(output)) == sorted(f"item-{number}" for number in range(20))
