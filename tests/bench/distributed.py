"""Missions over items on Dask: two workers beside one, and beside a script written by hand for the same missions.

python -m tests.bench.distributed --items 2000
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pyagentd.mission import Mission, Model
from pyagentd.mission.over import run_over
from tests.e2e.conftest import ROOT
from tests.e2e.test_distributed import cluster

ANSWER = '```clojure\n(call "return" 1)\n```'
SERVER = f"""
import sys
from tests.server.answers import answer
from tests.server.server import ModelServer
with ModelServer(rule=lambda request: answer({ANSWER!r}, pause_s=PAUSE)) as server:
    print(server.port, flush=True)
    sys.stdin.read()
"""


def mission() -> Mission[Any]:
    return Mission("Say {{x}}", llm=Model("claude-haiku-4-5"), signature=":int")


def ours(address: str, items: list[str], output: Path) -> float:
    began = time.monotonic()
    came = run_over(mission(), items, output, executor=f"dask://{address}")
    assert came.done == len(items) and not came.failed, came
    return time.monotonic() - began


def one(item: str) -> Any:
    return mission().run({"x": item}).value


def by_hand(address: str, items: list[str], output: Path) -> float:
    from distributed import Client, as_completed

    began = time.monotonic()
    with Client(f"tcp://{address}") as client, output.open("w") as file:
        futures = client.map(one, items, pure=False)
        for future, value in as_completed(futures, with_results=True):
            file.write(json.dumps({"key": future.key, "value": value}) + "\n")
    return time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=2000)
    parser.add_argument("--pause", type=float, default=0.1, help="seconds that the model takes")
    parser.add_argument("--threads", type=int, default=2, help="threads of a worker")
    options = parser.parse_args()
    items = [f"item-{number}" for number in range(options.items)]
    command = [sys.executable, "-c", SERVER.replace("PAUSE", str(options.pause))]
    with (
        tempfile.TemporaryDirectory() as home,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as server,
    ):
        assert server.stdout is not None and server.stdin is not None
        os.environ["ANTHROPIC_BASE_URL"] = f"http://127.0.0.1:{server.stdout.readline().strip()}"
        os.environ["ANTHROPIC_API_KEY"] = "test-key"
        env = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": home}
        took: dict[str, float] = {}
        for name, workers, measure in (("one", 1, ours), ("two", 2, ours), ("by hand", 2, by_hand)):
            with cluster(env, workers=workers, threads=options.threads) as (address, _):
                measure(address, items[:20], Path(home) / f"{name} warm")
                took[name] = measure(address, items, Path(home) / name)
            print(f"{name:8} {took[name]:7.1f} s  {options.items / took[name]:6.1f} items a second", flush=True)
        server.stdin.close()
    print(f"two workers: {took['one'] / took['two']:.2f} times as fast as one (wanted: 1.8)")
    print(f"            {took['two'] / took['by hand']:.2f} times as long as by hand (wanted: 1.1)")


if __name__ == "__main__":
    main()
