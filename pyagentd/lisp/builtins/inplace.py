"""Builtins that change their first argument instead of a copy, where the program cannot observe it.

A program that accumulates (``(reduce (fn [acc x] (conj acc x)) [] xs)``) would otherwise copy the collection for each
item. Generated code calls the functions here if the variable is not read after the call. At run time, CPython's
reference count tells whether anything else refers to the value: a closure, another collection, the context, the
memory. If so, or if the count is not reliable, the builtin itself is called, with the same result.

Added items are charged as by the builtin; existing items are not charged again. Without this module, counting the
words of 10,000 lines with ``update``, or building a text from them with ``str``, exceeds the limits of memory.
"""

import sys
from collections.abc import Callable
from functools import partial
from sys import getrefcount
from typing import Any, Final

from pyagentd.lisp.builtins import collections, maps, text
from pyagentd.lisp.builtins.collections import run_stage
from pyagentd.lisp.builtins.table import items, mapping
from pyagentd.lisp.errors import MISSING
from pyagentd.lisp.limits import Budget
from pyagentd.lisp.values import LispSet, as_function, as_key, merge_into, present_key

_COUNTED: Final = (
    sys.implementation.name == "cpython"
    and sys.version_info < (3, 14)  # later versions borrow references without counting them
    and getattr(sys, "_is_gil_enabled", lambda: True)()
)
SOLE: Final = 3 if _COUNTED else 0
"""References to the value of one variable: that variable, the parameter here, the argument of ``getrefcount``."""


def conj(budget: Budget, coll: Any, *xs: Any) -> Any:
    """Add items, as ``conj`` does."""
    if getrefcount(coll) > SOLE or not _add_items(coll, list(xs), budget):
        return collections.conj(budget, coll, *xs)
    return coll


def into(budget: Budget, to: Any, stage_or_from: Any, from_: Any = MISSING) -> Any:
    """Add the items of a collection, as ``into`` does."""
    if getrefcount(to) > SOLE or type(to) not in _GROWING:
        return collections.into(budget, to, stage_or_from, from_)
    new = (
        items("into", stage_or_from, budget) if from_ is MISSING else run_stage("into", stage_or_from, from_, budget)
    )
    return to if _add_items(to, new, budget) else collections.into(budget, to, new)


_GROWING: Final = frozenset({list, dict, LispSet})


def _add_items(coll: Any, new: list[Any], budget: Budget) -> bool:
    """Add items to a collection in place; return whether that was possible."""
    kind = type(coll)
    if kind not in _GROWING:
        return False
    if kind is dict:
        entries = _entries(new, budget)
        return entries is not None and _merge_entries(coll, entries, budget)
    budget.cells(len(new))
    budget.steps(len(new))
    if kind is list:
        coll.extend(new)
    else:
        coll.add_all([as_key(each, budget) for each in new])
    return True


def _entries(new: list[Any], budget: Budget) -> dict[Any, Any] | None:
    """Return the entries to add to a map, or None if the builtin must be called."""
    if len(new) == 1 and type(new[0]) is dict:
        return new[0]
    if not all(type(each) is list and len(each) == 2 for each in new):
        return None
    return {as_key(key, budget): value for key, value in new}


def _merge_entries(coll: dict[Any, Any], entries: dict[Any, Any], budget: Budget) -> bool:
    before = len(coll)
    budget.steps(len(entries))
    if not merge_into(coll, entries, budget):
        return False
    budget.cells(2 * (len(coll) - before))
    return True


def assoc(budget: Budget, coll: Any, key: Any, value: Any, *more: Any) -> Any:
    """Put values under keys, as ``assoc`` does."""
    kind = type(coll)
    if getrefcount(coll) > SOLE or (kind is not dict and kind is not list) or len(more) % 2:
        return maps.assoc(budget, coll, key, value, *more)
    before = len(coll)
    maps.put("assoc", coll, present_key(coll, key, budget), value, budget)
    for name, new in zip(more[::2], more[1::2], strict=True):
        maps.put("assoc", coll, present_key(coll, name, budget), new, budget)
    budget.cells(2 * (len(coll) - before))
    return coll


def dissoc(budget: Budget, m: Any, *keys: Any) -> Any:
    """Remove keys, as ``dissoc`` does."""
    if getrefcount(m) > SOLE or type(m) is not dict:
        return maps.dissoc(budget, m, *keys)
    for key in keys:
        m.pop(as_key(present_key(m, key, budget), budget), None)
    return m


def merge(budget: Budget, coll: Any, *others: Any) -> Any:
    """Add the entries of maps, as ``merge`` does."""
    if getrefcount(coll) > SOLE or type(coll) is not dict or len(others) != 1:
        return maps.merge(budget, coll, *others)
    return coll if _merge_entries(coll, mapping("merge", others[0]), budget) else maps.merge(budget, coll, *others)


