"""Questions about one value: its type, its sign, whether it is nil."""

from __future__ import annotations

import math
from typing import Any, Final

from pyagentd.lisp.builtins.arguments import NUMBERS, integer, number
from pyagentd.lisp.builtins.table import Family
from pyagentd.lisp.values import Keyword, LispSet, type_name

FAMILY: Final = Family("Questions about a value")
define = FAMILY.define

_CALLABLE: Final = frozenset({Keyword, dict, LispSet})
_COLLECTIONS: Final = frozenset({list, dict, LispSet})


@define("nil?")
def is_nil(x: Any) -> bool:
    """Whether x is nil.

    (nil? nil) => true
    """
    return x is None


@define("some?")
def is_some(x: Any) -> bool:
    """Whether x is anything but nil.

    (some? false) => true
    """
    return x is not None


@define("true?")
def is_true(x: Any) -> bool:
    """Whether x is true itself.

    (true? 1) => false
    """
    return x is True


@define("false?")
def is_false(x: Any) -> bool:
    """Whether x is false itself.

    (false? nil) => false
    """
    return x is False


@define("boolean?")
def is_boolean(x: Any) -> bool:
    """Whether x is true or false.

    (boolean? false) => true
    """
    return type(x) is bool


@define("number?")
def is_number(x: Any) -> bool:
    """Whether x is a number.

    (number? 1.5) => true
    """
    return type(x) in NUMBERS


@define("int?", "integer?")
def is_integer(x: Any) -> bool:
    """Whether x is an integer.

    (int? 1) => true
    (int? 1.0) => false
    """
    return type(x) is int


@define("float?", "double?")
def is_float(x: Any) -> bool:
    """Whether x is a float.

    (float? 1.0) => true
    """
    return type(x) is float


@define("string?")
def is_string(x: Any) -> bool:
    """Whether x is a string.

    (string? "a") => true
    """
    return type(x) is str


@define("keyword?")
def is_keyword(x: Any) -> bool:
    """Whether x is a keyword.

    (keyword? :a) => true
    """
    return type(x) is Keyword


@define("vector?", "list?", "sequential?", "seq?")
def is_vector(x: Any) -> bool:
    """Whether x is a vector.

    (vector? [1]) => true
    """
    return type(x) is list


@define("map?")
def is_map(x: Any) -> bool:
    """Whether x is a map.

    (map? {:a 1}) => true
    """
    return type(x) is dict


@define("set?")
def is_set(x: Any) -> bool:
    """Whether x is a set.

    (set? #{1}) => true
    """
    return type(x) is LispSet


@define("coll?", "seqable?")
def is_collection(x: Any) -> bool:
    """Whether x is a vector, map or set.

    (coll? {}) => true
    (coll? "a") => false
    """
    return type(x) in _COLLECTIONS


@define("associative?")
def is_associative(x: Any) -> bool:
    """Whether x is a map or vector.

    (associative? {}) => true
    """
    return type(x) is dict or type(x) is list


@define("sorted?")
def is_sorted(x: Any) -> bool:
    """Whether x is gone through in the order of its keys: maps and sets are.

    (sorted? {:a 1}) => true
    """
    return type(x) is dict or type(x) is LispSet


@define("fn?")
def is_function(x: Any) -> bool:
    """Whether x is a function.

    (fn? inc) => true
    (fn? :a) => false
    """
    return type_name(x) == "function" and callable(x)


@define("ifn?")
def is_callable(x: Any) -> bool:
    """Whether x can be called: functions, keywords, maps and sets can.

    (ifn? :a) => true
    """
    return type(x) in _CALLABLE or is_function(x)


@define("zero?")
def is_zero(x: Any) -> bool:
    """Whether x is the number 0.

    (zero? 0.0) => true
    (zero? nil) => false
    """
    return type(x) in NUMBERS and x == 0


@define("pos?")
def is_positive(x: Any) -> bool:
    """Whether a number is greater than 0.

    (pos? 1) => true
    """
    return bool(number("pos?", x) > 0)


@define("neg?")
def is_negative(x: Any) -> bool:
    """Whether a number is less than 0.

    (neg? -1) => true
    """
    return bool(number("neg?", x) < 0)


@define("even?")
def is_even(n: Any) -> bool:
    """Whether an integer is even.

    (even? 4) => true
    """
    return integer("even?", n) & 1 == 0


@define("odd?")
def is_odd(n: Any) -> bool:
    """Whether an integer is odd.

    (odd? 3) => true
    """
    return integer("odd?", n) & 1 == 1


@define("pos-int?")
def is_positive_integer(x: Any) -> bool:
    """Whether x is an integer greater than 0.

    (pos-int? 1) => true
    """
    return type(x) is int and x > 0


@define("neg-int?")
def is_negative_integer(x: Any) -> bool:
    """Whether x is an integer less than 0.

    (neg-int? -1) => true
    """
    return type(x) is int and x < 0


@define("nat-int?")
def is_natural(x: Any) -> bool:
    """Whether x is an integer that is not negative.

    (nat-int? 0) => true
    """
    return type(x) is int and x >= 0


@define("NaN?")
def is_nan(x: Any) -> bool:
    """Whether a float is not a number.

    (NaN? 1.0) => false
    """
    return math.isnan(number("NaN?", x))


@define("infinite?")
def is_infinite(x: Any) -> bool:
    """Whether a number is infinite.

    (infinite? 1.0) => false
    """
    return type(number("infinite?", x)) is float and math.isinf(x)


@define("boolean")
def boolean(x: Any) -> bool:
    """Return false for nil and false, true for everything else.

    (boolean 0) => true
    """
    return x is not None and x is not False


@define("type")
def type_(x: Any) -> Keyword:
    """Return what x is, as a keyword.

    (type [1]) => :vector
    (type nil) => :nil
    """
    return Keyword(type_name(x))
