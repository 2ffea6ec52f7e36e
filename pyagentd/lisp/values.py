"""Values of the language: their kinds (``kinds``), and the way from Python and to it.

nil ``None`` · bool · int · float · str · ``Keyword`` · vector ``list`` (never changed once a program has seen it) ·
map ``dict`` · set ``LispSet`` · function = a Python callable with positional parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date
from datetime import time as clock_time
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import PurePath
from typing import Any
from uuid import UUID

from pyagentd.lisp.kinds import (
    MAX_DEPTH,
    PLAIN,
    Function,
    Key,
    Keyword,
    LispSet,
    Pattern,
    Value,
    a_type,
    as_key,
    from_key,
    too_deep,
    truthy,
    type_name,
)
from pyagentd.lisp.order import members

__all__ = [
    "MAX_DEPTH",
    "PLAIN",
    "Function",
    "Key",
    "Keyword",
    "LispSet",
    "Pattern",
    "Value",
    "a_type",
    "as_key",
    "from_key",
    "from_python",
    "to_python",
    "too_deep",
    "truthy",
    "type_name",
]


def to_python(value: Value) -> Any:
    """Return a value as plain Python: keywords and keys as their names, sets as sorted lists, functions as a word.

    What is shared in the value is shared in the result. A vector that is a key becomes a tuple.

    Raises:
        LispError: ``memory_exceeded`` when it is nested too deeply.
    """
    return _to_python(value, {}, 0)


def _to_python(value: Value, made: dict[int, tuple[Value, Any]], depth: int) -> Any:
    kind = type(value)
    if kind is Keyword:
        return value.name
    if kind not in {list, dict, LispSet}:
        return value if value is None or kind in {str, int, float, bool} else _as_word(value)
    if id(value) in made:
        return made[id(value)][1]
    if depth >= MAX_DEPTH:
        raise too_deep()
    result: Any
    if kind is list:
        result = [_to_python(item, made, depth + 1) for item in value]
    elif kind is LispSet:
        result = [_to_python(item, made, depth + 1) for item in members(value)]
    else:
        result = {}
        for key, item in value.items():
            name = _python_key(key, made, depth)
            if name not in result or type(key) is not Keyword:
                result[name] = _to_python(item, made, depth + 1)
    made[id(value)] = value, result  # with the value, so that no other gets its id
    return result


def _as_word(value: Value) -> str:
    return value.text if type(value) is Pattern else "#function"


def _python_key(key: Key, made: dict[int, tuple[Value, Any]], depth: int) -> Any:
    plain = from_key(key)
    if type(plain) in {list, dict, LispSet}:
        return _frozen(_to_python(plain, {}, depth + 1))
    return _to_python(plain, made, depth)


def _frozen(value: Any) -> Any:
    """Return lists and dicts as tuples, which can be keys."""
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    if isinstance(value, dict):
        return tuple((key, _frozen(item)) for key, item in value.items())
    return value


def from_python(value: Any) -> Value:
    """Return plain Python data as a value; string keys stay strings.

    Tuples become vectors; dataclasses, pydantic models and other mappings become maps; dates, times, UUIDs and paths
    become strings, enums their values.

    Raises:
        TypeError: for an object the language has no value for; the message names the path to it.
    """
    return _from_python(value, "value", 0, {})


def _from_python(value: Any, path: str, depth: int, made: dict[int, tuple[Any, Value]]) -> Value:
    if value is None or type(value) in {str, int, float, bool, Keyword, LispSet, Pattern}:
        return value
    if id(value) in made:
        return made[id(value)][1]
    if depth >= MAX_DEPTH:
        raise TypeError(f"{path[:200]} is nested deeper than {MAX_DEPTH} levels, or contains itself")
    if isinstance(value, Mapping | list | tuple):
        result = _from_collection(value, path, depth, made)
        made[id(value)] = value, result  # with the object, so that no other gets its id
        return result
    if isinstance(value, Enum):
        return _from_python(value.value, path, depth + 1, made)
    if isinstance(value, set | frozenset):
        return LispSet.of(_from_python(item, f"a member of {path}", depth + 1, made) for item in value)
    for plain in (str, bool, int, float):
        if isinstance(value, plain):
            return plain(value)
    return _from_object(value, path, depth, made)


def _from_collection(
    value: Mapping[Any, Any] | list[Any] | tuple[Any, ...], path: str, depth: int, made: dict[int, tuple[Any, Value]]
) -> Value:
    if not isinstance(value, Mapping):
        return [_from_python(item, f"{path}[{index}]", depth + 1, made) for index, item in enumerate(value)]
    return {
        as_key(_from_python(key, f"a key of {path}", depth + 1, made)): _from_python(
            item, f"{path}.{key}", depth + 1, made
        )
        for key, item in value.items()
    }


def _from_object(value: Any, path: str, depth: int, made: dict[int, tuple[Any, Value]]) -> Value:
    if is_dataclass(value) and not isinstance(value, type):
        return {
            each.name: _from_python(getattr(value, each.name), f"{path}.{each.name}", depth + 1, made)
            for each in fields(value)
        }
    if callable(dump := getattr(value, "model_dump", None)) and not isinstance(value, type):
        return _from_python(dump(), path, depth + 1, made)
    if isinstance(value, date | clock_time):
        return value.isoformat()
    if isinstance(value, UUID | PurePath):
        return str(value)
    if isinstance(value, Decimal | Fraction):
        return float(value)
    raise TypeError(f"{path} is a {type(value).__name__}, which has no value in the language")
