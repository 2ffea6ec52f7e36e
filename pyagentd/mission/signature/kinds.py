"""How values and types are called in messages."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from typing import Any

from pyagentd.lisp.values import Keyword, LispSet
from pyagentd.mission.signature.rendering import constant_text
from pyagentd.mission.signature.types import (
    And,
    Constraint,
    Enum,
    List,
    Map,
    MapOf,
    Maybe,
    Number,
    Or,
    Primitive,
    Type,
)

_AT_MOST_NAMED = 12


def kind_of(value: Any) -> str:
    """Return what ``value`` is: ``int``, ``string``, ``list``…; never anything of what it contains."""
    match value:
        case None:
            return "nil"
        case bool():
            return "bool"
        case int():
            return "int"
        case float():
            return "float"
        case str():
            return "string"
        case Keyword():
            return "keyword"
        case list() | tuple():
            return "list"
        case dict():
            return "map"
        case LispSet() | set() | frozenset():
            return "set"
        case datetime():
            return "datetime"
        case date():
            return "date"
        case _:
            return "function" if callable(value) else "object"


def wanted(of: Type) -> str:
    """Return what is expected: ``int of at least 0``, ``one of "a", "b"``, ``int or string``."""
    match of:
        case Primitive(name, least, most) if name == "string":
            return name + _range(least, most, "character")
        case Primitive(name, least, most):
            return name + _range(least, most)
        case Maybe(inner):
            return f"{wanted(inner)} or nil"
        case List(_, least, most):
            return "list" + _range(least, most, "item")
        case Map():
            return "map"
        case MapOf(_, _, least, most):
            return "map" + _range(least, most, "entry")
        case Enum(values):
            named = [constant_text(value) for value in values[:_AT_MOST_NAMED]]
            if len(values) > _AT_MOST_NAMED:
                named.append(f"{len(values) - _AT_MOST_NAMED} more")
            return named[0] if len(named) == 1 else f"one of {', '.join(named)}"
        case Or(choices):
            return _alternatives([wanted(one) for one in choices])
        case And(all_of):
            return " and ".join(dict.fromkeys(wanted(one) for one in all_of))
        case Constraint(operator, bound):
            return f"number {operator} {bound!r}"
        case _:
            return "value"


def _alternatives(names: Sequence[str]) -> str:
    *first, last = dict.fromkeys(names)
    return f"{', '.join(first)} or {last}" if first else last


def _range(least: Number | None, most: Number | None, unit: str = "") -> str:
    if least is None and most is None:
        return ""
    counted = most if most is not None else least
    plural = "entries" if unit == "entry" else f"{unit}s"
    words = f" {unit if counted == 1 else plural}" if unit else ""
    if least is None:
        return f" of at most {most!r}{words}"
    if most is None:
        return f" of at least {least!r}{words}"
    return f" of {least!r} to {most!r}{words}"
