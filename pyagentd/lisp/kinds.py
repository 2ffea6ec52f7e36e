"""The kinds of values of the language, and how they become keys.

nil ``None`` · bool · int · float · str · ``Keyword`` · vector ``list`` (never changed once a program has seen it) ·
map ``dict`` · set ``LispSet`` · function = a Python callable with positional parameters.

Python takes ``True`` and ``1`` for one key and cannot hash lists and dicts, so map keys and set members are stored as
*keys*: ``as_key`` leaves nil, numbers, strings, keywords and functions as they are and wraps the rest; ``from_key``
undoes it. ``1`` and ``1.0`` are one key, as ``(= 1 1.0)`` is true (DD-25).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from threading import Lock
from typing import Any, Final, final
from weakref import WeakValueDictionary

from pyagentd.lisp.errors import LispError
from pyagentd.lisp.limits import Budget, Limits

Value = Any
"""A value of the language."""

Key = Any
"""A value in the form in which it is the key of a dict."""

MAX_DEPTH = 200
"""Nesting of a value that is compared, hashed, printed or encoded, where no budget says otherwise."""

_keywords: WeakValueDictionary[str, Keyword] = WeakValueDictionary()
_making = Lock()


@final
class Keyword:
    """A name that stands for itself, ``:name``; there is one object for each name."""

    __slots__ = ("__weakref__", "name")
    name: str

    def __new__(cls, name: str) -> Keyword:
        """Return the keyword of this name, which is the same object every time."""
        found = _keywords.get(name)
        if found is None:
            with _making:
                found = _keywords.get(name)
                if found is None:
                    found = object.__new__(cls)
                    found.name = name
                    _keywords[name] = found
        return found

    def __reduce__(self) -> tuple[type[Keyword], tuple[str]]:
        return Keyword, (self.name,)

    def __repr__(self) -> str:
        return f"Keyword({self.name!r})"

    def __str__(self) -> str:
        return f":{self.name}"

    def __copy__(self) -> Keyword:
        return self

    def __deepcopy__(self, memo: object) -> Keyword:
        return self


_QUOTE_OR_ESCAPE: Final = re.compile(r'\\.|"', re.DOTALL)


@final
class Pattern:
    """A regular expression as written, ``#"[0-9]+"``; two with the same text are equal.

    A quote in the text has a backslash, which the engine takes for the quote: so it reads as it prints.
    """

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = _QUOTE_OR_ESCAPE.sub(_escaped, text) if '"' in text else text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pattern) and self.text == other.text

    def __hash__(self) -> int:
        return hash((Pattern, self.text))

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})"


def _escaped(found: re.Match[str]) -> str:
    return '\\"' if found[0] == '"' else found[0]


class _Mark:
    """A tag no program can make: it tells wrapped keys from plain ones."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def __reduce__(self) -> str:
        return f"_{self.name}"


_TRUE = _Mark("TRUE")
_FALSE = _Mark("FALSE")
_MAP = _Mark("MAP")


class _Big:
    """A large integer as a key: Python's hash of one is easily made to collide, that of its text is not."""

    __slots__ = ("_hash", "value")

    def __init__(self, value: int) -> None:
        self.value = value
        self._hash = hash(hex(value))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Big) and self.value == other.value

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type[_Big], tuple[int]]:
        return _Big, (self.value,)


_LARGE = 1 << 60

PLAIN: frozenset[type] = frozenset({str, Keyword, type(None)})
"""Types whose values are their own keys; so are floats, and integers that are not very large."""


@final
class LispSet:
    """A set of values; immutable once a program has seen it. ``keys`` are its members as keys."""

    __slots__ = ("_hash", "keys", "weight")

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        self.keys: frozenset[Key] | set[Key] = frozenset(keys)
        self.weight = 1 + sum(map(_weight, self.keys))
        self._hash: int | None = None

    @classmethod
    def of(cls, members: Iterable[Value], budget: Budget | None = None) -> LispSet:
        """Return the set of ``members``."""
        return cls(as_key(member, budget) for member in members)

    def add_all(self, keys: Iterable[Key]) -> None:
        """Add keys to a set that nobody else has."""
        if type(self.keys) is not set:
            self.keys = set(self.keys)
        for key in keys:
            if key not in self.keys:
                self.keys.add(key)
                self.weight += _weight(key)
        self._hash = None

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[Value]:
        return map(from_key, self.keys)

    def __contains__(self, member: Value) -> bool:
        return as_key(member) in self.keys

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LispSet) and self.keys == other.keys

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.keys))
        return self._hash

    def __repr__(self) -> str:
        return f"LispSet({set(self.keys)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return LispSet, (tuple(self.keys),)


def _weight(key: Key) -> int:
    """Return how many values a key is made of."""
    if type(key) is LispSet:
        return key.weight
    if type(key) is tuple:
        return 1 + sum(map(_weight, key))
    if type(key) is frozenset:
        return 1 + sum(map(_weight, key))
    return 1


_KEY_LIMITS = Limits(steps=200_000)


def as_key(value: Value, budget: Budget | None = None) -> Key:
    """Return ``value`` as the key of a dict or member of a set; charges a step for every part of it.

    Raises:
        LispError: ``memory_exceeded`` when it is nested too deeply.
    """
    if type(value) in PLAIN:
        return value
    if budget is None and (type(value) is list or type(value) is dict):
        budget = Budget(_KEY_LIMITS)  # what shares parts may be huge as a tree
    return _as_key(value, budget, 0)


def _as_key(value: Value, budget: Budget | None, depth: int) -> Key:
    kind = type(value)
    if kind in PLAIN or kind is float:
        return value
    if kind is int:
        return value if -_LARGE < value < _LARGE else _Big(value)
    if value is True:
        return _TRUE
    if value is False:
        return _FALSE
    if depth >= (budget.limits.depth if budget else MAX_DEPTH):
        raise too_deep(budget)
    if kind is list:
        if budget:
            budget.steps(len(value))
        return tuple([_as_key(item, budget, depth + 1) for item in value])
    if kind is dict:
        if budget:
            budget.steps(2 * len(value))
        return (_MAP, frozenset([(key, _as_key(item, budget, depth + 1)) for key, item in value.items()]))
    if kind is LispSet and budget:
        budget.steps(value.weight)
    return value


def from_key(key: Key) -> Value:
    """Return the value a key stands for."""
    kind = type(key)
    if kind is tuple:
        if key and key[0] is _MAP:
            return {name: from_key(item) for name, item in key[1]}
        return [from_key(item) for item in key]
    if kind is _Mark:
        return key is _TRUE
    if kind is _Big:
        return key.value
    return key


def too_deep(budget: Budget | None = None) -> LispError:
    """Return the error for a value that is nested too deeply."""
    return (budget or Budget()).too_deep()


def truthy(value: Value) -> bool:
    """Return whether ``value`` counts as true: everything but nil and false does."""
    return value is not None and value is not False


def type_name(value: Value) -> str:
    """Return what a value is, in one word, for messages."""
    if value is None:
        return "nil"
    return _NAMES.get(type(value), "function")


def a_type(value: Value) -> str:
    """Return what a value is, with its article."""
    name = type_name(value)
    return name if value is None else f"an {name}" if name[0] in "aeiou" else f"a {name}"


_NAMES: dict[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "float",
    str: "string",
    Keyword: "keyword",
    list: "vector",
    dict: "map",
    LispSet: "set",
    Pattern: "pattern",
}

Function = Callable[..., Value]
