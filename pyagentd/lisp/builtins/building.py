"""Functions that make collections or add to them. Values never change: each gives a new collection."""

from __future__ import annotations

import math
from itertools import accumulate, chain, repeat
from itertools import count as counting
from itertools import cycle as turning
from typing import Any, Final

from pyagentd.lisp.access import as_function
from pyagentd.lisp.builtins.arguments import items, number, refuse, size, wrong
from pyagentd.lisp.builtins.columns import as_keys
from pyagentd.lisp.builtins.samekeys import joined
from pyagentd.lisp.builtins.stages import staged
from pyagentd.lisp.builtins.table import Family
from pyagentd.lisp.endless import Endless, ended
from pyagentd.lisp.limits import Budget
from pyagentd.lisp.missing import MISSING
from pyagentd.lisp.values import LispSet, as_key

FAMILY: Final = Family("Making collections")
define = FAMILY.define


@define("vector", "list", charges=True)
def vector_(budget: Budget, *xs: Any) -> list[Any]:
    """Return a vector of the arguments.

    (vector 1 2) => [1 2]
    """
    budget.cells(len(xs))
    return list(xs)


@define("vec", charges=True)
def vec(budget: Budget, coll: Any) -> list[Any]:
    """Return the items of a collection as a vector.

    (vec #{1 2}) => [1 2]
    (vec {:a 1}) => [[:a 1]]
    """
    return items("vec", coll, budget)


@define("set", charges=True)
def set_(budget: Budget, coll: Any) -> LispSet:
    """Return the distinct items of a collection.

    (set [1 1 2]) => #{1 2}
    """
    if type(coll) is LispSet:
        return coll
    found = items("set", coll, budget)
    budget.cells(len(found))
    return LispSet(as_keys(found, budget))


@define("hash-set", "sorted-set", charges=True)
def hash_set(budget: Budget, *xs: Any) -> LispSet:
    """Return a set of the arguments.

    (hash-set 1 2 2) => #{1 2}
    """
    return set_(budget, list(xs))


@define("hash-map", "array-map", "sorted-map", charges=True)
def hash_map(budget: Budget, *keys_and_values: Any) -> dict[Any, Any]:
    """Return a map of keys and values in turn.

    (hash-map :a 1 :b 2) => {:a 1 :b 2}
    """
    if len(keys_and_values) % 2:
        raise refuse("hash-map", "expects keys and values in turn, got an odd number", "Write (hash-map :a 1 :b 2).")
    budget.cells(len(keys_and_values))
    keys = as_keys(list(keys_and_values[::2]), budget)
    return dict(zip(keys, keys_and_values[1::2], strict=True))


@define("zipmap", charges=True)
def zipmap(budget: Budget, keys: Any, vals: Any) -> dict[Any, Any]:
    """Return a map of the keys to the values at the same places.

    (zipmap [:a :b] [1 2]) => {:a 1 :b 2}
    """
    names, values = ended((keys, vals), lambda each: items("zipmap", each, budget), "zipmap", budget)
    budget.cells(2 * min(len(names), len(values)))
    budget.steps(min(len(names), len(values)))
    return dict(zip(as_keys(names, budget), values, strict=False))


@define("conj", charges=True)
def conj(budget: Budget, coll: Any, *xs: Any) -> Any:
    """Add items: at the end of a vector, as members of a set, as ``[key value]`` pairs or whole maps to a map.

    (conj [1 2] 3) => [1 2 3]
    (conj #{1} 2) => #{1 2}
    (conj {:a 1} [:b 2]) => {:a 1 :b 2}
    """
    return _added("conj", coll, list(xs), budget)


@define("into", charges=True, shown="to stage? from")
def into(budget: Budget, to: Any, stage_or_from: Any, from_: Any = MISSING) -> Any:
    """Add all items of a collection to another one; through a pipeline, if one stands between them.

    (into [1] [2 3]) => [1 2 3]
    (into {} [[:a 1] [:b 2]]) => {:a 1 :b 2}
    (into #{} (map inc) [1 1 2]) => #{2 3}
    """
    if from_ is MISSING:
        return _added("into", to, items("into", stage_or_from, budget), budget)
    return _added("into", to, staged("into", stage_or_from, from_, budget), budget)


def _added(op: str, coll: Any, new: list[Any], budget: Budget) -> Any:
    kind = type(coll)
    if kind is not list and kind is not dict and kind is not LispSet and coll is not None:
        raise wrong(op, "a vector, map or set", coll, hint=f"The collection comes first: ({op} [] …).")
    before = len(coll) if coll is not None else 0
    # A slot that is copied takes 8 bytes and a cell stands for 64, so thousands of items may be added singly.
    budget.cells((before >> 3 if op == "conj" and kind is list else before) + len(new))
    budget.steps((before >> 4) + len(new))
    if kind is dict:
        return _with_entries(op, coll, new, budget)
    if kind is LispSet:
        return LispSet(chain(coll.keys, as_keys(new, budget)))
    return [*(coll or ()), *new]


