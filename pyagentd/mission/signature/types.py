"""The types of signatures.

A type is a tree of immutable values that compare by content. Build optional types with ``maybe`` and alternatives
with ``choice``, which keep the tree canonical: no ``Maybe`` in a ``Maybe``, no ``Or`` in an ``Or``.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

Name = Literal["string", "int", "float", "bool", "keyword", "map", "any", "datetime", "nil"]
Operator = Literal[">", ">=", "<", "<="]
Number: TypeAlias = int | float

NAMES: frozenset[str] = frozenset(get_args(Name))
OPERATORS: frozenset[str] = frozenset(get_args(Operator))


@dataclass(frozen=True, slots=True)
class Type:
    """The base class of types."""

    @property
    def is_optional(self) -> bool:
        """Whether the type is optional (``:int?``), so that nil fits."""
        return isinstance(self, Maybe)


@dataclass(frozen=True, slots=True)
class Primitive(Type):
    """A named type; ``:map`` fits any map and ``:any`` any value including nil."""

    name: Name  # as in the shorthand, without the colon
    least: Number | None = None  # the smallest number, or the shortest length of a string
    most: Number | None = None


@dataclass(frozen=True, slots=True)
class Maybe(Type):
    """Fits nil, and values that fit ``inner``."""

    inner: Type


@dataclass(frozen=True, slots=True)
class List(Type):
    """Fits a vector with a length within the bounds whose items all fit ``item``."""

    item: Type
    least: int | None = None
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a map, or a parameter."""

    name: str  # a map may have it as keyword or as string
    type: Type
    optional: bool = False  # it may be absent; whether it may be nil is up to the type, ``?`` of shorthand means both


@dataclass(frozen=True, slots=True)
class Map(Type):
    """Fits a map with these fields; it may have others unless it is ``closed`` or validation is strict."""

    fields: tuple[Field, ...]
    closed: bool = False


@dataclass(frozen=True, slots=True)
class MapOf(Type):
    """Fits a map whose keys and values fit the two types."""

    key: Type
    value: Type
    least: int | None = None
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Constant:
    """One value of an enumeration: a string, number or bool, or with ``is_keyword`` the name of a keyword."""

    value: str | int | float | bool
    is_keyword: bool = False

    def __eq__(self, other: object) -> bool:
        """Compare by type too: true, 1 and 1.0 are different."""
        if not isinstance(other, Constant):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[object, ...]:
        return type(self.value), self.value, self.is_keyword


@dataclass(frozen=True, slots=True)
class Enum(Type):
    """Fits these values."""

    values: tuple[Constant, ...]


@dataclass(frozen=True, slots=True)
class Or(Type):
    """Fits values that fit at least one of ``choices``."""

    choices: tuple[Type, ...]


@dataclass(frozen=True, slots=True)
class And(Type):
    """Fits values that fit all of ``all_of``: usually a type and constraints."""

    all_of: tuple[Type, ...]


@dataclass(frozen=True, slots=True)
class Constraint(Type):
    """Fits a number for which ``number operator bound`` is true: ``[:> 0]``."""

    operator: Operator
    bound: Number


ANY = Primitive("any")
NIL = Primitive("nil")


def maybe(inner: Type) -> Type:
    """Return ``inner`` as an optional type; an optional type is returned unchanged."""
    return inner if isinstance(inner, Maybe) or inner == NIL else Maybe(inner)


def choice(choices: Iterable[Type]) -> Type:
    """Return the union of ``choices``, without duplicates; optional if nil is one of them."""
    flat: dict[Type, None] = {}
    takes_nil = False
    for one in choices:
        takes_nil |= isinstance(one, Maybe) or one == NIL
        inner = one.inner if isinstance(one, Maybe) else one
        if inner != NIL:
            flat.update(dict.fromkeys(inner.choices if isinstance(inner, Or) else (inner,)))
    if not flat:
        return NIL
    joined = next(iter(flat)) if len(flat) == 1 else Or(tuple(flat))
    return maybe(joined) if takes_nil else joined
