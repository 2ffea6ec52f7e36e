"""Functions that take items or parts out of a collection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pyagentd.lisp import access
from pyagentd.lisp.access import as_function
from pyagentd.lisp.builtins.arguments import items, refuse, size, vector, whole, wrong
from pyagentd.lisp.builtins.graphemes import length
from pyagentd.lisp.builtins.stages import Stage
from pyagentd.lisp.builtins.table import Family
from pyagentd.lisp.endless import Endless
from pyagentd.lisp.limits import Budget
from pyagentd.lisp.missing import MISSING
from pyagentd.lisp.values import LispSet, truthy

FAMILY: Final = Family("Taking items and parts")
define = FAMILY.define


@define("count", charges=True)
def count(budget: Budget, coll: Any) -> int:
    """How many items a collection or characters a string has; 0 for nil.

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


@define("empty?")
def is_empty(coll: Any) -> bool:
    """Whether a collection or string has nothing in it; true for nil.

    (empty? []) => true
    (empty? {:a 1}) => false
    """
    if coll is None:
        return True
    if type(coll) in _SIZED:
        return len(coll) == 0
    raise wrong("empty?", "a collection or string", coll)


_SIZED: Final = frozenset({list, dict, LispSet, str})


@define("not-empty")
def not_empty(coll: Any) -> Any:
    """Return the collection itself, or nil when it is empty.

    (not-empty [1]) => [1]
    (not-empty []) => nil
    """
    return None if is_empty(coll) else coll


@define("seq", charges=True)
def seq(budget: Budget, coll: Any) -> Any:
    """Return the items as a vector, or nil when there are none; a string gives its characters.

    (seq "abc") => ["a" "b" "c"]
    (seq []) => nil
    """
    return items("seq", coll, budget) or None


@define("rest", charges=True)
def rest(budget: Budget, coll: Any) -> list[Any]:
    """All items but the first.

    (rest [1 2 3]) => [2 3]
    """
    return _part("rest", coll, budget, 1, None)


@define("next", charges=True)
def next_(budget: Budget, coll: Any) -> Any:
    """All items but the first, nil when there are none.

    (next [1 2 3]) => [2 3]
    (next [1]) => nil
    """
    return _part("next", coll, budget, 1, None) or None


@define("butlast", charges=True)
def butlast(budget: Budget, coll: Any) -> Any:
    """All items but the last.

    (butlast [1 2 3]) => [1 2]
    """
    return _part("butlast", coll, budget, 0, -1)


def _part(op: str, coll: Any, budget: Budget, start: int, end: int | None) -> list[Any]:
    found = items(op, coll, budget)
    part = len(range(len(found))[start:end])
    budget.cells(part)
    budget.steps(part >> 4)
    return found[start:end]


@define("take", charges=True, shown="n coll")
def take(budget: Budget, n: Any, coll: Any = MISSING) -> Any:
    """Return the first n items.

    (take 2 [1 2 3]) => [1 2]
    """
    if coll is MISSING:
        return Stage(lambda found: take(budget, n, found))
    if type(coll) is Endless:
        return coll.prefix(size("take", n), budget)
    return _part("take", coll, budget, 0, size("take", n))


@define("drop", charges=True, shown="n coll")
def drop(budget: Budget, n: Any, coll: Any = MISSING) -> Any:
    """All but the first n items.

    (drop 2 [1 2 3]) => [3]
    """
    if coll is MISSING:
        return Stage(lambda found: drop(budget, n, found))
    if type(coll) is Endless:
        return coll.without(size("drop", n), budget)
    return _part("drop", coll, budget, size("drop", n), None)


@define("take-last", charges=True)
def take_last(budget: Budget, n: Any, coll: Any) -> list[Any]:
    """Return the last n items.

    (take-last 2 [1 2 3]) => [2 3]
    """
    found = items("take-last", coll, budget)
    return _part("take-last", found, budget, max(0, len(found) - size("take-last", n)), None)


@define("drop-last", charges=True, shown="n? coll")
def drop_last(budget: Budget, n_or_coll: Any, coll: Any = MISSING) -> list[Any]:
    """All but the last n items, all but one without n.

    (drop-last 2 [1 2 3]) => [1]
    (drop-last [1 2 3]) => [1 2]
    """
    n = 1 if coll is MISSING else size("drop-last", n_or_coll)
    found = items("drop-last", n_or_coll if coll is MISSING else coll, budget)
    return _part("drop-last", found, budget, 0, max(0, len(found) - n))


@define("nthrest", "nthnext", charges=True, shown="coll n")
def nthrest(budget: Budget, coll: Any, n: Any) -> list[Any]:
    """All but the first n items; the collection comes first.

    (nthrest [1 2 3] 1) => [2 3]
    """
    return _part("nthrest", coll, budget, size("nthrest", n), None)


