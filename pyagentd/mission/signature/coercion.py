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
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import date, datetime
from typing import Any

from pyagentd.lisp.values import Keyword
from pyagentd.mission.signature.fitting import fits, is_datetime, key_name, match_of, test, within
from pyagentd.mission.signature.forms import is_keyword
from pyagentd.mission.signature.kinds import kind_of, wanted
from pyagentd.mission.signature.problems import Coerced, Report, Trail
from pyagentd.mission.signature.types import And, Enum, List, Map, MapOf, Maybe, Or, Primitive, Type
from pyagentd.mission.signature.validation import check, missing, step_of, unexpected

_INT = re.compile(r"[+-]?[0-9]{1,4000}")
_FLOAT = re.compile(r"\s*[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?\s*")

FAILED: Any = object()
"""Stands for a value that could not be converted; the report says why."""

_NAMES = {"int": "integer", "bool": "boolean"}


def coerced(of: Type, value: Any, *, strict: bool = False) -> Coerced:
    """Return ``value`` as ``of``.

    Args:
        of: The type that is wanted.
        value: A Lisp value or a plain Python value.
        strict: Whether fields that are not declared are problems; otherwise they are left out.
    """
    report = Report(strict)
    made = coerce(of, value, None, report)
    problems = report.told()
    return Coerced(value=value if problems else made, warnings=report.warned(), problems=problems)


def coerce(of: Type, value: Any, trail: Trail | None, report: Report) -> Any:
    """Return ``value`` as ``of``, or ``FAILED``; ``report`` gets what was converted and what could not be."""
    if test(of, "exact")(value):
        return value
    match of:
        case Maybe(inner):
            return None if value is None else coerce(inner, value, trail, report)
        case Primitive(name):
            return _checked(of, _primitive(name, value, trail, report), trail, report)
        case List() if isinstance(value, list | tuple):
            return _list(of, value, trail, report)
        case Map() if isinstance(value, dict):
            return _map(of, value, trail, report)
        case MapOf() if isinstance(value, dict):
            return _map_of(of, value, trail, report)
        case Enum():
            return _enum(of, value, trail, report)
        case Or():
            return _or(of, value, trail, report)
        case And():
            return _and(of, value, trail, report)
        case _:
            return _checked(of, value, trail, report)


def _primitive(name: str, value: Any, trail: Trail | None, report: Report) -> Any:
    if (name == "keyword" and not isinstance(value, Keyword)) or not fits(Primitive(name), value):  # type: ignore[arg-type]
        return _converted(name, value, trail, report)
    if name == "float" and isinstance(value, int):
        return _as_float(value, trail, report)
    return value.isoformat() if isinstance(value, datetime) else value


def _converted(name: str, value: Any, trail: Trail | None, report: Report) -> Any:
    convert = _CONVERT.get(name)
    result = FAILED if convert is None else convert(value)
    kind, wanted_name = kind_of(value), _NAMES.get(name, name)
    if result is FAILED:
        report.problem(trail, f"cannot coerce {kind} to {wanted_name}")
    else:
        report.warning(trail, f"coerced {kind} to {wanted_name}")
    return result


def _as_float(value: int, trail: Trail | None, report: Report) -> Any:
    try:
        return float(value)
    except OverflowError:
        report.problem(trail, "cannot coerce int to float: it is too large")
        return FAILED


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


_CONVERT: dict[str, Callable[[Any], Any]] = {
    "int": _to_int,
    "float": _to_float,
    "bool": _to_bool,
    "string": _to_string,
    "keyword": _to_keyword,
    "datetime": _to_datetime,
}


def _list(of: List, value: Sequence[Any], trail: Trail | None, report: Report) -> Any:
    items = []
    for index, part in enumerate(value):
        items.append(coerce(of.item, part, Trail(trail, index), report))
        if report.full:
            return FAILED
    return FAILED if any(item is FAILED for item in items) else _within(of, items, trail, report)


def _map(of: Map, value: dict[Any, Any], trail: Trail | None, report: Report) -> Any:
    kept: dict[Any, Any] = {}
    for field in of.fields:
        keyword = Keyword(field.name)
        key = field.name if field.name in value else keyword
        if key in value:
            kept[key] = coerce(field.type, value[key], Trail(trail, field.name), report)
        elif not field.optional:
            report.problem(Trail(trail, field.name), missing(field))
            kept[key] = FAILED
    if report.strict or of.closed:
        unexpected(value, frozenset(field.name for field in of.fields), trail, report)
    return FAILED if any(part is FAILED for part in kept.values()) else kept


def _map_of(of: MapOf, value: dict[Any, Any], trail: Trail | None, report: Report) -> Any:
    made: dict[Any, Any] = {}
    for key, part in value.items():
        at = Trail(trail, step_of(key), is_data=True)
        new = key if fits(of.key, key_name(key)) else coerce(of.key, key_name(key), at, report)
        made[new] = coerce(of.value, part, at, report)
    failed = any(key is FAILED or part is FAILED for key, part in made.items())
    return FAILED if failed else _within(of, made, trail, report)


def _enum(of: Enum, value: Any, trail: Trail | None, report: Report) -> Any:
    found = match_of(value, of.values)
    if found is None and isinstance(value, Keyword) and (found := match_of(value.name, of.values)):
        report.warning(trail, "coerced keyword to string")
        return found.value
    if found is None:
        report.problem(trail, f"expected {wanted(of)}, got {kind_of(value)}")
        return FAILED
    if found.is_keyword and isinstance(value, str):
        report.warning(trail, "coerced string to keyword")
        return Keyword(value)
    return value


def _or(of: Or, value: Any, trail: Trail | None, report: Report) -> Any:
    # What fits already stays what it is: "42" in `[:or :int :string]` is a string.
    for choices in ([one for one in of.choices if fits(one, value)], of.choices):
        for one in choices:
            tried = report.fresh()
            result = coerce(one, value, trail, tried)
            if not tried.problems:
                report.join(tried)
                return result
    return _checked(of, value, trail, report)


def _and(of: And, value: Any, trail: Trail | None, report: Report) -> Any:
    tried = report.fresh()
    made = value
    for part in of.all_of:
        made = FAILED if made is FAILED else coerce(part, made, trail, tried)
    if _checked(of, made, trail, tried) is FAILED and fits(of, value):
        return value  # one part would take away, or convert, what another one needs
    report.join(tried)
    return made if not tried.problems else FAILED


def _within(of: List | MapOf, value: Any, trail: Trail | None, report: Report) -> Any:
    if within(len(value), of.least, of.most):
        return value
    report.problem(trail, f"expected {wanted(of)}")
    return FAILED


def _checked(of: Type, value: Any, trail: Trail | None, report: Report) -> Any:
    if value is FAILED:
        return FAILED
    before = len(report.problems)
    check(of)(value, trail, report)
    return FAILED if len(report.problems) > before else value
