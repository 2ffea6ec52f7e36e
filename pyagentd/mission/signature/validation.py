"""Why does a value not fit a type? Nothing is converted here (DD-24: results are strict)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

from pyagentd.lisp.values import Keyword
from pyagentd.mission.signature.fitting import Test, is_number, key_name, kind_test, test, within
from pyagentd.mission.signature.kinds import kind_of, wanted
from pyagentd.mission.signature.problems import Problem, Report, Trail
from pyagentd.mission.signature.types import (
    And,
    Constraint,
    Enum,
    Field,
    List,
    Map,
    MapOf,
    Maybe,
    Or,
    Primitive,
    Type,
)

Check: TypeAlias = Callable[[Any, Trail | None, Report], None]
"""Reports why a value, found at a trail, does not fit."""


def problems_of(of: Type, value: Any, *, strict: bool = False) -> tuple[Problem, ...]:
    """Return why ``value`` does not fit ``of``; empty when it does."""
    if test(of, "strict" if strict else "lenient")(value):
        return ()
    report = Report(strict)
    check(of)(value, None, report)
    return report.told()


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
        case Or(choices):
            return _or(of, [check(one) for one in choices])
        case And(all_of):
            return _and([check(one) for one in all_of])
        case Enum() | Constraint():
            return _leaf(of, test(of))
        case _:
            raise TypeError(f"no type of a signature: {of}")


def step_of(key: Any) -> str | int:
    """Return a map's key as a step of a path."""
    name = key_name(key)
    return name if isinstance(name, str) else repr(name) if is_number(name) else kind_of(name)


def _maybe(inner: Check) -> Check:
    def run(value: Any, trail: Trail | None, report: Report) -> None:
        if value is not None:
            inner(value, trail, report)

    return run


def _leaf(of: Type, fitting: Test) -> Check:
    message = f"expected {wanted(of)}, got "

    def run(value: Any, trail: Trail | None, report: Report) -> None:
        if not fitting(value):
            report.problem(trail, message + kind_of(value))

    return run


def _primitive(of: Primitive) -> Check:
    right_kind, fitting = kind_test(of.name), test(of)
    expected, too_far = f"expected {of.name}, got ", f"expected {wanted(of)}"

    def run(value: Any, trail: Trail | None, report: Report) -> None:
        if not right_kind(value):
            report.problem(trail, expected + kind_of(value))
        elif not fitting(value):
            report.problem(trail, too_far)

    return run


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
            keys = report.fresh()
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
