"""Strict JSON: refuses what JSON does not have (NaN, duplicate keys), and makes values storable.

Python's ``json`` takes and writes ``NaN``, ``Infinity`` and integers of any length, and reads as deep as its stack
goes. SQLite, Emacs and the servers of models do not: a value that only Python reads must never be recorded or sent.
"""

import json
import math
from typing import Any, Final

from pyagentd.errors import BadRequest

MAX_DEPTH: Final = 100  # of arrays and objects within each other, in what a model, a hook or a human gives
_INTEGERS: Final = range(-(2**63), 2**63)  # what Emacs and SQLite read


def parse(text: str | bytes) -> Any:
    """Return the JSON value in ``text``.

    Raises:
        ValueError: It is no JSON, has a number that other programs cannot read, or is nested deeper than
            ``MAX_DEPTH``. The message says which.
    """
    try:
        value = json.loads(text, parse_constant=_no_number, parse_float=_finite, parse_int=_integer)
        too_deep = is_deeper(value, MAX_DEPTH)
    except RecursionError:
        too_deep = True
    if too_deep:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
    return value


def object_in(text: str | None, what: str, *, hint: str = "") -> dict[str, Any]:
    """Return the JSON object in ``text``; one without a key where a client gave none.

    Args:
        text: What a client gave.
        what: What it is, as an error begins.
        hint: What to do where it is another value.

    Raises:
        BadRequest: It is no JSON object.
    """
    try:
        given = parse(text or "{}")
    except ValueError as error:
        raise BadRequest(f"{what} is no JSON: {error}") from error
    if not isinstance(given, dict):
        raise BadRequest(f"{what} is no JSON object", hint=hint)
    return given


def is_deeper(value: Any, depth: int) -> bool:
    """Return whether arrays and objects in ``value`` are nested deeper than ``depth``; does not recurse."""
    level = [value]
    for _ in range(depth + 1):
        level = [
            item
            for one in level
            if isinstance(one, dict | list | tuple)
            for item in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return False
    return True


def storable(value: Any, depth: int) -> Any:
    """Return ``value`` with text in the place of what other programs cannot read.

    That is: numbers that are not finite, by their names, and what is nested deeper than ``depth``.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if not isinstance(value, dict | list | tuple):
        return value
    if depth <= 0:
        return "(nested too deeply)"
    if isinstance(value, dict):
        return {key: storable(item, depth - 1) for key, item in value.items()}
    return [storable(item, depth - 1) for item in value]


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:40]} is too large")
    return value


def _integer(text: str) -> int:
    value = int(text) if len(text) <= 20 else None
    if value is None or value not in _INTEGERS:
        raise ValueError(f"the integer {text[:40]} has more than 64 bits")
    return value
