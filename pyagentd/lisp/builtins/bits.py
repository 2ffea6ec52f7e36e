"""Bitwise operations on integers."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any, Final

from pyagentd.lisp.builtins.arguments import integer, refuse
from pyagentd.lisp.builtins.table import Family
from pyagentd.lisp.limits import Budget

FAMILY: Final = Family("Bits")
define = FAMILY.define

_FARTHEST: Final = 1_000_000_000


def _all(op: str, combine: Callable[[int, int], int], numbers: tuple[Any, ...]) -> int:
    return reduce(combine, [integer(op, each) for each in numbers])


@define("bit-and")
def bit_and(x: Any, y: Any, *more: Any) -> int:
    """Return the bits all integers have.

    (bit-and 12 10) => 8
    """
    return _all("bit-and", operator.and_, (x, y, *more))


@define("bit-or")
def bit_or(x: Any, y: Any, *more: Any) -> int:
    """Return the bits any integer has.

    (bit-or 12 10) => 14
    """
    return _all("bit-or", operator.or_, (x, y, *more))


@define("bit-xor")
def bit_xor(x: Any, y: Any, *more: Any) -> int:
    """Return the bits an odd number of integers has.

    (bit-xor 12 10) => 6
    """
    return _all("bit-xor", operator.xor, (x, y, *more))


@define("bit-not")
def bit_not(x: Any) -> int:
    """Return the integer with all bits turned over.

    (bit-not 0) => -1
    """
    return ~integer("bit-not", x)


@define("bit-shift-left", charges=True)
def bit_shift_left(budget: Budget, x: Any, n: Any) -> int:
    """Return the integer with its bits moved n places up.

    (bit-shift-left 1 4) => 16
    """
    places = _places("bit-shift-left", n)
    budget.bits(integer("bit-shift-left", x).bit_length() + places)
    return int(x << places)


@define("bit-shift-right")
def bit_shift_right(x: Any, n: Any) -> int:
    """Return the integer with its bits moved n places down.

    (bit-shift-right 16 4) => 1
    """
    return integer("bit-shift-right", x) >> _places("bit-shift-right", n)


def _places(op: str, n: Any) -> int:
    if not 0 <= integer(op, n) <= _FARTHEST:
        raise refuse(op, "the number of places is out of range")
    return int(n)


@define("bit-test")
def bit_test(x: Any, n: Any) -> bool:
    """Whether an integer has the bit at a place.

    (bit-test 4 2) => true
    """
    return bool(integer("bit-test", x) >> _places("bit-test", n) & 1)
