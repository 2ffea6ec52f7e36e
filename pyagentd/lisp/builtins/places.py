"""The item at a place of a collection."""

from __future__ import annotations

from typing import Any, Final

from pyagentd.lisp.builtins.arguments import items, vector, whole
from pyagentd.lisp.builtins.table import Family
from pyagentd.lisp.endless import Endless
from pyagentd.lisp.limits import Budget

FAMILY: Final = Family("The item at a place")
define = FAMILY.define


@define("first", charges=True)
def first(budget: Budget, coll: Any) -> Any:
    """Return the first item, nil when there is none.

    (first [1 2 3]) => 1
    (first []) => nil
    """
    if type(coll) is list:
        return coll[0] if coll else None
    found = _beginning("first", coll, 1, budget)
    return found[0] if found else None


def _beginning(op: str, coll: Any, count: int, budget: Budget) -> list[Any]:
    """Return all items, or as many of an endless sequence."""
    return coll.prefix(max(count, 0), budget) if type(coll) is Endless else items(op, coll, budget)


@define("second", charges=True)
def second(budget: Budget, coll: Any) -> Any:
    """Return the second item, nil when there is none.

    (second [1 2 3]) => 2
    """
    found = _beginning("second", coll, 2, budget)
    return found[1] if len(found) > 1 else None


@define("last", charges=True)
def last(budget: Budget, coll: Any) -> Any:
    """Return the last item, nil when there is none.

    (last [1 2 3]) => 3
    """
    found = items("last", coll, budget)
    return found[-1] if found else None


@define("ffirst", charges=True)
def ffirst(budget: Budget, coll: Any) -> Any:
    """Return the first item of the first item.

    (ffirst [[1 2] [3]]) => 1
    """
    return first(budget, first(budget, coll))


@define("nth", charges=True)
def nth(budget: Budget, coll: Any, index: Any, default: Any = None) -> Any:
    """Return the item at an index that counts from 0; the default, or nil, when there is none.

    (nth [10 20 30] 1) => 20
    (nth [10] 5) => nil
    (nth [10] 5 :none) => :none
    """
    at = whole("nth", index)
    found = _beginning("nth", coll, at + 1, budget)
    return found[at] if 0 <= at < len(found) else default


@define("peek", charges=True)
def peek(budget: Budget, v: Any) -> Any:
    """Return the last item of a vector, nil when there is none.

    (peek [1 2 3]) => 3
    """
    return last(budget, vector("peek", v))
