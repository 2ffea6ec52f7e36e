"""Why does a value not fit a type? Nothing is converted here (DD-24: results are strict)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import lru_cache
from operator import ge, gt, le, lt
from typing import Any, Literal, NamedTuple, TypeAlias

from pyagentd.lisp.values import Keyword, from_key
from pyagentd.mission.signature.forms import is_keyword, is_plain
from pyagentd.mission.signature.rendering import kind_of, wanted
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

# Does a value fit a type? Yes or no, fast; ``validation`` says why not.
#
# Each type becomes a function once. Two values stand for another type without conversion: an int for ``:float``, as
# ``(= 1 1.0)`` holds, and a string for ``:keyword``, for that is what a keyword is once it has left the language.

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
            return _fits_maybe(test(inner, mode))
        case Primitive():
            return _fits_primitive(of, mode)
        case List(item):
            return _fits_list(of, test(item, mode))
        case Map():
            return _fits_map(of, mode)
        case MapOf():
            return _fits_map_of(of, mode)
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


def _fits_maybe(inner: Test) -> Test:
    return lambda value: value is None or inner(value)


def _fits_primitive(of: Primitive, mode: Mode) -> Test:
    kind = (_IS_EXACTLY if mode == "exact" else _IS)[of.name]
    least, most = of.least, of.most
    if least is None and most is None:
        return kind
    if of.name == "string":
        return lambda value: kind(value) and within(len(value), least, most)
    return lambda value: kind(value) and within(value, least, most)


def _fits_list(of: List, item: Test) -> Test:
    least, most = of.least, of.most
    return lambda value: isinstance(value, list | tuple) and within(len(value), least, most) and all(map(item, value))


def _fits_map(of: Map, mode: Mode) -> Test:
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


def _fits_map_of(of: MapOf, mode: Mode) -> Test:
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


# What does not fit, and where: in words that contain no value, so that they may go to anybody.
#
# Values of fields that begin with ``_`` must never reach a model (SPEC 004). Messages name types, field names and
# what the signature itself says, never what was given; keys that are data and lie below such a field are not named
# either.

Path: TypeAlias = tuple[str | int, ...]

MOST_PROBLEMS = 100
"""A list of a hundred thousand wrong rows is one mistake."""

_HIDDEN = "[Hidden]"
_LONGEST_KEY = 60


class Trail(NamedTuple):
    """Where a value stands, as a chain to the outermost one.

    Attributes:
        before: Where the collection stands that holds the value; None: outermost.
        step: Key or index of the value in it.
        is_data: Whether the step is a key that the signature does not name.
    """

    before: Trail | None
    step: str | int
    is_data: bool = False


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that does not fit.

    Attributes:
        path: Where, as ``results[0].customer.id``; "" is the value itself.
        message: What, as ``expected int, got string``.
        keys: The path as its parts.
    """

    path: str
    message: str
    keys: Path = ()

    def __str__(self) -> str:
        return f"[{self.path}]: {self.message}" if self.path else self.message


@dataclass(frozen=True, slots=True, kw_only=True)
class Coerced:
    """Arguments brought into the types of a signature.

    Attributes:
        value: The arguments, declared ones only, each under the key (keyword or string) it came with; they
            themselves where there are problems.
        warnings: Conversions that were made.
        problems: What could be neither taken nor converted; empty means that ``value`` fits.
    """

    value: Any
    warnings: tuple[Problem, ...] = ()
    problems: tuple[Problem, ...] = ()


