"""Functions that make one value, or one value per group, of many items."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any, Final

from pyagentd.lisp.builtins import arithmetic
from pyagentd.lisp.builtins.arguments import NUMBERS, items, refuse, wrong
from pyagentd.lisp.builtins.columns import as_keys, getter, key_column
from pyagentd.lisp.builtins.sorting import in_natural_order
from pyagentd.lisp.builtins.table import Family
from pyagentd.lisp.limits import Budget

FAMILY: Final = Family("Aggregating")
define = FAMILY.define


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


def _measured(op: str, key: Any, coll: Any, budget: Budget) -> list[Any]:
    return _amounts(op, key_column(op, key, items(op, coll, budget), budget))


@define("sum-by", charges=True)
def sum_by(budget: Budget, key: Any, coll: Any) -> Any:
    """Return the sum of what the items have under a key or a function gives for them; nils do not count.

    (sum-by :amount [{:amount 10} {:amount nil} {:amount 5}]) => 15
    (sum-by :amount []) => 0
    """
    return total("sum-by", _measured("sum-by", key, coll, budget))


@define("avg-by", charges=True)
def avg_by(budget: Budget, key: Any, coll: Any) -> Any:
    """Return the average of what the items have under a key; nils do not count; nil when there is nothing.

    (avg-by :amount [{:amount 10} {:amount 20}]) => 15.0
    (avg-by :amount []) => nil
    """
    return _average("avg-by", _measured("avg-by", key, coll, budget))


def _average(op: str, amounts: list[Any]) -> Any:
    return arithmetic.divide(total(op, amounts), len(amounts)) if amounts else None


@define("sum", charges=True)
def sum_(budget: Budget, coll: Any) -> Any:
    """Return the sum of numbers; nils do not count.

    (sum [1 2 3]) => 6
    """
    found = items("sum", coll, budget)
    budget.steps(len(found))
    return total("sum", _amounts("sum", found))


@define("avg", charges=True)
def avg(budget: Budget, coll: Any) -> Any:
    """Return the average of numbers; nils do not count; nil when there is nothing.

    (avg [1 2 3 4]) => 2.5
    """
    found = items("avg", coll, budget)
    budget.steps(len(found))
    return _average("avg", _amounts("avg", found))


@define("min-by", charges=True)
def min_by(budget: Budget, key: Any, coll: Any) -> Any:
    """Return the item with the least value under a key; items without one do not count; nil when there is nothing.

    (min-by :price [{:price 10} {:price nil} {:price 5}]) => {:price 5}
    """
    return _extreme_by("min-by", min, key, coll, budget)


@define("max-by", charges=True)
def max_by(budget: Budget, key: Any, coll: Any) -> Any:
    """Return the item with the greatest value under a key; nil when there is nothing.

    Items without one do not count.

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


@define("max-key", charges=True)
def max_key(budget: Budget, f: Any, x: Any, *xs: Any) -> Any:
    """Return the argument for which f gives the greatest value.

    (max-key count "a" "abc" "ab") => "abc"
    """
    return _extreme_by("max-key", max, getter("max-key", f), [x, *xs], budget)


@define("min-key", charges=True)
def min_key(budget: Budget, f: Any, x: Any, *xs: Any) -> Any:
    """Return the argument for which f gives the least value.

    (min-key count "abc" "a" "ab") => "a"
    """
    return _extreme_by("min-key", min, getter("min-key", f), [x, *xs], budget)


@define("group-by", charges=True)
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


@define("count-by", charges=True)
def count_by(budget: Budget, key: Any, coll: Any) -> dict[Any, int]:
    """Return a map from each value under a key to the number of items that have it.

    (count-by :k [{:k "a"} {:k "b"} {:k "a"}]) => {"a" 2 "b" 1}
    """
    found = key_column("count-by", key, items("count-by", coll, budget), budget)
    return dict(Counter(as_keys(found, budget)))


@define("frequencies", charges=True)
def frequencies(budget: Budget, coll: Any) -> dict[Any, int]:
    """Return a map from each distinct item to the number of times it occurs.

    (frequencies ["a" "b" "a"]) => {"a" 2 "b" 1}
    """
    found = items("frequencies", coll, budget)
    budget.cells(2 * len(found))
    budget.steps(len(found))
    return dict(Counter(as_keys(found, budget)))


@define("index-by", charges=True)
def index_by(budget: Budget, key: Any, coll: Any) -> dict[Any, Any]:
    """Return a map from each value under a key to the last item that has it.

    (index-by :id [{:id 1 :name "a"} {:id 2 :name "b"}]) => {1 {:id 1 :name "a"} 2 {:id 2 :name "b"}}
    """
    found = items("index-by", coll, budget)
    budget.cells(2 * len(found))
    return dict(zip(as_keys(key_column("index-by", key, found, budget), budget), found, strict=True))
