"""Equality and order: ``= not= < > <= >= compare`` and ``not``.

Equality is deep and does not distinguish 1 from 1.0. Order is for numbers; ``compare`` and ``sort`` also order
strings, keywords, booleans and vectors among themselves, with nil before everything.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

from pyagentd.lisp.builtins.arguments import check_numbers, wrong
from pyagentd.lisp.builtins.table import Family
from pyagentd.lisp.limits import Budget
from pyagentd.lisp.order import compare, equal

FAMILY: Final = Family("Comparison and logic")
define = FAMILY.define


@define("=", "==", charges=True)
def equals(budget: Budget, first: Any, *others: Any) -> bool:
    """Whether all are equal, looking into collections; 1 equals 1.0.

    (= 1 1.0) => true
    (= [1 {:a 2}] [1 {:a 2}]) => true
    (= 1 "1") => false
    """
    return all(equal(first, each, budget) for each in others)


@define("not=", charges=True)
def differs(budget: Budget, first: Any, *others: Any) -> bool:
    """Whether not all are equal.

    (not= 1 2) => true
    """
    return not equals(budget, first, *others)


_TEXTS: Final = "Order text, dates too, with compare: (neg? (compare a b)); the last one is (last (sort xs))."


def _chain(op: str, holds: Callable[[Any, Any], bool], numbers: tuple[Any, ...]) -> bool:
    if set(map(type, numbers)) == {str}:
        raise wrong(op, "numbers", numbers[0], hint=_TEXTS)
    check_numbers(op, numbers)
    return all(map(holds, numbers, numbers[1:]))


@define("<")
def less(first: Any, *numbers: Any) -> bool:
    """Whether each number is less than the next.

    (< 1 2 3) => true
    """
    return _chain("<", operator.lt, (first, *numbers))


@define(">")
def greater(first: Any, *numbers: Any) -> bool:
    """Whether each number is greater than the next.

    (> 3 2 1) => true
    """
    return _chain(">", operator.gt, (first, *numbers))


@define("<=")
def at_most(first: Any, *numbers: Any) -> bool:
    """Whether no number is greater than the next.

    (<= 1 1 2) => true
    """
    return _chain("<=", operator.le, (first, *numbers))


@define(">=")
def at_least(first: Any, *numbers: Any) -> bool:
    """Whether no number is less than the next.

    (>= 3 3 1) => true
    """
    return _chain(">=", operator.ge, (first, *numbers))


@define("compare", charges=True)
def compare_(budget: Budget, a: Any, b: Any) -> int:
    """-1, 0 or 1 as a comes before, with or after b; nil comes first, different types are an error.

    (compare 1 2) => -1
    (compare "b" "a") => 1
    (compare nil 0) => -1
    """
    return compare(a, b, budget)


@define("not")
def not_(x: Any) -> bool:
    """Whether x is nil or false.

    (not nil) => true
    (not 0) => false
    """
    return x is None or x is False