@dataclass(slots=True)
class Report:
    """What was found so far on a walk through a value.

    Attributes:
        strict: Whether fields that are not declared are problems.
    """

    strict: bool = False
    problems: list[tuple[Trail | None, str]] = field(default_factory=list)
    warnings: list[tuple[Trail | None, str]] = field(default_factory=list)

    @property
    def full(self) -> bool:
        """Whether more problems would tell nothing new."""
        return len(self.problems) >= MOST_PROBLEMS

    def fresh(self) -> Report:
        """Return an empty report for trying something."""
        return Report(self.strict)

    def problem(self, trail: Trail | None, message: str) -> None:
        """Note that the value at ``trail`` does not fit."""
        if not self.full:
            self.problems.append((trail, message))

    def warning(self, trail: Trail | None, message: str) -> None:
        """Note that the value at ``trail`` was converted."""
        if len(self.warnings) < MOST_PROBLEMS:
            self.warnings.append((trail, message))

    def join(self, other: Report) -> None:
        """Take over what ``other`` found."""
        for found in other.problems:
            self.problem(*found)
        for found in other.warnings:
            self.warning(*found)

    def told(self) -> tuple[Problem, ...]:
        """Return the problems."""
        return tuple(_problem(*found) for found in self.problems)

    def warned(self) -> tuple[Problem, ...]:
        """Return the warnings."""
        return tuple(_problem(*found) for found in self.warnings)


def _problem(trail: Trail | None, message: str) -> Problem:
    steps = _shown(trail)
    return Problem(path_text(steps), message, steps)


def _shown(trail: Trail | None) -> Path:
    chain = []
    while trail is not None:
        chain.append(trail)
        trail = trail.before
    steps: list[str | int] = []
    hidden = False
    for _, step, is_data in reversed(chain):
        steps.append(_HIDDEN if hidden and is_data else step)
        hidden |= isinstance(step, str) and step.startswith("_")
    return tuple(steps)


def path_text(steps: Path) -> str:
    """Return a path as text: ``results[0].customer.id``."""
    text = ""
    for step in steps:
        match step:
            case int():
                text += f"[{step}]"
            case str() if step == _HIDDEN:
                text += step
            case str() if is_plain(step) and len(step) <= _LONGEST_KEY:
                text += f".{step}" if text else step
            case _:
                text += f"[{json.dumps(step[:_LONGEST_KEY], ensure_ascii=False)}]"
    return text


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
        for field, keyword, fitting in places:  # noqa: F402
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


# One value made into another type, where that loses nothing; the table is in ``coercion``.

FAILED: Any = object()
"""Stands for a value that could not be converted."""

_INT = re.compile(r"[+-]?[0-9]{1,4000}")
_FLOAT = re.compile(r"\s*[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?\s*")


def converted(name: Name, value: Any) -> Any:
    """Return ``value``, which is no ``name``, as one, or ``FAILED``."""
    convert = _CONVERT.get(name)
    return FAILED if convert is None else convert(value)


def _to_int(value: Any) -> Any:
    return int(value) if isinstance(value, str) and _INT.fullmatch(value) else FAILED


def _to_float(value: Any) -> Any:
    if not isinstance(value, str) or not _FLOAT.fullmatch(value):
        return FAILED
    number = float(value)
    return number if math.isfinite(number) else FAILED


def _to_bool(value: Any) -> Any:
    text = value.name if isinstance(value, Keyword) else value
    return {"true": True, "false": False}.get(text, FAILED) if isinstance(text, str) else FAILED


def _to_string(value: Any) -> Any:
    match value:
        case bool():
            return "true" if value else "false"
        case Keyword():
            return value.name
        case date():
            return value.isoformat()
        case _:
            return FAILED


def _to_keyword(value: Any) -> Any:
    return Keyword(value) if isinstance(value, str) and is_keyword(value) else FAILED


def _to_datetime(value: Any) -> Any:
    if isinstance(value, date):
        return f"{value.isoformat()}T00:00:00"
    midnight = f"{value}T00:00:00" if isinstance(value, str) else ""
    return midnight if is_datetime(midnight) else FAILED


_CONVERT: Mapping[Name, Callable[[Any], Any]] = {
    "int": _to_int,
    "float": _to_float,
    "bool": _to_bool,
    "string": _to_string,
    "keyword": _to_keyword,
    "datetime": _to_datetime,
}


