"""Have every write of a turn fail in many ways; prints what went wrong, and a summary.

python -m tests.faults [--jobs N] [--sample 0.1] [--seed S] [--only CALL ...]
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import errno
import itertools
import json
import logging
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyagentd.llm.factory import close_backends
from tests.faults.disk import ERRORS
from tests.faults.turn import trouble
from tests.runtime.world import World
from tests.server import ModelServer

_BEYOND = 3  # calls on end that no turn reached; two turns differ by a few


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--jobs", type=int, default=4, help="how many processes, which mostly wait")
    parser.add_argument("--sample", type=float, default=1.0, help="which part of the faults to try")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, nargs="*", help="numbers of the calls to spoil")
    parser.add_argument("--share", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def faults(number: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield how the call ``number`` fails: each error once and for good, and late or in part with one of them."""
    pick = random.Random(f"{seed}/{number}")
    for error, lasting in itertools.product(ERRORS, (False, True)):
        yield {"at": number, "error": error, "how": "refuse", "lasting": lasting}
    for how in ("late", "short"):
        yield {"at": number, "error": pick.choice(ERRORS), "how": how, "lasting": pick.random() < 0.5}


async def _try_share(options: argparse.Namespace) -> collections.Counter[str]:
    """Try the calls of one process and say what went wrong."""
    logging.getLogger("pyagentd").addHandler(logging.NullHandler())
    ends: collections.Counter[str] = collections.Counter()
    beyond = 0
    with tempfile.TemporaryDirectory() as home, ModelServer() as server:
        world = World(Path(home), server)
        for number in options.only or itertools.count(1 + options.share, options.jobs):
            tried, hit = 0, 0
            for fault in faults(number, options.seed):
                if random.Random(f"{options.seed}{fault}").random() >= options.sample:
                    continue
                ended, problems = await trouble(world, **fault)
                tried, hit = tried + 1, hit + ended.hit
                ends[ended.reason if ended.hit else "not reached"] += 1
                if problems:
                    ends["failed"] += 1
                    _report(fault, ended.calls, problems, home)
            if hit:
                ends["calls"] += 1
            beyond = beyond + 1 if tried and not hit else 0
            if beyond == _BEYOND:
                break
        await world.kernel.shutdown()
        await close_backends()
    return ends


def _report(fault: dict[str, Any], calls: list[str], problems: list[str], home: str) -> None:
    spoilt = calls[fault["at"] - 1] if len(calls) >= fault["at"] else "not reached"
    name = f"call {fault['at']} {fault['how']} {errno.errorcode[fault['error']]}{' lasting' * fault['lasting']}"
    lines = [f"FAILED {name}: {spoilt}", *(f"    {problem}" for problem in problems)]
    print("\n".join(lines).replace(home, ""), file=sys.stderr, flush=True)


def _try_all(options: argparse.Namespace) -> int:
    began = time.monotonic()
    command = [sys.executable, "-m", "tests.faults", *sys.argv[1:]]
    shares = range(1 if options.only else options.jobs)
    processes = [
        subprocess.Popen([*command, "--share", str(share)], stdout=subprocess.PIPE, text=True) for share in shares
    ]
    ends: collections.Counter[str] = collections.Counter()
    for process in processes:
        ends.update(json.loads(process.communicate()[0]))
    failed, calls = ends.pop("failed", 0), ends.pop("calls", 0)
    count = ends.total()
    print(f"{count} faults at {calls} calls, seed {options.seed}, {time.monotonic() - began:.0f} s")
    print(f"how their turns ended: {dict(ends)}")
    print(f"failed: {failed}")
    return 1 if failed else 0


if __name__ == "__main__":
    given = _options()
    if given.share is None:
        raise SystemExit(_try_all(given))
    print(json.dumps(asyncio.run(_try_share(given))))
