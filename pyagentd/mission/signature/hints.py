"""Python type hints: types from hints, and conversion of values to what a hint requires.

==============================================  ==========================
str, int, float, bool, None, datetime           the type of that name
Path, UUID, date, time                          ``:string``
list, tuple, set, frozenset, Sequence, …        ``[:any]``, ``[:int]``
dict, Mapping; ``dict[str, int]``               ``:map``; ``[:map-of …]``
dataclass, TypedDict, pydantic model            ``{name :type, …}``
Literal, Enum                                   ``[:enum …]``
``X | None``, a default                         ``?``
``X | Y``                                       ``[:or …]``
``Annotated[int, Gt(0)]``, pydantic's Field     bounds
anything else                                   ``:any``
==============================================  ==========================

Nested models are expanded three levels deep, deeper ones are ``:map``; so a model may contain itself.
"""

import collections.abc
import dataclasses
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum as PythonEnum
from pathlib import PurePath
from typing import Any
from uuid import UUID

from pyagentd.errors import SignatureError
from pyagentd.mission.signature.types import (
    ANY,
    NIL,
    And,
    Constant,
    Constraint,
    Enum,
    Field,
    List,
    Map,
    MapOf,
    Maybe,
    Primitive,
    Type,
    choice,
    maybe,
)

# Bounds from ``Annotated`` hints and pydantic fields: objects with ``gt``, ``ge``, ``lt``, ``le`` and lengths.

_LENGTHS = (("min_length", "least"), ("max_length", "most"))
_INCLUSIVE = (("ge", "least"), ("le", "most"))
_EXCLUSIVE = (("gt", ">"), ("lt", "<"))


def with_bounds(of: Type, metadata: Iterable[Any]) -> Type:
    """Return ``of`` with the bounds in ``metadata`` that apply to it; other metadata is ignored."""
    found = [one for item in metadata for one in (item, *getattr(item, "metadata", ()))]
    if isinstance(of, Maybe):
        return maybe(with_bounds(of.inner, found))
    for item in found:
        of = _with(of, item)
    return of


def _with(of: Type, item: Any) -> Type:
    if isinstance(of, List | MapOf) or (isinstance(of, Primitive) and of.name == "string"):
        return replace(of, **_bounds(item, _LENGTHS))
    inner = of.all_of[0] if isinstance(of, And) else of
    if not isinstance(inner, Primitive) or inner.name not in ("int", "float"):
        return of
    inner = replace(inner, **_bounds(item, _INCLUSIVE))
    more = [Constraint(sign, bound) for sign, bound in _bounds(item, _EXCLUSIVE).items()]
    if isinstance(of, And):
        return And((inner, *of.all_of[1:], *more))
    return And((inner, *more)) if more else inner


def _bounds(item: object, names: Iterable[tuple[str, str]]) -> dict[Any, Any]:
    found = {ours: getattr(item, name, None) for name, ours in names}
    return {ours: value for ours, value in found.items() if isinstance(value, int | float)}


MAX_DEPTH = 3
"""The deepest nesting of models."""

_NAMED: dict[Any, Type] = {
    str: Primitive("string"),
    bool: Primitive("bool"),
    int: Primitive("int"),
    float: Primitive("float"),
    Decimal: Primitive("float"),
    datetime: Primitive("datetime"),
    **dict.fromkeys([date, time, UUID], Primitive("string")),
    **dict.fromkeys([None, type(None)], NIL),
    **dict.fromkeys([Any, object, typing.Hashable], ANY),
}
SEQUENCES = (
    list,
    tuple,
    set,
    frozenset,
    collections.abc.Sequence,
    collections.abc.MutableSequence,
    collections.abc.Iterable,
    collections.abc.Collection,
    collections.abc.Set,
)
MAPPINGS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_TRANSPARENT = (typing.Required, typing.NotRequired, typing.Final, typing.ClassVar)


@dataclasses.dataclass(frozen=True, slots=True)
class ModelField:
    """A field of a dataclass, TypedDict or pydantic model."""

    name: str  # in values; a pydantic alias where there is one
    hint: Any
    required: bool
    metadata: tuple[Any, ...] = ()  # bounds that pydantic keeps beside the hint


