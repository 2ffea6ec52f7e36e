"""When two values are equal, which comes first, and in which order maps and sets are gone through (DD-25).

``=`` ignores the difference between integer and float and nothing else. Order is total within one type, nil comes
first, and different types do not compare. Values may share parts (``[x x]`` again and again is small in memory and
huge as a tree), so everything here charges a step for every part it looks at.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cmp_to_key
from operator import attrgetter
from typing import Any

from pyagentd.lisp.errors import LispError
from pyagentd.lisp.kinds import Key, Keyword, LispSet, Pattern, Value, as_key, from_key, too_deep, type_name
from pyagentd.lisp.limits import Budget

_SCALARS = frozenset({str, Keyword, int, float, bool, type(None)})


def equal(one: Value, other: Value, budget: Budget | None = None) -> bool:
    """Return whether two values are equal, as ``=`` says.

    Raises:
        LispError: ``memory_exceeded`` when they are nested too deeply, ``timeout`` when they are too large.
    """
    if one is other:
        return True
    kind = type(one)
    if kind in _SCALARS or type(other) in _SCALARS:
        # Python takes True and 1 for equal.
        return bool(one == other) and (kind is bool) is (type(other) is bool)
    return _equal(one, other, budget or Budget(), 0)


def _equal(one: Value, other: Value, budget: Budget, depth: int) -> bool:
    if one is other:
        return True
    kind = type(one)
    if kind in _SCALARS or type(other) in _SCALARS:
        return bool(one == other) and (kind is bool) is (type(other) is bool)
    if kind is not type(other):
        return False
    if depth >= budget.limits.depth:
        raise too_deep(budget)
    if kind is list:
        if len(one) != len(other):
            return False
        budget.steps(len(one) + 1)
        return all(_equal(a, b, budget, depth + 1) for a, b in zip(one, other, strict=True))
    if kind is dict:
        if one.keys() != other.keys():
            return False
        budget.steps(len(one) + 1)
        return all(_equal(item, other[key], budget, depth + 1) for key, item in one.items())
    if kind is LispSet:
        budget.steps(one.weight)
        return bool(one == other)
    return kind is Pattern and bool(one == other)


def compare(one: Value, other: Value, budget: Budget | None = None) -> int:
    """Return -1, 0 or 1 as ``one`` comes before, with or after ``other``; nil comes first.

    Raises:
        LispError: ``eval_error`` when they are of types that do not compare.
    """
    return _compare(one, other, budget or Budget(), 0)


def _compare(one: Value, other: Value, budget: Budget, depth: int) -> int:
    if one is None or other is None:
        return (one is not None) - (other is not None)
    kind, its = type(one), type(other)
    if kind is its or {kind, its} == {int, float}:
        if kind is Keyword:
            one, other = one.name, other.name
        elif kind is list:
            return _compare_vectors(one, other, budget, depth)
        elif kind not in _SCALARS:
            raise LispError("eval_error", f"{type_name(one)}s have no order", hint="Sort by a number or a string.")
        return int(one > other) - int(one < other)
    raise LispError(
        "eval_error",
        f"cannot compare {type_name(one)} with {type_name(other)}",
        hint="Compare or sort values of one type: numbers with numbers, strings with strings.",
    )


def _compare_vectors(one: list[Value], other: list[Value], budget: Budget, depth: int) -> int:
    """Compare item by item; a vector comes before a longer one that begins with it."""
    if depth >= budget.limits.depth:
        raise too_deep(budget)
    budget.steps(1 + min(len(one), len(other)))
    for a, b in zip(one, other, strict=False):
        if found := _compare(a, b, budget, depth + 1):
            return found
    return (len(one) > len(other)) - (len(one) < len(other))


_RANKS: dict[type, int] = {type(None): 0, int: 2, float: 2, Keyword: 3, str: 4, tuple: 5, LispSet: 7}


def in_order(keys: Iterable[Key]) -> list[Key]:
    """Return keys sorted: nil, booleans, numbers, keywords, strings, vectors, maps, sets, functions; never raises."""
    found = list(keys)
    kinds = set(map(type, found))
    if len(kinds) <= 1 or kinds <= {int, float}:
        kind = next(iter(kinds), None)
        if kind is Keyword:
            return sorted(found, key=attrgetter("name"))
        if kind in {str, int, float}:
            return sorted(found)
    return sorted(found, key=cmp_to_key(_compare_keys))


def _rank(value: Value) -> int:
    kind = type(value)
    if kind is bool:
        return 1
    if kind is list:
        return 5
    if kind is dict:
        return 6
    return _RANKS.get(kind, 8)


def _compare_keys(one: Key, other: Key) -> int:
    return _compare_any(from_key(one), from_key(other))


def _compare_any(one: Value, other: Value) -> int:
    """Compare any two values that are (parts of) keys, so their size has been charged."""
    rank, its = _rank(one), _rank(other)
    if rank != its:
        return -1 if rank < its else 1
    match rank:
        case 0 | 8:
            return 0
        case 1 | 2 | 4:
            return int(one > other) - int(one < other)
        case 3:
            return int(one.name > other.name) - int(one.name < other.name)
        case 5:
            first, second = one, other
        case 6:
            first, second = pairs(one), pairs(other)
        case _:
            first, second = members(one), members(other)
    for a, b in zip(first, second, strict=False):
        if found := _compare_any(a, b):
            return found
    return (len(first) > len(second)) - (len(first) < len(second))


def pairs(mapping: dict[Key, Value]) -> list[list[Value]]:
    """Return the ``[key value]`` vectors of a map, sorted by key."""
    return [[from_key(key), mapping[key]] for key in in_order(mapping)]


def members(items: LispSet) -> list[Value]:
    """Return the members of a set, sorted."""
    return [from_key(key) for key in in_order(items.keys)]


def unique(items: Iterable[Value], budget: Budget) -> list[Value]:
    """Return the items without later ones that are equal to an earlier one."""
    seen: dict[Any, Value] = {}
    for item in items:
        seen.setdefault(as_key(item, budget), item)
    return list(seen.values())
