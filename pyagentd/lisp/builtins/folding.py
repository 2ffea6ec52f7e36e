"""Sorting, aggregating and reducing collections."""

from collections import Counter, defaultdict
from collections.abc import Callable
from functools import cmp_to_key
from typing import Any, Final

from pyagentd.lisp.builtins import collections, functions, maps, numbers, text
from pyagentd.lisp.builtins.collections import as_keys, key_column, run_stage
from pyagentd.lisp.builtins.functions import complement
from pyagentd.lisp.builtins.table import NUMBERS, Family, function_named, items, refuse, wrong
from pyagentd.lisp.errors import MISSING
from pyagentd.lisp.limits import Budget
from pyagentd.lisp.values import Endless, Keyword, LispSet, as_function, compare

# Sorting: in natural order with nil first, or by a comparator.
#
# Strings, numbers, keywords, booleans and vectors can be compared only with values of their own type. Sorting is
# stable. An inconsistent comparator results in an arbitrary order of the same items.

sorting_define: Final = Family("Sorting")

_ASCENDING: Final = (functions.less, functions.at_most, functions.compare_)
_DESCENDING: Final = (functions.greater, functions.at_least)


@sorting_define("sort", charges=True, shown="comparator? coll")
def sort(budget: Budget, comp_or_coll: Any, coll: Any = MISSING) -> list[Any]:
    """Sort in natural order, or by a comparator given before the collection.

    (sort [3 1 2]) => [1 2 3]
    (sort > [3 1 2]) => [3 2 1]
    (sort ["b" nil "a"]) => [nil "a" "b"]
    """
    comparator, source = (MISSING, comp_or_coll) if coll is MISSING else (comp_or_coll, coll)
    found = items("sort", source, budget)
    return _sort_items("sort", found, found, comparator, budget)


@sorting_define("sort-by", charges=True, shown="key comparator? coll")
def sort_by(budget: Budget, key: Any, comp_or_coll: Any, coll: Any = MISSING) -> list[Any]:
    """Sort by the value of each item under a key, or by a function of the item.

    A comparator can be given before the collection.

    (sort-by :age [{:age 30} {:age 25}]) => [{:age 25} {:age 30}]
    (sort-by :age > [{:age 25} {:age 30}]) => [{:age 30} {:age 25}]
    (sort-by count ["aaa" "b"]) => ["b" "aaa"]
    """
    comparator, source = (MISSING, comp_or_coll) if coll is MISSING else (comp_or_coll, coll)
    if type(source) not in (list, dict, LispSet, str) and source is not None:
        raise wrong("sort-by", "a collection", source, hint="The order is (sort-by key comparator coll).")
    found = items("sort-by", source, budget)
    return _sort_items("sort-by", found, key_column("sort-by", key, found, budget), comparator, budget)


def _sort_items(op: str, found: list[Any], keys: list[Any], comparator: Any, budget: Budget) -> list[Any]:
    """Return the items in the order of their keys."""
    budget.cells(len(found))
    budget.steps(len(found) * max(1, len(found).bit_length() >> 2))
    named = function_named(comparator)
    if comparator is MISSING or named in _ASCENDING:
        return _sort_naturally(found, keys, budget, descending=False)
    if named in _DESCENDING:
        return _sort_naturally(found, keys, budget, descending=True)
    return _sort_by_key(found, list(map(_comparator(op, comparator, budget), keys)))


def _sort_naturally(found: list[Any], keys: list[Any], budget: Budget, *, descending: bool) -> list[Any]:
    """Return the items in the natural order of their keys; nils first, or last in descending order."""
    kinds = set(map(type, keys))
    if type(None) in kinds and len(kinds) > 1:
        nils = [item for item, key in zip(found, keys, strict=True) if key is None]
        named = [(item, key) for item, key in zip(found, keys, strict=True) if key is not None]
        others = _sort_naturally(
            [item for item, _ in named], [key for _, key in named], budget, descending=descending
        )
        return others + nils if descending else nils + others
    return _sort_by_key(found, in_natural_order(keys, budget), descending=descending)


