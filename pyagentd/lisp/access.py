"""Looking into collections, and values that are called: keywords, maps, sets and functions.

Keys are flexible: a keyword finds a string key of its name and a string a keyword, the exact key first, so programs
may write ``:name`` for what came from JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import CO_VARARGS
from types import FunctionType

from pyagentd.lisp.errors import LispError
from pyagentd.lisp.limits import Budget
from pyagentd.lisp.missing import MISSING
from pyagentd.lisp.values import PLAIN, Key, Keyword, LispSet, Value, a_type, as_key, type_name


def find(mapping: dict[Key, Value], key: Value, default: Value = MISSING, budget: Budget | None = None) -> Value:
    """Return what a map has under ``key``, or under the same name as keyword or string, or ``default``."""
    found = mapping.get(key if type(key) in PLAIN else as_key(key, budget), MISSING)
    if found is MISSING:
        if type(key) is Keyword:
            return mapping.get(key.name, default)
        if type(key) is str:
            return mapping.get(Keyword(key), default)
        return default
    return found


def lookup(value: Value, key: Value, default: Value = None, budget: Budget | None = None) -> Value:
    """Return what ``get`` returns: from a map by key, a vector by index, a set by member; nil has nothing.

    Raises:
        LispError: ``eval_error`` when nothing can be looked up in ``value``.
    """
    kind = type(value)
    if kind is dict:
        return find(value, key, default, budget)
    if value is None:
        return default
    if kind is list or kind is str:
        if type(key) is float and key.is_integer():
            key = int(key)  # what / gives is meant as an index
        if type(key) is int:
            return value[key] if 0 <= key < len(value) else default
        if type(key) is Keyword:
            raise _no_keys(value, key)
        return default
    if kind is LispSet:
        return key if as_key(key, budget) in value.keys else default
    raise _no_keys(value, key)


def _no_keys(value: Value, key: Value) -> LispError:
    shown = f":{key.name}" if type(key) is Keyword else a_type(key)
    hint = "Use (map :key items) for every item, or (get-in value [:items 0 :key])." if type(value) is list else ""
    return LispError("eval_error", f"cannot look up {shown} in {a_type(value)}", hint=hint)


def keyword_lookup(keyword: Keyword, value: Value, default: Value = None) -> Value:
    """Return what ``(:keyword value default)`` returns."""
    if type(value) is dict:
        return find(value, keyword, default)
    if value is None:
        return default
    return lookup(value, keyword, default)


def as_function(value: Value, arity: int, name: str = "") -> Callable[..., Value]:
    """Return ``value`` as a Python callable with ``arity`` positional parameters; checked once, here.

    Args:
        value: A function, keyword, map or set.
        arity: With how many arguments it will be called.
        name: Who is going to call it (``"map"``), for the message.

    Raises:
        LispError: ``eval_error`` when it is no function, or takes another number of arguments.
    """
    kind = type(value)
    if kind is FunctionType:
        least, most = arity_of(value)
        if least <= arity and (most is None or arity <= most):
            return value  # type: ignore[no-any-return]
        raise wrong_arity(function_name(value), least, most, arity)
    if kind is Keyword or kind is dict or kind is LispSet:
        if not 1 <= arity <= (1 if kind is LispSet else 2):
            raise wrong_arity(str(value) if kind is Keyword else f"a {type_name(value)}", 1, 2, arity)
        return partial(keyword_lookup if kind is Keyword else lookup, value)
    if callable(value):
        least, most = arity_of(value)
        if least <= arity and (most is None or arity <= most):
            return value  # type: ignore[no-any-return]
        raise wrong_arity(function_name(value), least, most, arity)
    where = f"{name}: " if name else ""
    raise LispError("eval_error", f"{where}not callable: {a_type(value)} is no function")


def arity_of(function: Callable[..., Value]) -> tuple[int, int | None]:
    """Return the least and the most arguments a function takes; None is any number."""
    declared: tuple[int, int | None] | None = getattr(function, "arity", None)
    if declared is not None:
        return declared
    if type(function) is partial:
        least, most = arity_of(function.func)
        given = len(function.args)
        return max(0, least - given), None if most is None else most - given
    code = getattr(function, "__code__", None)
    if code is None:
        return 0, None
    most = None if code.co_flags & CO_VARARGS else code.co_argcount
    return code.co_argcount - len(getattr(function, "__defaults__", None) or ()), most


def function_name(function: Callable[..., Value]) -> str:
    """Return the name a program knows a function by."""
    if type(function) is partial:
        return function_name(function.func)
    name = str(getattr(function, "lisp_name", None) or getattr(function, "__name__", "fn"))
    # Generated code numbers its functions: f·12.
    return "fn" if name.startswith("<") else name.partition("·")[0] or "fn"


def wrong_arity(name: str, least: int, most: int | None, got: int) -> LispError:
    """Return the error for a call with the wrong number of arguments."""
    if most is None:
        wanted = f"at least {least} {_arguments(least)}"
    elif least == most:
        wanted = f"{least} {_arguments(least)}"
    else:
        wanted = f"{least} to {most} arguments"
    return LispError("eval_error", f"{name} expects {wanted}, got {got}")


def _arguments(count: int) -> str:
    return "argument" if count == 1 else "arguments"
