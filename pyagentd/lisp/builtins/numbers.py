"""Arithmetic, rounding, powers, and numbers from text.

Integers are exact and of any size the run's budget allows: operations that grow faster than addition charge the bits
of the result before they compute it. Floats are IEEE doubles.
"""

import math
import operator
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Final

from pyagentd.lisp.builtins.table import Family, check_numbers, integer, number, numeric_hint, refuse, string, wrong
from pyagentd.lisp.errors import MISSING
from pyagentd.lisp.limits import Budget

define: Final = Family("Numbers")

_BIG: Final = 1 << 63  # below it a product needs no charge: it fits two machine words


@define("+", charges=True)
def add(budget: Budget, *numbers: Any) -> Any:
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
    return _checked(total, budget)


def _checked(total: Any, budget: Budget) -> Any:
    """Return a sum or difference after checking its size; sums grow slowly, so they are checked afterwards."""
    if type(total) is int and not -_BIG < total < _BIG:
        budget.check_bits(total.bit_length())
    return total


@define("-", charges=True)
def subtract(budget: Budget, first: Any, *numbers: Any) -> Any:
    """Subtract the other numbers from the first; negate a single one.

    (- 10 3 2) => 5
    (- 5) => -5
    """
    check_numbers("-", (first, *numbers))
    if not numbers:
        return -first
    for each in numbers:
        first -= each
    return _checked(first, budget)


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


def _declare_division(op: str, compute: Callable[[Any, Any], Any], doc: str) -> None:
    """Declare a function of a dividend and a divisor."""

    def apply_division(dividend: Any, divisor: Any) -> Any:
        check_numbers(op, (dividend, divisor))
        if type(dividend) is float and not math.isfinite(dividend):
            raise refuse(op, "the dividend is not finite")
        if divisor == 0:
            raise refuse(op, "division by zero", "Check the divisor first.")
        return _within_range(op, compute, dividend, divisor)

    apply_division.__doc__ = doc
    define(op)(apply_division)


