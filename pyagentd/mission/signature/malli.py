"""Malli schemas: vectors that begin with a word, ``[:or …]``, ``[:string {:min 1}]``, ``[:map [:id :int]]``.

The subset of https://github.com/metosin/malli that SPEC 004 (Malli Data) and JSON can say. Properties that only
describe (``:title``, ``:default``…) are read over; those that would check something unknown are errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from pyagentd.mission.signature.fields import marked, name_of, no_duplicates
from pyagentd.mission.signature.forms import Form, is_keyword
from pyagentd.mission.signature.names import closest, known
from pyagentd.mission.signature.types import (
    OPERATORS,
    And,
    Constant,
    Constraint,
    Enum,
    Field,
    List,
    Map,
    MapOf,
    Primitive,
    Type,
    choice,
    maybe,
)

TypeOf: TypeAlias = Callable[[Form], Type]
"""Reads any type; given by the module that knows the shorthand too."""

Properties: TypeAlias = dict[str, Form]

_DESCRIBING = ("title", "description", "doc", "default", "example", "examples")
_LITERALS = ("true", "false", "nil")
_UNSUPPORTED = {
    "?": "It stands behind a name, for a field that may be absent",
    "set": "A list is written `[:vector :int]`",
    "tuple": "A list is written `[:vector :any]`",
    "re": "Use `[:string {:min 1}]` and check the rest yourself",
    "not": "Say what may be instead: `[:or …]`, `[:enum …]`",
    "=>": "A signature with parameters stands outermost only",
    "cat": "Parameters stand in a signature only: `[:=> [:cat …] …]`",
    "catn": "Parameters stand in a signature only: `[:=> [:catn …] …]`",
    "ref": "Deep values are `:map` or `:any`",
    "schema": "Write the schema itself",
    "fn": "Bounds are written `[:and :int [:> 0]]`",
    "multi": "A choice is written `[:or …]`",
}


def is_schema(parts: Sequence[Form]) -> bool:
    """Return whether a vector of ``parts`` is Malli, and not a list in shorthand."""
    word = parts[0].value if parts[0].kind == "keyword" and not parts[0].optional else None
    if known(str(word)) is not None:
        return len(parts) > 1 and (word == "map" or parts[1].kind == "braces")
    return word in _SCHEMAS or word in OPERATORS or word in _UNSUPPORTED


def is_map(parts: Sequence[Form]) -> bool:
    """Return whether a vector of ``parts`` is a Malli map, of entries or empty."""
    return bool(parts) and parts[0].kind == "keyword" and parts[0].value == "map" and len(parts) > 1


def schema_of(form: Form, type_of: TypeOf) -> Type:
    """Return the type that the Malli vector ``form`` writes.

    Raises:
        SignatureError: It is malformed, or says what we cannot check.
    """
    word = form.value[0].value
    if mend := _UNSUPPORTED.get(word):
        raise form.error(f"`[:{word} …]` is not supported here", mend)
    if word in OPERATORS:
        return _constraint(form)
    if word != "map" and (name := known(word)):
        return _bounded(form, name)
    return _SCHEMAS[word](form, type_of)


def properties_of(form: Form, allowed: Sequence[str]) -> Properties:
    """Return the properties that the braces ``form`` write."""
    found: Properties = {}
    parts: tuple[Form, ...] = form.value
    if len(parts) % 2:
        raise parts[-1].error("this property has no value", "Write one behind it, as in `{:min 1}`")
    for key, value in zip(parts[::2], parts[1::2], strict=True):
        if key.kind not in ("keyword", "name", "string"):
            raise key.error("this is no property", "Properties are keywords with values, as in `{:min 1}`")
        name = str(key.value)
        if name in allowed:
            found[name] = value
        elif name not in _DESCRIBING and "/" not in name:
            raise key.error(f"there is no property `:{name}` here", closest(name, list(allowed)))
    return found


def constant_of(form: Form) -> Constant | None:
    """Return the value that ``form`` writes; None is nil."""
    match form.kind, form.value:
        case ("string", str()) | ("number", _):
            if isinstance(form.value, float) and not math.isfinite(form.value):
                raise form.error("this number is too large")
            return Constant(form.value)
        case "keyword", str(name) if is_keyword(name):
            return Constant(name, is_keyword=True)
        case ("constant", value) if value is None or isinstance(value, bool):
            return None if value is None else Constant(value)
        case "name", ("true" | "false" | "nil") as name:
            return {"true": Constant(True), "false": Constant(False), "nil": None}[name]
        case "name", name:
            raise form.error("this is no value", f'Write `"{name}"`, or `:{name}` for a keyword')
        case _:
            raise form.error("this is no value", "Values are strings, numbers, keywords, true, false and nil")


def entry_of(form: Form, type_of: TypeOf) -> Field:
    """Return the field that an entry ``[:id :int]`` or ``[:id {:optional true} :int]`` writes."""
    if form.kind != "vector" or not 2 <= len(form.value) <= 3:
        raise form.error("this is no field of a map", "Write a name and a type: `[:id :int]`")
    key, *middle, last = form.value
    properties = properties_of(_braces(middle[0]), ["optional"]) if middle else {}
    optional = "optional" in properties and _truth(properties["optional"])
    field = field_of(name_of(key, "field"), last, type_of)
    return replace(field, optional=optional or field.optional)


def field_of(name: str, form: Form, type_of: TypeOf) -> Field:
    """Return the field of this name whose type ``form`` writes; ``[:? :int]`` may be absent, ``:int?`` also nil."""
    match form:
        case Form(kind="vector", value=(Form(kind="keyword", value="?"), inner), optional=False):
            return Field(name, type_of(inner), optional=True)
        case _:
            return Field(name, type_of(form), optional=marked(form))


def map_of_entries(form: Form, type_of: TypeOf) -> Map:
    """Return the map that ``[:map …]`` writes."""
    parts = list(form.value[1:])
    properties = properties_of(parts.pop(0), ["closed"]) if parts and parts[0].kind == "braces" else {}
    fields = tuple(entry_of(part, type_of) for part in parts)
    no_duplicates(fields, [part.value[0] for part in parts], "field")
    return Map(fields, closed="closed" in properties and _truth(properties["closed"]))


def _enum(form: Form, type_of: TypeOf) -> Type:
    values = [part for part in form.value[1:] if part.kind != "braces"]
    if not values:
        raise form.error("this enumeration has no values", 'Write them behind it: `[:enum "a" "b"]`')
    constants = [constant_of(part) for part in values]
    known_ones = tuple(dict.fromkeys(one for one in constants if one is not None))
    inner = Enum(known_ones) if known_ones else Primitive("nil")
    return maybe(inner) if None in constants else inner


def _equal(form: Form, type_of: TypeOf) -> Type:
    if len(form.value) != 2:
        raise form.error("this takes one value", 'As in `[:= "a"]`')
    return _enum(form, type_of)


def _or(form: Form, type_of: TypeOf) -> Type:
    return choice(type_of(part) for part in _children(form))


def _and(form: Form, type_of: TypeOf) -> Type:
    parts: dict[Type, None] = {}
    for part in map(type_of, _children(form)):
        parts.update(dict.fromkeys(part.all_of if isinstance(part, And) else (part,)))
    return next(iter(parts)) if len(parts) == 1 else And(tuple(parts))


def _maybe(form: Form, type_of: TypeOf) -> Type:
    _, (inner,) = _bounds_and(form, 1, [])
    return maybe(type_of(inner))


def _list(form: Form, type_of: TypeOf) -> Type:
    bounds, (item,) = _bounds_and(form, 1, ["min", "max"])
    return List(type_of(item), *_lengths(bounds))


def _map_of(form: Form, type_of: TypeOf) -> Type:
    bounds, (key, value) = _bounds_and(form, 2, ["min", "max"])
    return MapOf(type_of(key), type_of(value), *_lengths(bounds))


def _constraint(form: Form) -> Type:
    word, *rest = form.value
    if len(rest) != 1 or rest[0].kind != "number":
        raise form.error("this takes one number", f"As in `[:{word.value} 0]`")
    return Constraint(word.value, _finite(rest[0]))


def _bounded(form: Form, name: Any) -> Type:
    braces, *rest = form.value[1:]
    if rest:
        raise rest[0].error(f"nothing stands behind the properties of `:{name}`")
    if name == "string":
        return Primitive("string", *_lengths(properties_of(braces, ["min", "max"])))
    if name not in ("int", "float"):
        properties_of(braces, [])
        return Primitive(name)
    bounds = properties_of(braces, ["min", "max"])
    least, most = (_finite(bounds[key]) if key in bounds else None for key in ("min", "max"))
    _in_order(least, most, bounds)
    return Primitive(name, least, most)


_SCHEMAS: Mapping[str, Callable[[Form, TypeOf], Type]] = {
    "enum": _enum,
    "=": _equal,
    "or": _or,
    "and": _and,
    "maybe": _maybe,
    "vector": _list,
    "sequential": _list,
    "map": map_of_entries,
    "map-of": _map_of,
}


def _children(form: Form) -> Sequence[Form]:
    children: Sequence[Form] = form.value[1:]
    # A map in shorthand has types as values, properties have literals.
    if children and children[0].kind == "braces" and any(_is_literal(part) for part in children[0].value[1::2]):
        properties_of(children[0], [])
        children = children[1:]
    if not children:
        raise form.error("there is nothing to choose from or to fit", "Write types behind it: `[:or :int :string]`")
    return children


def _is_literal(form: Form) -> bool:
    return form.kind in ("string", "number", "constant") or (form.kind == "name" and form.value in _LITERALS)


def _bounds_and(form: Form, count: int, allowed: Sequence[str]) -> tuple[Properties, Sequence[Form]]:
    parts = form.value[1:]
    properties: Properties = {}
    if len(parts) == count + 1 and parts[0].kind == "braces":
        properties, parts = properties_of(parts[0], allowed), parts[1:]
    if len(parts) != count:
        word = form.value[0].value
        types = "one type" if count == 1 else f"{count} types"
        example = " ".join([f"[:{word}", ":string", ":int"][: count + 1]) + "]"
        raise form.error(f"`:{word}` takes {types}", f"As in `{example}`")
    return properties, parts


def _lengths(bounds: Properties) -> tuple[int | None, int | None]:
    least, most = (_length(bounds[key]) if key in bounds else None for key in ("min", "max"))
    _in_order(least, most, bounds)
    return least, most


def _in_order(least: int | float | None, most: int | float | None, bounds: Properties) -> None:
    if least is not None and most is not None and least > most:
        raise bounds["max"].error(f"nothing is at least {least} and at most {most}", "Exchange the two")


def _length(form: Form) -> int:
    if form.kind != "number" or not isinstance(form.value, int) or form.value < 0:
        raise form.error("this is no length", "Lengths are whole numbers from 0")
    return form.value


def _finite(form: Form) -> int | float:
    if form.kind != "number" or not math.isfinite(form.value):
        raise form.error("this is no number", "Bounds are numbers, as in `{:min 1}`")
    return form.value  # type: ignore[no-any-return]  # the kind says what it is


def _braces(form: Form) -> Form:
    if form.kind != "braces":
        raise form.error("properties stand here", "As in `[:email {:optional true} :string]`")
    return form


def _truth(form: Form) -> bool:
    if form.kind == "constant" and isinstance(form.value, bool):
        return form.value
    if form.value in ("true", "false"):
        return bool(form.value == "true")
    raise form.error("this is neither true nor false")
