"""Print how many functions a tool turn calls, early and late in a conversation: ``python -m tests.bench.turn_calls``.

A figure that does not depend on what else the machine does. A daemon with a profiler (a process of its own) answers
prompts of twenty turns each, of which a client is shown everything; counted are the calls of all its threads in the
first of them and in the last. ``--list N`` also prints the N functions that are called most, with both figures.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

from tests.bench.references import ROOT
from tests.bench.turns import AFTER_MS
from tests.bench.world import World, new_world
from tests.e2e.emacs import wait_for

_TURNS = 20  # of a prompt
_PROMPTS = 20
_SETTLE_S = 1.0  # until the index has what was said


def main() -> int:
    """Count, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.turn_calls", description=__doc__)
    parser.add_argument("--list", type=int, default=0, metavar="N", help="print the N functions that are called most")
    parser.add_argument("--daemon", metavar="OUT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.daemon:
        return _daemon(Path(options.daemon))
    with new_world(quick=True) as world:
        first, last = _counted(world)
    print(f"calls of a tool turn{'first 20':>12}{'turns 380 to 400':>20}{'ratio':>8}")
    for what, ours in (("of Python", True), ("of C", False)):
        early, late = (sum(n for name, n in each.items() if name.startswith("C ") != ours) for each in (first, last))
        print(f"{what:20}{early / _TURNS:>12.0f}{late / _TURNS:>20.0f}{late / early:>8.2f}")
    for name, _ in (first | last).most_common(options.list):
        print(f"{first[name] / _TURNS:>32.1f}{last[name] / _TURNS:>20.1f}  {name}")
    return 0


def _counted(world: World) -> tuple[Counter[str], Counter[str]]:
    with tempfile.TemporaryDirectory(prefix="pyagentd-calls-") as place:
        out = Path(place, "calls.json")
        command = [sys.executable, "-m", "tests.bench.turn_calls", "--daemon", str(out)]
        daemon = subprocess.Popen(command, cwd=ROOT, env=world.system.env, stdout=subprocess.PIPE, text=True)
        try:
            assert daemon.stdout is not None
            assert daemon.stdout.readline(), "the daemon did not start"
            with world.client() as client:
                world.headless(client, world.session("warm"), f"turns {_TURNS} after {AFTER_MS}")
                branch = world.session("counted")
                world.view(client, branch)
                counts = []
                for number in range(_PROMPTS):
                    time.sleep(_SETTLE_S if number in (0, _PROMPTS - 1) else 0)
                    os.kill(daemon.pid, signal.SIGUSR1)
                    world.run(client, branch, f"turns {_TURNS} after {AFTER_MS}")
                    if number in (0, _PROMPTS - 1):
                        time.sleep(_SETTLE_S)
                        os.kill(daemon.pid, signal.SIGUSR2)
                        wait_for(out.exists, "the figures of the daemon")
                        counts.append(Counter(json.loads(out.read_text())))
                        out.unlink()
        finally:
            daemon.terminate()
            daemon.wait(60)
    return counts[0], counts[1]


def _daemon(out: Path) -> int:
    """Serve until terminated; a first signal has it count anew, a second one write down what it counted."""
    from pyagentd.cli import serve
    from pyagentd.config.loading import load_config

    counts: Counter[Any] = Counter()

    def called(frame: FrameType, event: str, given: object) -> None:
        if event == "call":
            counts[frame.f_code] += 1
        elif event == "c_call":
            counts[getattr(given, "__qualname__", "")] += 1

    def write(*_: object) -> None:
        named: Counter[str] = Counter()
        for key, number in list(counts.items()):
            named[f"C {key}" if isinstance(key, str) else f"{key.co_filename} {key.co_qualname}"] += number
        draft = out.with_suffix(".tmp")
        draft.write_text(json.dumps(named))
        draft.rename(out)

    signal.signal(signal.SIGUSR1, lambda *_: counts.clear())
    signal.signal(signal.SIGUSR2, write)
    threading.setprofile(called)
    sys.setprofile(called)
    try:
        serve._serve(load_config(), None, ready=lambda: print("ready", flush=True))
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]  # as the standard library's own documentation has it
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
