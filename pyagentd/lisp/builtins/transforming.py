"""Functions that turn every item, choose items or rearrange them; all return vectors."""

from __future__ import annotations

from itertools import chain
from typing import Any, Final

from pyagentd.lisp.access import as_function
from pyagentd.lisp.builtins.arguments import items, wrong
from pyagentd.lisp.builtins.columns import as_keys, chosen, column, key_column, left
from pyagentd.lisp.builtins.stages import Stage
from pyagentd.lisp.builtins.table import Family
from pyagentd.lisp.endless import ended
from pyagentd.lisp.limits import Budget
from pyagentd.lisp.missing import MISSING
from pyagentd.lisp.order import equal
from pyagentd.lisp.values import LispSet

FAMILY: Final = Family("Turning and choosing items")
define = FAMILY.define


@define("map", "mapv", charges=True, shown="f coll colls…")
def map_(budget: Budget, f: Any, coll: Any = MISSING, *colls: Any) -> Any:
    """Call f with each item; with several collections, with the first items, the second items and so on.

    A map is gone through as ``[key value]`` pairs.

    (map inc [1 2 3]) => [2 3 4]
    (map :name [{:name "Ada"} {:name "Alan"}]) => ["Ada" "Alan"]
    (map + [1 2] [10 20]) => [11 22]
    """
    if coll is MISSING:
        return Stage(lambda found: map_(budget, f, found))
    if not colls:
        return column("map", f, items("map", coll, budget), budget)
    columns = ended((coll, *colls), lambda each: items("map", each, budget), "map", budget)
    function = as_function(f, len(columns), "map")
    count = min(map(len, columns))
    budget.cells(count)
    return list(map(function, budget.each(columns[0][:count]), *columns[1:]))


@define("pluck", charges=True)
def pluck(budget: Budget, key: Any, coll: Any) -> list[Any]:
    """Return the value every item has under a key.

    (pluck :email [{:email "a@b.de"} {:email "c@d.de"}]) => ["a@b.de" "c@d.de"]
    """
    return key_column("pluck", key, items("pluck", coll, budget), budget)


@define("filter", "filterv", charges=True, shown="pred coll")
def filter_(budget: Budget, pred: Any, coll: Any = MISSING) -> Any:
    """Return the items for which pred gives neither nil nor false.

    (filter even? [1 2 3 4]) => [2 4]
    (filter :active [{:id 1 :active true} {:id 2}]) => [{:id 1 :active true}]
    """
    if coll is MISSING:
        return Stage(lambda found: filter_(budget, pred, found))
    found = items("filter", coll, budget)
    budget.cells(len(found))
    return chosen("filter", pred, found, budget)


@define("remove", charges=True, shown="pred coll")
def remove(budget: Budget, pred: Any, coll: Any = MISSING) -> Any:
    """Return the items for which pred gives nil or false.

    (remove even? [1 2 3 4]) => [1 3]
    """
    if coll is MISSING:
        return Stage(lambda found: remove(budget, pred, found))
    found = items("remove", coll, budget)
    budget.cells(len(found))
    return left("remove", pred, found, budget)


@define("keep", charges=True, shown="f coll")
def keep(budget: Budget, f: Any, coll: Any = MISSING) -> Any:
    """Return what f gives for each item, without nils.

    (keep parse-long ["1" "x" "3"]) => [1 3]
    """
    if coll is MISSING:
        return Stage(lambda found: keep(budget, f, found))
    return [each for each in column("keep", f, items("keep", coll, budget), budget) if each is not None]


@define("map-indexed", charges=True, shown="f coll")
def map_indexed(budget: Budget, f: Any, coll: Any = MISSING) -> Any:
    """Call f with the index and the item.

    (map-indexed (fn [i x] [i x]) ["a" "b"]) => [[0 "a"] [1 "b"]]
    """
    if coll is MISSING:
        return Stage(lambda found: map_indexed(budget, f, found))
    found = items("map-indexed", coll, budget)
    budget.cells(len(found))
    return list(map(as_function(f, 2, "map-indexed"), range(len(found)), budget.each(found)))


