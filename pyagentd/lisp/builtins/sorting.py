"""Sorting: natural order with nil first, or what a comparator says.

Strings, numbers, keywords, booleans and vectors are ordered among themselves; a mixture is an error (DD-25). The
order of equal items stays. A comparator that contradicts itself gives some order of the same items.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cmp_to_key
from typing import Any, Final

from pyagentd.lisp.access import as_function
from pyagentd.lisp.builtins import comparing
from pyagentd.lisp.builtins.arguments import NUMBERS, function_named, items, wrong
from pyagentd.lisp.builtins.columns import key_column
from pyagentd.lisp.builtins.table import Family
from pyagentd.lisp.limits import Budget
from pyagentd.lisp.missing import MISSING
from pyagentd.lisp.order import compare
from pyagentd.lisp.values import Keyword, LispSet

FAMILY: Final = Family("Sorting")
define = FAMILY.define

_ASCENDING: Final = (comparing.less, comparing.at_most, comparing.compare_)
_DESCENDING: Final = (comparing.greater, comparing.at_least)


@define("sort", charges=True, shown="comparator? coll")
def sort(budget: Budget, comp_or_coll: Any, coll: Any = MISSING) -> list[Any]:
    """Sort in natural order, or by a comparator that stands before the collection.

    (sort [3 1 2]) => [1 2 3]
    (sort > [3 1 2]) => [3 2 1]
    (sort ["b" nil "a"]) => [nil "a" "b"]
    """
    comparator, source = (MISSING, comp_or_coll) if coll is MISSING else (comp_or_coll, coll)
    found = items("sort", source, budget)
    return _sorted("sort", found, found, comparator, budget)


@define("sort-by", charges=True, shown="key comparator? coll")
def sort_by(budget: Budget, key: Any, comp_or_coll: Any, coll: Any = MISSING) -> list[Any]:
    """Sort by what every item has under a key or a function gives for it.

    A comparator may stand before the collection.

    (sort-by :age [{:age 30} {:age 25}]) => [{:age 25} {:age 30}]
    (sort-by :age > [{:age 25} {:age 30}]) => [{:age 30} {:age 25}]
    (sort-by count ["aaa" "b"]) => ["b" "aaa"]
    """
    comparator, source = (MISSING, comp_or_coll) if coll is MISSING else (comp_or_coll, coll)
    if type(source) not in (list, dict, LispSet, str) and source is not None:
        raise wrong("sort-by", "a collection", source, hint="The order is (sort-by key comparator coll).")
    found = items("sort-by", source, budget)
    return _sorted("sort-by", found, key_column("sort-by", key, found, budget), comparator, budget)


def _sorted(op: str, found: list[Any], keys: list[Any], comparator: Any, budget: Budget) -> list[Any]:
    """Return the items in the order of their keys."""
    budget.cells(len(found))
    budget.steps(len(found) * max(1, len(found).bit_length() >> 2))
    named = function_named(comparator)
    if comparator is MISSING or named in _ASCENDING:
        return _natural(found, keys, budget, descending=False)
    if named in _DESCENDING:
        return _natural(found, keys, budget, descending=True)
    return _by_key(found, list(map(_comparator(op, comparator, budget), keys)))


def _natural(found: list[Any], keys: list[Any], budget: Budget, *, descending: bool) -> list[Any]:
    """Return the items in the natural order of their keys; nils first, or last in descending order."""
    kinds = set(map(type, keys))
    if type(None) in kinds and len(kinds) > 1:
        nils = [item for item, key in zip(found, keys, strict=True) if key is None]
        named = [(item, key) for item, key in zip(found, keys, strict=True) if key is not None]
        others = _natural([item for item, _ in named], [key for _, key in named], budget, descending=descending)
        return others + nils if descending else nils + others
    return _by_key(found, in_natural_order(keys, budget), descending=descending)


def in_natural_order(keys: list[Any], budget: Budget) -> list[Any]:
    """Return the keys, none of them nil among others, in a form that Python orders as the language does."""
    kinds = set(map(type, keys))
    if kinds <= NUMBERS or (len(kinds) == 1 and kinds <= _PYTHONS_OWN):
        return keys
    if kinds == {Keyword}:
        return [key.name for key in keys]
    return list(map(cmp_to_key(lambda a, b: compare(a, b, budget)), keys))


_PYTHONS_OWN: Final = frozenset({str, bool})


def _comparator(op: str, comparator: Any, budget: Budget) -> Callable[[Any], Any]:
    """Python's sort key for a function that says whether, or with a negative number that, a comes before b."""
    function = as_function(comparator, 2, op)

    def order(a: Any, b: Any) -> Any:
        budget.tick()
        answer = function(a, b)
        if type(answer) is int or type(answer) is float:
            return answer
        return 0 if answer is None or answer is False else -1

    return cmp_to_key(order)


def _by_key(found: list[Any], keys: list[Any], *, descending: bool = False) -> list[Any]:
    if found is keys:
        return sorted(found, reverse=descending)
    order = sorted(range(len(keys)), key=keys.__getitem__, reverse=descending)
    return [found[index] for index in order]
