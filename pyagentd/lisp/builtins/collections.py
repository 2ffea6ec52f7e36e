"""Functions that make collections or add to them. Values are immutable: each function returns a new collection."""

import math
from collections.abc import Sequence
from functools import partial
from itertools import accumulate, chain, repeat
from itertools import count as counting
from itertools import cycle as turning
from operator import itemgetter
from typing import Any, Final

from pyagentd.lisp import values
from pyagentd.lisp.builtins.table import Family, items, length, number, refuse, size, vector, whole_number, wrong
from pyagentd.lisp.errors import MISSING
from pyagentd.lisp.limits import Budget
from pyagentd.lisp.values import (
    Endless,
    Keyword,
    LispSet,
    as_function,
    as_key,
    cut_to_shortest,
    equal,
    lookup,
    truthy,
)

# The item at a position of a collection.

places_define: Final = Family("Items by position")


@places_define("first", charges=True)
def first(budget: Budget, coll: Any) -> Any:
    """Return the first item, or nil.

    (first [1 2 3]) => 1
    (first []) => nil
    """
    if type(coll) is list:
        return coll[0] if coll else None
    found = _first_items("first", coll, 1, budget)
    return found[0] if found else None


def _first_items(op: str, coll: Any, count: int, budget: Budget) -> list[Any]:
    """Return all items, or as many of an endless sequence."""
    return coll.prefix(max(count, 0), budget) if type(coll) is Endless else items(op, coll, budget)


@places_define("second", charges=True)
def second(budget: Budget, coll: Any) -> Any:
    """Return the second item, or nil.

    (second [1 2 3]) => 2
    """
    found = _first_items("second", coll, 2, budget)
    return found[1] if len(found) > 1 else None


@places_define("last", charges=True)
def last(budget: Budget, coll: Any) -> Any:
    """Return the last item, or nil.

    (last [1 2 3]) => 3
    """
    found = items("last", coll, budget)
    return found[-1] if found else None


@places_define("ffirst", charges=True)
def ffirst(budget: Budget, coll: Any) -> Any:
    """Return the first item of the first item.

    (ffirst [[1 2] [3]]) => 1
    """
    return first(budget, first(budget, coll))


@places_define("nth", charges=True)
def nth(budget: Budget, coll: Any, index: Any, default: Any = None) -> Any:
    """Return the item at an index, counted from 0; the default, or nil, if there is none.

    (nth [10 20 30] 1) => 20
    (nth [10] 5) => nil
    (nth [10] 5 :none) => :none
    """
    if type(coll) is list and type(index) is int:
        return coll[index] if 0 <= index < len(coll) else default
    at = whole_number("nth", index)
    found = _first_items("nth", coll, at + 1, budget)
    return found[at] if 0 <= at < len(found) else default


@places_define("peek", charges=True)
def peek(budget: Budget, v: Any) -> Any:
    """Return the last item of a vector, or nil.

    (peek [1 2 3]) => 3
    """
    return last(budget, vector("peek", v))


# Calling a function for each item of a collection, with the checks made once, not for each item.
#
# Most programs read a field of each map: ``(map :name xs)``, ``(sum-by :amount xs)``. So a keyword is not called: the
# field is read by C code if every map has it, and otherwise by one comprehension.

_SMALL: Final = 1 << 60  # integers below hash to themselves, see `as_keys`
_KEYS: Final = frozenset({str, Keyword, float, type(None)})
_COUNTED: Final = _KEYS | {int}


def column(op: str, function: Any, items: Sequence[Any], budget: Budget) -> list[Any]:
    """Return the results of `function` for the items."""
    budget.cells(len(items))
    if type(function) is Keyword:
        return field(function, items, budget)
    return list(map(as_function(function, 1, op), budget.each(items)))


