"""From a number to one near it with fewer digits."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Final

from pyagentd.lisp.builtins.arguments import integer, number, wrong
from pyagentd.lisp.builtins.table import Family
from pyagentd.lisp.missing import MISSING

FAMILY: Final = Family("Rounding")
define = FAMILY.define

_DECIMALS: Final = Context(prec=700)  # a double has at most 309 digits before the point, and 300 may be asked for


@define("floor", "Math/floor")
def floor(x: Any) -> Any:
    """Return the greatest integer that is not above x.

    (floor 2.7) => 2
    (floor -2.1) => -3
    """
    return _to_integer("floor", math.floor, x)


@define("ceil", "Math/ceil")
def ceil(x: Any) -> Any:
    """Return the least integer that is not below x.

    (ceil 2.1) => 3
    """
    return _to_integer("ceil", math.ceil, x)


@define("round", "Math/round")
def round_(x: Any, digits: Any = MISSING) -> Any:
    """Return the nearest integer, halves away from zero; with digits, the nearest decimal fraction.

    (round 2.5) => 3
    (round -2.5) => -3
    (round 3.14159 2) => 3.14
    """
    if digits is MISSING:
        return _to_integer("round", _half_away, x)
    if not -300 <= integer("round", digits) <= 300:
        raise wrong("round", "a number of digits between -300 and 300", digits)
    if (type(number("round", x)) is int and digits >= 0) or not math.isfinite(x):
        return x
    # In decimals, as people read the number: 2.675 is stored a little below its text.
    rounded = Decimal(repr(x)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP, _DECIMALS)
    return int(rounded) if type(x) is int else float(rounded)


def _half_away(x: Any) -> int:
    if type(x) is int:
        return x
    whole = math.floor(abs(x) + 0.5) if abs(x) != 0.49999999999999994 else 0
    return whole if x >= 0 else -whole


def _to_integer(op: str, compute: Callable[[Any], int], x: Any) -> int:
    if type(number(op, x)) is float and not math.isfinite(x):
        raise wrong(op, "a finite number", x)
    return compute(x)