def in_natural_order(keys: list[Any], budget: Budget) -> list[Any]:
    """Return the keys, which do not mix nil with others, in a form that Python orders as the language does."""
    kinds = set(map(type, keys))
    if kinds <= NUMBERS or (len(kinds) == 1 and kinds <= _PYTHONS_OWN):
        return keys
    if kinds == {Keyword}:
        return [key.name for key in keys]
    return list(map(cmp_to_key(lambda a, b: compare(a, b, budget)), keys))


_PYTHONS_OWN: Final = frozenset({str, bool})


def _comparator(op: str, comparator: Any, budget: Budget) -> Callable[[Any], Any]:
    """Return Python's sort key for a comparator: (f a b) is true, or a negative number, if a comes before b."""
    function = as_function(comparator, 2, op)

    def order(a: Any, b: Any) -> Any:
        budget.tick()
        answer = function(a, b)
        if type(answer) is int or type(answer) is float:
            return answer
        return 0 if answer is None or answer is False else -1

    return cmp_to_key(order)


def _sort_by_key(found: list[Any], keys: list[Any], *, descending: bool = False) -> list[Any]:
    if found is keys:
        return sorted(found, reverse=descending)
    order = sorted(range(len(keys)), key=keys.__getitem__, reverse=descending)
    return [found[index] for index in order]


# Functions that compute one value, or one value per group, from many items.

aggregation_define: Final = Family("Aggregating")


def total(op: str, numbers: list[Any], initial: Any = 0) -> Any:
    """Return the sum of numbers."""
    try:
        return sum(numbers, initial)
    except OverflowError:
        raise refuse(op, "the sum is too large for a float", "use smaller numbers or integers") from None


def _amounts(op: str, values: list[Any]) -> list[Any]:
    """Return the numbers among the values; nils are left out, anything else is an error."""
    kinds = set(map(type, values))
    if kinds <= NUMBERS:
        return values
    if not kinds <= NUMBERS | {type(None)}:
        index = next(i for i, each in enumerate(values) if type(each) not in NUMBERS and each is not None)
        hint = "Turn text into numbers first: (parse-long s), (parse-double s)." if type(values[index]) is str else ""
        raise wrong(op, "numbers", values[index], item=index, hint=hint)
    return [each for each in values if each is not None]


def _key_amounts(op: str, key: Any, coll: Any, budget: Budget) -> list[Any]:
    return _amounts(op, key_column(op, key, items(op, coll, budget), budget))


@aggregation_define("sum-by", charges=True)
def sum_by(budget: Budget, key: Any, coll: Any) -> Any:
    """Return the sum of the items' values under a key, or of a function of them; nils are ignored.

    (sum-by :amount [{:amount 10} {:amount nil} {:amount 5}]) => 15
    (sum-by :amount []) => 0
    """
    return total("sum-by", _key_amounts("sum-by", key, coll, budget))


@aggregation_define("avg-by", charges=True)
def avg_by(budget: Budget, key: Any, coll: Any) -> Any:
    """Return the average of the items' values under a key; nils are ignored; nil without values.

    (avg-by :amount [{:amount 10} {:amount 20}]) => 15.0
    (avg-by :amount []) => nil
    """
    return _average("avg-by", _key_amounts("avg-by", key, coll, budget))


def _average(op: str, amounts: list[Any]) -> Any:
    return numbers.divide(total(op, amounts), len(amounts)) if amounts else None


@aggregation_define("sum", charges=True)
def sum_(budget: Budget, coll: Any) -> Any:
    """Return the sum of numbers; nils are ignored.

    (sum [1 2 3]) => 6
    """
    found = items("sum", coll, budget)
    budget.steps(len(found))
    return total("sum", _amounts("sum", found))


@aggregation_define("avg", charges=True)
def avg(budget: Budget, coll: Any) -> Any:
    """Return the average of numbers; nils are ignored; nil without numbers.

    (avg [1 2 3 4]) => 2.5
    """
    found = items("avg", coll, budget)
    budget.steps(len(found))
    return _average("avg", _amounts("avg", found))