def key_column(op: str, key: Any, items: Sequence[Any], budget: Budget) -> list[Any]:
    """Return the value of each item under `key`: a keyword, a string, a path of them, or a function of the item."""
    if type(key) is str:
        budget.cells(len(items))
        return field(key, items, budget)
    if type(key) is list and key:
        for each in key:  # one step along the path, for all items at once
            budget.cells(len(items))
            if type(each) is str or type(each) is Keyword:
                items = field(each, items, budget)
            else:
                budget.steps(1 + len(items))
                items = [lookup(item, each, None, budget) for item in items]
        return list(items)
    return column(op, key, items, budget)


def field(key: Any, items: Sequence[Any], budget: Budget) -> list[Any]:
    """Return the value of each item under a keyword or string, or nil."""
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


def value_at_path(path: Sequence[Any], value: Any, default: Any = None) -> Any:
    """Return the value at a path of keys and indices; `default` if there is none."""
    for key in path:
        if type(value) is not dict and type(value) is not list:
            return default
        value = lookup(value, key, MISSING) if type(value) is dict or type(key) in (int, float) else MISSING
        if value is MISSING:
            return default
    return value


def as_keys(values: list[Any], budget: Budget) -> list[Any]:
    """Return the values in the form of map keys.

    Large integers take the slow path, which protects against collisions: Python's hash of integers is predictable.
    """
    kinds = set(map(type, values))
    if kinds <= _KEYS or (kinds <= _COUNTED and all(-_SMALL < each < _SMALL for each in values if type(each) is int)):
        return values
    return [as_key(each, budget) for each in budget.each(values)]


# Stages of a pipeline: ``(map f)`` without a collection, for ``into`` and ``transduce``.
#
# These are Clojure's transducers as programs use them. Nothing is lazy, so a stage is a function from all items to
# all items, and ``(comp (filter p) (map f))`` runs its stages from left to right.

stages_define: Final = Family("Pipelines")


class Stage(partial[list[Any]]):
    """The value of ``(map f)``: called with a collection it returns a vector."""

    arity: Final = (1, 1)


def run_stages(stages: Sequence[Stage], coll: Any) -> Any:
    """Return the result of stages that run one after the other."""
    for stage in stages:
        coll = stage(coll)
    return coll


def run_stage(op: str, stage: Any, coll: Any, budget: Budget) -> list[Any]:
    """Return the result of a stage, or of any function of a collection, for a collection."""
    made = as_function(stage, 1, op)(coll)
    if type(made) is not list:
        raise wrong(op, "a pipeline such as (map f) or (comp (filter p) (map f))", stage)
    return made


@stages_define("sequence", "eduction", charges=True, shown="stage coll")
def sequence(budget: Budget, stage_or_coll: Any, coll: Any = MISSING) -> list[Any]:
    """Return the result of a pipeline for a collection.

    (sequence (comp (map inc) (filter even?)) [1 2 3]) => [2 4]
    """
    if coll is MISSING:
        return items("sequence", stage_or_coll, budget)
    return run_stage("sequence", stage_or_coll, coll, budget)


@stages_define("cat", charges=True)
def cat(budget: Budget, colls: Any) -> list[Any]:
    """Return the items of all collections in a collection; as a pipeline stage written without parentheses.

    (cat [[1 2] [3]]) => [1 2 3]
    (into [] cat [[1] [2]]) => [1 2]
    """
    result: list[Any] = []
    for each in budget.each(items("cat", colls, budget)):
        found = items("cat", each, budget)
        budget.cells(len(found))
        result += found
    return result


define: Final = Family("Making collections")


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
    """Return a map of alternating keys and values.

    (hash-map :a 1 :b 2) => {:a 1 :b 2}
    """
    if len(keys_and_values) % 2:
        hint = "Write (hash-map :a 1 :b 2)."
        raise refuse("hash-map", "expects alternating keys and values, got an odd number", hint)
    budget.cells(len(keys_and_values))
    keys = as_keys(list(keys_and_values[::2]), budget)
    return dict(zip(keys, keys_and_values[1::2], strict=True))


