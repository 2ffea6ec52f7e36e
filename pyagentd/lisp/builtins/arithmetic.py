"""Arithmetic: ``+ - * /`` and what divides, rounds or grows numbers.

Integers are exact and of any size the run's budget allows: whatever can grow faster than by adding charges the bits
of its result before it is computed. Floats are IEEE doubles.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Final

from pyagentd.lisp.builtins.arguments import check_numbers, number, numeric_hint, refuse, wrong
from pyagentd.lisp.builtins.table import Family
from pyagentd.lisp.limits import Budget

FAMILY: Final = Family("Numbers")
define = FAMILY.define

_BIG: Final = 1 << 63  # below it a product needs no charge: it fits two machine words


@define("+")
def add(*numbers: Any) -> Any:
    """Add numbers; 0 without any.

    (+ 1 2 3) => 6
    (+ 1 0.5) => 1.5
    (+) => 0
    """
    total: Any = 0
    for each in numbers:
        if type(each) is not int and type(each) is not float:
            raise wrong("+", "numbers", each, hint=numeric_hint(each))
        total += each
    return total


@define("-")
def subtract(first: Any, *numbers: Any) -> Any:
    """Subtract the other numbers from the first; negate a single one.

    (- 10 3 2) => 5
    (- 5) => -5
    """
    check_numbers("-", (first, *numbers))
    if not numbers:
        return -first
    for each in numbers:
        first -= each
    return first


@define("*", charges=True)
def multiply(budget: Budget, *numbers: Any) -> Any:
    """Multiply numbers; 1 without any.

    (* 2 3 4) => 24
    (*) => 1
    """
    product: Any = 1
    for each in numbers:
        if type(each) is int:
            if type(product) is int and not (-_BIG < each < _BIG and -_BIG < product < _BIG):
                budget.bits(each.bit_length() + product.bit_length())
        elif type(each) is not float:
            raise wrong("*", "numbers", each, hint=numeric_hint(each))
        product *= each
    return product


@define("/")
def divide(first: Any, *numbers: Any) -> Any:
    """Divide the first number by the others; the reciprocal of a single one. The result is always a float.

    (/ 10 4) => 2.5
    (/ 10 2) => 5.0
    (/ 2) => 0.5
    """
    check_numbers("/", (first, *numbers))
    if not numbers:
        first, numbers = 1, (first,)
    for each in numbers:
        if each == 0:
            raise refuse("/", "division by zero", "Check the divisor first: (if (zero? d) nil (/ n d)).")
        first /= each
    return first


@define("mod")
def mod(dividend: Any, divisor: Any) -> Any:
    """Remainder with the sign of the divisor.

    (mod 10 3) => 1
    (mod -1 5) => 4
    """
    return _divided("mod", operator.mod, dividend, divisor)


@define("rem")
def rem(dividend: Any, divisor: Any) -> Any:
    """Remainder with the sign of the dividend.

    (rem 10 3) => 1
    (rem -10 3) => -1
    """
    return _divided("rem", _truncated_remainder, dividend, divisor)


@define("quot")
def quot(dividend: Any, divisor: Any) -> Any:
    """Quotient without its fraction.

    (quot 10 3) => 3
    (quot -10 3) => -3
    """
    return _divided("quot", _truncated_quotient, dividend, divisor)


def _divided(op: str, compute: Callable[[Any, Any], Any], dividend: Any, divisor: Any) -> Any:
    check_numbers(op, (dividend, divisor))
    if type(dividend) is float and not math.isfinite(dividend):
        raise refuse(op, "the dividend is not finite")
    if divisor == 0:
        raise refuse(op, "division by zero", "Check the divisor first.")
    return _within_range(op, compute, dividend, divisor)


def _truncated_quotient(a: Any, b: Any) -> Any:
    if type(a) is int and type(b) is int:
        quotient = abs(a) // abs(b)
        return quotient if (a < 0) == (b < 0) else -quotient
    return float(math.trunc(a / b)) if math.isfinite(a / b) else a / b


def _truncated_remainder(a: Any, b: Any) -> Any:
    if type(a) is int and type(b) is int:
        remainder = abs(a) % abs(b)
        return -remainder if a < 0 else remainder
    return math.fmod(a, b)


@define("inc")
def inc(x: Any) -> Any:
    """Add one.

    (inc 41) => 42
    """
    return number("inc", x) + 1


@define("dec")
def dec(x: Any) -> Any:
    """Subtract one.

    (dec 43) => 42
    """
    return number("dec", x) - 1


@define("abs", "Math/abs")
def absolute(x: Any) -> Any:
    """Return the number without its sign.

    (abs -5) => 5
    """
    return abs(number("abs", x))


@define("max", "Math/max")
def maximum(x: Any, *more: Any) -> Any:
    """Return the greatest of some numbers; of a collection with ``(apply max coll)``.

    (max 1 5 3) => 5
    """
    return _extreme("max", max, x, more)


@define("min", "Math/min")
def minimum(x: Any, *more: Any) -> Any:
    """Return the least of some numbers; of a collection with ``(apply min coll)``.

    (min 1 5 3) => 1
    """
    return _extreme("min", min, x, more)


def _extreme(op: str, choose: Callable[..., Any], x: Any, more: tuple[Any, ...]) -> Any:
    check_numbers(op, (x, *more))
    return choose(x, *more) if more else x


@define("pow", "expt", "Math/pow", charges=True)
def power(budget: Budget, base: Any, exponent: Any) -> Any:
    """Return the base raised to the exponent; exact for integers and an exponent that is not negative.

    (pow 2 10) => 1024
    (pow 2 -1) => 0.5
    """
    check_numbers("pow", (base, exponent))
    if type(base) is int and type(exponent) is int and exponent >= 0:
        budget.bits(max(base.bit_length(), 1) * exponent if abs(base) > 1 else 1)
        return base**exponent
    if base == 0 and exponent < 0:
        raise refuse("pow", "division by zero", "zero has no negative powers")
    if base < 0 and exponent != math.trunc(exponent):
        raise refuse("pow", "a negative number has no fractional powers", "use (abs x)")
    return _within_range("pow", operator.pow, float(base) if abs(base) < _BIG else base, exponent)


@define("sqrt", "Math/sqrt")
def sqrt(x: Any) -> Any:
    """Square root, a float.

    (sqrt 16) => 4.0
    """
    if number("sqrt", x) < 0:
        raise refuse("sqrt", "a negative number has no square root", "use (abs x)")
    return _within_range("sqrt", lambda a, _: math.sqrt(a), x, None)


@define("exp", "Math/exp")
def exp(x: Any) -> Any:
    """Return the number e raised to x.

    (exp 0) => 1.0
    """
    return _within_range("exp", lambda a, _: math.exp(a), number("exp", x), None)


@define("log", "Math/log")
def log(x: Any) -> Any:
    """Natural logarithm.

    (log 1) => 0.0
    """
    return _logarithm("log", math.log, x)


@define("log10", "Math/log10")
def log10(x: Any) -> Any:
    """Decimal logarithm.

    (log10 1000) => 3.0
    """
    return _logarithm("log10", math.log10, x)


def _logarithm(op: str, compute: Callable[[Any], float], x: Any) -> Any:
    if number(op, x) <= 0:
        raise refuse(op, "only positive numbers have a logarithm", "filter them first: (filter pos? xs)")
    return compute(x)


def _within_range(op: str, compute: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    """Return the result, or an error where it does not fit a float."""
    try:
        return compute(a, b)
    except OverflowError:
        raise refuse(op, "the result is too large for a float", "use smaller numbers or integers") from None