def is_hint(value: object) -> bool:
    """Return whether ``value`` is a class or a form of ``typing``."""
    return isinstance(value, type | types.UnionType) or typing.get_origin(value) is not None or value is Any


def is_model(hint: object) -> bool:
    """Return whether ``hint`` is a class with typed fields."""
    pydantic = isinstance(getattr(hint, "model_fields", None), dict)
    return isinstance(hint, type) and (dataclasses.is_dataclass(hint) or is_typed_dict(hint) or pydantic)


def is_typed_dict(hint: object) -> bool:
    """Return whether ``hint`` is a TypedDict of ``typing`` or ``typing_extensions``."""
    return isinstance(hint, type) and issubclass(hint, dict) and hasattr(hint, "__required_keys__")


def type_of_hint(hint: Any, *, depth: int = 0) -> Type:
    """Return the type for a type hint.

    Args:
        hint: A class or a form of ``typing``; names in quotes are resolved where they stand in a model.
        depth: The number of models around it.

    Raises:
        SignatureError: A hint cannot be resolved.
    """

    def of(one: Any) -> Type:
        return type_of_hint(one, depth=depth)

    try:
        if hint in _NAMED:
            return _NAMED[hint]
    except TypeError:  # Annotated[int, []] has no hash
        pass
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return with_bounds(of(arguments[0]), arguments[1:])
    if origin in _TRANSPARENT:
        return of(arguments[0])
    if origin is typing.Union or origin is types.UnionType:
        return choice(map(of, arguments))
    if origin is typing.Literal:
        return _one_of(arguments) or ANY
    if origin in SEQUENCES or hint in SEQUENCES:
        if (origin or hint) is tuple and arguments and arguments[-1] is not ...:
            return List(choice(map(of, arguments)), len(arguments), len(arguments))
        return List(of(arguments[0]) if arguments else ANY)
    if origin in MAPPINGS or hint in MAPPINGS:
        key, value = map(of, arguments or (Any, Any))
        return Primitive("map") if value == ANY and key in (ANY, Primitive("string")) else MapOf(key, value)
    if isinstance(hint, typing.NewType):
        return of(hint.__supertype__)
    if isinstance(hint, typing.TypeVar):
        return of(hint.__bound__ or Any)
    if not isinstance(hint, type):
        return ANY
    if is_model(hint):
        if depth >= MAX_DEPTH:
            return Primitive("map")
        found = []
        for field in model_fields(hint):
            inner = with_bounds(type_of_hint(field.hint, depth=depth + 1), field.metadata)
            found.append(optional_field(field.name, inner, required=field.required))
        return Map(tuple(found))
    if issubclass(hint, PythonEnum):
        plain = all(isinstance(member.value, str | int | float | bool) for member in hint)
        return _one_of([member.value if plain else member.name for member in hint]) or ANY
    if issubclass(hint, PurePath):
        return Primitive("string")
    base = next((base for base in (str, int, float, dict, list) if issubclass(hint, base)), None)
    return of(base) if base else ANY  # a subclass has the type of its base


def _one_of(values: Iterable[Any]) -> Type | None:
    """Return the type of some constants; None where one of them has no type."""
    plain = [value.value if isinstance(value, PythonEnum) else value for value in values]
    if not all(isinstance(value, str | int | float | bool | None) for value in plain):
        return None
    constants = tuple(Constant(value) for value in plain if value is not None)
    inner = Enum(constants) if constants else NIL
    return maybe(inner) if None in plain else inner


def model_fields(model: type) -> tuple[ModelField, ...]:
    """Return the fields of a dataclass, TypedDict or pydantic model."""
    if isinstance(fields := getattr(model, "model_fields", None), dict):
        found = []
        for name, info in fields.items():
            alias = info.validation_alias or info.alias
            shown = alias if isinstance(alias, str) else name
            found.append(ModelField(shown, info.annotation, info.is_required(), tuple(info.metadata)))
        return tuple(found)
    hints = resolve_hints(model)
    if is_typed_dict(model):
        # If the hints are strings, ``__required_keys__`` ignores Required and NotRequired in them.
        required = {typing.Required: True, typing.NotRequired: False}
        return tuple(
            ModelField(name, hint, required.get(typing.get_origin(hint), name in model.__required_keys__))  # type: ignore[attr-defined]
            for name, hint in hints.items()
        )
    missing = dataclasses.MISSING
    return tuple(
        ModelField(field.name, hints[field.name], field.default is missing and field.default_factory is missing)
        for field in dataclasses.fields(model)
        if field.init
    )


