"""From plain values to what a hint asks for: dataclasses, pydantic models, enums, dates, and containers of them.

What a hint does not describe stays as it is; a function without hints gets plain values. No third-party module is
imported: a pydantic model is known by its ``model_validate``.
"""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from collections.abc import Mapping
from datetime import date, datetime, time
from typing import Any, Literal, Union, get_args, get_origin


def constructed(hint: Any, value: Any) -> Any:
    """Return ``value`` as ``hint`` asks for it.

    Raises:
        ValueError: It cannot be one: an unknown member of an enum, no ISO date, what a model rejects.
        TypeError: A field of a dataclass is missing.
    """
    if value is None or hint is Any:
        return value
    origin, of = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _of_union(of, value)
    if origin is typing.Annotated:
        return constructed(of[0], value)
    if origin is Literal:
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return _collection(origin or hint, of, value)
    if isinstance(value, Mapping) and of and origin is not None and issubclass(origin, Mapping):
        return {constructed(of[0], key): constructed(of[1], item) for key, item in value.items()}
    return _instance(hint, value) if isinstance(hint, type) else value


def _of_union(of: tuple[Any, ...], value: Any) -> Any:
    for each in of:
        if each is type(None):
            continue
        try:
            made = constructed(each, value)
        except (ValueError, TypeError):
            continue
        if made is not value or not isinstance(each, type) or isinstance(value, each):
            return made
    return value


def _collection(kind: Any, of: tuple[Any, ...], value: Any) -> Any:
    if kind is tuple:
        if len(of) == 2 and of[1] is Ellipsis:
            return tuple(constructed(of[0], each) for each in value)
        if of and len(of) == len(value):
            return tuple(constructed(hint, each) for hint, each in zip(of, value, strict=True))
        return tuple(value)
    items = [constructed(of[0], each) for each in value] if of else list(value)
    if kind in (set, frozenset):
        return kind(items)
    return items if not isinstance(value, set | frozenset) else value


def _instance(hint: type, value: Any) -> Any:
    if isinstance(value, hint):
        return value
    if issubclass(hint, enum.Enum):
        return _member(hint, value)
    if isinstance(value, Mapping):
        if hasattr(hint, "model_validate"):
            return hint.model_validate(dict(value))
        if dataclasses.is_dataclass(hint):
            return _of_fields(hint, value)
    if isinstance(value, str) and hint in (datetime, date, time):
        return hint.fromisoformat(value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value


def _member(hint: type[enum.Enum], value: Any) -> enum.Enum:
    for member in hint:
        if member.value == value or member.name == value:
            return member
    raise ValueError(f"{value!r} is none of {', '.join(str(member.value) for member in hint)}")


def _of_fields(hint: type, value: Mapping[str, Any]) -> Any:
    hints = typing.get_type_hints(hint)
    names = {field.name for field in dataclasses.fields(hint) if field.init}
    return hint(**{name: constructed(hints.get(name, Any), value[name]) for name in names if name in value})
