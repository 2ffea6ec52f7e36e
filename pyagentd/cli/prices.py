"""How commands write what something cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

BUCKETS = ("input", "output", "reasoning", "cache_read", "cache_write")


def price(spent: Mapping[str, Any]) -> str:
    """Return a price for people, which is never a number when it is not known."""
    if spent["cost_usd"] is not None:
        return dollars(spent["cost_usd"])
    return f"{dollars(spent['known_usd'])} + unknown" if spent["known_usd"] else "unknown"


def dollars(amount: float) -> str:
    """Return an amount of US dollars; below a cent with more places."""
    return f"${amount:,.2f}" if amount >= 0.01 or not amount else f"${amount:.4f}"
