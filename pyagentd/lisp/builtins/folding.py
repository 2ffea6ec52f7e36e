"""Functions that go through a collection with what there is so far, or until the answer is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pyagentd.lisp.access import as_function
from pyagentd.lisp.builtins import arithmetic, building, maps, transforming
from pyagentd.lisp.builtins.aggregation import total
from pyagentd.lisp.builtins.arguments import NUMBERS, function_named, items, wrong
from pyagentd.lisp.builtins.functions import complement
from pyagentd.lisp.builtins.table import Family
from pyagentd.lisp.endless import Endless
from pyagentd.lisp.limits import Budget
from pyagentd.lisp.missing import MISSING

FAMILY: Final = Family("Reducing and asking")
define = FAMILY.define


@define("reduce", charges=True, shown="f init? coll")
def reduce(budget: Budget, f: Any, init_or_coll: Any, coll: Any = MISSING) -> Any:
    """Combine all items: call f with what there is so far and the next item. ``(reduced x)`` ends it early.

    Without an initial value it begins with the first item; an empty collection then gives nil.

    (reduce + 0 [1 2 3]) => 6
    (reduce - 10 [1 2 3]) => 4
    (reduce + []) => nil
    """
    found = items("reduce", init_or_coll if coll is MISSING else coll, budget)
    if coll is MISSING:
        if not found:
            return None
        initial, found = found[0], found[1:]
    else:
        initial = init_or_coll
    if function_named(f) is arithmetic.add and type(initial) in NUMBERS and set(map(type, found)) <= NUMBERS:
        budget.steps(len(found))
        return total("reduce", found, initial)
    if found and function_named(f) in _AT_ONCE:
        return function_named(f)(budget, initial, *found)
    held = [initial]
    del init_or_coll, initial
    return _fold(as_function(f, 2, "reduce"), held, found, budget)


_AT_ONCE: Final = (building.conj, maps.merge, transforming.concat)
"""What gives the same when it is called with all items at once, without a copy for each."""


def _fold(function: Callable[[Any, Any], Any], held: list[Any], found: list[Any], budget: Budget) -> Any:
    """Return what is left of the value that is held when all items have been handed to a function with it."""
    for item in budget.each(found):
        # Handed over: a function that adds to what it is given is the only one that has it.
        held.append(function(held.pop(), item))
        if type(held[0]) is Reduced:
            return held[0].value
    return held[0]


class Reduced:
    """The value with which a reduction ends before its collection does."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


@define("reduced")
def reduced(x: Any) -> Reduced:
    """Inside ``reduce``: end it with this value.

    (reduce (fn [sum x] (if (> sum 5) (reduced sum) (+ sum x))) 0 [1 2 3 4 5]) => 6
    """
    return Reduced(x)


@define("reduce-kv", charges=True)
def reduce_kv(budget: Budget, f: Any, init: Any, m: Any) -> Any:
    """Like ``reduce`` over a map, calling f with what there is so far, a key and its value; also for vectors.

    (reduce-kv (fn [sum k v] (+ sum v)) 0 {:a 1 :b 2}) => 3
    """
    function = as_function(f, 3, "reduce-kv")
    if type(m) is not list and type(m) is not dict and m is not None:
        raise wrong("reduce-kv", "a map or vector", m)
    entries = list(enumerate(m)) if type(m) is list else items("reduce-kv", m, budget)
    held = [init]
    del init
    for key, value in budget.each(entries):
        held.append(function(held.pop(), key, value))
        if type(held[0]) is Reduced:
            return held[0].value
    return held[0]


@define("reductions", charges=True, shown="f init? coll")
def reductions(budget: Budget, f: Any, init_or_coll: Any, coll: Any = MISSING) -> list[Any]:
    """All values that ``reduce`` goes through.

    (reductions + [1 2 3]) => [1 3 6]
    (reductions + 10 [1 2]) => [10 11 13]
    """
    found = items("reductions", init_or_coll if coll is MISSING else coll, budget)
    function = as_function(f, 2, "reductions")
    budget.cells(1 + len(found))
    if coll is MISSING and not found:
        return []
    values, others = ([found[0]], found[1:]) if coll is MISSING else ([init_or_coll], found)
    for item in budget.each(others):
        value = function(values[-1], item)
        if type(value) is Reduced:
            return [*values, value.value]
        values.append(value)
    return values


@define("some", charges=True)
def some(budget: Budget, pred: Any, coll: Any) -> Any:
    """Return the first answer of pred that is neither nil nor false, nil when there is none.

    (some even? [1 2 3]) => true
    (some #{"x"} ["a" "x"]) => "x"
    """
    return _first_answer("some", pred, coll, budget)


def _first_answer(op: str, pred: Any, coll: Any, budget: Budget) -> Any:
    function = as_function(pred, 1, op)
    found = coll.ticking(budget) if type(coll) is Endless else budget.each(items(op, coll, budget))
    for item in found:
        answer = function(item)
        if answer is not None and answer is not False:
            return answer
    return None


@define("every?", charges=True)
def is_every(budget: Budget, pred: Any, coll: Any) -> bool:
    """Whether pred gives neither nil nor false for any item; true when there are none.

    (every? even? [2 4]) => true
    """
    function = as_function(pred, 1, "every?")
    for item in budget.each(items("every?", coll, budget)):
        answer = function(item)
        if answer is None or answer is False:
            return False
    return True


@define("not-any?", charges=True)
def is_not_any(budget: Budget, pred: Any, coll: Any) -> bool:
    """Whether pred gives nil or false for all items.

    (not-any? even? [1 3]) => true
    """
    return _first_answer("not-any?", pred, coll, budget) is None


@define("not-every?", charges=True)
def is_not_every(budget: Budget, pred: Any, coll: Any) -> bool:
    """Whether pred gives nil or false for some item.

    (not-every? even? [1 2]) => true
    """
    return _first_answer("not-every?", complement(budget, pred), coll, budget) is not None
