"""The special forms; importing this package declares them all."""

from __future__ import annotations

from pyagentd.lisp.forms import binding, branching, effects, functions, iterating, matching, threading

__all__ = ["binding", "branching", "effects", "functions", "iterating", "matching", "threading"]
