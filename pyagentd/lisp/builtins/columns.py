"""Calling one function for every item of a collection, with the checks made once and not per item.

Most programs ask for a field of every map: ``(map :name xs)``, ``(sum-by :amount xs)``. A keyword is therefore not
called at all but read from all maps by C code where every map has it, and by one comprehension where not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Final

from pyagentd.lisp.access import as_function, find, lookup
from pyagentd.lisp.limits import Budget
from pyagentd.lisp.missing import MISSING
from pyagentd.lisp.values import Keyword, as_key

_SMALL: Final = 1 << 60  # integers below hash to themselves, see `as_keys`
_KEYS: Final = frozenset({str, Keyword, float, type(None)})
_COUNTED: Final = _KEYS | {int}


def column(op: str, function: Any, items: Sequence[Any], budget: Budget) -> list[Any]:
    """Return what `function` gives for each item."""
    budget.cells(len(items))
    if type(function) is Keyword:
        return field(function, items, budget)
    return list(map(as_function(function, 1, op), budget.each(items)))


def key_column(op: str, key: Any, items: Sequence[Any], budget: Budget) -> list[Any]:
    """Return what each item has under `key`: a keyword, a string, a path of them, or a function of the item."""
    if type(key) is str:
        budget.cells(len(items))
        return field(key, items, budget)
    if type(key) is list and key:
        for each in key:
            items = _step(each, items, budget)
        return list(items)
    return column(op, key, items, budget)


def field(key: Any, items: Sequence[Any], budget: Budget) -> list[Any]:
    """Return what each item has under a keyword or string; nil where it has nothing."""
    budget.steps(len(items))
    try:
        return list(map(itemgetter(key), items))
    except (KeyError, TypeError):
        pass
    other = key.name if type(key) is Keyword else Keyword(key)
    try:
        return [item[key] if key in item else item[other] for item in items]
    except (KeyError, TypeError):
        pass
    return [
        (item[key] if key in item else item.get(other)) if type(item) is dict else lookup(item, key) for item in items
    ]


def _step(key: Any, items: Sequence[Any], budget: Budget) -> list[Any]:
    """One step along a path, for all items at once."""
    budget.cells(len(items))
    if type(key) is str or type(key) is Keyword:
        return field(key, items, budget)
    budget.steps(1 + len(items))
    return [lookup(item, key, None, budget) for item in items]


def chosen(op: str, pred: Any, items: Sequence[Any], budget: Budget) -> list[Any]:
    """Return the items for which pred gives neither nil nor false."""
    if type(pred) is Keyword:
        answers = field(pred, items, budget)
        return [item for item, yes in zip(items, answers, strict=True) if yes is not None and yes is not False]
    function = as_function(pred, 1, op)
    return [item for item in budget.each(items) if (yes := function(item)) is not None and yes is not False]


def left(op: str, pred: Any, items: Sequence[Any], budget: Budget) -> list[Any]:
    """Return the items for which pred gives nil or false."""
    if type(pred) is Keyword:
        answers = field(pred, items, budget)
        return [item for item, yes in zip(items, answers, strict=True) if yes is None or yes is False]
    function = as_function(pred, 1, op)
    return [item for item in budget.each(items) if (yes := function(item)) is None or yes is False]


def getter(op: str, key: Any) -> Callable[[Any], Any]:
    """`key_column` for one item at a time."""
    if type(key) is str:
        return lambda item: find(item, key, None) if type(item) is dict else lookup(item, key)
    if type(key) is list and key:
        return lambda item: along(key, item)
    return as_function(key, 1, op)


def along(path: Sequence[Any], value: Any, default: Any = None) -> Any:
    """Return what is found by going along a path of keys and indices; `default` where it ends early."""
    for key in path:
        if type(value) is not dict and type(value) is not list:
            return default
        value = lookup(value, key, MISSING) if type(value) is dict or type(key) in (int, float) else MISSING
        if value is MISSING:
            return default
    return value


def as_keys(values: list[Any], budget: Budget) -> list[Any]:
    """Return the values in the form in which they are keys of a map.

    Large integers go the slow way, where they are made safe: Python's hash of integers can be aimed at.
    """
    kinds = set(map(type, values))
    if kinds <= _KEYS or (kinds <= _COUNTED and all(-_SMALL < each < _SMALL for each in values if type(each) is int)):
        return values
    return [as_key(each, budget) for each in budget.each(values)]
