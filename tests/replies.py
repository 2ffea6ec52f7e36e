"""Checks what the operations return against the types that they declare: every reply of every test."""

import types
import typing
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum
from functools import wraps
from typing import Any, Literal, Union

from pyagentd.api import GROUPS, methods


def misfit(value: object, wanted: Any, path: str = "") -> str:
    """Return what is wrong with ``value``, beginning with its place; "" if it is of the type ``wanted``."""
    origin, parts = typing.get_origin(wanted), typing.get_args(wanted)
    if wanted is Any or wanted is object:
        return ""
    if origin in (Union, types.UnionType):
        found = [misfit(value, part, path) for part in parts]
        return "" if "" in found else max(found, key=len)
    if origin is Literal:
        return "" if value in parts else f"{path} is {value!r}, not one of {parts}"
    if origin in (typing.NotRequired, typing.Required):
        return misfit(value, parts[0], path)
    if typing.is_typeddict(wanted):
        return _keys(value, wanted, path)
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            return f"{path} is {value!r}, not a mapping"
        return _first(misfit(each, parts[1], f"{path}.{key}") for key, each in value.items())
    if origin is not None and issubclass(origin, Sequence):
        if not isinstance(value, list | tuple):
            return f"{path} is {value!r}, not a list"
        if origin is tuple and parts[-1] is not ...:
            if len(parts) != len(value):
                return f"{path} is {value!r}, not {len(parts)} values"
            return _first(
                misfit(each, part, f"{path}[{n}]") for n, (each, part) in enumerate(zip(value, parts, strict=True))
            )
        return _first(misfit(each, parts[0], f"{path}[{n}]") for n, each in enumerate(value))
    if wanted is None or wanted is type(None):
        return "" if value is None else f"{path} is {value!r}, not None"
    if wanted is float and type(value) is int:
        return ""
    is_bool = isinstance(value, bool)
    fits = isinstance(value, wanted) and not isinstance(value, Enum) and is_bool == (wanted is bool)
    return "" if fits else f"{path} is {value!r}, not {getattr(wanted, '__name__', wanted)}"


def _keys(value: object, wanted: Any, path: str) -> str:
    if not isinstance(value, dict):
        return f"{path} is {value!r}, not {wanted.__name__}"
    hints = typing.get_type_hints(wanted)
    if missing := wanted.__required_keys__ - value.keys():
        return f"{path} has no {', '.join(sorted(missing))}, as {wanted.__name__} has"
    if unknown := value.keys() - hints.keys():
        return f"{path} has {', '.join(sorted(map(str, unknown)))}, which {wanted.__name__} has not"
    return _first(misfit(each, hints[key], f"{path}.{key}") for key, each in value.items())


def _first(found: typing.Iterable[str]) -> str:
    return next(filter(None, found), "")


def check_replies() -> None:
    """Have every operation fail, from now on, whose reply is not of its declared type."""
    for group in GROUPS:
        for name, method in methods(group):
            owner = next(each for each in group.__mro__ if method in vars(each))
            setattr(owner, method, _checked(name, vars(owner)[method]))


def _checked(name: str, run: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    wanted = typing.get_type_hints(run)["return"]

    @wraps(run)
    async def checked(*args: Any, **kwargs: Any) -> Any:
        reply = await run(*args, **kwargs)
        assert not (wrong := misfit(reply, wanted, name)), wrong
        return reply

    return checked
