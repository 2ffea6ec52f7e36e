"""What a value may be: the types of which signatures are made (SPEC 004 Signature Type Syntax).

A type is a tree of frozen values that compare by content. Build trees through ``maybe`` and ``choice``, which keep
them canonical: optional in one way only, no choice inside a choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast, get_args

from pyagentd.errors import did_you_mean

Name = Literal["string", "int", "float", "bool", "keyword", "map", "any", "datetime", "nil"]
Operator = Literal[">", ">=", "<", "<="]
Number: TypeAlias = int | float

NAMES: frozenset[str] = frozenset(get_args(Name))
OPERATORS: frozenset[str] = frozenset(get_args(Operator))


@dataclass(frozen=True, slots=True)
class Type:
    """Any of the types below."""

    @property
    def is_optional(self) -> bool:
        """Whether nil fits because the type says so (``:int?``)."""
        return False

    @property
    def parts(self) -> tuple[Type, ...]:
        """The types directly inside this one."""
        return ()

    def walk(self) -> Iterator[Type]:
        """Yield this type and every type inside it, outermost first."""
        yield self
        for part in self.parts:
            yield from part.walk()


@dataclass(frozen=True, slots=True)
class Primitive(Type):
    """A named type; ``:map`` is any map and ``:any`` anything, nil too.

    Attributes:
        name: As in the shorthand, without the colon.
        least: Smallest number, or shortest length of a string; None: no bound.
        most: Largest number, or greatest length.
    """

    name: Name
    least: Number | None = None
    most: Number | None = None


@dataclass(frozen=True, slots=True)
class Maybe(Type):
    """Nil, or what ``inner`` says."""

    inner: Type

    @property
    def is_optional(self) -> bool:
        """True: that is what it says."""
        return True

    @property
    def parts(self) -> tuple[Type, ...]:
        """The type of what is not nil."""
        return (self.inner,)


@dataclass(frozen=True, slots=True)
class List(Type):
    """A vector of any length within the bounds whose items all fit ``item``."""

    item: Type
    least: int | None = None
    most: int | None = None

    @property
    def parts(self) -> tuple[Type, ...]:
        """The type of the items."""
        return (self.item,)


@dataclass(frozen=True, slots=True)
class Field:
    """A named place in a map, or a parameter.

    Attributes:
        name: The key as text; a map may hold it as keyword or as string.
        type: What its value may be.
        optional: Whether it may be absent; that it may be nil is said by the type. The shorthand's ``?`` says both.
    """

    name: str
    type: Type
    optional: bool = False

    @property
    def firewalled(self) -> bool:
        """Whether no model may see the value (SPEC 004: names that begin with ``_``)."""
        return self.name.startswith("_")


@dataclass(frozen=True, slots=True)
class Map(Type):
    """A map with these fields; others may be there too, unless it is ``closed`` or the validation strict."""

    fields: tuple[Field, ...]
    closed: bool = False

    @property
    def parts(self) -> tuple[Type, ...]:
        """The types of the fields."""
        return tuple(field.type for field in self.fields)


@dataclass(frozen=True, slots=True)
class MapOf(Type):
    """A map of any keys and values that fit."""

    key: Type
    value: Type
    least: int | None = None
    most: int | None = None

    @property
    def parts(self) -> tuple[Type, ...]:
        """The types of keys and values."""
        return (self.key, self.value)


@dataclass(frozen=True, slots=True)
class Constant:
    """One value of an enumeration: a string, number, bool, or (``is_keyword``) a keyword by its name."""

    value: str | int | float | bool
    is_keyword: bool = False

    def __eq__(self, other: object) -> bool:
        """Tell true from 1, and 1 from 1.0."""
        if not isinstance(other, Constant):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[object, ...]:
        return type(self.value), self.value, self.is_keyword


@dataclass(frozen=True, slots=True)
class Enum(Type):
    """One of these values."""

    values: tuple[Constant, ...]


@dataclass(frozen=True, slots=True)
class Or(Type):
    """What fits at least one of ``choices``."""

    choices: tuple[Type, ...]

    @property
    def parts(self) -> tuple[Type, ...]:
        """The choices."""
        return self.choices


@dataclass(frozen=True, slots=True)
class And(Type):
    """What fits all of ``all_of``: usually a type and constraints."""

    all_of: tuple[Type, ...]

    @property
    def parts(self) -> tuple[Type, ...]:
        """What has to fit."""
        return self.all_of


@dataclass(frozen=True, slots=True)
class Constraint(Type):
    """A number that compares so with ``bound``: ``[:> 0]``."""

    operator: Operator
    bound: Number


ANY = Primitive("any")
NIL = Primitive("nil")


def maybe(inner: Type) -> Type:
    """Return the type of nil or ``inner``; what takes nil already in this way stays as it is."""
    return inner if isinstance(inner, Maybe) or inner == NIL else Maybe(inner)


def choice(choices: Iterable[Type]) -> Type:
    """Return the type of what fits any of ``choices``, each once; nil among them makes it optional."""
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


# Names of types, and what somebody meant who wrote another one.

# Malli's own names for types of ours.
_SAME: dict[str, Name] = {"boolean": "bool", "double": "float"}

_MEANT = {
    **dict.fromkeys(["integer", "long", "i32", "i64", "number_int"], ":int"),
    **dict.fromkeys(["number", "decimal", "real", "num"], ":float"),
    **dict.fromkeys(["str", "text", "char", "uuid", "url", "email"], ":string"),
    **dict.fromkeys(["list", "array", "seq", "vec"], "[:any], a list of anything"),
    **dict.fromkeys(["set", "tuple"], "[:any], a list of anything"),
    **dict.fromkeys(["object", "dict", "record", "struct", "hash", "json"], ":map"),
    **dict.fromkeys(["null", "none", "undefined", "void"], ":nil"),
    **dict.fromkeys(["atom", "symbol", "kw"], ":keyword"),
    **dict.fromkeys(["date", "time", "timestamp", "inst", "date-time"], ":datetime"),
    **dict.fromkeys(["term", "unknown", "value", "some"], ":any"),
    "enum": '[:enum "a" "b"]',
    "or": "[:or :int :string]",
    "maybe": ":int?",
    "optional": ":int?",
    "vector": "[:any], a list of anything",
    "sequential": "[:any], a list of anything",
    "map-of": "[:map-of :string :int]",
}


def known(name: str) -> Name | None:
    """Return the name of the type that ``name`` (without colon) stands for, or None."""
    return cast(Name, name) if name in NAMES else _SAME.get(name)


def meant(name: str) -> str:
    """Return the sentence that says what to write instead of ``name``."""
    plain = name.lower().rstrip("?")
    mark = "?" if name.endswith("?") else ""
    if found := known(plain):
        return f"Did you mean `:{found}{mark}`?"
    if instead := _MEANT.get(plain):
        code, comma, why = instead.partition(", ")
        return f"Did you mean `{code}`{comma}{why}?"
    if question := did_you_mean(plain, sorted(NAMES), shown=f"`:{{}}{mark}`"):
        return question
    return "Types are " + " ".join(f":{one}" for one in sorted(NAMES))


def closest(name: str, possible: list[str]) -> str:
    """Return the sentence that names the one of ``possible`` that looks like ``name``, or all of them."""
    if question := did_you_mean(name, possible, shown="`:{}`"):
        return question
    return "There are " + " ".join(f":{one}" for one in possible) if possible else "There are none here"