@define("zipmap", charges=True)
def zipmap(budget: Budget, keys: Any, vals: Any) -> dict[Any, Any]:
    """Return a map from the keys to the values at the same positions.

    (zipmap [:a :b] [1 2]) => {:a 1 :b 2}
    """
    names, values = cut_to_shortest((keys, vals), lambda each: items("zipmap", each, budget), "zipmap", budget)
    budget.cells(2 * min(len(names), len(values)))
    budget.steps(min(len(names), len(values)))
    return dict(zip(as_keys(names, budget), values, strict=False))


@define("conj", charges=True)
def conj(budget: Budget, coll: Any, *xs: Any) -> Any:
    """Add items: to the end of a vector, to a set, or to a map as ``[key value]`` pairs or maps.

    (conj [1 2] 3) => [1 2 3]
    (conj #{1} 2) => #{1 2}
    (conj {:a 1} [:b 2]) => {:a 1 :b 2}
    """
    return _add_items("conj", coll, list(xs), budget)


@define("into", charges=True, shown="to stage? from")
def into(budget: Budget, to: Any, stage_or_from: Any, from_: Any = MISSING) -> Any:
    """Add all items of a collection to another one; with a pipeline between the two, add the result of the pipeline.

    (into [1] [2 3]) => [1 2 3]
    (into {} [[:a 1] [:b 2]]) => {:a 1 :b 2}
    (into #{} (map inc) [1 1 2]) => #{2 3}
    """
    if from_ is MISSING:
        return _add_items("into", to, items("into", stage_or_from, budget), budget)
    return _add_items("into", to, run_stage("into", stage_or_from, from_, budget), budget)


def _add_items(op: str, coll: Any, new: list[Any], budget: Budget) -> Any:
    kind = type(coll)
    if kind is not list and kind is not dict and kind is not LispSet and coll is not None:
        raise wrong(op, "a vector, map or set", coll, hint=f"The collection comes first: ({op} [] …).")
    before = len(coll) if coll is not None else 0
    # A slot that is copied takes 8 bytes and a cell stands for 64, so thousands of items can be added one by one.
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
    return maps[1] if paired and len(maps) == 2 and not mapping else values.merge_maps(maps, budget)


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
    """Return a vector of x followed by the items.

    (cons 1 [2 3]) => [1 2 3]
    """
    found = items("cons", coll, budget)
    budget.cells(1 + len(found))
    budget.steps(len(found) >> 4)
    return [x, *found]


@define("range", charges=True, shown="start? end? step?")
def range_(budget: Budget, start_or_end: Any = MISSING, end: Any = MISSING, step: Any = 1) -> Any:
    """Return the numbers from 0, or a start, to before an end, by a step of 1 or another; endless without an end.

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
    first, before, step = float(first), float(before), float(step)
    if not math.isfinite((before - first) / step):
        raise refuse("range", "has no end", "Give a finite start, end and step.")
    count = max(0, math.ceil((before - first) / step))
    budget.cells(count)
    budget.steps(count)
    return [first + index * step for index in range(count)]


@define("repeat", "replicate", charges=True, shown="n? x")
def repeat_(budget: Budget, n: Any, x: Any = MISSING) -> Any:
    """Return a vector of n times x; endless without n.

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
    """Return the results of n calls of f without arguments; endless without n.

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
    """Return n items of a collection that is repeated as often as needed; endless without n.

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


# Functions that take items or parts out of a collection.

picking_define: Final = Family("Taking items and parts")


@picking_define("count", charges=True)
def count(budget: Budget, coll: Any) -> int:
    """Return the number of items of a collection or characters of a string; 0 for nil.

    (count [1 2 3]) => 3
    (count {:a 1 :b 2}) => 2
    """
    kind = type(coll)
    if kind is list or kind is dict or kind is LispSet:
        return len(coll)
    if kind is str:
        budget.steps(len(coll) >> 4)
        return length(coll)
    if coll is None:
        return 0
    raise wrong("count", "a collection or string", coll)


