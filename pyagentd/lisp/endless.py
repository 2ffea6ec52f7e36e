"""Sequences without an end, such as ``(range)``: known only by how to go through them until a part is taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pyagentd.lisp.errors import LispError
from pyagentd.lisp.limits import Budget


class Endless:
    """A sequence that has no end.

    Args:
        items: Goes through it from the beginning.
    """

    __slots__ = ("items",)

    def __init__(self, items: Callable[[], Iterator[Any]]) -> None:
        self.items = items

    def prefix(self, count: int, budget: Budget) -> list[Any]:
        """Return the first items, charged before they are made."""
        budget.cells(count)
        return [item for _, item in zip(budget.each(range(count)), self.items(), strict=False)]

    def without(self, count: int, budget: Budget) -> Endless:
        """Return what comes after the first items; going through it begins with paying for them."""

        def items() -> Iterator[Any]:
            found = self.items()
            for _ in budget.each(range(count)):
                next(found)
            return found

        return Endless(items)

    def ticking(self, budget: Budget) -> Iterator[Any]:
        """Go through all items, a step for each."""
        for item in self.items():
            budget.tick()
            yield item


def no_end(op: str) -> LispError:
    """Return the error for a sequence without an end where all items are needed."""
    return LispError("eval_error", f"{op}: the sequence has no end", hint="Take some of it first: (take 10 …).")


def ended(colls: Sequence[Any], lengths: Callable[[Any], list[Any]], op: str, budget: Budget) -> list[list[Any]]:
    """Return collections that are gone through side by side, as lists of the length of the shortest."""
    finite = [None if type(each) is Endless else lengths(each) for each in colls]
    known = [len(each) for each in finite if each is not None]
    if not known and colls:
        raise no_end(op)
    count = min(known, default=0)
    return [
        found[:count] if found is not None else each.prefix(count, budget)
        for found, each in zip(finite, colls, strict=True)
    ]
