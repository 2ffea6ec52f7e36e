"""JSON Schema (draft 2020-12) of types, for whoever speaks that instead: model APIs, editors, other validators.

Keywords are strings in JSON. What the schema accepts and what ``validation`` accepts are the same, except that JSON
Schema takes 1.0 for an integer.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from pyagentd.mission.signature.types import (
    And,
    Constraint,
    Enum,
    Field,
    List,
    Map,
    MapOf,
    Maybe,
    Name,
    Number,
    Or,
    Primitive,
    Type,
)

Schema: TypeAlias = dict[str, Any]

_NAMED: dict[Name, Schema] = {
    "string": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "keyword": {"type": "string"},
    "map": {"type": "object"},
    "any": {},
    "datetime": {"type": "string", "format": "date-time"},
    "nil": {"type": "null"},
}
_BOUND = {">": "exclusiveMinimum", ">=": "minimum", "<": "exclusiveMaximum", "<=": "maximum"}
_NUMERIC = ({"type": "integer"}, {"type": "number"})


def schema_of(of: Type) -> Schema:
    """Return the JSON Schema of ``of``."""
    match of:
        case Maybe(inner):
            inside = schema_of(inner)
            return {"anyOf": [*(inside["anyOf"] if set(inside) == {"anyOf"} else [inside]), {"type": "null"}]}
        case Primitive(name, least, most):
            lowest, highest = ("minLength", "maxLength") if name == "string" else ("minimum", "maximum")
            return {**_NAMED[name], **_range(lowest, least, highest, most)}
        case List(item, least, most):
            return {"type": "array", "items": schema_of(item), **_range("minItems", least, "maxItems", most)}
        case Map(fields, closed):
            return fields_schema(fields, closed=closed)
        case MapOf():
            return _map_of(of)
        case Enum(values):
            return {"enum": [one.value for one in values]}
        case Or(choices):
            return {"anyOf": [schema_of(one) for one in choices]}
        case And(all_of):
            return _all_of(all_of)
        case Constraint(operator, bound):
            return {"type": "number", _BOUND[operator]: bound}
        case _:
            raise TypeError(f"no type of a signature: {of}")


def fields_schema(fields: tuple[Field, ...], *, closed: bool = False) -> Schema:
    """Return the JSON Schema of a map with ``fields``."""
    schema: Schema = {"type": "object", "properties": {field.name: schema_of(field.type) for field in fields}}
    if required := [field.name for field in fields if not field.optional]:
        schema["required"] = required
    if closed:
        schema["additionalProperties"] = False
    return schema


def _map_of(of: MapOf) -> Schema:
    schema: Schema = {"type": "object"}
    # The keys of JSON are strings: what more is said about a key is said about those.
    if of.key not in (Primitive("string"), Primitive("keyword"), Primitive("any")):
        schema["propertyNames"] = {"pattern": "^-?[0-9]+$"} if of.key == Primitive("int") else schema_of(of.key)
    return {
        **schema,
        "additionalProperties": schema_of(of.value),
        **_range("minProperties", of.least, "maxProperties", of.most),
    }


def _all_of(types: tuple[Type, ...]) -> Schema:
    schemas = [schema_of(one) for one in types]
    merged: Schema = {}
    for schema in schemas:
        # A bound says `number` of itself; where a number is meant already, only the bound is news.
        news = dict(schema)
        if {"type": merged.get("type")} in _NUMERIC and news.get("type") == "number":
            del news["type"]
        if set(news) & set(merged):
            return {"allOf": schemas}
        merged |= news
    return merged


def _range(lowest: str, least: Number | None, highest: str, most: Number | None) -> Schema:
    bounds = {lowest: least, highest: most}
    return {name: bound for name, bound in bounds.items() if bound is not None}
