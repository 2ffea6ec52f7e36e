"""An example of a value of a type, in Clojure syntax: what a model is shown to imitate."""

from __future__ import annotations

from typing import assert_never

from pyagentd.mission.signature import And, Constraint, Enum, List, Map, MapOf, Maybe, Or, Primitive, Type

_PRIMITIVES = {
    "string": '"..."',
    "int": "1",
    "float": "1.5",
    "bool": "true",
    "keyword": ":name",
    "map": '{:key "value"}',
    "any": '"..."',
    "datetime": '"2026-01-31T12:00:00Z"',
    "nil": "nil",
}


def example(type_: Type) -> str:
    """Return text of a value that fits ``type_``; of constraints the first is met."""
    match type_:
        case Primitive(name=name, least=least):
            return str(least) if least is not None and name in ("int", "float") else _PRIMITIVES[name]
        case Maybe(inner=inner):
            return example(inner)
        case List(item=item):
            return f"[{example(item)}]"
        case Map(fields=fields):
            return "{" + " ".join(f":{field.name} {example(field.type)}" for field in fields) + "}"
        case MapOf(key=key, value=value):
            return f"{{{example(key)} {example(value)}}}"
        case Enum(values=values):
            return _constant(values[0].value, values[0].is_keyword)
        case Or(choices=choices):
            return example(choices[0])
        case And(all_of=parts):
            return _constrained(parts)
        case Constraint():
            return _meeting(type_)
    assert_never(type_)  # type: ignore[arg-type]  # the types are a closed set


def _constant(value: str | int | float | bool, is_keyword: bool) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return f":{value}" if is_keyword else f'"{value}"'
    return str(value)


def _constrained(parts: tuple[Type, ...]) -> str:
    constraints = [part for part in parts if isinstance(part, Constraint)]
    bare = [part for part in parts if not isinstance(part, Constraint)]
    return _meeting(constraints[0]) if constraints else example(bare[0])


def _meeting(constraint: Constraint) -> str:
    step = {">": 1, "<": -1, "not=": 1}.get(constraint.operator, 0)
    return str(constraint.bound + step)
