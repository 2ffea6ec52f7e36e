"""Does a value fit a type? Nothing is converted here (DD-24: results are strict).

Each type becomes a function once. Two values stand for another type without conversion: an int for ``:float``, as
``(= 1 1.0)`` holds, and a string for ``:keyword``, for that is what a keyword is once it has left the language.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import lru_cache
from operator import ge, gt, le, lt
from typing import Any, TypeAlias

from pyagentd.lisp.values import Keyword, from_key
from pyagentd.mission.signature.kinds import kind_of, wanted
from pyagentd.mission.signature.problems import Report, Trail
from pyagentd.mission.signature.types import (
    And,
    Constant,
    Constraint,
    Enum,
    Field,
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

Check: TypeAlias = Callable[[Any, Trail | None, Report], None]
"""Reports why a value, found at a trail, does not fit."""

COMPARE: dict[str, Callable[[Any, Any], bool]] = {">": gt, ">=": ge, "<": lt, "<=": le}

# RFC 3339 and its everyday relatives; `fromisoformat` alone takes week dates and bare years too.
_DATETIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d([.,]\d{1,9})?)?([Zz]|[+-]\d\d(:?\d\d)?)?")


@lru_cache(maxsize=1024)
def check(of: Type) -> Check:
    """Return the function that reports why a value does not fit ``of``."""
    match of:
        case Maybe(inner):
            return _maybe(check(inner))
        case Primitive():
            return _primitive(of)
        case List(item):
            return _list(of, check(item))
        case Map():
            return _map(of)
        case MapOf(key, value):
            return _map_of(of, check(key), check(value))
        case Enum(values):
            return _leaf(of, lambda value: match_of(value, values) is not None)
        case Or(choices):
            return _or(of, [check(one) for one in choices])
        case And(all_of):
            return _and([check(one) for one in all_of])
        case Constraint(operator, bound):
            compare = COMPARE[operator]
            return _leaf(of, lambda value: is_number(value) and compare(value, bound))
        case _:
            raise TypeError(f"no type of a signature: {of}")


def fits(of: Type, value: Any) -> bool:
    """Return whether ``value`` fits ``of`` as it is."""
    report = Report()
    check(of)(value, None, report)
    return not report.problems


def is_number(value: Any) -> bool:
    """Return whether ``value`` is an int or float, and no bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)


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


def match_of(value: Any, values: Iterable[Constant]) -> Constant | None:
    """Return the one of ``values`` that ``value`` is."""
    for constant in values:
        wanted_one = constant.value
        if constant.is_keyword:
            same = (value.name if isinstance(value, Keyword) else value) == wanted_one
        elif isinstance(wanted_one, bool) or isinstance(value, bool):
            same = value is wanted_one
        else:
            same = not isinstance(value, Keyword) and value == wanted_one
        if same:
            return constant
    return None


def key_name(key: Any) -> Any:
    """Return a map's key as a value, a keyword as its name: fields are found under either."""
    return key.name if isinstance(key, Keyword) else key if isinstance(key, str) else from_key(key)


def step_of(key: Any) -> str | int:
    """Return a map's key as a step of a path."""
    name = key_name(key)
    return name if isinstance(name, str) else repr(name) if is_number(name) else kind_of(name)


def within(size: Number, least: Number | None, most: Number | None) -> bool:
    """Return whether ``size`` is within the bounds."""
    return (least is None or size >= least) and (most is None or size <= most)


_IS: dict[Name, Callable[[Any], bool]] = {
    "any": lambda value: True,
    "nil": lambda value: value is None,
    "bool": lambda value: isinstance(value, bool),
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "float": is_number,
    "string": lambda value: isinstance(value, str),
    "keyword": lambda value: isinstance(value, Keyword | str),
    "map": lambda value: isinstance(value, dict),
    "datetime": is_datetime,
}


def _maybe(inner: Check) -> Check:
    def run(value: Any, trail: Trail | None, report: Report) -> None:
        if value is not None:
            inner(value, trail, report)

    return run


