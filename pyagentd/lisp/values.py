"""Values of the language: types, keys, equality, order, lookup, and conversion from and to Python."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date
from datetime import time as clock_time
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import partial
from inspect import CO_VARARGS
from itertools import chain
from operator import attrgetter
from pathlib import PurePath
from threading import Lock
from typing import Any, Final, final
from uuid import UUID
from weakref import WeakValueDictionary

from pyagentd.lisp.errors import MISSING, LispError
from pyagentd.lisp.limits import Budget, Limits
from pyagentd.lisp.parallel import Future

# The kinds of values of the language, and how they become keys.
#
# nil ``None`` · bool · int · float · str · ``Keyword`` · vector ``list`` (never changed once a program has seen it)
# · map ``dict`` · set ``LispSet`` · function = a Python callable with positional parameters.
#
# In Python ``True`` and ``1`` are the same key, and lists and dicts cannot be hashed. So map keys and set members are
# stored as *keys*: ``as_key`` returns nil, numbers, strings, keywords and functions unchanged and wraps other values;
# ``from_key`` is its inverse. ``1`` and ``1.0`` are the same key, since ``(= 1 1.0)`` is true.

Value = Any
"""A value of the language."""

Key = Any
"""A value in the form of a dict key."""

MAX_DEPTH = 200
"""The deepest nesting of a value that is compared, hashed, printed or encoded without a budget."""

_keywords: WeakValueDictionary[str, "Keyword"] = WeakValueDictionary()
_making = Lock()


@final
class Keyword:
    """A keyword, ``:name``; there is one object for each name."""

    __slots__ = ("__weakref__", "name")
    name: str

    def __new__(cls, name: str) -> "Keyword":
        """Return the keyword of this name, always the same object."""
        found = _keywords.get(name)
        if found is None:
            with _making:
                found = _keywords.get(name)
                if found is None:
                    found = object.__new__(cls)
                    found.name = name
                    _keywords[name] = found
        return found

    def __reduce__(self) -> tuple[type["Keyword"], tuple[str]]:
        return Keyword, (self.name,)

    def __repr__(self) -> str:
        return f"Keyword({self.name!r})"

    def __str__(self) -> str:
        return f":{self.name}"


_QUOTE_OR_ESCAPE: Final = re.compile(r'(\\.)|"', re.DOTALL)


@final
class Pattern:
    """A regular expression, ``#"[0-9]+"``; two with the same text are equal.

    A quote in the text is kept with a backslash, which the engine accepts, so that a printed pattern can be read.
    """

    __slots__ = ("matcher", "text")

    def __init__(self, text: str) -> None:
        self.text = _QUOTE_OR_ESCAPE.sub(lambda found: found[1] or '\\"', text) if '"' in text else text
        self.matcher: Any = None  # the compiled pattern, made on first use

    def __reduce__(self) -> tuple[type["Pattern"], tuple[str]]:
        return Pattern, (self.text,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pattern) and self.text == other.text

    def __hash__(self) -> int:
        return hash((Pattern, self.text))

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})"


class _Mark:
    """The marker of wrapped keys, which programs cannot create."""

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
    """A large integer as a key, hashed by its text: collisions of integer hashes are easy to construct."""

    __slots__ = ("_hash", "value")

    def __init__(self, value: int) -> None:
        self.value = value
        self._hash = hash(hex(value))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Big) and self.value == other.value

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type["_Big"], tuple[int]]:
        return _Big, (self.value,)


_LARGE = 1 << 60

PLAIN: frozenset[type] = frozenset({str, Keyword, type(None)})
"""Types whose values are their own keys, as are floats and integers that are not very large."""


@final
class LispSet:
    """A set of values; immutable once a program has seen it. ``keys`` are its members as keys."""

    __slots__ = ("_hash", "keys", "weight")

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        self.keys: frozenset[Key] | set[Key] = frozenset(keys)
        self.weight = 1 + sum(map(_weight, self.keys))
        self._hash: int | None = None

    @classmethod
    def of(cls, members: Iterable[Value], budget: Budget | None = None) -> "LispSet":
        """Return the set of ``members``."""
        return cls(as_key(member, budget) for member in members)

    def add_all(self, keys: Iterable[Key]) -> None:
        """Add keys to a set that has no other references."""
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
    """Return the number of values in a key."""
    if type(key) is LispSet:
        return key.weight
    return 1 + sum(map(_weight, key)) if type(key) is tuple or type(key) is frozenset else 1


_KEY_LIMITS = Limits(steps=200_000)
_MOST_BITS: Final = Limits().bits


def as_key(value: Value, budget: Budget | None = None, depth: int = 0) -> Key:
    """Return ``value`` as the key of a dict or member of a set; charges a step for each part.

    Raises:
        LispError: ``memory_exceeded`` when it is nested too deeply.
    """
    kind = type(value)
    if kind in PLAIN or kind is float:
        return value
    if kind is int:
        return value if -_LARGE < value < _LARGE else _Big(value)
    if value is True:
        return _TRUE
    if value is False:
        return _FALSE
    if kind is list or kind is dict:
        budget = budget or Budget(_KEY_LIMITS)  # a value with shared parts may be huge as a tree
        if depth >= budget.limits.depth:
            raise budget.too_deep()
        if kind is list:
            budget.steps(len(value))
            return tuple([as_key(item, budget, depth + 1) for item in value])
        budget.steps(2 * len(value))
        return (_MAP, frozenset([(key, as_key(item, budget, depth + 1)) for key, item in value.items()]))
    if kind is LispSet and budget:
        budget.steps(value.weight)
    return value


def from_key(key: Key) -> Value:
    """Return the value of a key."""
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


def truthy(value: Value) -> bool:
    """Return whether ``value`` is true in a condition: neither nil nor false."""
    return value is not None and value is not False


def type_name(value: Value) -> str:
    """Return the type of a value as one word, for messages."""
    if value is None:
        return "nil"
    return _NAMES.get(type(value), "function")


def a_type(value: Value) -> str:
    """Return the type of a value with an article, for messages."""
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
    Future: "future",
}

# Equality, order of values, and the order of maps and sets.
#
# ``=`` ignores the difference between integer and float, and no other. Order is total within one type, nil comes
# first, and different types cannot be compared. Values can share parts (repeated ``[x x]`` is small in memory and
# huge as a tree), so all functions here charge a step for each part that they visit.

_SCALARS = frozenset({str, Keyword, int, float, bool, type(None)})


def equal(one: Value, other: Value, budget: Budget | None = None, depth: int = 0) -> bool:
    """Return whether two values are equal, as ``=`` says.

    Raises:
        LispError: ``memory_exceeded`` when they are nested too deeply, ``timeout`` when they are too large.
    """
    if one is other:
        return True
    kind = type(one)
    if kind in _SCALARS or type(other) in _SCALARS:
        # In Python, True equals 1.
        return bool(one == other) and (kind is bool) is (type(other) is bool)
    if kind is not type(other):
        return False
    budget = budget or Budget()
    if depth >= budget.limits.depth:
        raise budget.too_deep()
    if kind is list:
        if len(one) != len(other):
            return False
        budget.steps(len(one) + 1)
        return all(equal(a, b, budget, depth + 1) for a, b in zip(one, other, strict=True))
    if kind is dict:
        if one.keys() != other.keys():
            return False
        budget.steps(len(one) + 1)
        return all(equal(item, other[key], budget, depth + 1) for key, item in one.items())
    if kind is LispSet:
        budget.steps(one.weight)
        return bool(one == other)
    return kind is Pattern and bool(one == other)


def compare(one: Value, other: Value, budget: Budget | None = None, depth: int = 0) -> int:
    """Return -1, 0 or 1 if ``one`` is less than, equal to or greater than ``other``; nil comes first.

    Raises:
        LispError: ``eval_error`` when they are of types that do not compare.
    """
    if one is None or other is None:
        return (one is not None) - (other is not None)
    kind, its = type(one), type(other)
    if kind is its or {kind, its} == {int, float}:
        if kind is Keyword:
            one, other = one.name, other.name
        elif kind is list:
            budget = budget or Budget()
            if depth >= budget.limits.depth:
                raise budget.too_deep()
            if len(one) != len(other):
                return 1 if len(one) > len(other) else -1
            budget.steps(1 + len(one))
            found = (compare(a, b, budget, depth + 1) for a, b in zip(one, other, strict=True))
            return next((each for each in found if each), 0)
        elif kind not in _SCALARS:
            raise LispError("eval_error", f"{type_name(one)}s have no order", hint="Sort by a number or a string.")
        return int(one > other) - int(one < other)
    raise LispError(
        "eval_error",
        f"cannot compare {type_name(one)} with {type_name(other)}",
        hint="Compare or sort values of one type: numbers with numbers, strings with strings.",
    )


def in_order(keys: Iterable[Key], budget: Budget | None = None) -> list[Key]:
    """Return keys sorted: nil, booleans, numbers, keywords, strings, vectors, maps, sets, functions; never raises.

    With collections among the keys, building the sort keys and each comparison are charged.
    """
    found = list(keys)
    kinds = set(map(type, found))
    if len(kinds) <= 1 or kinds <= {int, float}:
        kind = next(iter(kinds), None)
        if kind is Keyword:
            return sorted(found, key=attrgetter("name"))
        if kind in {str, int, float}:
            return sorted(found)
    if budget is None or kinds.isdisjoint({tuple, LispSet}):
        return sorted(found, key=partial(_order_key, budget=budget))
    return sorted(found, key=lambda key: _Charged(_order_key(key, budget), 1 + (_weight(key) >> 6), budget))


class _Charged:
    """A sort key that charges each comparison."""

    __slots__ = ("budget", "cost", "place")

    def __init__(self, place: tuple[Any, ...], cost: int, budget: Budget) -> None:
        self.place, self.cost, self.budget = place, cost, budget

    def __lt__(self, other: "_Charged") -> bool:
        self.budget.steps(min(self.cost, other.cost))
        return self.place < other.place


def _order_key(key: Key, budget: Budget | None) -> tuple[Any, ...]:
    """Return a sort key: the rank of the key's type, and a value that orders it within the type."""
    kind = type(key)
    if kind is tuple or kind is LispSet:
        if budget:
            budget.steps(len(key))
        if kind is LispSet:
            return 7, sorted(_order_key(member, budget) for member in key.keys)
        if key and key[0] is _MAP:
            if budget:
                budget.steps(2 * len(key[1]))
            return 6, sorted((_order_key(name, budget), _order_key(item, budget)) for name, item in key[1])
        return 5, [_order_key(item, budget) for item in key]
    if kind is str:
        return 4, key
    if kind is Keyword:
        return 3, key.name
    if kind is int or kind is float:
        return 2, key
    if kind is _Big:
        return 2, key.value
    if kind is bool or kind is _Mark:
        return 1, key is True or key is _TRUE
    return (0,) if key is None else (8,)


