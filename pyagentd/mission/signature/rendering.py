"""Types as text: canonical signature, JSON Schema, names in error messages, example values.

The canonical text is shorthand, with Malli where shorthand cannot express a type; it parses to an equal signature.
"""

from typing import Any, TypeAlias

from pyagentd.lisp.serialization import ESCAPES
from pyagentd.mission.signature.parsing import is_plain
from pyagentd.mission.signature.types import (
    And,
    Constant,
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


def signature_text(params: tuple[Field, ...], returns: Type) -> str:
    """Return the text of a signature: ``(query :string, limit :int?) -> [{id :int}]``."""
    return f"({_fields(params)}) -> {type_text(returns)}"


def type_text(of: Type) -> str:
    """Return the canonical text of a type; ``?`` means that it may be nil."""
    match of:
        case Maybe(inner):
            return f"{type_text(inner)}?"
        case Primitive(name, least, most):
            properties = _properties(least, most)
            return f"[:{name} {properties}]" if properties else f":{name}"
        case List(item, least, most):
            properties = _properties(least, most)
            return f"[:vector {properties} {type_text(item)}]" if properties else f"[{type_text(item)}]"
        case Map(fields, False):
            return f"{{{_fields(fields)}}}"
        case Map(fields):
            return _vector(":map", "{:closed true}", *map(_entry, fields))
        case MapOf(key, value, least, most):
            return _vector(":map-of", _properties(least, most), type_text(key), type_text(value))
        case Enum(values):
            return _vector(":enum", *map(constant_text, values))
        case Or(choices):
            return _vector(":or", *map(type_text, choices))
        case And(all_of):
            return _vector(":and", *map(type_text, all_of))
        case Constraint(operator, bound):
            return f"[:{operator} {bound!r}]"
        case _:
            raise TypeError(f"not a type of a signature: {of}")


def constant_text(constant: Constant) -> str:
    """Return the text of one value of an enumeration."""
    match constant.value:
        case bool():
            return "true" if constant.value else "false"
        case str() if constant.is_keyword:
            return f":{constant.value}"
        case str():
            return f'"{constant.value.translate(ESCAPES)}"'
        case number:
            return repr(number)


def name_text(name: str) -> str:
    """Return the text of a field's name, in quotes unless it can be parsed without."""
    return name if is_plain(name) else f'"{name.translate(ESCAPES)}"'


def _fields(fields: tuple[Field, ...]) -> str:
    return ", ".join(f"{name_text(field.name)} {_in_field(field)}" for field in fields)


def _in_field(field: Field) -> str:
    # The `?` of shorthand means both: the field may be absent, and it may be nil.
    match field.type:
        case Maybe(inner) if not field.optional:
            return f"[:maybe {type_text(inner)}]"
        case Maybe():
            return type_text(field.type)
        case _:
            return f"[:? {type_text(field.type)}]" if field.optional else type_text(field.type)


def _entry(field: Field) -> str:
    name = f":{field.name}" if is_plain(field.name) else name_text(field.name)
    return _vector(name, _in_field(field))


def _properties(least: object, most: object) -> str:
    bounds = [f":{name} {bound!r}" for name, bound in (("min", least), ("max", most)) if bound is not None]
    return f"{{{', '.join(bounds)}}}" if bounds else ""


def _vector(*parts: str) -> str:
    return f"[{' '.join(part for part in parts if part)}]"


# JSON Schema (draft 2020-12), for model APIs, editors and other validators.
#
# Keywords are strings in JSON. The schema accepts the same values as ``validation``, except that 1.0 is an integer in
# JSON Schema.

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
            raise TypeError(f"not a type of a signature: {of}")


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
    # The keys of JSON are strings: other key types become patterns of strings.
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
        # A bound has the type `number` itself; beside another numeric type only the bound is kept.
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


# The names of types in error messages.

_AT_MOST_NAMED = 12


def expected_text(of: Type) -> str:
    """Return the expected value in words: ``int of at least 0``, ``one of "a", "b"``, ``int or string``."""
    match of:
        case Primitive(name, least, most) if name == "string":
            return name + _expected_range(least, most, "character")
        case Primitive(name, least, most):
            return name + _expected_range(least, most)
        case Maybe(inner):
            return f"{expected_text(inner)} or nil"
        case List(_, least, most):
            return "list" + _expected_range(least, most, "item")
        case Map():
            return "map"
        case MapOf(_, _, least, most):
            return "map" + _expected_range(least, most, "entry")
        case Enum(values):
            named = [constant_text(value) for value in values[:_AT_MOST_NAMED]]
            if len(values) > _AT_MOST_NAMED:
                named.append(f"{len(values) - _AT_MOST_NAMED} more")
            return named[0] if len(named) == 1 else f"one of {', '.join(named)}"
        case Or(choices):
            *first, last = dict.fromkeys(map(expected_text, choices))
            return f"{', '.join(first)} or {last}" if first else last
        case And(all_of):
            return " and ".join(dict.fromkeys(expected_text(one) for one in all_of))
        case Constraint(operator, bound):
            return f"number {operator} {bound!r}"
        case _:
            return "value"


def _expected_range(least: Number | None, most: Number | None, unit: str = "") -> str:
    if least is None and most is None:
        return ""
    counted = most if most is not None else least
    plural = "entries" if unit == "entry" else f"{unit}s"
    words = f" {unit if counted == 1 else plural}" if unit else ""
    if least is None:
        return f" of at most {most!r}{words}"
    if most is None:
        return f" of at least {least!r}{words}"
    return f" of {least!r} to {most!r}{words}"


# An example value in Clojure syntax, shown to models.

_EXAMPLES: dict[Name, str] = {
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


def example(of: Type) -> str:
    """Return the text of a value that fits ``of``; of several constraints only the first is considered."""
    match of:
        case Primitive(name, least):
            return str(least) if least is not None and name in ("int", "float") else _EXAMPLES[name]
        case Maybe(inner):
            return example(inner)
        case List(item):
            return f"[{example(item)}]"
        case Map(fields):
            return "{" + " ".join(f":{field.name} {example(field.type)}" for field in fields) + "}"
        case MapOf(key, value):
            return f"{{{example(key)} {example(value)}}}"
        case Enum(values):
            return constant_text(values[0])
        case Or(choices):
            return example(choices[0])
        case And(all_of):
            return example(next((part for part in all_of if isinstance(part, Constraint)), all_of[0]))
        case Constraint(operator, bound):
            return str(bound + {">": 1, "<": -1}.get(operator, 0))
        case _:
            raise TypeError(f"not a type of a signature: {of}")