@picking_define("empty?")
def is_empty(coll: Any) -> bool:
    """Whether a collection or string is empty; true for nil.

    (empty? []) => true
    (empty? {:a 1}) => false
    """
    if coll is None:
        return True
    if type(coll) in _SIZED:
        return len(coll) == 0
    raise wrong("empty?", "a collection or string", coll)


_SIZED: Final = frozenset({list, dict, LispSet, str})


@picking_define("not-empty")
def not_empty(coll: Any) -> Any:
    """Return the collection, or nil if it is empty.

    (not-empty [1]) => [1]
    (not-empty []) => nil
    """
    return None if is_empty(coll) else coll


@picking_define("seq", charges=True)
def seq(budget: Budget, coll: Any) -> Any:
    """Return the items, or the characters of a string, as a vector; nil if there are none.

    (seq "abc") => ["a" "b" "c"]
    (seq []) => nil
    """
    return items("seq", coll, budget) or None


@picking_define("rest", charges=True)
def rest(budget: Budget, coll: Any) -> list[Any]:
    """Return all items but the first.

    (rest [1 2 3]) => [2 3]
    """
    return _slice_items("rest", coll, budget, 1, None)


@picking_define("next", charges=True)
def next_(budget: Budget, coll: Any) -> Any:
    """Return all items but the first; nil if there are none.

    (next [1 2 3]) => [2 3]
    (next [1]) => nil
    """
    return _slice_items("next", coll, budget, 1, None) or None


@picking_define("butlast", charges=True)
def butlast(budget: Budget, coll: Any) -> Any:
    """Return all items but the last; nil if there are none.

    (butlast [1 2 3]) => [1 2]
    (butlast [1]) => nil
    """
    return _slice_items("butlast", coll, budget, 0, -1) or None


def _slice_items(op: str, coll: Any, budget: Budget, start: int, end: int | None) -> list[Any]:
    found = items(op, coll, budget)
    part = len(range(len(found))[start:end])
    budget.cells(part)
    budget.steps(part >> 4)
    return found[start:end]


@picking_define("take", charges=True, stage=True)
def take(budget: Budget, n: Any, coll: Any) -> Any:
    """Return the first n items.

    (take 2 [1 2 3]) => [1 2]
    """
    if type(coll) is Endless:
        return coll.prefix(size("take", n), budget)
    return _slice_items("take", coll, budget, 0, size("take", n))


@picking_define("drop", charges=True, stage=True)
def drop(budget: Budget, n: Any, coll: Any) -> Any:
    """Return all but the first n items.

    (drop 2 [1 2 3]) => [3]
    """
    if type(coll) is Endless:
        return coll.drop(size("drop", n), budget)
    return _slice_items("drop", coll, budget, size("drop", n), None)


@picking_define("take-last", charges=True)
def take_last(budget: Budget, n: Any, coll: Any) -> list[Any]:
    """Return the last n items.

    (take-last 2 [1 2 3]) => [2 3]
    """
    found = items("take-last", coll, budget)
    return _slice_items("take-last", found, budget, max(0, len(found) - size("take-last", n)), None)


@picking_define("drop-last", charges=True, shown="n? coll")
def drop_last(budget: Budget, n_or_coll: Any, coll: Any = MISSING) -> list[Any]:
    """Return all but the last n items; n is 1 by default.

    (drop-last 2 [1 2 3]) => [1]
    (drop-last [1 2 3]) => [1 2]
    """
    n = 1 if coll is MISSING else size("drop-last", n_or_coll)
    found = items("drop-last", n_or_coll if coll is MISSING else coll, budget)
    return _slice_items("drop-last", found, budget, 0, max(0, len(found) - n))


@picking_define("nthrest", charges=True, shown="coll n")
def nthrest(budget: Budget, coll: Any, n: Any) -> list[Any]:
    """Return all but the first n items; the collection is the first argument.

    (nthrest [1 2 3] 1) => [2 3]
    """
    return _slice_items("nthrest", coll, budget, size("nthrest", n), None)


