"""Arguments brought into the types of parameters, where that loses nothing (SPEC 004 Implicit Conversion, DD-24).

=============  =============================================================
wanted         taken instead
=============  =============================================================
``:int``       a string of digits
``:float``     an int, silently; a string that is a number, spaces around it
``:bool``      ``"true"``, ``"false"``, ``:true``, ``:false``
``:string``    a keyword (its name), true and false, a Python datetime
``:keyword``   a string that can be one; also in ``[:enum :a]``
``:datetime``  a date, as its midnight; a Python datetime
``[:enum …]``  a keyword for a string of the same letters
=============  =============================================================

Of a map with named fields only those are kept, under the keys they came with. nil is never turned into anything.
Each type becomes a function once.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import Any, TypeAlias

from pyagentd.lisp.values import Keyword
from pyagentd.mission.signature.conversion import FAILED, converted
from pyagentd.mission.signature.fitting import Test, key_name, kind_test, test, within
from pyagentd.mission.signature.kinds import kind_of, wanted
from pyagentd.mission.signature.problems import Coerced, Report, Trail
from pyagentd.mission.signature.types import And, Enum, List, Map, MapOf, Maybe, Or, Primitive, Type
from pyagentd.mission.signature.validation import Check, check, missing, step_of, unexpected

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
            return _maybe(coerce(inner))
        case Primitive():
            made = _primitive(of)
        case List():
            made = _list(of)
        case Map():
            made = _map(of)
        case MapOf():
            made = _map_of(of)
        case Enum():
            made = _enum(of)
        case Or():
            made = _or(of)
        case And():
            made = _and(of)
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


def _maybe(inner: Coerce) -> Coerce:
    return lambda value, trail, report: None if value is None else inner(value, trail, report)


def _primitive(of: Primitive) -> Coerce:
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


def _list(of: List) -> Coerce:
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


def _map(of: Map) -> Coerce:
    places = [(field, Keyword(field.name), coerce(field.type)) for field in of.fields]
    declared = frozenset(field.name for field in of.fields)
    explain = _as_it_is(check(of))

    def run(value: Any, trail: Trail | None, report: Report) -> Any:
        if not isinstance(value, dict):
            return explain(value, trail, report)
        kept: dict[Any, Any] = {}
        for field, keyword, one in places:
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


def _map_of(of: MapOf) -> Coerce:
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


def _enum(of: Enum) -> Coerce:
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


def _or(of: Or) -> Coerce:
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


def _and(of: And) -> Coerce:
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