def pairs(mapping: dict[Key, Value], budget: Budget | None = None) -> list[list[Value]]:
    """Return the ``[key value]`` vectors of a map, sorted by key."""
    return [[from_key(key), mapping[key]] for key in in_order(mapping, budget)]


def members(items: LispSet, budget: Budget | None = None) -> list[Value]:
    """Return the members of a set, sorted."""
    return [from_key(key) for key in in_order(items.keys, budget)]


def to_python(value: Value, made: dict[int, tuple[Value, Any]] | None = None, depth: int = 0) -> Any:
    """Return a value as plain Python: keywords and keys as their names, sets as sorted lists, functions as text.

    Parts shared in the value are shared in the result (``made``). A vector that is a key becomes a tuple.

    Raises:
        LispError: ``memory_exceeded`` when it is nested too deeply.
    """
    kind = type(value)
    if kind is Keyword:
        return value.name
    if kind not in {list, dict, LispSet}:
        if value is None or kind in {str, int, float, bool}:
            return value
        return value.text if type(value) is Pattern else "#function"
    made = {} if made is None else made
    if id(value) in made:
        return made[id(value)][1]
    if depth >= MAX_DEPTH:
        raise Budget().too_deep()
    result: Any
    if kind is list:
        result = [to_python(item, made, depth + 1) for item in value]
    elif kind is LispSet:
        result = [to_python(item, made, depth + 1) for item in members(value)]
    else:
        result = {}
        for key, item in value.items():
            name = _python_key(key, made, depth)
            if name not in result or type(key) is not Keyword:
                result[name] = to_python(item, made, depth + 1)
    made[id(value)] = value, result  # keeps the value alive, so that its id is not reused
    return result