@aggregation_define("min-by", charges=True)
def min_by(budget: Budget, key: Any, coll: Any) -> Any:
    """Return the item with the smallest value under a key; items without one are ignored; nil without items.

    (min-by :price [{:price 10} {:price nil} {:price 5}]) => {:price 5}
    """
    return _extreme_by("min-by", min, key, coll, budget)


@aggregation_define("max-by", charges=True)
def max_by(budget: Budget, key: Any, coll: Any) -> Any:
    """Return the item with the greatest value under a key; nil without items.

    Items without one are ignored.

    (max-by :price [{:price 10} {:price nil} {:price 5}]) => {:price 10}
    """
    return _extreme_by("max-by", max, key, coll, budget)


def _extreme_by(op: str, choose: Callable[..., Any], key: Any, coll: Any, budget: Budget) -> Any:
    found = items(op, coll, budget)
    values = key_column(op, key, found, budget)
    known = [index for index, value in enumerate(values) if value is not None]
    if not known:
        return None
    ordered = in_natural_order(values if len(known) == len(values) else [values[index] for index in known], budget)
    best = choose(range(len(known)), key=ordered.__getitem__)
    return found[known[best]]


@aggregation_define("max-key", charges=True)
def max_key(budget: Budget, f: Any, x: Any, *xs: Any) -> Any:
    """Return the argument for which f is greatest; of several the last one.

    (max-key count "a" "abc" "ab") => "abc"
    """
    return _extreme_by("max-key", max, f, [x, *xs][::-1], budget)


@aggregation_define("min-key", charges=True)
def min_key(budget: Budget, f: Any, x: Any, *xs: Any) -> Any:
    """Return the argument for which f is smallest; of several the last one.

    (min-key count "abc" "a" "ab") => "a"
    """
    return _extreme_by("min-key", min, f, [x, *xs][::-1], budget)


@aggregation_define("group-by", charges=True)
def group_by(budget: Budget, key: Any, coll: Any) -> dict[Any, Any]:
    """Return a map from each value under a key to the items that have it.

    (group-by :k [{:k 1 :v "a"} {:k 2} {:k 1}]) => {1 [{:k 1 :v "a"} {:k 1}] 2 [{:k 2}]}
    (group-by odd? [1 2 3]) => {true [1 3] false [2]}
    """
    found = items("group-by", coll, budget)
    keys = as_keys(key_column("group-by", key, found, budget), budget)
    budget.cells(3 * len(found))
    groups: defaultdict[Any, list[Any]] = defaultdict(list)
    for name, item in zip(keys, found, strict=True):
        groups[name].append(item)
    return dict(groups)


@aggregation_define("count-by", charges=True)
def count_by(budget: Budget, key: Any, coll: Any) -> dict[Any, int]:
    """Return a map from each value under a key to the number of items that have it.

    (count-by :k [{:k "a"} {:k "b"} {:k "a"}]) => {"a" 2 "b" 1}
    """
    found = key_column("count-by", key, items("count-by", coll, budget), budget)
    return dict(Counter(as_keys(found, budget)))


@aggregation_define("frequencies", charges=True)
def frequencies(budget: Budget, coll: Any) -> dict[Any, int]:
    """Return a map from each distinct item to the number of times it occurs.

    (frequencies ["a" "b" "a"]) => {"a" 2 "b" 1}
    """
    found = items("frequencies", coll, budget)
    budget.cells(2 * len(found))
    budget.steps(len(found))
    return dict(Counter(as_keys(found, budget)))


@aggregation_define("index-by", charges=True)
def index_by(budget: Budget, key: Any, coll: Any) -> dict[Any, Any]:
    """Return a map from each value under a key to the last item that has it.

    (index-by :id [{:id 1 :name "a"} {:id 2 :name "b"}]) => {1 {:id 1 :name "a"} 2 {:id 2 :name "b"}}
    """
    found = items("index-by", coll, budget)
    budget.cells(2 * len(found))
    return dict(zip(as_keys(key_column("index-by", key, found, budget), budget), found, strict=True))


define: Final = Family("Reducing and testing")


