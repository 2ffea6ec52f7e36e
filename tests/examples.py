"""How many examples a property is tried with: few where every change waits for them, many on demand."""

from __future__ import annotations

import os

# Of a property that says nothing else; ``make test-properties`` asks for 1,000.
USUAL = int(os.environ.get("PYAGENTD_EXAMPLES", "40"))


def examples(number: int) -> int:
    """Return how many to try of a property of which ``number`` are as much as 100 are of others."""
    return max(1, number * USUAL // 100)
