"""How large a value is when it is written out, found without writing it out.

``[x x]``, sixty times, is sixty vectors in memory and 2^60 items for whoever prints, sends or stores it. So before a
value leaves a program, for a tool or as its result, its items are counted level by level, each as often as it would
be written; a part that occurs again and again is looked at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import chain
from typing import Any

from pyagentd.lisp.errors import LispError
from pyagentd.lisp.limits import Limits
from pyagentd.lisp.values import Keyword, LispSet, Value

_COLLECTIONS = frozenset({list, dict, LispSet})
_SHORT = 64
"""Characters that the key of a map may have without being counted."""


def check_extent(value: Value, limits: Limits) -> tuple[int, int]:
    """See that a value, written out, has no more items, text and levels than a run may make.

    Returns:
        Its items, and the characters of its text.

    Raises:
        LispError: ``memory_exceeded``.
    """
    if type(value) not in _COLLECTIONS:
        return 0, len(value) if type(value) is str else 0
    level: list[Any] = [value]
    times: dict[int, int] | None = None  # how often each of the level occurs, by id; None when each does once
    items = characters = 0
    for _ in range(limits.depth):
        inner: list[Any] = []
        if times is None:
            parts = list(chain.from_iterable(map(_parts, level)))
            items += len(parts)
            characters += _characters(parts) + _long_keys(level)
            inner = [part for part in parts if type(part) in _COLLECTIONS]
            level, times = _once(inner)
        else:
            counts: Counter[int] = Counter()
            for each in level:
                count = times[id(each)]
                parts = list(_parts(each))
                items += count * len(parts)
                characters += count * (_characters(parts) + _long_keys([each]))
                found = [part for part in parts if type(part) in _COLLECTIONS]
                inner += found
                for part in found:
                    counts[id(part)] += count
            level, times = list({id(part): part for part in inner}.values()), counts
        if items > limits.cells:
            raise _too_large(f"{limits.cells} items")
        if characters > limits.bytes:
            raise _too_large(f"{limits.bytes} characters")
        if not level:
            return items, characters
    raise LispError(
        "memory_exceeded",
        f"a value is nested deeper than {limits.depth} levels",
        hint="Keep data flat: collect into one vector or map instead of wrapping it again and again.",
    )


def _parts(value: Any) -> Iterable[Any]:
    return value.values() if type(value) is dict else value


def _characters(parts: list[Any]) -> int:
    return sum([len(part) for part in parts if type(part) is str])


def _long_keys(level: list[Any]) -> int:
    """Return an upper bound for the text of the keys of maps, where there are long ones."""
    maps = [each for each in level if type(each) is dict]
    longest = max(map(_length, set(chain.from_iterable(maps))), default=0)
    return longest * sum(map(len, maps)) if longest > _SHORT else 0


def _length(key: Any) -> int:
    if type(key) is Keyword:
        return len(key.name)
    return len(key) if type(key) is str else 0


def _once(inner: list[Any]) -> tuple[list[Any], dict[int, int] | None]:
    """Return each of the values once, and how often it occurs where one occurs more than once."""
    ids = set(map(id, inner))
    if len(ids) == len(inner):
        return inner, None
    return list({id(part): part for part in inner}.values()), Counter(map(id, inner))


def _too_large(limit: str) -> LispError:
    return LispError(
        "memory_exceeded",
        f"a value, written out, would have more than {limit}",
        hint="Give aggregates or a part of the data, and do not nest a collection in itself again and again.",
    )
