"""Does a value fit a type? Yes or no, fast; ``validation`` says why not.

Each type becomes a function once. Two values stand for another type without conversion: an int for ``:float``, as
``(= 1 1.0)`` holds, and a string for ``:keyword``, for that is what a keyword is once it has left the language.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from operator import ge, gt, le, lt
from typing import Any, Literal, TypeAlias

from pyagentd.lisp.values import Keyword, from_key
from pyagentd.mission.signature.types import (
    And,
    Constant,
    Constraint,
    Enum,
    List,
    Map,
    MapOf,
    Maybe,
    Name,
    Number,
    Or,
    Primitive,
    Type,
)

Test: TypeAlias = Callable[[Any], bool]
"""Whether a value fits."""

Mode = Literal["lenient", "strict", "exact"]
"""``strict``: without fields that are not declared; ``exact``: moreover nothing stands for another type."""

COMPARE: dict[str, Callable[[Any, Any], bool]] = {">": gt, ">=": ge, "<": lt, "<=": le}

# RFC 3339 and its everyday relatives; `fromisoformat` alone takes week dates and bare years too.
_DATETIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d([.,]\d{1,9})?)?([Zz]|[+-]\d\d(:?\d\d)?)?")


@lru_cache(maxsize=2048)
def test(of: Type, mode: Mode = "lenient") -> Test:
    """Return the function that says whether a value fits ``of`` as it is."""
    match of:
        case Maybe(inner):
            return _maybe(test(inner, mode))
        case Primitive():
            return _primitive(of, mode)
        case List(item):
            return _list(of, test(item, mode))
        case Map():
            return _map(of, mode)
        case MapOf():
            return _map_of(of, mode)
        case Enum(values):
            return _enum(values, mode)
        case Or(choices):
            tests = [test(one, mode) for one in choices]
            return lambda value: any(one(value) for one in tests)
        case And(all_of):
            tests = [test(one, mode) for one in all_of]
            return lambda value: all(one(value) for one in tests)
        case Constraint(operator, bound):
            compare = COMPARE[operator]
            return lambda value: is_number(value) and compare(value, bound)
        case _:
            raise TypeError(f"no type of a signature: {of}")


def fits(of: Type, value: Any) -> bool:
    """Return whether ``value`` fits ``of`` as it is."""
    return test(of)(value)


def is_number(value: Any) -> bool:
    """Return whether ``value`` is an int or float, and no bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_int(value: Any) -> bool:
    """Return whether ``value`` is an int, and no bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_datetime(value: Any) -> bool:
    """Return whether ``value`` is a point in time: an ISO 8601 string with date and time, or Python's own."""
    if isinstance(value, datetime):
        return True
    if not isinstance(value, str) or not _DATETIME.fullmatch(value):
        return False
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


def key_name(key: Any) -> Any:
    """Return a map's key as a value, a keyword as its name: fields are found under either."""
    return key.name if isinstance(key, Keyword) else key if isinstance(key, str) else from_key(key)


def within(size: Number, least: Number | None, most: Number | None) -> bool:
    """Return whether ``size`` is within the bounds."""
    return (least is None or size >= least) and (most is None or size <= most)


def kind_test(name: Name) -> Test:
    """Return the function that says whether a value is what ``name`` says, whatever the bounds."""
    return _IS[name]


_IS: dict[Name, Test] = {
    "any": lambda value: True,
    "nil": lambda value: value is None,
    "bool": lambda value: isinstance(value, bool),
    "int": is_int,
    "float": is_number,
    "string": lambda value: isinstance(value, str),
    "keyword": lambda value: isinstance(value, Keyword | str),
    "map": lambda value: isinstance(value, dict),
    "datetime": is_datetime,
}
_IS_EXACTLY: dict[Name, Test] = {
    **_IS,
    "float": lambda value: isinstance(value, float),
    "keyword": lambda value: isinstance(value, Keyword),
    "datetime": lambda value: isinstance(value, str) and is_datetime(value),
}


def _maybe(inner: Test) -> Test:
    return lambda value: value is None or inner(value)


def _primitive(of: Primitive, mode: Mode) -> Test:
    kind = (_IS_EXACTLY if mode == "exact" else _IS)[of.name]
    least, most = of.least, of.most
    if least is None and most is None:
        return kind
    if of.name == "string":
        return lambda value: kind(value) and within(len(value), least, most)
    return lambda value: kind(value) and within(value, least, most)


def _list(of: List, item: Test) -> Test:
    least, most = of.least, of.most
    return lambda value: isinstance(value, list | tuple) and within(len(value), least, most) and all(map(item, value))


def _map(of: Map, mode: Mode) -> Test:
    places = [(field.name, Keyword(field.name), test(field.type, mode), field.optional) for field in of.fields]
    declared = frozenset(field.name for field in of.fields)
    closed = of.closed or mode != "lenient"

    def fitting(value: Any) -> bool:
        if not isinstance(value, dict):
            return False
        for name, keyword, one, optional in places:
            if name in value:
                good = one(value[name])
            elif keyword in value:
                good = one(value[keyword])
            else:
                good = optional
            if not good:
                return False
        return not closed or all(key_name(key) in declared for key in value)

    return fitting


def _map_of(of: MapOf, mode: Mode) -> Test:
    # Keys are keywords in the language and strings elsewhere: neither is the exact one.
    key_test, value_test = test(of.key, "strict" if mode == "exact" else mode), test(of.value, mode)
    least, most = of.least, of.most

    def fitting(value: Any) -> bool:
        return (
            isinstance(value, dict)
            and within(len(value), least, most)
            and all(key_test(key_name(key)) for key in value)
            and all(map(value_test, value.values()))
        )

    return fitting


def _enum(values: tuple[Constant, ...], mode: Mode) -> Test:
    keywords = frozenset(one.value for one in values if one.is_keyword)
    strings = frozenset(one.value for one in values if isinstance(one.value, str) and not one.is_keyword)
    numbers = frozenset(one.value for one in values if is_number(one.value))
    bools = [one.value for one in values if isinstance(one.value, bool)]
    as_text = strings if mode == "exact" else strings | keywords

    def fitting(value: Any) -> bool:
        match value:
            case Keyword():
                return value.name in keywords
            case str():
                return value in as_text
            case bool():
                return value in bools
            case int() | float():
                return value in numbers
            case _:
                return False

    return fitting
