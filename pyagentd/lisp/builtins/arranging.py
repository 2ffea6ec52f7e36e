"""Functions that put items in another order, beside each other or into groups of neighbours."""

from __future__ import annotations

from itertools import chain
from typing import Any, Final

from pyagentd.lisp.builtins.arguments import items, refuse, size
from pyagentd.lisp.builtins.columns import key_column
from pyagentd.lisp.builtins.stages import Stage
from pyagentd.lisp.builtins.table import Family
from pyagentd.lisp.endless import ended
from pyagentd.lisp.limits import Budget
from pyagentd.lisp.missing import MISSING
from pyagentd.lisp.order import equal

FAMILY: Final = Family("Arranging items")
define = FAMILY.define


@define("reverse", charges=True)
def reverse(budget: Budget, coll: Any) -> list[Any]:
    """Return the items in reverse order.

    (reverse [1 2 3]) => [3 2 1]
    """
    found = items("reverse", coll, budget)
    budget.cells(len(found))
    return found[::-1]


@define("interleave", charges=True)
def interleave(budget: Budget, *colls: Any) -> list[Any]:
    """Return the first items of all collections, then the second ones, until one has no more.

    (interleave [1 2] [:a :b]) => [1 :a 2 :b]
    """
    return list(chain.from_iterable(_rows("interleave", colls, budget)))


@define("interpose", charges=True, shown="separator coll")
def interpose(budget: Budget, separator: Any, coll: Any = MISSING) -> Any:
    """Return the items with a separator between them.

    (interpose 0 [1 2 3]) => [1 0 2 0 3]
    """
    if coll is MISSING:
        return Stage(lambda found: interpose(budget, separator, found))
    found = items("interpose", coll, budget)
    budget.cells(2 * len(found))
    return [each for item in budget.each(found) for each in (separator, item)][1:]


@define("zip", charges=True)
def zip_(budget: Budget, *colls: Any) -> list[Any]:
    """Vectors of the first items, the second items and so on, until a collection has no more.

    (zip [1 2] [:a :b]) => [[1 :a] [2 :b]]
    """
    return list(map(list, _rows("zip", colls, budget)))


def _rows(op: str, colls: tuple[Any, ...], budget: Budget) -> Any:
    found = ended(colls, lambda each: items(op, each, budget), op, budget)
    count = min(map(len, found), default=0)
    budget.cells(count * (len(found) + 1))
    budget.steps(count * len(found))
    return zip(*found, strict=False)


@define("partition", charges=True, shown="n step? pad? coll")
def partition(budget: Budget, n: Any, *step_pad_coll: Any) -> list[Any]:
    """Vectors of n items each; items that do not fill one are left out unless padded.

    Between n and the collection may stand a step, and after the step a collection to pad the last vector with.

    (partition 2 [1 2 3 4 5]) => [[1 2] [3 4]]
    (partition 2 1 [1 2 3]) => [[1 2] [2 3]]
    (partition 2 2 [0] [1 2 3]) => [[1 2] [3 0]]
    """
    if not 1 <= len(step_pad_coll) <= 3:
        raise refuse("partition", "expects 2 to 4 arguments", "Write (partition n coll).")
    step = step_pad_coll[0] if len(step_pad_coll) > 1 else n
    parts = _parts("partition", n, step, step_pad_coll[-1], budget)
    whole = [part for part in parts if len(part) >= n]
    if len(step_pad_coll) < 3:
        return whole
    padding = items("partition", step_pad_coll[1], budget)
    return [*whole, *((part + padding)[: size("partition", n)] for part in parts[len(whole) :][:1])]


@define("partition-all", charges=True, shown="n step? coll")
def partition_all(budget: Budget, n: Any, *step_coll: Any) -> Any:
    """Vectors of n items each, the last ones with what is left; a step may stand before the collection.

    (partition-all 2 [1 2 3]) => [[1 2] [3]]
    """
    if not step_coll:
        return Stage(lambda found: partition_all(budget, n, found))
    if len(step_coll) > 2:
        raise refuse("partition-all", "expects 2 or 3 arguments", "Write (partition-all n coll).")
    return _parts("partition-all", n, step_coll[0] if len(step_coll) > 1 else n, step_coll[-1], budget)


def _parts(op: str, n: Any, step: Any, coll: Any, budget: Budget) -> list[Any]:
    n, step = size(op, n), size(op, step)
    if n < 1 or step < 1:
        raise refuse(op, "sizes must be positive")
    found = items(op, coll, budget)
    count = -(-len(found) // step)
    budget.cells(count * (1 + min(n, len(found))))
    budget.steps(count * (1 + min(n, len(found)) // 16))
    return [found[start : start + n] for start in range(0, len(found), step)]


@define("partition-by", charges=True, shown="f coll")
def partition_by(budget: Budget, f: Any, coll: Any = MISSING) -> Any:
    """Vectors of neighbours for which f gives equal values.

    (partition-by odd? [1 3 2 4 5]) => [[1 3] [2 4] [5]]
    """
    if coll is MISSING:
        return Stage(lambda found: partition_by(budget, f, found))
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
