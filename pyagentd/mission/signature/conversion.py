"""One value made into another type, where that loses nothing; the table is in ``coercion``."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any

from pyagentd.lisp.values import Keyword
from pyagentd.mission.signature.fitting import is_datetime
from pyagentd.mission.signature.forms import is_keyword
from pyagentd.mission.signature.types import Name

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