def update(budget: Budget, coll: Any, key: Any, f: Any, *args: Any) -> Any:
    """Replace the value under a key by the result of f, as ``update`` does."""
    if getrefcount(coll) > SOLE or type(coll) is not dict:
        return maps.update(budget, coll, key, f, *args)
    function = as_function(f, 1 + len(args), "update")
    name = as_key(key, budget)
    if name not in coll:
        name = as_key(present_key(coll, key, budget), budget)
        budget.cells(2 * (name not in coll))
    _update_value(coll, name, f, function, args, budget)
    return coll


def _update_value(
    coll: Any, name: Any, f: Any, function: Callable[..., Any], args: tuple[Any, ...], budget: Budget
) -> None:
    """Replace the value under a key, or at an index, by the result of a function."""
    old = coll.get(name) if type(coll) is dict else coll[name]
    filled = getattr(f, "fills", None)
    if filled is not None and old is None:
        f, old = filled
    elif filled is not None:
        f = filled[0]
    grow = IN_PLACE.get(f.func) if type(f) is partial and f.args == (budget,) else None
    if grow is None:
        old = coll.get(name) if type(coll) is dict else coll[name]
        coll[name] = function(old, *args)
        return
    coll[name] = None  # so that the variable here has the only reference to the value
    # Not (budget, old, *args) for one argument: Python would keep these in a tuple.
    coll[name] = grow(budget, old, args[0]) if len(args) == 1 else grow(budget, old, *args)


def rest(budget: Budget, coll: Any) -> Any:
    """Remove the first item, as ``rest`` does."""
    if getrefcount(coll) > SOLE or type(coll) is not list:
        return collections.rest(budget, coll)
    budget.steps(len(coll) >> 8)
    del coll[:1]
    return coll


def next_(budget: Budget, coll: Any) -> Any:
    """Remove the first item, as ``next`` does."""
    if getrefcount(coll) > SOLE or type(coll) is not list:
        return collections.next_(budget, coll)
    budget.steps(len(coll) >> 8)
    del coll[:1]
    return coll or None


def pop(budget: Budget, v: Any) -> Any:
    """Remove the last item, as ``pop`` does."""
    if getrefcount(v) > SOLE or type(v) is not list:
        return collections.pop(budget, v)
    del v[-1:]
    return v


def str_(budget: Budget, begun: Any, *more: Any) -> Any:
    """Append to a text, as ``str`` does."""
    if getrefcount(begun) > SOLE or type(begun) is not str or not more:
        return text.str_(budget, begun, *more)
    budget.steps(len(begun) >> 12)
    added = text.str_(budget, *more)
    if len(more) == 1 and type(more[0]) is str:
        budget.bytes(len(added))
    return begun + added


def update_in(budget: Budget, coll: Any, path: Any, f: Any, *args: Any) -> Any:
    """Replace the value at a path by the result of f, as ``update-in`` does."""
    if getrefcount(coll) > SOLE or type(coll) is not dict or type(path) is not list:
        return maps.update_in(budget, coll, path, f, *args)
    if not 1 <= len(path) <= budget.limits.depth:
        return maps.update_in(budget, coll, path, f, *args)
    function = as_function(f, 1 + len(args), "update-in")
    inner, name = _parent_and_key("update-in", coll, path, budget)
    if type(inner) is list:
        maps.put("update-in", inner, name, function(maps.value_at("update-in", inner, name, budget), *args), budget)
    else:
        _update_value(inner, as_key(name, budget), f, function, args, budget)
    return coll


def assoc_in(budget: Budget, coll: Any, path: Any, value: Any) -> Any:
    """Put a value at a path, as ``assoc-in`` does."""
    if getrefcount(coll) > SOLE or type(coll) is not dict or type(path) is not list:
        return maps.assoc_in(budget, coll, path, value)
    if not 1 <= len(path) <= budget.limits.depth:
        return maps.assoc_in(budget, coll, path, value)
    inner, name = _parent_and_key("assoc-in", coll, path, budget)
    maps.value_at("assoc-in", inner, name, budget)
    maps.put("assoc-in", inner, name, value, budget)
    return coll


def _parent_and_key(op: str, coll: Any, path: list[Any], budget: Budget) -> tuple[Any, Any]:
    """Return the collection at the end of a path, which may be changed, and the key in it."""
    budget.steps(len(path))
    for key in path[:-1]:
        name = present_key(coll, key, budget)
        inner = maps.value_at(op, coll, name, budget)
        if (type(inner) is not dict and type(inner) is not list) or getrefcount(inner) > SOLE:
            inner = maps.copy(op, inner, 1, budget)
            maps.put(op, coll, name, inner, budget)
        coll = inner
    budget.cells(2)
    return coll, present_key(coll, path[-1], budget)


IN_PLACE: Final[dict[Callable[..., Any], Callable[..., Any]]] = {
    collections.conj: conj,
    collections.into: into,
    maps.assoc: assoc,
    maps.dissoc: dissoc,
    maps.merge: merge,
    maps.update: update,
    maps.update_in: update_in,
    maps.assoc_in: assoc_in,
    collections.rest: rest,
    collections.next_: next_,
    collections.pop: pop,
    text.str_: str_,
}
"""The in-place variants, by the function of the builtin."""
