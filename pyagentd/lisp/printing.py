"""Values as text: ``readable`` is how a program would write them, ``text`` what ``str`` makes of them.

Maps and sets are printed in their order, so equal values print alike. Every part is charged as it is printed: a value
that shares parts may be small in memory and huge as text.
"""

from collections import Counter
from collections.abc import Iterable
from itertools import chain
from typing import Any, Final

from pyagentd.lisp.errors import LispError
from pyagentd.lisp.limits import Budget, Limits
from pyagentd.lisp.values import Keyword, LispSet, Pattern, Value, from_key, in_order, members, too_deep

_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"})


def readable(value: Value, budget: Budget | None = None) -> str:
    """Return a value as a program would write it; strings are quoted.

    Raises:
        LispError: ``memory_exceeded`` when the text would be too long or the value is nested too deeply.
    """
    parts: list[str] = []
    _write(value, parts, budget or Budget(), 0)
    return "".join(parts)


def text(value: Value, budget: Budget | None = None) -> str:
    """Return what ``str`` makes of a value: nil is empty, a string itself, anything else as it reads."""
    if type(value) is str:
        return value
    if value is None:
        return ""
    return readable(value, budget)


def _write(value: Value, parts: list[str], budget: Budget, depth: int) -> None:
    kind = type(value)
    if kind is list or kind is dict or kind is LispSet:
        if depth >= budget.limits.depth:
            raise too_deep(budget)
        budget.steps(1 + len(value))
        if kind is dict:
            _write_map(value, parts, budget, depth)
            return
        parts.append("[" if kind is list else "#{")
        for index, item in enumerate(value if kind is list else members(value)):
            if index:
                parts.append(" ")
            _write(item, parts, budget, depth + 1)
        parts.append("]" if kind is list else "}")
        budget.bytes(1 + len(value))
        return
    shown = _atom(value, budget)
    budget.bytes(len(shown))
    parts.append(shown)


def _write_map(value: dict[Value, Value], parts: list[str], budget: Budget, depth: int) -> None:
    parts.append("{")
    for index, key in enumerate(in_order(value)):
        if index:
            parts.append(" ")
        _write(from_key(key), parts, budget, depth + 1)
        parts.append(" ")
        _write(value[key], parts, budget, depth + 1)
    parts.append("}")
    budget.bytes(2 * len(value) + 1)


def _atom(value: Value, budget: Budget) -> str:
    kind = type(value)
    if kind is str:
        budget.bytes(len(value))
        return f'"{value.translate(_ESCAPES)}"'
    if kind is Keyword:
        return f":{value.name}"
    if value is None:
        return "nil"
    if kind is bool:
        return "true" if value else "false"
    if kind is float:
        return number(value)
    if kind is int:
        return str(value)
    if kind is Pattern:
        return f'#"{value.text}"'
    return "#function"


def number(value: float) -> str:
    """Return a floating-point number as it reads."""
    if value != value:
        return "##NaN"
    if value in {float("inf"), float("-inf")}:
        return "##Inf" if value > 0 else "##-Inf"
    return repr(value)


# How large a value is when it is written out, found without writing it out.
#
# ``[x x]``, sixty times, is sixty vectors in memory and 2^60 items for whoever prints, sends or stores it. So before
# a value leaves a program, for a tool or as its result, its items are counted level by level, each as often as it
# would be written; a part that occurs again and again is looked at once.

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
