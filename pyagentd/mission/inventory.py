"""What data a mission has, as its model is told: name, type and a sample of each (SPEC 004 Data Inventory).

Types are those of the signature where there is one, and inferred from the value otherwise; an inferred type looks at
the first items of a list only, so that it costs the same for any amount of data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from pyagentd.lisp.values import Keyword, LispSet, from_key
from pyagentd.mission.firewall import HIDDEN, Firewall, is_firewalled, name_text
from pyagentd.mission.signature import Field, List, Map, MapOf, Maybe, Primitive, Signature, Type
from pyagentd.mission.signature.rendering import type_text
from pyagentd.mission.signature.types import ANY, NIL, choice, maybe

_LOOKED_AT = 50
_FIELDS = 30
_DEPTH = 5
_LONGEST = 60_000  # characters of all entries, about
_NO_FIELDS = Map(())  # an empty map among others


def inventory(
    context: Mapping[Any, Any],
    declared: Signature | None,
    firewall: Firewall,
    memory: Mapping[Any, Any] | None = None,
) -> str:
    """Return one entry a line for everything in ``ctx/`` and ``memory/``, and a sample of what may be shown.

    Args:
        context: As programs see it.
        declared: Types of the context by name: its parameters, or the fields of what it returns.
        firewall: Makes the samples.
        memory: What is in the memory at the start.
    """
    types = declared_types(declared)
    data = [("ctx", key, value, types) for key, value in context.items()]
    none: dict[str, Type] = {}
    kept = [("memory", key, value, none) for key, value in (memory or {}).items()]
    lines = [] if data else ["There is no data in `ctx/`."]
    room = _LONGEST
    for index, (place, key, value, known) in enumerate([*data, *kept]):
        if room <= 0:
            lines.append(f"- and {len(data) + len(kept) - index} more values that there is no room to show.")
            break
        lines.append(_entry(place, _name(key), value, known, firewall))
        room -= len(lines[-1])
    return "\n".join(lines)


def declared_types(signature: Signature | None) -> dict[str, Type]:
    """Return the types a signature states by name, as parameters or as the fields of its map."""
    if signature is None:
        return {}
    returned = signature.returns.fields if isinstance(signature.returns, Map) else ()
    return {field.name: field.type for field in (*returned, *signature.params)}


def type_of(value: Any, depth: int = 0) -> Type:
    """Return the narrowest type that fits what was looked at of ``value``."""
    match value:
        case None:
            return NIL
        case bool():
            return Primitive("bool")
        case int():
            return Primitive("int")
        case float():
            return Primitive("float")
        case str():
            return Primitive("string")
        case Keyword():
            return Primitive("keyword")
        case dict():
            return _of_map(value, depth) if depth < _DEPTH else Primitive("map")
        case list() | tuple():
            return List(_of_items(value, depth))
    return ANY


def _of_items(items: Iterable[Any], depth: int) -> Type:
    if depth >= _DEPTH:
        return ANY
    return joined([type_of(item, depth + 1) for item in islice(items, _LOOKED_AT)])


def _of_map(value: dict[Any, Any], depth: int) -> Type:
    keys = [from_key(key) for key in value]
    if not keys:
        return Primitive("map")
    if len(keys) <= _FIELDS and all(isinstance(key, str | Keyword) for key in keys):
        named = {_name(key): item for key, item in value.items()}
        return Map(tuple(Field(name, type_of(item, depth + 1)) for name, item in named.items()))
    return MapOf(_of_items(keys, depth), _of_items(value.values(), depth))


def joined(types: list[Type]) -> Type:
    """Return one type for all of them: maps field by field, integers among floats as floats."""
    if not types:
        return ANY
    bare = [each.inner if isinstance(each, Maybe) else each for each in types if each != NIL]
    takes_nil = len(bare) < len(types) or any(isinstance(each, Maybe) for each in types)
    if not bare:
        return NIL
    found = _joined(bare)
    return maybe(found) if takes_nil and found != ANY else found


def _joined(types: list[Type]) -> Type:
    emptied = [_NO_FIELDS if each == Primitive("map") else each for each in types]
    maps = [each for each in emptied if isinstance(each, Map)]
    if len(maps) == len(types) and any(each.fields for each in maps):
        return _joined_maps(maps)
    lists = [each for each in types if isinstance(each, List)]
    if len(lists) == len(types):
        known = [each.item for each in lists if each.item != ANY]
        return List(joined(known))
    kinds = set(types)
    if kinds == {Primitive("int"), Primitive("float")}:
        return Primitive("float")
    return types[0] if len(kinds) == 1 else ANY if ANY in kinds else choice(types)


def _joined_maps(maps: list[Map]) -> Map:
    found: dict[str, list[Field]] = {}
    for each in maps:
        for field in each.fields:
            found.setdefault(field.name, []).append(field)
    return Map(tuple(_shared(name, fields, len(maps)) for name, fields in found.items()))


def _shared(name: str, fields: list[Field], maps: int) -> Field:
    """Return a field of several maps; the shorthand has one mark for what may be nil and what may be absent."""
    type_ = joined([field.type for field in fields])
    everywhere = len(fields) == maps and not any(field.optional for field in fields)
    if everywhere and not type_.is_optional:
        return Field(name, type_, False)
    return Field(name, maybe(ANY if type_ == NIL else type_), True)


def _entry(place: str, name: str, value: Any, types: Mapping[str, Type], firewall: Firewall) -> str:
    # An inferred type has keys of the data in it, so it passes the firewall too.
    type_ = type_text(types[name]) if name in types else firewall.type_words(type_text(type_of(value)))
    head = f"- `{place}/{name_text(name)}` {type_}{_count(value)}"
    if is_firewalled(name):
        return f"{head} {HIDDEN}"
    text, notes = firewall.shown(value, f"{place}/{name_text(name)}")
    lines = [f"{head}", f"  {text}", *(f"  {note}" for note in notes)]
    return "\n".join(lines) if notes or isinstance(value, list | dict) or len(text) > 60 else f"{head} = {text}"


def _count(value: Any) -> str:
    match value:
        case list() | tuple() | LispSet() if len(value) != 1:
            return f", {len(value)} items"
        case list() | tuple() | LispSet():
            return ", 1 item"
    return ""


def _name(key: Any) -> str:
    key = from_key(key)
    return key.name if isinstance(key, Keyword) else str(key)