def _python_key(key: Key, made: dict[int, tuple[Value, Any]], depth: int) -> Any:
    plain = from_key(key)
    if type(plain) in {list, dict, LispSet}:
        return _freeze(to_python(plain, {}, depth + 1))
    return to_python(plain, made, depth)


def _freeze(value: Any) -> Any:
    """Return lists and dicts as tuples, which can be keys."""
    if isinstance(value, list):
        return tuple(map(_freeze, value))
    if isinstance(value, dict):
        return tuple((key, _freeze(item)) for key, item in value.items())
    return value


def from_python(
    value: Any, path: str = "value", depth: int = 0, made: dict[int, tuple[Any, Value]] | None = None
) -> Value:
    """Return plain Python data as a value; string keys stay strings.

    Tuples become vectors; dataclasses, pydantic models and other mappings become maps; dates, times, UUIDs and paths
    become strings, enums their values.

    Raises:
        TypeError: for an object the language has no value for; the message names the ``path`` to it.
    """
    if value is None or type(value) in {str, float, bool, Keyword, LispSet, Pattern}:
        return value
    if type(value) is int:
        if value.bit_length() > _MOST_BITS:
            raise TypeError(f"{path} is an integer of {value.bit_length()} bits, and {_MOST_BITS} are the most")
        return value
    made = {} if made is None else made
    if id(value) in made:
        return made[id(value)][1]
    if depth >= MAX_DEPTH:
        raise TypeError(f"{path[:200]} is nested deeper than {MAX_DEPTH} levels, or contains itself")
    if isinstance(value, Mapping | list | tuple):
        result: Value
        if isinstance(value, Mapping):
            result = {
                as_key(from_python(key, f"a key of {path}", depth + 1, made)): from_python(
                    item, f"{path}.{key}", depth + 1, made
                )
                for key, item in value.items()
            }
        else:
            result = [from_python(item, f"{path}[{index}]", depth + 1, made) for index, item in enumerate(value)]
        made[id(value)] = value, result  # keeps the object alive, so that its id is not reused
        return result
    if isinstance(value, Enum):
        return from_python(value.value, path, depth + 1, made)
    if isinstance(value, set | frozenset):
        return LispSet.of(from_python(item, f"a member of {path}", depth + 1, made) for item in value)
    for plain in (str, bool, int, float):
        if isinstance(value, plain):
            return plain(value)
    return _from_object(value, path, depth, made)