@define("keep-indexed", charges=True, shown="f coll")
def keep_indexed(budget: Budget, f: Any, coll: Any = MISSING) -> Any:
    """Call f with the index and the item; without nils.

    (keep-indexed (fn [i x] (when (odd? i) x)) [:a :b :c :d]) => [:b :d]
    """
    if coll is MISSING:
        return Stage(lambda found: keep_indexed(budget, f, found))
    return [each for each in map_indexed(budget, f, coll) if each is not None]


@define("mapcat", charges=True, shown="f coll colls…")
def mapcat(budget: Budget, f: Any, coll: Any = MISSING, *colls: Any) -> Any:
    """Call f with each item and join the collections it gives.

    (mapcat :tags [{:tags [1 2]} {:tags [3]}]) => [1 2 3]
    """
    if coll is MISSING:
        return Stage(lambda found: mapcat(budget, f, found))
    return joined("mapcat", map_(budget, f, coll, *colls), budget)


def joined(op: str, colls: Any, budget: Budget) -> list[Any]:
    """Return the items of all collections in one list."""
    parts = [items(op, each, budget) for each in budget.each(colls)]
    total = sum(map(len, parts))
    budget.cells(total)
    budget.steps(total)
    return list(chain.from_iterable(parts))


@define("concat", "concatv", charges=True)
def concat(budget: Budget, *colls: Any) -> list[Any]:
    """Return the items of all collections, one after the other.

    (concat [1 2] [3] nil [4]) => [1 2 3 4]
    """
    return joined("concat", colls, budget)


@define("flatten", charges=True)
def flatten(budget: Budget, coll: Any) -> list[Any]:
    """Return the items of nested vectors in one vector; maps and sets in it stay as they are.

    (flatten [1 [2 [3 4]] {:a [5]}]) => [1 2 3 4 {:a [5]}]
    """
    result: list[Any] = []
    waiting = [iter(_vector_or_set("flatten", coll, budget))]
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


def _vector_or_set(op: str, coll: Any, budget: Budget) -> list[Any]:
    if type(coll) is list or type(coll) is LispSet or coll is None:
        return items(op, coll, budget)
    raise wrong(op, "a vector", coll)


@define("distinct", charges=True, shown="coll")
def distinct(budget: Budget, coll: Any = MISSING) -> Any:
    """Return the items without later ones that are equal to an earlier one.

    (distinct [1 2 1 3 2]) => [1 2 3]
    """
    if coll is MISSING:
        return Stage(lambda found: distinct(budget, found))
    if type(coll) is dict:
        raise wrong("distinct", "a vector", coll, hint="The keys of a map are distinct; see (distinct (vals m)).")
    found = items("distinct", coll, budget)
    return without_repeats(found, as_keys(found, budget), budget)


@define("distinct-by", charges=True)
def distinct_by(budget: Budget, key: Any, coll: Any) -> list[Any]:
    """Return the first item of each key.

    (distinct-by :a [{:a 1 :b 1} {:a 1 :b 2} {:a 2}]) => [{:a 1 :b 1} {:a 2}]
    """
    found = items("distinct-by", coll, budget)
    return without_repeats(found, as_keys(key_column("distinct-by", key, found, budget), budget), budget)


def without_repeats(found: list[Any], keys: list[Any], budget: Budget) -> list[Any]:
    """Return the first item of every key."""
    budget.cells(len(found))
    budget.steps(len(found))
    # Written backwards the first one stays; the order is restored by taking the keys forwards.
    first = dict(zip(reversed(keys), reversed(found), strict=True))
    return [first[key] for key in dict.fromkeys(keys)]


@define("dedupe", charges=True, shown="coll")
def dedupe(budget: Budget, coll: Any = MISSING) -> Any:
    """Return the items without those that are equal to the one before.

    (dedupe [1 1 2 2 1]) => [1 2 1]
    """
    if coll is MISSING:
        return Stage(lambda found: dedupe(budget, found))
    found = items("dedupe", coll, budget)
    budget.cells(len(found))
    return [
        item
        for index, item in enumerate(budget.each(found))
        if index == 0 or not equal(item, found[index - 1], budget)
    ]