# Arguments brought into the types of parameters, where that loses nothing (SPEC 004 Implicit Conversion, DD-24).
#
# ============= ============================================================= wanted taken instead =============
# ============================================================= ``:int`` a string of digits ``:float`` an int,
# silently; a string that is a number, spaces around it ``:bool`` ``"true"``, ``"false"``, ``:true``, ``:false``
# ``:string`` a keyword (its name), true and false, a Python datetime ``:keyword`` a string that can be one; also in
# ``[:enum :a]`` ``:datetime`` a date, as its midnight; a Python datetime ``[:enum …]`` a keyword for a string of the
# same letters ============= =============================================================
#
# Of a map with named fields only those are kept, under the keys they came with. nil is never turned into anything.
# Each type becomes a function once.

Coerce: TypeAlias = Callable[[Any, Trail | None, Report], Any]
"""Returns a value, found at a trail, in another type, or ``FAILED``; reports what was converted, or could not be."""

_NAMES = {"int": "integer", "bool": "boolean"}


def coerced(of: Type, value: Any, *, strict: bool = False) -> Coerced:
    """Return ``value`` as ``of``.

    Args:
        of: The type that is wanted.
        value: A Lisp value or a plain Python value.
        strict: Whether fields that are not declared are problems; otherwise they are left out.
    """
    report = Report(strict)
    made = coerce(of)(value, None, report)
    problems = report.told()
    return Coerced(value=value if problems else made, warnings=report.warned(), problems=problems)


@lru_cache(maxsize=1024)
def coerce(of: Type) -> Coerce:
    """Return the function that brings a value into ``of``."""
    match of:
        case Maybe(inner):
            return _coerce_maybe(coerce(inner))
        case Primitive():
            made = _coerce_primitive(of)
        case List():
            made = _coerce_list(of)
        case Map():
            made = _coerce_map(of)
        case MapOf():
            made = _coerce_map_of(of)
        case Enum():
            made = _coerce_enum(of)
        case Or():
            made = _coerce_or(of)
        case And():
            made = _coerce_and(of)
        case _:
            made = _as_it_is(check(of))
    return _unless(test(of, "exact"), made)


def _unless(settled: Test, coerce_it: Coerce) -> Coerce:
    def run(value: Any, trail: Trail | None, report: Report) -> Any:
        return value if settled(value) else coerce_it(value, trail, report)

    return run


def _as_it_is(explain: Check) -> Coerce:
    """Return what takes a value if it fits, and reports why not otherwise."""

    def run(value: Any, trail: Trail | None, report: Report) -> Any:
        before = len(report.problems)
        explain(value, trail, report)
        return FAILED if len(report.problems) > before or report.full else value

    return run


def _coerce_maybe(inner: Coerce) -> Coerce:
    return lambda value, trail, report: None if value is None else inner(value, trail, report)


def _coerce_primitive(of: Primitive) -> Coerce:
    name, finish = of.name, _as_it_is(check(of))
    is_kind, is_settled = kind_test(name), test(Primitive(name), "exact")

    def run(value: Any, trail: Trail | None, report: Report) -> Any:
        if name == "float" and is_kind(value) and not is_settled(value):
            made = _as_float(value, trail, report)
        elif name == "datetime" and isinstance(value, datetime):
            made = value.isoformat()
        elif is_settled(value):
            made = value
        else:
            made = converted(name, value)
            _tell(made, f"{kind_of(value)} to {_NAMES.get(name, name)}", trail, report)
        return FAILED if made is FAILED else finish(made, trail, report)

    return run


def _tell(made: Any, what: str, trail: Trail | None, report: Report) -> None:
    if made is FAILED:
        report.problem(trail, f"cannot coerce {what}")
    else:
        report.warning(trail, f"coerced {what}")


def _as_float(value: int, trail: Trail | None, report: Report) -> Any:
    try:
        return float(value)
    except OverflowError:
        report.problem(trail, "cannot coerce int to float: it is too large")
        return FAILED


