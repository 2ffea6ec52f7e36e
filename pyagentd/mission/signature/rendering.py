"""The one text of a signature: shorthand, with Malli exactly where shorthand cannot say it; it parses back."""

from __future__ import annotations

from pyagentd.mission.signature.fields import is_plain
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
    Or,
    Primitive,
    Type,
)

_ESCAPED = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"})


def signature_text(params: tuple[Field, ...], returns: Type) -> str:
    """Return the text of a signature: ``(query :string, limit :int?) -> [{id :int}]``."""
    return f"({_fields(params)}) -> {type_text(returns)}"


def type_text(of: Type) -> str:
    """Return the text of a type where a ``?`` means that it may be nil: in a list, as a result."""
    match of:
        case Maybe(inner):
            return f"{type_text(inner)}?"
        case Primitive(name, least, most):
            properties = _properties(least, most)
            return f"[:{name} {properties}]" if properties else f":{name}"
        case List(item, least, most):
            properties = _properties(least, most)
            return f"[:vector {properties} {type_text(item)}]" if properties else f"[{type_text(item)}]"
        case Map(fields, closed):
            return _map(fields, closed)
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
            raise TypeError(f"no type of a signature: {of}")


def constant_text(constant: Constant) -> str:
    """Return the text of one value of an enumeration."""
    match constant.value:
        case bool():
            return "true" if constant.value else "false"
        case str() if constant.is_keyword:
            return f":{constant.value}"
        case str():
            return f'"{constant.value.translate(_ESCAPED)}"'
        case number:
            return repr(number)


def name_text(name: str) -> str:
    """Return a field's name as it is written: bare where that can be read, in quotes otherwise."""
    return name if is_plain(name) else f'"{name.translate(_ESCAPED)}"'


def _fields(fields: tuple[Field, ...]) -> str:
    return ", ".join(f"{name_text(field.name)} {_in_field(field)}" for field in fields)


def _in_field(field: Field) -> str:
    # The `?` of shorthand says both that a field may be absent and that it may be nil.
    match field.type:
        case Maybe(inner) if not field.optional:
            return f"[:maybe {type_text(inner)}]"
        case Maybe():
            return type_text(field.type)
        case _:
            return f"[:? {type_text(field.type)}]" if field.optional else type_text(field.type)


def _map(fields: tuple[Field, ...], closed: bool) -> str:
    if not closed:
        return f"{{{_fields(fields)}}}"
    return _vector(":map", "{:closed true}", *map(_entry, fields))


def _entry(field: Field) -> str:
    name = f":{field.name}" if is_plain(field.name) else name_text(field.name)
    return _vector(name, _in_field(field))


def _properties(least: object, most: object) -> str:
    said = [f":{name} {bound!r}" for name, bound in (("min", least), ("max", most)) if bound is not None]
    return f"{{{', '.join(said)}}}" if said else ""


def _vector(*parts: str) -> str:
    return f"[{' '.join(part for part in parts if part)}]"