def _from_object(value: Any, path: str, depth: int, made: dict[int, tuple[Any, Value]]) -> Value:
    if is_dataclass(value) and not isinstance(value, type):
        return {
            each.name: from_python(getattr(value, each.name), f"{path}.{each.name}", depth + 1, made)
            for each in fields(value)
        }
    if callable(dump := getattr(value, "model_dump", None)) and not isinstance(value, type):
        return from_python(dump(), path, depth + 1, made)
    if isinstance(value, date | clock_time):
        return value.isoformat()
    if isinstance(value, UUID | PurePath):
        return str(value)
    if isinstance(value, Decimal | Fraction):
        return float(value)
    raise TypeError(f"{path} is a {type(value).__name__}, which has no value in the language")


# Endless sequences, such as ``(range)``: iterators until a part is taken.


class Endless:
    """A sequence without an end; ``items`` goes through it from the beginning."""

    __slots__ = ("items",)

    def __init__(self, items: Callable[[], Iterator[Any]]) -> None:
        self.items = items

    def prefix(self, count: int, budget: Budget) -> list[Any]:
        """Return the first items, charged in advance."""
        budget.cells(count)
        return [item for _, item in zip(budget.each(range(count)), self.items(), strict=False)]

    def drop(self, count: int, budget: Budget) -> "Endless":
        """Return the sequence after the first items; iterating over it first charges these."""

        def items() -> Iterator[Any]:
            found = self.items()
            for _ in budget.each(range(count)):
                next(found)
            return found

        return Endless(items)

    def charged_items(self, budget: Budget) -> Iterator[Any]:
        """Iterate over the items and charge a step for each."""
        for item in self.items():
            budget.tick()
            yield item


_NAMES[Endless] = "endless sequence"


def no_end(op: str) -> LispError:
    """Return the error for an endless sequence where all items are needed."""
    return LispError("eval_error", f"{op}: the sequence has no end", hint="Take some of it first: (take 10 …).")