def _leaf(of: Type, fitting: Callable[[Any], bool]) -> Check:
    message = f"expected {wanted(of)}, got "

    def run(value: Any, trail: Trail | None, report: Report) -> None:
        if not fitting(value):
            report.problem(trail, message + kind_of(value))

    return run


def _primitive(of: Primitive) -> Check:
    plain = _leaf(Primitive(of.name), _IS[of.name])
    if of.least is None and of.most is None:
        return plain
    right_kind, too_far = _IS[of.name], f"expected {wanted(of)}"
    size = len if of.name == "string" else _itself

    def run(value: Any, trail: Trail | None, report: Report) -> None:
        if not right_kind(value):
            plain(value, trail, report)
        elif not within(size(value), of.least, of.most):
            report.problem(trail, too_far)

    return run


def _itself(value: Any) -> Any:
    return value


def _list(of: List, item: Check) -> Check:
    bounded = of.least is not None or of.most is not None

    def run(value: Any, trail: Trail | None, report: Report) -> None:
        if not isinstance(value, list | tuple):
            report.problem(trail, f"expected list, got {kind_of(value)}")
            return
        if bounded and not within(len(value), of.least, of.most):
            report.problem(trail, f"expected {wanted(of)}")
        for index, part in enumerate(value):
            item(part, Trail(trail, index), report)
            if report.full:
                return

    return run


def _map(of: Map) -> Check:
    places = [(field, Keyword(field.name), check(field.type)) for field in of.fields]
    declared = frozenset(field.name for field in of.fields)

    def run(value: Any, trail: Trail | None, report: Report) -> None:
        if not isinstance(value, dict):
            report.problem(trail, f"expected map, got {kind_of(value)}")
            return
        for field, keyword, fitting in places:
            key = field.name if field.name in value else keyword
            if key in value:
                fitting(value[key], Trail(trail, field.name), report)
            elif not field.optional:
                report.problem(Trail(trail, field.name), missing(field))
            if report.full:
                return
        if report.strict or of.closed:
            unexpected(value, declared, trail, report)

    return run


def missing(field: Field) -> str:
    """Return the message that a required field is not there."""
    return f"missing required field, expected {wanted(field.type)}"


def unexpected(value: dict[Any, Any], declared: frozenset[str], trail: Trail | None, report: Report) -> None:
    """Report the keys of ``value`` that are not ``declared``."""
    for key in value:
        if key_name(key) not in declared:
            report.problem(Trail(trail, step_of(key), is_data=True), "unexpected field")


def _map_of(of: MapOf, key_check: Check, value_check: Check) -> Check:
    bounded = of.least is not None or of.most is not None

    def run(value: Any, trail: Trail | None, report: Report) -> None:
        if not isinstance(value, dict):
            report.problem(trail, f"expected map, got {kind_of(value)}")
            return
        if bounded and not within(len(value), of.least, of.most):
            report.problem(trail, f"expected {wanted(of)}")
        for key, part in value.items():
            at = Trail(trail, step_of(key), is_data=True)
            keys = Report()
            key_check(key_name(key), None, keys)
            for _, message in keys.problems:
                report.problem(at, f"key: {message}")
            value_check(part, at, report)
            if report.full:
                return

    return run


def _or(of: Or, choices: list[Check]) -> Check:
    expected = f"expected {wanted(of)}, got "

    def run(value: Any, trail: Trail | None, report: Report) -> None:
        inside: Report | None = None
        for choice in choices:
            tried = report.fresh()
            choice(value, trail, tried)
            if not tried.problems:
                return
            # The choice whose kind fits says best what is wrong: something inside.
            if all(place is not trail for place, _ in tried.problems):
                inside = inside or tried
        if inside is not None:
            report.join(inside)
        else:
            report.problem(trail, expected + kind_of(value))

    return run


def _and(parts: list[Check]) -> Check:
    def run(value: Any, trail: Trail | None, report: Report) -> None:
        tried = report.fresh()
        for part in parts:
            part(value, trail, tried)
            # What follows assumes what comes before: `[:and :int [:> 0]]`.
            if tried.problems:
                report.join(tried)
                return

    return run