def _with_entries(op: str, mapping: dict[Any, Any], new: list[Any], budget: Budget) -> dict[Any, Any]:
    maps, paired = [mapping], False
    for entry in new:
        if type(entry) is list and len(entry) == 2:
            if not paired:
                maps.append({})
            maps[-1][as_key(entry[0], budget)] = entry[1]
            paired = True
        elif type(entry) is dict:
            budget.cells(len(entry))
            maps.append(entry)
            paired = False
        elif entry is not None:
            raise wrong(op, "[key value] pairs to add to a map", entry, hint="Write [[:a 1] [:b 2]].")
    return maps[1] if paired and len(maps) == 2 and not mapping else joined(maps, budget)


@define("empty")
def empty(coll: Any) -> Any:
    """Return an empty collection of the same kind.

    (empty {:a 1}) => {}
    """
    if type(coll) is dict:
        return {}
    if type(coll) is LispSet:
        return LispSet()
    return [] if type(coll) is list else None


@define("cons", charges=True)
def cons(budget: Budget, x: Any, coll: Any) -> list[Any]:
    """Return a vector of x and the items after it.

    (cons 1 [2 3]) => [1 2 3]
    """
    found = items("cons", coll, budget)
    budget.cells(1 + len(found))
    budget.steps(len(found) >> 4)
    return [x, *found]


@define("range", charges=True, shown="start? end? step?")
def range_(budget: Budget, start_or_end: Any = MISSING, end: Any = MISSING, step: Any = 1) -> Any:
    """Return the numbers from 0, or from a start, to before the end; a step may follow. Endless without an end.

    (range 4) => [0 1 2 3]
    (range 1 4) => [1 2 3]
    (range 0 10 5) => [0 5]
    (range 3 0 -1) => [3 2 1]
    """
    if start_or_end is MISSING:
        return Endless(counting)
    first, before = (0, start_or_end) if end is MISSING else (start_or_end, end)
    for each in (first, before, step):
        number("range", each)
    if step == 0:
        raise refuse("range", "a step of 0 never reaches the end")
    if type(first) is int and type(before) is int and type(step) is int:
        numbers = range(first, before, step)
        budget.cells(max(0, (before - first + step - (1 if step > 0 else -1)) // step))
        budget.steps(len(numbers) >> 4)
        return list(numbers)
    return _fractions(budget, float(first), float(before), float(step))


def _fractions(budget: Budget, first: float, before: float, step: float) -> list[float]:
    if not math.isfinite((before - first) / step):
        raise refuse("range", "has no end", "Give a finite start, end and step.")
    count = max(0, math.ceil((before - first) / step))
    budget.cells(count)
    budget.steps(count)
    return [first + index * step for index in range(count)]


@define("repeat", "replicate", charges=True, shown="n? x")
def repeat_(budget: Budget, n: Any, x: Any = MISSING) -> Any:
    """Return a vector with x n times; endless without n.

    (repeat 3 "a") => ["a" "a" "a"]
    (zipmap [:a :b] (repeat 0)) => {:a 0 :b 0}
    """
    if x is MISSING:
        return Endless(lambda: repeat(n))
    count = size("repeat", n)
    budget.cells(count)
    budget.steps(count >> 4)
    return [x] * count


@define("repeatedly", charges=True, shown="n? f")
def repeatedly(budget: Budget, n: Any, f: Any = MISSING) -> Any:
    """Return what f gives when called n times without arguments; endless without n.

    (repeatedly 2 (fn [] 1)) => [1 1]
    """
    if f is MISSING:
        call = as_function(n, 0, "repeatedly")
        return Endless(lambda: iter(lambda: call(), MISSING))
    count = size("repeatedly", n)
    budget.cells(count)
    function = as_function(f, 0, "repeatedly")
    return [function() for _ in budget.each(range(count))]


@define("iterate", charges=True, shown="n? f x")
def iterate(budget: Budget, n: Any, f: Any, x: Any = MISSING) -> Any:
    """Return the n values x, (f x), (f (f x)) and so on; endless without n.

    (iterate 4 inc 0) => [0 1 2 3]
    (take 5 (iterate (fn [x] (* 2 x)) 1)) => [1 2 4 8 16]
    """
    if x is MISSING:
        step = as_function(n, 1, "iterate")
        return Endless(lambda: accumulate(repeat(f), lambda value, _: step(value)))
    count = size("iterate", n)
    budget.cells(count)
    function = as_function(f, 1, "iterate")
    result = [x] if count else []
    for _ in budget.each(range(count - 1)):
        x = function(x)
        result.append(x)
    return result


@define("cycle", charges=True, shown="n? coll")
def cycle(budget: Budget, n: Any, coll: Any = MISSING) -> Any:
    """Return n items of a collection that begins anew when it has ended; endless without n.

    (cycle 5 [1 2]) => [1 2 1 2 1]
    """
    if coll is MISSING:
        around = items("cycle", n, budget)
        return Endless(lambda: turning(around)) if around else []
    count, found = size("cycle", n), items("cycle", coll, budget)
    if not found:
        return []
    budget.cells(count + len(found))
    budget.steps(count >> 4)
    return list(chain.from_iterable(repeat(found, -(-count // len(found)))))[:count]