@define("take-nth", charges=True, shown="n coll")
def take_nth(budget: Budget, n: Any, coll: Any = MISSING) -> Any:
    """Every n-th item, beginning with the first.

    (take-nth 2 [1 2 3 4 5]) => [1 3 5]
    """
    if coll is MISSING:
        return Stage(lambda found: take_nth(budget, n, found))
    step = size("take-nth", n)
    if step < 1:
        raise refuse("take-nth", "the number must be positive")
    found = items("take-nth", coll, budget)
    budget.cells(len(found) // step + 1)
    return found[::step]


@define("take-while", charges=True, shown="pred coll")
def take_while(budget: Budget, pred: Any, coll: Any = MISSING) -> Any:
    """Return the items before the first one for which pred gives nil or false.

    (take-while pos? [2 1 0 5]) => [2 1]
    """
    if coll is MISSING:
        return Stage(lambda found: take_while(budget, pred, found))
    if type(coll) is Endless:
        return _taken_while(as_function(pred, 1, "take-while"), coll, budget)
    found = items("take-while", coll, budget)
    return _part("take-while", found, budget, 0, _run_length("take-while", pred, found, budget))


def _taken_while(function: Callable[[Any], Any], coll: Endless, budget: Budget) -> list[Any]:
    taken: list[Any] = []
    for item in coll.ticking(budget):
        if not truthy(function(item)):
            break
        budget.cells(1)
        taken.append(item)
    return taken


@define("drop-while", charges=True, shown="pred coll")
def drop_while(budget: Budget, pred: Any, coll: Any = MISSING) -> Any:
    """Return the items from the first one on for which pred gives nil or false.

    (drop-while pos? [2 1 0 5]) => [0 5]
    """
    if coll is MISSING:
        return Stage(lambda found: drop_while(budget, pred, found))
    found = items("drop-while", coll, budget)
    return _part("drop-while", found, budget, _run_length("drop-while", pred, found, budget), None)


@define("split-at", charges=True)
def split_at(budget: Budget, n: Any, coll: Any) -> list[Any]:
    """Return the first n items and the others.

    (split-at 2 [1 2 3]) => [[1 2] [3]]
    """
    return [take(budget, n, coll), drop(budget, n, coll)]


@define("split-with", charges=True)
def split_with(budget: Budget, pred: Any, coll: Any) -> list[Any]:
    """Return what ``take-while`` and ``drop-while`` give.

    (split-with pos? [2 1 0 5]) => [[2 1] [0 5]]
    """
    found = items("split-with", coll, budget)
    return split_at(budget, _run_length("split-with", pred, found, budget), found)


def _run_length(op: str, pred: Any, found: list[Any], budget: Budget) -> int:
    """How many items from the first on fulfil pred."""
    function = as_function(pred, 1, op)
    for index, item in enumerate(budget.each(found)):
        answer = function(item)
        if answer is None or answer is False:
            return index
    return len(found)


@define("subvec", charges=True)
def subvec(budget: Budget, v: Any, start: Any, end: Any = MISSING) -> list[Any]:
    """Return the items of a vector from an index on, up to another one that is not included.

    (subvec [1 2 3 4] 1 3) => [2 3]
    """
    found = vector("subvec", v)
    first_at = whole("subvec", start)
    before = len(found) if end is MISSING else whole("subvec", end)
    if not 0 <= first_at <= before <= len(found):
        raise refuse("subvec", f"the part is not within a vector of {len(found)} items", "Use take and drop.")
    return _part("subvec", found, budget, first_at, before)


@define("pop", charges=True)
def pop(budget: Budget, v: Any) -> list[Any]:
    """Return a vector without its last item.

    (pop [1 2 3]) => [1 2]
    """
    return _part("pop", vector("pop", v), budget, 0, -1)


@define("find", charges=True, shown="pred coll")
def find(budget: Budget, pred: Any, coll: Any) -> Any:
    """Return the first item for which pred gives neither nil nor false.

    For a map and a key it returns their ``[key value]`` pair.

    (find even? [1 2 4]) => 2
    (find {:a 1} :a) => [:a 1]
    """
    if type(pred) is dict and type(coll) not in (list, dict, LispSet):
        return _entry(pred, coll, budget)
    function = as_function(pred, 1, "find")
    for item in budget.each(items("find", coll, budget)):
        answer = function(item)
        if answer is not None and answer is not False:
            return item
    return None


def _entry(mapping: dict[Any, Any], key: Any, budget: Budget) -> Any:
    value = access.find(mapping, key, budget=budget)
    return None if value is MISSING else [key, value]