def cut_to_shortest(
    colls: Sequence[Any], lengths: Callable[[Any], list[Any]], op: str, budget: Budget
) -> list[list[Any]]:
    """Return collections as lists of the length of the shortest, for iterating in parallel."""
    finite = [None if type(each) is Endless else lengths(each) for each in colls]
    known = [len(each) for each in finite if each is not None]
    if not known and colls:
        raise no_end(op)
    count = min(known, default=0)
    return [
        found[:count] if found is not None else each.prefix(count, budget)
        for found, each in zip(finite, colls, strict=True)
    ]


# Data: values that can leave a program, to be shown, stored or passed to a tool. Functions are not data.

_COLLECTIONS: Final = frozenset({list, dict, LispSet})
_DATA: Final = _COLLECTIONS | {type(None), bool, int, float, str, Keyword, Pattern}


WAIT: Final = "Wait for its value: (deref x), or @x."
"""The hint for a future that is used instead of its value."""


def no_data(value: Value) -> LispError:
    """Return the error for a value that is not data: a function or an endless sequence."""
    if type(value) is Endless:
        return LispError(
            "eval_error", "a sequence without an end is not data", hint="Take some of it first: (take 10 …)."
        )
    hint = WAIT if type(value) is Future else "Call the function and return its result."
    return LispError("eval_error", f"a {type_name(value)} is not data", hint=hint)


def check_data(value: Value) -> None:
    """Check that a value, whose extent was checked before (``serialization.check_extent``), and its parts are data.

    Raises:
        LispError: ``eval_error``.
    """
    level: list[Any] = [value]
    while level:
        if not _DATA.issuperset(map(type, level)):
            raise no_data(next(each for each in level if type(each) not in _DATA))
        inside = {id(each): each for each in level if type(each) in _COLLECTIONS}
        level = list(chain.from_iterable(map(_parts, inside.values())))


def _parts(value: Any) -> list[Any]:
    return [*map(from_key, value), *value.values()] if type(value) is dict else list(value)


# A keyword and a string of the same name: both find the entry of a map that has only one of them as a key.


def present_key(m: Any, key: Any, budget: Budget) -> Any:
    """Return the key as spelled in a map: if it is missing, the string or keyword of the same name."""
    return key if type(m) is not dict or as_key(key, budget) in m else _other_spelling(m, key)


def _other_spelling(m: dict[Any, Any], key: Any) -> Any:
    if type(key) is Keyword:
        return key.name if key.name in m else key
    if type(key) is str and (other := Keyword(key)) in m:
        return other
    return key


def merge_maps(
    maps: Iterable[dict[Any, Any]], budget: Budget, combine: Callable[[Any, Any], Any] | None = None
) -> dict[Any, Any]:
    """Return one map of all entries, which have been charged; keys are spelled as in the first map that has them.

    Later values win, or ``combine`` makes one value of an earlier and a later one.
    """
    result: dict[Any, Any] = {}
    kinds: set[type] = set()
    for entries in maps:
        added = set(map(type, entries))
        # JSON has strings as keys and programs write keywords; among keys of one kind no other spelling is possible.
        mixed = (Keyword in kinds and str in added) or (str in kinds and Keyword in added)
        kinds |= added
        if combine is None and not mixed:
            result.update(entries)
            continue
        for key in entries if combine is None else budget.each(list(entries)):
            there = _other_spelling(result, key) if mixed and key not in result else key
            result[there] = combine(result[there], entries[key]) if combine and there in result else entries[key]
    return result


def merge_into(m: dict[Any, Any], entries: dict[Any, Any], budget: Budget) -> bool:
    """Add entries to a map that has no other references, as ``merge_maps`` does; return whether it was possible.

    It is not if the entries have both keyword and string keys: which spelling they get depends on the existing keys.
    """
    kinds = set(map(type, entries))
    if Keyword in kinds and str in kinds:
        return False
    for key in budget.each(list(entries)):
        m[key if key in m else _other_spelling(m, key)] = entries[key]
    return True


# Lookup, and calling values: keywords, maps, sets and functions.
#
# A keyword also finds a string key of its name, and a string a keyword, if the exact key is missing, so that programs
# can write ``:name`` for data from JSON.


