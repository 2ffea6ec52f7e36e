"""Sets: union, intersection, difference and what contains what. A vector may stand for the set of its items."""

from __future__ import annotations

from typing import Any, Final

from pyagentd.lisp.builtins.arguments import collection_set
from pyagentd.lisp.builtins.table import Family
from pyagentd.lisp.limits import Budget
from pyagentd.lisp.values import LispSet, as_key

FAMILY: Final = Family("Sets")
define = FAMILY.define


def _sets(op: str, sets: tuple[Any, ...], budget: Budget) -> list[LispSet]:
    found = [collection_set(op, each, budget) for each in sets]
    total = sum(map(len, found))
    budget.cells(total)
    budget.steps(total)
    return found


@define("union", "set/union", "clojure.set/union", charges=True)
def union(budget: Budget, *sets: Any) -> LispSet:
    """Return the members of any of the sets.

    (union #{1} #{2}) => #{1 2}
    """
    return LispSet(frozenset().union(*(each.keys for each in _sets("union", sets, budget))))


@define("intersection", "set/intersection", "clojure.set/intersection", charges=True)
def intersection(budget: Budget, first: Any, *sets: Any) -> LispSet:
    """Return the members all sets have.

    (intersection #{1 2} #{2 3}) => #{2}
    """
    found, *others = _sets("intersection", (first, *sets), budget)
    return LispSet(found.keys.intersection(*(each.keys for each in others)))


@define("difference", "set/difference", "clojure.set/difference", charges=True)
def difference(budget: Budget, first: Any, *sets: Any) -> LispSet:
    """Return the members of the first set that no other set has.

    (difference #{1 2} #{2 3}) => #{1}
    """
    found, *others = _sets("difference", (first, *sets), budget)
    return LispSet(found.keys.difference(*(each.keys for each in others)))


@define("subset?", "set/subset?", "clojure.set/subset?", charges=True)
def is_subset(budget: Budget, a: Any, b: Any) -> bool:
    """Whether b has all members of a.

    (subset? #{1} #{1 2}) => true
    """
    one, other = _sets("subset?", (a, b), budget)
    return one.keys <= other.keys


@define("superset?", "set/superset?", "clojure.set/superset?", charges=True)
def is_superset(budget: Budget, a: Any, b: Any) -> bool:
    """Whether a has all members of b.

    (superset? #{1 2} #{1}) => true
    """
    return is_subset(budget, b, a)


@define("disj", charges=True)
def disj(budget: Budget, s: Any, *members: Any) -> LispSet:
    """Return a set without some members.

    (disj #{1 2 3} 2) => #{1 3}
    """
    (found,) = _sets("disj", (s,), budget)
    return LispSet(found.keys.difference([as_key(each, budget) for each in members]))
