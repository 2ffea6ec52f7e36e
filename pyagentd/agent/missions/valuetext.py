"""A mission's value as people and other models read it, and read back.

The answer of a mission is the last text of its run: a string as it is, anything else as JSON in a fence, firewalled
fields hidden. Whoever spawned it gets the same as JSON.
"""

from __future__ import annotations

import json
import re
from typing import Any

_FENCED = re.compile(r"```json\n(.*)\n```", re.DOTALL)


def shown(public: Any) -> str:
    """Return the answer that a value is, of which everybody may see all."""
    if isinstance(public, str) and public.strip() and not _FENCED.fullmatch(public):
        return public
    return f"```json\n{dumped(public, indent=2)}\n```"


def as_json(answer: str) -> str:
    """Return as JSON what ``shown`` made of a value."""
    fenced = _FENCED.fullmatch(answer.strip())
    return dumped(json.loads(fenced[1])) if fenced else dumped(answer)


def dumped(value: Any, *, indent: int | None = None) -> str:
    """Return a plain value as JSON; what JSON does not know, a date say, as its text."""
    return json.dumps(value, ensure_ascii=False, indent=indent, default=str)


def plain(value: Any) -> Any:
    """Return a plain value as it is when it has been JSON."""
    return json.loads(dumped(value))
