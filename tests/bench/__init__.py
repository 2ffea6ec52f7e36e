"""Benchmarks: the running system beside the least that could do the same, measured in the same run.

``python -m tests.bench [name…] [--quick]``, or ``make bench``. Figures have a reference — the raw SDK, a bare HTTP
reader, a hand-written loop, a raw socket — because a number of milliseconds says more about a machine than about us.
A target that is missed is printed, and fails nothing.
"""
