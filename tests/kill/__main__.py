"""Kill the daemon, Emacs or both at random moments of a conversation; prints what was lost or doubled.

python -m tests.kill [--times 200] [--seed 1] [--jobs 2] [--only NUMBER ...]
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import time

from tests.kill.moment import Moment, Result, system_for
from tests.kill.plan import plan_of
from tests.server import ModelServer


def one(seed: int, number: int) -> Result:
    """Have the moment ``number`` of ``seed`` in a system of its own."""
    with ModelServer() as server, system_for(server) as system:
        return Moment(plan_of(seed, number), system, server).run()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kill", description=__doc__)
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", type=int, nargs="*", help="numbers of moments, to have them again")
    options = parser.parse_args()
    began = time.monotonic()
    kinds: collections.Counter[str] = collections.Counter()
    failed: collections.Counter[str] = collections.Counter()
    reached = 0
    with concurrent.futures.ProcessPoolExecutor(options.jobs) as pool:
        numbers = options.only or range(options.times)
        for done in concurrent.futures.as_completed(pool.submit(one, options.seed, number) for number in numbers):
            result = done.result()
            kind = f"{result.plan.victim}, {'Emacs' if result.plan.in_emacs else 'headless'}"
            kinds[kind] += 1
            reached += result.reached
            if result.problems:
                failed[kind] += 1
                print(
                    f"FAILED {result.plan}", *(f"    {problem}" for problem in result.problems), sep="\n", flush=True
                )
    print(f"\n{'killed':30} {'moments':>8} {'failed':>8}")
    for kind, count in sorted(kinds.items()):
        print(f"{kind:30} {count:8} {failed[kind]:8}")
    print(f"{'all':30} {kinds.total():8} {failed.total():8}")
    print(f"{reached} in the middle of a run, seed {options.seed}, {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