def find(mapping: dict[Key, Value], key: Value, default: Value = MISSING, budget: Budget | None = None) -> Value:
    """Return the value of a map under ``key``, or under the keyword or string of the same name, or ``default``."""
    found = mapping.get(key if type(key) in PLAIN else as_key(key, budget), MISSING)
    if found is MISSING:
        if type(key) is Keyword:
            return mapping.get(key.name, default)
        if type(key) is str:
            return mapping.get(Keyword(key), default)
        return default
    return found


def lookup(value: Value, key: Value, default: Value = None, budget: Budget | None = None) -> Value:
    """Return the result of ``get``: from a map by key, a vector by index, a set by member; nothing from nil.

    Raises:
        LispError: ``eval_error`` when nothing can be looked up in ``value``.
    """
    kind = type(value)
    if kind is dict:
        return find(value, key, default, budget)
    if value is None:
        return default
    if kind is list or kind is str:
        if type(key) is float and key.is_integer():
            key = int(key)  # a float without fraction, such as a result of /
        if type(key) is int:
            return value[key] if 0 <= key < len(value) else default
        if type(key) is Keyword and kind is list:
            raise _no_keys(value, key)
        return default
    if kind is LispSet:
        return key if as_key(key, budget) in value.keys else default
    raise _no_keys(value, key)


def _no_keys(value: Value, key: Value) -> LispError:
    shown = f":{key.name}" if type(key) is Keyword else a_type(key)
    hints = {list: "Use (map :key items) for every item, or (get-in value [:items 0 :key]).", Future: WAIT}
    return LispError("eval_error", f"cannot look up {shown} in {a_type(value)}", hint=hints.get(type(value), ""))


def keyword_lookup(keyword: Keyword, value: Value, default: Value = None) -> Value:
    """Return the result of ``(:keyword value default)``."""
    if type(value) is dict:
        return find(value, keyword, default)
    if value is None:
        return default
    return lookup(value, keyword, default)


def as_function(value: Value, arity: int, name: str = "") -> Callable[..., Value]:
    """Return ``value`` as a Python callable with ``arity`` positional parameters, which is checked once, here.

    ``name`` is the name of the builtin that will call it, for the message.

    Raises:
        LispError: ``eval_error`` when it is not a function, or takes another number of arguments.
    """
    if callable(value):
        least, most = arity_of(value)
        if least <= arity and (most is None or arity <= most):
            return value  # type: ignore[no-any-return]
        raise wrong_arity(function_name(value), least, most, arity)
    kind = type(value)
    if kind is Keyword or kind is dict or kind is LispSet:
        if not 1 <= arity <= (1 if kind is LispSet else 2):
            raise wrong_arity(str(value) if kind is Keyword else f"a {type_name(value)}", 1, 2, arity)
        return partial(keyword_lookup if kind is Keyword else lookup, value)
    where = f"{name}: " if name else ""
    hint = WAIT if type(value) is Future else "" if arity else "A value alone has no parentheses: write x, not (x)."
    raise LispError("eval_error", f"{where}not callable: {a_type(value)} is not a function", hint=hint)


def arity_of(function: Callable[..., Value]) -> tuple[int, int | None]:
    """Return the least and the most arguments a function takes; None is any number."""
    declared: tuple[int, int | None] | None = getattr(function, "arity", None)
    if declared is not None:
        return declared
    if type(function) is partial:
        least, most = arity_of(function.func)
        given = len(function.args)
        return max(0, least - given), None if most is None else most - given
    code = getattr(function, "__code__", None)
    if code is None:
        return 0, None
    most = None if code.co_flags & CO_VARARGS else code.co_argcount
    return code.co_argcount - len(getattr(function, "__defaults__", None) or ()), most


def function_name(function: Callable[..., Value]) -> str:
    """Return the name of a function in the program."""
    if type(function) is partial:
        return function_name(function.func)
    name = str(getattr(function, "lisp_name", None) or getattr(function, "__name__", "fn"))
    # Generated code numbers its functions: f·12.
    return "fn" if name.startswith("<") else name.partition("·")[0] or "fn"


def wrong_arity(name: str, least: int, most: int | None, got: int) -> LispError:
    """Return the error for a call with the wrong number of arguments."""
    counted = f"{least} argument" if least == 1 else f"{least} arguments"
    wanted = f"at least {counted}" if most is None else counted if least == most else f"{least} to {most} arguments"
    return LispError("eval_error", f"{name} expects {wanted}, got {got}")