@define("reduce", charges=True, shown="f init? coll")
def reduce(budget: Budget, f: Any, init_or_coll: Any, coll: Any = MISSING) -> Any:
    """Combine the items: call f with the result so far and the next item. ``(reduced x)`` ends it early.

    Without an initial value it starts with the first item; the result for an empty collection is then (f), or nil if
    f needs arguments.

    (reduce + 0 [1 2 3]) => 6
    (reduce - 10 [1 2 3]) => 4
    (reduce + []) => 0
    """
    found = items("reduce", init_or_coll if coll is MISSING else coll, budget)
    if coll is MISSING:
        if not found:
            made = _WITHOUT_ARGUMENTS.get(function_named(as_function(f, 2, "reduce")))
            return list(made) if type(made) is list else made
        initial, found = found[0], found[1:]
    else:
        initial = init_or_coll
    if function_named(f) is numbers.add and type(initial) in NUMBERS and set(map(type, found)) <= NUMBERS:
        budget.steps(len(found))
        return total("reduce", found, initial)
    if found and function_named(f) in _AT_ONCE:
        return function_named(f)(budget, initial, *found)
    held = [initial]
    del init_or_coll, initial
    function = as_function(f, 2, "reduce")
    for item in budget.each(found):
        # The value is passed on without keeping a reference, so that a function can add to it in place.
        held.append(function(held.pop(), item))
        if type(held[0]) is Reduced:
            return held[0].value
    return held[0]


_WITHOUT_ARGUMENTS: Final[dict[Any, Any]] = {
    numbers.add: 0,
    numbers.multiply: 1,
    text.str_: "",
    collections.conj: [],
    collections.concat: [],
}

_AT_ONCE: Final = (collections.conj, maps.merge, collections.concat)
"""Functions that give the same result when called once with all items, which avoids a copy for each item."""


class Reduced:
    """The value with which a reduction ends before its collection does."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


@define("reduced")
def reduced(x: Any) -> Reduced:
    """End a ``reduce`` with this value.

    (reduce (fn [sum x] (if (> sum 5) (reduced sum) (+ sum x))) 0 [1 2 3 4 5]) => 6
    """
    return Reduced(x)


@collections.stages_define("transduce", charges=True, shown="stage f init? coll")
def transduce(budget: Budget, stage: Any, f: Any, init_or_coll: Any, coll: Any = MISSING) -> Any:
    """Reduce the result of a pipeline for a collection with f; the default initial value is (f).

    (transduce (comp (filter odd?) (map inc)) + 0 [1 2 3]) => 6
    (transduce (map inc) + [1 2]) => 5
    """
    if coll is MISSING:
        init_or_coll, coll = as_function(f, 0, "transduce")(), init_or_coll
    return reduce(budget, f, init_or_coll, run_stage("transduce", stage, coll, budget))


@define("reduce-kv", charges=True)
def reduce_kv(budget: Budget, f: Any, init: Any, m: Any) -> Any:
    """Reduce a map or vector: call f with the result so far, a key or index, and its value.

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
    """Return all intermediate results of ``reduce``.

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
    """Return the first true result of pred, or nil.

    (some even? [1 2 3]) => true
    (some #{"x"} ["a" "x"]) => "x"
    """
    return _first_answer("some", pred, coll, budget)


def _first_answer(op: str, pred: Any, coll: Any, budget: Budget) -> Any:
    function = as_function(pred, 1, op)
    found = coll.charged_items(budget) if type(coll) is Endless else budget.each(items(op, coll, budget))
    for item in found:
        answer = function(item)
        if answer is not None and answer is not False:
            return answer
    return None


@define("every?", charges=True)
def is_every(budget: Budget, pred: Any, coll: Any) -> bool:
    """Whether pred is true for all items; true without items.

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
    """Whether pred is true for no item.

    (not-any? even? [1 3]) => true
    """
    return _first_answer("not-any?", pred, coll, budget) is None


@define("not-every?", charges=True)
def is_not_every(budget: Budget, pred: Any, coll: Any) -> bool:
    """Whether pred is not true for some item.

    (not-every? even? [1 2]) => true
    """
    return _first_answer("not-every?", complement(budget, pred), coll, budget) is not None