@picking_define("take-nth", charges=True, stage=True)
def take_nth(budget: Budget, n: Any, coll: Any) -> Any:
    """Return every n-th item, starting with the first.

    (take-nth 2 [1 2 3 4 5]) => [1 3 5]
    """
    step = size("take-nth", n)
    if step < 1:
        raise refuse("take-nth", "the number must be positive")
    found = items("take-nth", coll, budget)
    budget.cells(len(found) // step + 1)
    return found[::step]


@picking_define("take-while", charges=True, stage=True)
def take_while(budget: Budget, pred: Any, coll: Any) -> Any:
    """Return the items before the first one for which pred is false or nil.

    (take-while pos? [2 1 0 5]) => [2 1]
    """
    if type(coll) is Endless:
        function = as_function(pred, 1, "take-while")
        taken: list[Any] = []
        for item in coll.charged_items(budget):
            if not truthy(function(item)):
                break
            budget.cells(1)
            taken.append(item)
        return taken
    found = items("take-while", coll, budget)
    return _slice_items("take-while", found, budget, 0, _run_length("take-while", pred, found, budget))


@picking_define("drop-while", charges=True, stage=True)
def drop_while(budget: Budget, pred: Any, coll: Any) -> Any:
    """Return the items from the first one for which pred is false or nil.

    (drop-while pos? [2 1 0 5]) => [0 5]
    """
    found = items("drop-while", coll, budget)
    return _slice_items("drop-while", found, budget, _run_length("drop-while", pred, found, budget), None)


@picking_define("split-at", charges=True)
def split_at(budget: Budget, n: Any, coll: Any) -> list[Any]:
    """Return a vector of the first n items and the others.

    (split-at 2 [1 2 3]) => [[1 2] [3]]
    """
    return [take(budget, n, coll), drop(budget, n, coll)]


@picking_define("split-with", charges=True)
def split_with(budget: Budget, pred: Any, coll: Any) -> list[Any]:
    """Return a vector of the results of ``take-while`` and ``drop-while``.

    (split-with pos? [2 1 0 5]) => [[2 1] [0 5]]
    """
    found = items("split-with", coll, budget)
    return split_at(budget, _run_length("split-with", pred, found, budget), found)


def _run_length(op: str, pred: Any, found: list[Any], budget: Budget) -> int:
    """Return the number of items before the first one for which pred is not true."""
    function = as_function(pred, 1, op)
    for index, item in enumerate(budget.each(found)):
        answer = function(item)
        if answer is None or answer is False:
            return index
    return len(found)


@picking_define("subvec", charges=True)
def subvec(budget: Budget, v: Any, start: Any, end: Any = MISSING) -> list[Any]:
    """Return the items of a vector from an index up to but not including another one.

    (subvec [1 2 3 4] 1 3) => [2 3]
    """
    found = vector("subvec", v)
    first_at = whole_number("subvec", start)
    before = len(found) if end is MISSING else whole_number("subvec", end)
    if not 0 <= first_at <= before <= len(found):
        raise refuse("subvec", f"the part is not within a vector of {len(found)} items", "Use take and drop.")
    return _slice_items("subvec", found, budget, first_at, before)


@picking_define("pop", charges=True)
def pop(budget: Budget, v: Any) -> list[Any]:
    """Return a vector without its last item.

    (pop [1 2 3]) => [1 2]
    """
    return _slice_items("pop", vector("pop", v), budget, 0, -1)


@picking_define("find", charges=True, shown="pred coll")
def find(budget: Budget, pred: Any, coll: Any) -> Any:
    """Return the first item for which pred is true.

    For a map and a key it returns their ``[key value]`` pair.

    (find even? [1 2 4]) => 2
    (find {:a 1} :a) => [:a 1]
    """
    if type(pred) is dict and type(coll) not in (list, dict, LispSet):
        value = values.find(pred, coll, budget=budget)
        return None if value is MISSING else [coll, value]
    function = as_function(pred, 1, "find")
    for item in budget.each(items("find", coll, budget)):
        answer = function(item)
        if answer is not None and answer is not False:
            return item
    return None


# Functions that reorder items, combine collections, or group adjacent items.

arranging_define: Final = Family("Arranging items")


@arranging_define("reverse", charges=True)
def reverse(budget: Budget, coll: Any) -> list[Any]:
    """Return the items in reverse order.

    (reverse [1 2 3]) => [3 2 1]
    """
    found = items("reverse", coll, budget)
    budget.cells(len(found))
    return found[::-1]


@arranging_define("interleave", charges=True)
def interleave(budget: Budget, *colls: Any) -> list[Any]:
    """Return the first items of all collections, then the second items, up to the end of the shortest.

    (interleave [1 2] [:a :b]) => [1 :a 2 :b]
    """
    return list(chain.from_iterable(_zip_rows("interleave", colls, budget)))


@arranging_define("interpose", charges=True, stage=True)
def interpose(budget: Budget, separator: Any, coll: Any) -> Any:
    """Return the items with a separator between them.

    (interpose 0 [1 2 3]) => [1 0 2 0 3]
    """
    found = items("interpose", coll, budget)
    budget.cells(2 * len(found))
    return [each for item in budget.each(found) for each in (separator, item)][1:]


@arranging_define("zip", charges=True)
def zip_(budget: Budget, *colls: Any) -> list[Any]:
    """Return vectors of the first items, the second items and so on, up to the end of the shortest collection.

    (zip [1 2] [:a :b]) => [[1 :a] [2 :b]]
    """
    return list(map(list, _zip_rows("zip", colls, budget)))


def _zip_rows(op: str, colls: tuple[Any, ...], budget: Budget) -> Any:
    found = cut_to_shortest(colls, lambda each: items(op, each, budget), op, budget)
    count = min(map(len, found), default=0)
    budget.cells(count * (len(found) + 1))
    budget.steps(count * len(found))
    return zip(*found, strict=False)


@arranging_define("partition", charges=True, shown="n step? pad? coll")
def partition(budget: Budget, n: Any, *step_pad_coll: Any) -> list[Any]:
    """Return vectors of n items; remaining items that do not fill one are left out unless padded.

    A step can be given after n, and after the step a collection for padding the last vector.

    (partition 2 [1 2 3 4 5]) => [[1 2] [3 4]]
    (partition 2 1 [1 2 3]) => [[1 2] [2 3]]
    (partition 2 2 [0] [1 2 3]) => [[1 2] [3 0]]
    """
    if not 1 <= len(step_pad_coll) <= 3:
        raise refuse("partition", "expects 2 to 4 arguments", "Write (partition n coll).")
    step = step_pad_coll[0] if len(step_pad_coll) > 1 else n
    parts = _partition_items("partition", n, step, step_pad_coll[-1], budget)
    whole = [part for part in parts if len(part) >= n]
    if len(step_pad_coll) < 3:
        return whole
    padding = items("partition", step_pad_coll[1], budget)
    return [*whole, *((part + padding)[: size("partition", n)] for part in parts[len(whole) :][:1])]


@arranging_define("partition-all", charges=True, stage=True, shown="n step? coll")
def partition_all(budget: Budget, n: Any, step_or_coll: Any, coll: Any = MISSING) -> Any:
    """Return vectors of n items, the last one possibly shorter; a step can be given before the collection.

    (partition-all 2 [1 2 3]) => [[1 2] [3]]
    """
    step, found = (n, step_or_coll) if coll is MISSING else (step_or_coll, coll)
    return _partition_items("partition-all", n, step, found, budget)


def _partition_items(op: str, n: Any, step: Any, coll: Any, budget: Budget) -> list[Any]:
    n, step = size(op, n), size(op, step)
    if n < 1 or step < 1:
        raise refuse(op, "sizes must be positive")
    found = items(op, coll, budget)
    count = -(-len(found) // step)
    budget.cells(count * (1 + min(n, len(found))))
    budget.steps(count * (1 + min(n, len(found)) // 16))
    return [found[start : start + n] for start in range(0, len(found), step)]


@arranging_define("partition-by", charges=True, stage=True)
def partition_by(budget: Budget, f: Any, coll: Any) -> Any:
    """Return vectors of adjacent items for which f returns equal values.

    (partition-by odd? [1 3 2 4 5]) => [[1 3] [2 4] [5]]
    """
    found = items("partition-by", coll, budget)
    budget.cells(2 * len(found))
    parts: list[Any] = []
    previous: Any = MISSING
    for item, value in zip(found, key_column("partition-by", f, found, budget), strict=True):
        if not parts or not equal(value, previous, budget):
            parts.append([])
        parts[-1].append(item)
        previous = value
    return parts


# Functions that transform, choose or rearrange items; all return vectors.

transforming_define: Final = Family("Transforming and choosing items")


@transforming_define("map", "mapv", charges=True, stage=True)
def map_(budget: Budget, f: Any, coll: Any, *colls: Any) -> Any:
    """Return the results of f for the items; with several collections, for their first items, second items and so on.

    The items of a map are its ``[key value]`` pairs.

    (map inc [1 2 3]) => [2 3 4]
    (map :name [{:name "Ada"} {:name "Alan"}]) => ["Ada" "Alan"]
    (map + [1 2] [10 20]) => [11 22]
    """
    if not colls:
        return column("map", f, items("map", coll, budget), budget)
    columns = cut_to_shortest((coll, *colls), lambda each: items("map", each, budget), "map", budget)
    function = as_function(f, len(columns), "map")
    count = min(map(len, columns))
    budget.cells(count)
    return list(map(function, budget.each(columns[0][:count]), *columns[1:]))


@transforming_define("pluck", charges=True)
def pluck(budget: Budget, key: Any, coll: Any) -> list[Any]:
    """Return the value of each item under a key.

    (pluck :email [{:email "a@b.de"} {:email "c@d.de"}]) => ["a@b.de" "c@d.de"]
    """
    return key_column("pluck", key, items("pluck", coll, budget), budget)


@transforming_define("filter", "filterv", charges=True, stage=True)
def filter_(budget: Budget, pred: Any, coll: Any) -> Any:
    """Return the items for which pred is true.

    (filter even? [1 2 3 4]) => [2 4]
    (filter :active [{:id 1 :active true} {:id 2}]) => [{:id 1 :active true}]
    """
    found = items("filter", coll, budget)
    answers = column("filter", pred, found, budget)
    return [item for item, yes in zip(found, answers, strict=True) if yes is not None and yes is not False]


@transforming_define("remove", charges=True, stage=True)
def remove(budget: Budget, pred: Any, coll: Any) -> Any:
    """Return the items for which pred is false or nil.

    (remove even? [1 2 3 4]) => [1 3]
    """
    found = items("remove", coll, budget)
    answers = column("remove", pred, found, budget)
    return [item for item, yes in zip(found, answers, strict=True) if yes is None or yes is False]


@transforming_define("keep", charges=True, stage=True)
def keep(budget: Budget, f: Any, coll: Any) -> Any:
    """Return the results of f for the items, without nils.

    (keep parse-long ["1" "x" "3"]) => [1 3]
    """
    return [each for each in column("keep", f, items("keep", coll, budget), budget) if each is not None]


@transforming_define("map-indexed", charges=True, stage=True)
def map_indexed(budget: Budget, f: Any, coll: Any) -> Any:
    """Return the results of f for index and item.

    (map-indexed (fn [i x] [i x]) ["a" "b"]) => [[0 "a"] [1 "b"]]
    """
    found = items("map-indexed", coll, budget)
    budget.cells(len(found))
    return list(map(as_function(f, 2, "map-indexed"), range(len(found)), budget.each(found)))


@transforming_define("keep-indexed", charges=True, stage=True)
def keep_indexed(budget: Budget, f: Any, coll: Any) -> Any:
    """Return the results of f for index and item, without nils.

    (keep-indexed (fn [i x] (when (odd? i) x)) [:a :b :c :d]) => [:b :d]
    """
    return [each for each in map_indexed(budget, f, coll) if each is not None]


@transforming_define("mapcat", charges=True, stage=True)
def mapcat(budget: Budget, f: Any, coll: Any, *colls: Any) -> Any:
    """Call f with each item and concatenate the resulting collections.

    (mapcat :tags [{:tags [1 2]} {:tags [3]}]) => [1 2 3]
    """
    return concatenate("mapcat", map_(budget, f, coll, *colls), budget)


def concatenate(op: str, colls: Any, budget: Budget) -> list[Any]:
    """Return the items of all collections in one list."""
    parts = [items(op, each, budget) for each in budget.each(colls)]
    total = sum(map(len, parts))
    budget.cells(total)
    budget.steps(total)
    return list(chain.from_iterable(parts))


@transforming_define("concat", "concatv", charges=True)
def concat(budget: Budget, *colls: Any) -> list[Any]:
    """Return the items of all collections, one after the other.

    (concat [1 2] [3] nil [4]) => [1 2 3 4]
    """
    return concatenate("concat", colls, budget)


@transforming_define("flatten", charges=True)
def flatten(budget: Budget, coll: Any) -> list[Any]:
    """Return the items of nested vectors in one vector; maps and sets are not flattened.

    (flatten [1 [2 [3 4]] {:a [5]}]) => [1 2 3 4 {:a [5]}]
    """
    result: list[Any] = []
    if coll is not None and type(coll) is not list and type(coll) is not LispSet:
        raise wrong("flatten", "a vector", coll)
    waiting = [iter(items("flatten", coll, budget))]
    while waiting:
        budget.steps(1)
        for item in waiting[-1]:
            if type(item) is list:
                budget.cells(len(item))
                budget.steps(len(item))
                if len(waiting) >= budget.limits.depth:
                    raise budget.too_deep()
                waiting.append(iter(item))
                break
            result.append(item)
        else:
            waiting.pop()
    return result


@transforming_define("distinct", charges=True, stage=True)
def distinct(budget: Budget, coll: Any) -> Any:
    """Return the distinct items, in the order of their first occurrence.

    (distinct [1 2 1 3 2]) => [1 2 3]
    """
    if type(coll) is dict:
        raise wrong("distinct", "a vector", coll, hint="The keys of a map are distinct; see (distinct (vals m)).")
    found = items("distinct", coll, budget)
    return without_repeats(found, as_keys(found, budget), budget)


@transforming_define("distinct-by", charges=True)
def distinct_by(budget: Budget, key: Any, coll: Any) -> list[Any]:
    """Return the first item for each value of a key.

    (distinct-by :a [{:a 1 :b 1} {:a 1 :b 2} {:a 2}]) => [{:a 1 :b 1} {:a 2}]
    """
    found = items("distinct-by", coll, budget)
    return without_repeats(found, as_keys(key_column("distinct-by", key, found, budget), budget), budget)


def without_repeats(found: list[Any], keys: list[Any], budget: Budget) -> list[Any]:
    """Return the first item for each key."""
    budget.cells(len(found))
    budget.steps(len(found))
    # Inserted backwards, the first item of each key wins; the keys in forward order restore the order.
    first = dict(zip(reversed(keys), reversed(found), strict=True))
    return [first[key] for key in dict.fromkeys(keys)]


@transforming_define("dedupe", charges=True, stage=True)
def dedupe(budget: Budget, coll: Any) -> Any:
    """Return the items without those that equal the preceding one.

    (dedupe [1 1 2 2 1]) => [1 2 1]
    """
    found = items("dedupe", coll, budget)
    budget.cells(len(found))
    return [
        item
        for index, item in enumerate(budget.each(found))
        if index == 0 or not equal(item, found[index - 1], budget)
    ]