def _coerce_list(of: List) -> Coerce:
    item, explain = coerce(of.item), _as_it_is(check(of))

    def run(value: Any, trail: Trail | None, report: Report) -> Any:
        if not isinstance(value, list | tuple):
            return explain(value, trail, report)
        items = []
        for index, part in enumerate(value):
            items.append(item(part, Trail(trail, index), report))
            if report.full:
                return FAILED
        return FAILED if any(one is FAILED for one in items) else _sized(of, items, trail, report)

    return run


def _coerce_map(of: Map) -> Coerce:
    places = [(field, Keyword(field.name), coerce(field.type)) for field in of.fields]
    declared = frozenset(field.name for field in of.fields)
    explain = _as_it_is(check(of))

    def run(value: Any, trail: Trail | None, report: Report) -> Any:
        if not isinstance(value, dict):
            return explain(value, trail, report)
        kept: dict[Any, Any] = {}
        for field, keyword, one in places:  # noqa: F402
            key = field.name if field.name in value else keyword
            if key in value:
                kept[key] = one(value[key], Trail(trail, field.name), report)
            elif not field.optional:
                report.problem(Trail(trail, field.name), missing(field))
                kept[key] = FAILED
        if report.strict or of.closed:
            unexpected(value, declared, trail, report)
        return FAILED if any(part is FAILED for part in kept.values()) else kept

    return run


def _coerce_map_of(of: MapOf) -> Coerce:
    key_fits, key_coerce, value_coerce = test(of.key), coerce(of.key), coerce(of.value)
    explain = _as_it_is(check(of))

    def run(value: Any, trail: Trail | None, report: Report) -> Any:
        if not isinstance(value, dict):
            return explain(value, trail, report)
        made: dict[Any, Any] = {}
        for key, part in value.items():
            at = Trail(trail, step_of(key), is_data=True)
            new = key if key_fits(key_name(key)) else key_coerce(key_name(key), at, report)
            made[new] = value_coerce(part, at, report)
            if report.full:
                return FAILED
        failed = any(key is FAILED or part is FAILED for key, part in made.items())
        return FAILED if failed else _sized(of, made, trail, report)

    return run


def _sized(of: List | MapOf, value: Any, trail: Trail | None, report: Report) -> Any:
    if within(len(value), of.least, of.most):
        return value
    report.problem(trail, f"expected {wanted(of)}")
    return FAILED


def _coerce_enum(of: Enum) -> Coerce:
    fitting, explain = test(of), _as_it_is(check(of))

    def run(value: Any, trail: Trail | None, report: Report) -> Any:
        if fitting(value):  # and is not exact: a string that stands for a keyword
            report.warning(trail, "coerced string to keyword")
            return Keyword(value)
        if isinstance(value, Keyword) and fitting(value.name):
            report.warning(trail, "coerced keyword to string")
            return value.name
        return explain(value, trail, report)

    return run


def _coerce_or(of: Or) -> Coerce:
    choices = [(test(one), coerce(one)) for one in of.choices]
    explain = _as_it_is(check(of))

    def run(value: Any, trail: Trail | None, report: Report) -> Any:
        # What fits already stays what it is: "42" in `[:or :int :string]` is a string.
        for _, one in sorted(choices, key=lambda choice: not choice[0](value)):
            tried = report.fresh()
            made = one(value, trail, tried)
            if not tried.problems:
                report.join(tried)
                return made
        return explain(value, trail, report)

    return run


def _coerce_and(of: And) -> Coerce:
    parts, fitting, finish = [coerce(one) for one in of.all_of], test(of), _as_it_is(check(of))

    def run(value: Any, trail: Trail | None, report: Report) -> Any:
        tried = report.fresh()
        made = value
        for part in (*parts, finish):
            made = part(made, trail, tried)
            if made is FAILED:
                break
        if made is FAILED and fitting(value):
            return value  # one part would take away, or convert, what another one needs
        report.join(tried)
        return made

    return run
