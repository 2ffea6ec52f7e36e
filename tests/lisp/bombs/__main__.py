"""Set off every bomb in this process; print how each ended and the memory it took, in MB, as JSON.

``--usual`` does it with the limits programs have when nobody says otherwise, ``--each`` prints a line for each bomb.
"""

import argparse
import json
import resource
import sys
import time
from pathlib import Path

from pyagentd.lisp.limits import DEFAULT_LIMITS
from tests.lisp.bombs.corpus import BOMBS
from tests.lisp.bombs.setting_off import LIMITS, set_off

_STATUS = Path("/proc/self/status")
_MARK = Path("/proc/self/clear_refs")


def peak_mb() -> float:
    """Return the most memory this process has had since `mark`, or since it began where the kernel has no mark."""
    if _STATUS.exists():
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)


def now_mb() -> float:
    """Return the memory this process has, and begin to watch for the most anew."""
    if not _MARK.exists():
        return peak_mb()
    _MARK.write_text("5")
    return peak_mb()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.lisp.bombs", description=__doc__)
    parser.add_argument("--usual", action="store_true")
    parser.add_argument("--each", action="store_true")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    limits = DEFAULT_LIMITS if options.usual else LIMITS
    found = {}
    for bomb in BOMBS:
        if options.only not in bomb.name:
            continue
        before, began = now_mb(), time.process_time()
        end = set_off(bomb, limits=limits)
        peak = max(0.0, peak_mb() - before)
        found[bomb.name] = end, peak
        if options.each:
            wrong = "" if end in bomb.reasons else "  WRONG"
            print(
                f"{peak:7.1f} MB {time.process_time() - began:7.2f} s  {end:16} {bomb.name}{wrong}",
                flush=True,
            )
    if not options.each:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
