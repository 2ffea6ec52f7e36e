"""Steps of a pipeline that wait for their collection: ``(map f)`` without one, for ``into`` and ``transduce``.

Clojure's transducers as programs use them. Nothing is lazy here, so a stage is a function from all items to all
items, and ``(comp (filter p) (map f))`` runs its stages from left to right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from pyagentd.lisp.access import as_function
from pyagentd.lisp.builtins.arguments import items, wrong
from pyagentd.lisp.builtins.table import Family
from pyagentd.lisp.limits import Budget
from pyagentd.lisp.missing import MISSING

FAMILY: Final = Family("Pipelines")
define = FAMILY.define


class Stage:
    """What ``(map f)`` is: called with a collection it gives a vector.

    Args:
        run: Turns a collection into a list.
    """

    __slots__ = ("run",)

    arity: Final = (1, 1)

    def __init__(self, run: Callable[[Any], list[Any]]) -> None:
        self.run = run

    def __call__(self, coll: Any) -> list[Any]:
        """Run the stage on a collection."""
        return self.run(coll)


def in_turn(stages: Sequence[Stage]) -> Stage:
    """Return one stage that runs all, the first one first."""

    def run(coll: Any) -> list[Any]:
        for stage in stages:
            coll = stage.run(coll)
        return coll  # type: ignore[no-any-return]  # what a stage gives is a list

    return Stage(run)


def staged(op: str, stage: Any, coll: Any, budget: Budget) -> list[Any]:
    """Return what a stage, or any function of a collection, makes of a collection."""
    made = stage.run(coll) if type(stage) is Stage else as_function(stage, 1, op)(coll)
    if type(made) is not list:
        raise wrong(op, "a pipeline such as (map f) or (comp (filter p) (map f))", stage)
    return made


@define("transduce", charges=True, shown="stage f init? coll")
def transduce(budget: Budget, stage: Any, f: Any, init_or_coll: Any, coll: Any = MISSING) -> Any:
    """Reduce with f what a pipeline makes of a collection; without an initial value, begin with what (f) gives.

    (transduce (comp (filter odd?) (map inc)) + 0 [1 2 3]) => 6
    (transduce (map inc) + [1 2]) => 5
    """
    initial = as_function(f, 0, "transduce")() if coll is MISSING else init_or_coll
    function = as_function(f, 2, "transduce")
    for item in budget.each(staged("transduce", stage, init_or_coll if coll is MISSING else coll, budget)):
        initial = function(initial, item)
    return initial


@define("sequence", "eduction", charges=True, shown="stage coll")
def sequence(budget: Budget, stage_or_coll: Any, coll: Any = MISSING) -> list[Any]:
    """Return what a pipeline makes of a collection.

    (sequence (comp (map inc) (filter even?)) [1 2 3]) => [2 4]
    """
    if coll is MISSING:
        return items("sequence", stage_or_coll, budget)
    return staged("sequence", stage_or_coll, coll, budget)


@define("cat", charges=True)
def cat(budget: Budget, colls: Any) -> list[Any]:
    """Return the items of all collections in a collection; as a step of a pipeline without parentheses.

    (cat [[1 2] [3]]) => [1 2 3]
    (into [] cat [[1] [2]]) => [1 2]
    """
    result: list[Any] = []
    for each in budget.each(items("cat", colls, budget)):
        found = items("cat", each, budget)
        budget.cells(len(found))
        result += found
    return result
