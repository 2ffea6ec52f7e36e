"""Run all benchmarks, or those named: ``python -m tests.bench [name…] [--quick | --full]``."""

from __future__ import annotations

import argparse
import time
import traceback
from collections.abc import Iterator

from tests.bench.benchmarks import BENCHMARKS, measure
from tests.bench.figure import Result, heading


def main() -> int:
    options = _options()
    start = time.monotonic()
    results: list[Result] = []
    broken = []
    print(heading(), flush=True)
    for name in options.names or BENCHMARKS:
        try:
            results.extend(_printed(measure(name, quick=options.quick, full=options.full)))
        except Exception:  # one that breaks must not hide the others
            broken.append(name)
            traceback.print_exc()
    judged = [result.met for result in results if result.met is not None]
    print(f"\n{sum(judged)} of {len(judged)} targets met in {time.monotonic() - start:.0f} s.")
    if broken:
        print(f"Broken: {', '.join(broken)}.")
    return 1 if broken else 0


def _printed(results: Iterator[Result]) -> Iterator[Result]:
    for result in results:
        print(result.line(), flush=True)
        yield result


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"one of: {', '.join(BENCHMARKS)}")
    parser.add_argument("--quick", action="store_true", help="a glance at each; its figures mean little")
    parser.add_argument("--full", action="store_true", help="growth up to its largest sizes; takes half an hour")
    options = parser.parse_args()
    if unknown := set(options.names) - set(BENCHMARKS):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    return options


if __name__ == "__main__":
    raise SystemExit(main())
