"""How arguments under string keys reach a Python function, and what the function says of itself.

A function gets each argument under its parameter's name, built into the dataclass, model, enum or date that the hint
asks for. One whose only parameter is called ``args``, or is not in the signature that was stated for it, gets the
whole dict.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from pyagentd.mission.construct import constructed
from pyagentd.mission.llmtool import LLMTool
from pyagentd.mission.signature import Signature
from pyagentd.mission.step import Step


def call(function: Callable[..., Any], args: Mapping[str, Any], signature: Signature | None = None) -> Any:
    """Call ``function`` with ``args``; a ``Step`` it returns stands for its value.

    Raises:
        TypeError: The function needs a parameter that is not given.
        MissionFailed: The step failed.
    """
    result = function.run(args) if isinstance(function, LLMTool) else _called(function, args, signature)
    return _awaited(result) if inspect.isawaitable(result) else _value(result)


async def _awaited(result: Awaitable[Any]) -> Any:
    return _value(await result)


def _value(result: Any) -> Any:
    if not isinstance(result, Step):
        return result
    plain = result.unwrap()
    return plain if result.lisp_value is None else result.lisp_value  # a program can tell a keyword from a string


def _called(function: Callable[..., Any], args: Mapping[str, Any], signature: Signature | None) -> Any:
    parameters = _parameters(function)
    if parameters is None:
        return function(*_in_order(args, signature)) if signature is not None else function(dict(args))
    if takes_everything(function) or _sole_other(parameters, signature):
        return function(dict(args))
    return _named(function, parameters, args)


def takes_everything(function: Callable[..., Any]) -> bool:
    """Return whether the one parameter of ``function`` is ``args``: it gets the whole dict."""
    parameters = _parameters(function)
    return parameters is not None and [*parameters] == ["args"] and not _is_variadic(parameters["args"])


def is_annotated(function: Callable[..., Any]) -> bool:
    """Return whether every parameter and the result have a hint."""
    try:
        own = inspect.signature(function)
    except (TypeError, ValueError):
        return False
    empty = inspect.Parameter.empty
    return own.return_annotation is not empty and all(p.annotation is not empty for p in own.parameters.values())


def described(function: Callable[..., Any]) -> str:
    """Return the first paragraph of its docstring on one line, or ""."""
    if isinstance(function, type) or inspect.isroutine(function):
        text = inspect.getdoc(function)
    else:  # an object that can be called has its class's docstring at best
        text = inspect.getdoc(function.__call__) if type(function).__call__.__doc__ else inspect.getdoc(function)  # type: ignore[operator]
    return " ".join((text or "").split("\n\n")[0].split())


def _named(function: Callable[..., Any], parameters: Mapping[str, inspect.Parameter], args: Mapping[str, Any]) -> Any:
    hints = _look(function).hints
    positional: list[Any] = []
    named: dict[str, Any] = {}
    left = {key.replace("-", "_") if key.replace("-", "_") in parameters else key: v for key, v in args.items()}
    for name, parameter in parameters.items():
        if _is_variadic(parameter):
            continue
        if name not in left:
            if parameter.default is inspect.Parameter.empty:
                raise TypeError(f"the argument {name} is missing")
            continue
        value = left.pop(name)
        if value is None and parameter.default is not inspect.Parameter.empty:
            continue  # nil says "as you like", which is what a default is for
        value = constructed(hints.get(name, Any), value)
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            positional.append(value)
        else:
            named[name] = value
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        named |= left
    return function(*positional, **named)


def _sole_other(parameters: Mapping[str, inspect.Parameter], signature: Signature | None) -> bool:
    """Return whether the only parameter is not one of those the signature states: it is the dict itself."""
    if signature is None or len(parameters) != 1:
        return False
    (parameter,) = parameters.values()
    if _is_variadic(parameter):
        return False
    return parameter.name not in {each.name.replace("-", "_") for each in signature.params}


def _in_order(args: Mapping[str, Any], signature: Signature) -> list[Any]:
    return [args[each.name] for each in signature.params if each.name in args]


def _is_variadic(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What a function tells: parameters, None when it (a built-in) does not, and hints."""

    parameters: Mapping[str, inspect.Parameter] | None
    hints: Mapping[str, Any]


_known: WeakKeyDictionary[Any, _Known] = WeakKeyDictionary()


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter] | None:
    return _look(function).parameters


def _look(function: Callable[..., Any]) -> _Known:
    """Return what ``function`` tells, looked up once for as long as it lives."""
    try:
        if (known := _known.get(function)) is not None:
            return known
    except TypeError:  # not hashable
        return _Known(parameters=_inspected(function), hints=_hints(function))
    known = _Known(parameters=_inspected(function), hints=_hints(function))
    with suppress(TypeError):  # no weak reference to it can be made
        _known[function] = known
    return known


def _inspected(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter] | None:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    if isinstance(function, functools.partial):
        return _hints(function.func)
    target = function if inspect.isroutine(function) or isinstance(function, type) else function.__call__  # type: ignore[operator]
    if isinstance(target, type):
        target = target.__dict__.get("__init__", target)
    try:
        return typing.get_type_hints(target)
    except (NameError, TypeError, AttributeError):  # a hint names what is not there at run time
        return {}
