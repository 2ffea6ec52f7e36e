"""Signatures from what Python code says of itself (SPEC 004 Tool Normalization & Schema Extraction)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from inspect import Parameter
from typing import Any

from pyagentd.errors import SignatureError
from pyagentd.mission.signature.contract import Signature
from pyagentd.mission.signature.hints import optional_field, resolved_hints, type_of_hint
from pyagentd.mission.signature.types import ANY, Field


def of_callable(function: Callable[..., Any], *, strict: bool = False) -> Signature:
    """Return the signature of a Python function: parameters by name, types by hints, ``?`` where there is a default.

    ``*args`` and ``**kwargs`` are left out; a parameter without a hint is ``:any``.

    Args:
        function: Any callable whose parameters can be inspected; of an async one the result is what awaiting gives.
        strict: Whether missing hints, and hints there is no type for, are errors.

    Raises:
        SignatureError: It cannot be inspected, or says too little and that is ``strict``.
    """
    name = getattr(function, "__qualname__", type(function).__name__)
    try:
        found = inspect.signature(function)
    except (ValueError, TypeError) as error:
        mend = "Give a signature as text"
        raise SignatureError(f"the parameters of {name} cannot be inspected", mend=mend) from error
    hints = _hints(function)
    params = [_param(one, hints, name, strict) for one in found.parameters.values() if _is_named(one)]
    returns = hints.get("return", Parameter.empty)
    if returns is Parameter.empty and strict:
        raise SignatureError(f"{name} does not say what it returns", mend="Add a type hint, or a signature as text")
    return Signature(tuple(params), ANY if returns is Parameter.empty else type_of_hint(returns, strict=strict))


def of_model(model: Any, *, strict: bool = False) -> Signature:
    """Return the signature, without parameters, whose result is what ``model`` describes.

    Args:
        model: A dataclass, TypedDict, pydantic model, or any other type hint.
        strict: Whether hints there is no type for are errors.

    Raises:
        SignatureError: A hint cannot be resolved, or has no type and that is ``strict``.
    """
    return Signature((), type_of_hint(model, strict=strict))


def _is_named(parameter: Parameter) -> bool:
    return parameter.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    plain = inspect.unwrap(function)
    if hasattr(plain, "func") and hasattr(plain, "keywords"):  # functools.partial
        return _hints(plain.func)
    if not inspect.isroutine(plain) and not isinstance(plain, type):
        plain = type(plain).__call__
    if isinstance(plain, type):
        return {**resolved_hints(vars(plain).get("__init__", plain)), "return": plain}
    return resolved_hints(plain)


def _param(parameter: Parameter, hints: dict[str, Any], function: str, strict: bool) -> Field:
    required = parameter.default is Parameter.empty
    if parameter.name in hints:
        return optional_field(parameter.name, type_of_hint(hints[parameter.name], strict=strict), required=required)
    if strict:
        raise SignatureError(f"the parameter {parameter.name} of {function} has no type hint", mend="Add one")
    return optional_field(parameter.name, ANY, required=required)
