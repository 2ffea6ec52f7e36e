"""Checks arguments against the part of JSON Schema that tool schemas use.

Known keywords: type (one or a list), properties, required, enum, items, additionalProperties (assumed false for
objects with properties), minimum, maximum, minLength, minItems, maxItems. Others describe and do not restrict.
All problems are reported at once, in words a model can act on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyagentd.errors import ToolError, did_you_mean

Schema = Mapping[str, Any]

_SHOWN = 60  # characters of an offending value that are shown

_NAMES = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "array": "an array",
    "object": "an object",
    "null": "null",
}


def checked(tool: str, schema: Schema, args: object) -> dict[str, Any]:
    """Return ``args`` as the tool gets them.

    Optional arguments given as null count as absent, and 3.0 is an integer.

    Raises:
        ToolError: The arguments do not fit; the message names each of them and says what was expected.
    """
    if not isinstance(args, Mapping):
        raise ToolError(f"{tool}: the arguments must be an object, got {_show(args)}")
    required = schema.get("required", ())
    given = {name: value for name, value in args.items() if value is not None or name in required}
    problems = list(_object_problems("", schema, given))
    if problems:
        raise ToolError(f"{tool}: " + "; ".join(problems), mend=_usage(schema))
    properties = schema.get("properties", {})
    return {name: _normal(properties.get(name, {}), value) for name, value in given.items()}


def _problems(where: str, schema: Schema, value: object) -> Iterator[str]:
    types = _types(schema)
    if types and not any(_is(value, name) for name in types):
        yield f'"{where}" must be {" or ".join(_NAMES.get(name, name) for name in types)}, got {_show(value)}'
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f'"{where}" must be one of {", ".join(json.dumps(v) for v in schema["enum"])}, got {_show(value)}'
    elif isinstance(value, str):
        yield from _bounds(where, len(value), schema.get("minLength"), schema.get("maxLength"), " characters")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _bounds(where, value, schema.get("minimum"), schema.get("maximum"), "")
    elif isinstance(value, Mapping):
        yield from _object_problems(where, schema, value)
    elif isinstance(value, Sequence):
        yield from _bounds(where, len(value), schema.get("minItems"), schema.get("maxItems"), " items")
        for index, item in enumerate(value):
            yield from _problems(f"{where}[{index}]", schema.get("items", {}), item)


def _object_problems(where: str, schema: Schema, value: Mapping[str, Any]) -> Iterator[str]:
    properties: Mapping[str, Schema] = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield f'"{_join(where, name)}" is required and missing'
    closed = not schema.get("additionalProperties", not properties)
    for name, item in value.items():
        if name in properties:
            yield from _problems(_join(where, name), properties[name], item)
        elif closed:
            meant = did_you_mean(str(name), properties, inside=True)
            yield f'"{_join(where, name)}" is not known' + (f", {meant}" if meant else "")


def _bounds(where: str, size: float, low: float | None, high: float | None, unit: str) -> Iterator[str]:
    if size == 0 and low == 1 and unit:
        yield f'"{where}" must not be empty'
    elif low is not None and size < low:
        yield f'"{where}" must be at least {low}{unit}, got {size}'
    if high is not None and size > high:
        yield f'"{where}" must be at most {high}{unit}, got {size}'


def _types(schema: Schema) -> tuple[str, ...]:
    kind = schema.get("type", ())
    return (kind,) if isinstance(kind, str) else tuple(kind)


def _is(value: object, kind: str) -> bool:
    match kind:
        case "string":
            return isinstance(value, str)
        case "integer":
            # True is an int in Python, and 3.0 is an integer in JSON.
            return not isinstance(value, bool) and (
                isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            )
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "array":
            return isinstance(value, list | tuple)
        case "object":
            return isinstance(value, Mapping)
        case "null":
            return value is None
    return True


def _normal(schema: Schema, value: Any) -> Any:
    if isinstance(value, float) and "integer" in _types(schema) and "number" not in _types(schema):
        return int(value)
    return value


def _usage(schema: Schema) -> str:
    required = schema.get("required", ())
    names = [name if name in required else f"{name}?" for name in schema.get("properties", {})]
    return f"It takes {', '.join(names)}" if names else "It takes no arguments"


def _join(where: str, name: object) -> str:
    return f"{where}.{name}" if where else str(name)


def _show(value: object) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