_declare_division("mod", operator.mod, "Remainder with the sign of the divisor.\n(mod 10 3) => 1\n(mod -1 5) => 4")
_declare_division(
    "rem", _truncated_remainder, "Remainder with the sign of the dividend.\n(rem 10 3) => 1\n(rem -10 3) => -1"
)
_declare_division(
    "quot", _truncated_quotient, "Integer quotient, truncated towards zero.\n(quot 10 3) => 3\n(quot -10 3) => -3"
)


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
    """Return the absolute value.

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
    """Return the base raised to the exponent; exact for integers with a non-negative exponent.

    (pow 2 10) => 1024
    (pow 2 -1) => 0.5
    """
    check_numbers("pow", (base, exponent))
    if type(base) is int and type(exponent) is int and exponent >= 0:
        budget.bits(max(base.bit_length(), 1) * exponent if abs(base) > 1 else 1)
        return base**exponent
    if base == 0 and exponent < 0:
        raise refuse("pow", "division by zero", "zero has no negative powers")
    if base < 0 and exponent % 1 > 0:  # false for NaN and the infinities
        raise refuse("pow", "a negative number has no fractional powers", "use (abs x)")
    return _within_range("pow", operator.pow, float(base) if abs(base) < _BIG else base, exponent)


@define("sqrt", "Math/sqrt")
def sqrt(x: Any) -> Any:
    """Square root, a float.

    (sqrt 16) => 4.0
    """
    if number("sqrt", x) < 0:
        raise refuse("sqrt", "a negative number has no square root", "use (abs x)")
    return _within_range("sqrt", math.sqrt, x)


@define("exp", "Math/exp")
def exp(x: Any) -> Any:
    """Return the number e raised to x.

    (exp 0) => 1.0
    """
    return _within_range("exp", math.exp, number("exp", x))


def _logarithm(op: str, compute: Callable[[Any], float], doc: str) -> None:
    """Declare a logarithm."""

    def logarithm(x: Any) -> Any:
        if number(op, x) <= 0:
            raise refuse(op, "only positive numbers have a logarithm", "filter them first: (filter pos? xs)")
        return compute(x)

    logarithm.__doc__ = doc
    define(op, f"Math/{op}")(logarithm)


_logarithm("log", math.log, "Natural logarithm.\n(log 1) => 0.0")
_logarithm("log10", math.log10, "Decimal logarithm.\n(log10 1000) => 3.0")


def _within_range(op: str, compute: Callable[..., Any], *args: Any) -> Any:
    """Return the result, or an error where it does not fit a float."""
    try:
        return compute(*args)
    except OverflowError:
        raise refuse(op, "the result is too large for a float", "use smaller numbers or integers") from None


# Rounding.

rounding_define: Final = Family("Rounding")

_DECIMALS: Final = Context(prec=700)  # a double has at most 309 digits before the point, and 300 may be asked for


@rounding_define("floor", "Math/floor")
def floor(x: Any) -> Any:
    """Return the greatest integer not above x.

    (floor 2.7) => 2
    (floor -2.1) => -3
    """
    return _to_integer("floor", math.floor, x)


@rounding_define("ceil", "Math/ceil")
def ceil(x: Any) -> Any:
    """Return the smallest integer not below x.

    (ceil 2.1) => 3
    """
    return _to_integer("ceil", math.ceil, x)


@rounding_define("round", "Math/round")
def round_(x: Any, digits: Any = MISSING) -> Any:
    """Round to the nearest integer, or to a number of decimal digits; halves are rounded away from zero.

    (round 2.5) => 3
    (round -2.5) => -3
    (round 3.14159 2) => 3.14
    """
    if digits is MISSING:
        return _to_integer("round", _round_half_away, x)
    if not -300 <= integer("round", digits) <= 300:
        raise wrong("round", "a number of digits between -300 and 300", digits)
    if (type(number("round", x)) is int and digits >= 0) or not math.isfinite(x):
        return x
    # In decimals, as people read the number: 2.675 is stored a little below its text.
    rounded = Decimal(repr(x)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP, _DECIMALS)
    return int(rounded) if type(x) is int else float(rounded)


def _round_half_away(x: Any) -> int:
    if type(x) is int:
        return x
    # The remainder is exact; x + 0.5 is not, of very small fractions and very large numbers.
    whole = int(abs(x)) + int(abs(x) % 1 >= 0.5)
    return whole if x >= 0 else -whole


def _to_integer(op: str, compute: Callable[[Any], int], x: Any) -> int:
    if type(number(op, x)) is float and not math.isfinite(x):
        raise wrong(op, "a finite number", x)
    return compute(x)


# Numbers from text and from other numbers.

conversion_define: Final = Family("Numbers from text")

_LONG: Final = re.compile(r"[+-]?[0-9]+")
_DOUBLE: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_DIGITS: Final = 4000  # Python refuses to read longer integers


@conversion_define("parse-long", "parse-int", charges=True)
def parse_long(budget: Budget, s: Any) -> Any:
    """Return the integer that a string represents, or nil.

    (parse-long "42") => 42
    (parse-long "4x") => nil
    """
    if type(s) is not str or len(s) > _DIGITS or not _LONG.fullmatch(s):
        return None
    if len(s) > 18:
        budget.bits(len(s) * 10 // 3)
    return int(s)


@conversion_define("parse-double", "parse-float", charges=True)
def parse_double(budget: Budget, s: Any) -> Any:
    """Return the number that a string represents, as a float, or nil.

    (parse-double "3.5") => 3.5
    (parse-double "42") => 42.0
    (parse-double "x") => nil
    """
    if type(s) is not str or len(s) > _DIGITS or not _DOUBLE.fullmatch(s):
        return None
    budget.steps(1)
    found = float(s)
    return found if math.isfinite(found) else None


@conversion_define("Integer/parseInt", "Long/parseLong", charges=True)
def parse_int(budget: Budget, s: Any) -> Any:
    """Return the integer that a string represents; an error, as in Java, where it represents none.

    (Integer/parseInt "42") => 42
    (try (Integer/parseInt "x") (catch Exception e 0)) => 0
    """
    return _parsed("Integer/parseInt", "integer", parse_long(budget, string("Integer/parseInt", s)))


@conversion_define("Double/parseDouble", "Float/parseFloat", charges=True)
def parse_float(budget: Budget, s: Any) -> Any:
    """Return the number that a string represents, as a float; an error, as in Java, where it represents none.

    (Double/parseDouble "3.5") => 3.5
    """
    return _parsed("Double/parseDouble", "number", parse_double(budget, string("Double/parseDouble", s)))


def _parsed(op: str, what: str, found: Any) -> Any:
    """Return the parsed number; raises an error if it is None."""
    if found is None:
        raise refuse(op, f"the string is no {what}", "(parse-long s) and (parse-double s) return nil instead.")
    return found


@conversion_define("parse-boolean")
def parse_boolean(s: Any) -> Any:
    """Return true for "true", false for "false", nil otherwise.

    (parse-boolean "true") => true
    """
    return {"true": True, "false": False}.get(s) if type(s) is str else None


@conversion_define("int", "long")
def int_(x: Any) -> int:
    """Return a number without its fraction.

    (int 3.9) => 3
    (int -3.9) => -3
    """
    return _to_integer("int", int, x)


@conversion_define("float", "double")
def float_(x: Any) -> float:
    """Return a number as a float.

    (float 3) => 3.0
    """
    try:
        return float(number("float", x))
    except OverflowError:
        raise wrong("float", "a number in the range of floats", x) from None
