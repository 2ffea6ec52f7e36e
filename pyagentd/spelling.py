"""What somebody meant who wrote a name that is not there; pure, for every place that looks names up."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_NEAR = 0.6  # from 0, nothing in common, to 1, the same


def nearest(name: str, known: Iterable[str], *, cutoff: float = _NEAR) -> str | None:
    """Return the one of ``known`` that looks most like ``name``, or None where none comes near.

    Args:
        name: What was written.
        known: What there is.
        cutoff: How much two names have in common at least, from 0 to 1.
    """
    close = difflib.get_close_matches(name, list(known), 1, cutoff)
    return close[0] if close else None


def did_you_mean(
    name: str, known: Iterable[str], *, shown: str = '"{}"', inside: bool = False, cutoff: float = _NEAR
) -> str:
    """Return the question ``Did you mean "search"?``, or "" where none of ``known`` comes near.

    Args:
        name: What was written.
        known: What there is.
        shown: How a name stands in the question, ``{}`` for the name.
        inside: Whether it stands inside a sentence and so begins small.
        cutoff: See ``nearest``.
    """
    near = nearest(name, known, cutoff=cutoff)
    if near is None:
        return ""
    return f"{'did' if inside else 'Did'} you mean {shown.format(near)}?"
