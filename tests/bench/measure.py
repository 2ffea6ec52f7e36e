"""What processes cost, read from the kernel, and what a list of samples says."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path


def cpu_s(pid: int) -> float:
    """Return the CPU time a process has used so far, all threads, to the nanosecond.

    /proc/PID/stat counts in ticks of 10 ms, which is too coarse here; this is the process's own CPU clock
    (clock_getcpuclockid(3), whose result the kernel defines as below).
    """
    return time.clock_gettime((~pid << 3) | 2)


class Spent:
    """CPU time that processes use between two moments."""

    def __init__(self, *pids: int) -> None:
        self._start = {pid: cpu_s(pid) for pid in pids}
        self._began = time.monotonic()

    def cpu(self, pid: int) -> float:
        """Return the seconds of CPU ``pid`` used since the start."""
        return cpu_s(pid) - self._start[pid]

    def share(self, pid: int) -> float:
        """Return the part of one core ``pid`` used since the start, in percent."""
        return 100 * self.cpu(pid) / (time.monotonic() - self._began)


def memory_mb(pid: int) -> float:
    """Return the resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(pid)


def percentile(samples: Sequence[float], percent: float) -> float:
    """Return the smallest sample that at least ``percent`` of them do not exceed."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def median(samples: Sequence[float]) -> float:
    return percentile(samples, 50)


def timed_ms(action: Callable[[], object]) -> float:
    """Return how long ``action`` takes."""
    start = time.perf_counter()
    action()
    return 1000 * (time.perf_counter() - start)