def resolve_hints(of: Any) -> dict[str, Any]:
    """Return the hints of a function or class, with hints in quotes resolved."""
    try:
        return typing.get_type_hints(of, include_extras=True)
    except (NameError, TypeError, AttributeError, SyntaxError) as error:
        name = getattr(of, "__qualname__", type(of).__name__)
        hint = "Import the type where the function stands, or give a signature as text"
        raise SignatureError(f"the type hints of {name} cannot be resolved: {error}", hint=hint) from error


def optional_field(name: str, of: Type, *, required: bool) -> Field:
    """Return a field that, unless ``required``, may be absent or nil: its default is then used."""
    return Field(name, of) if required else Field(name, maybe(of), optional=True)


# Converting values to what a hint requires: dataclasses, pydantic models, enums, dates, paths, ``UUID``, ``Decimal``,
# and containers of them.
#
# A value that needs no conversion is returned unchanged. No third-party module is imported: a pydantic model is
# recognised by its ``model_validate``.


def construct(hint: Any, value: Any) -> Any:
    """Return ``value`` converted to the type of ``hint``.

    Raises:
        ValueError: It cannot be converted: an unknown member of an enum, not an ISO date, rejected by a model.
        TypeError: A field of a dataclass is missing.
    """
    if value is None or hint is Any:
        return value
    origin, of = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _of_union(of, value)
    if origin is typing.Annotated:
        return construct(of[0], value)
    if origin is typing.Literal:
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return _collection(origin or hint, of, value)
    if isinstance(value, Mapping) and of and origin is not None and issubclass(origin, Mapping):
        return {construct(of[0], key): construct(of[1], item) for key, item in value.items()}
    return _instance(hint, value) if isinstance(hint, type) else value


def _of_union(of: tuple[Any, ...], value: Any) -> Any:
    for each in of:
        if each is type(None):
            continue
        try:
            made = construct(each, value)
        except (ValueError, TypeError):
            continue
        if made is not value or not isinstance(each, type) or isinstance(value, each):
            return made
    return value


def _collection(kind: Any, of: tuple[Any, ...], value: Any) -> Any:
    if kind is tuple:
        if len(of) == 2 and of[1] is Ellipsis:
            return tuple(construct(of[0], each) for each in value)
        if of and len(of) == len(value):
            return tuple(construct(hint, each) for hint, each in zip(of, value, strict=True))
        return tuple(value)
    items = [construct(of[0], each) for each in value] if of else list(value)
    if kind in (set, frozenset):
        return kind(items)
    return items if not isinstance(value, set | frozenset) else value


def construction_problems(error: Exception) -> list[tuple[str, str]]:
    """Return the paths and messages of a failed construction; pydantic reports them by field."""
    if callable(found := getattr(error, "errors", None)):
        return [(".".join(map(str, each["loc"])), each["msg"]) for each in found()]
    return [("", str(error) or type(error).__name__)]


def _instance(hint: type, value: Any) -> Any:
    if not is_typed_dict(hint) and isinstance(value, hint):
        return value
    if issubclass(hint, PythonEnum):
        for member in hint:
            if member.value == value or member.name == value:
                return member
        raise ValueError(f"{value!r} is none of {', '.join(str(member.value) for member in hint)}")
    if isinstance(value, Mapping):
        if hasattr(hint, "model_validate"):
            return hint.model_validate(dict(value))
        hints = typing.get_type_hints(hint) if is_model(hint) else {}
        if dataclasses.is_dataclass(hint):
            names = {field.name for field in dataclasses.fields(hint) if field.init}
            return hint(**{name: construct(hints.get(name, Any), value[name]) for name in names if name in value})
        if is_typed_dict(hint):
            return {name: construct(hints.get(name, Any), item) for name, item in value.items()}
    if isinstance(value, str) and hint in (datetime, date, time):
        return hint.fromisoformat(value)
    if isinstance(value, str) and issubclass(hint, PurePath | UUID):
        return hint(value)
    if hint is Decimal and isinstance(value, int | float) and not isinstance(value, bool):
        return Decimal(str(value))
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value
