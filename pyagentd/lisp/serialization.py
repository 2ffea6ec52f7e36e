"""Serialization: values as text in the notation of the language, as JSON and back, and their size when written.

``readable`` and ``text`` give Lisp notation, ``encode`` and ``decode`` JSON, ``size`` the bytes of that JSON.
``check_extent`` refuses a value that would be too large before it is written out: ``[x x]`` sixty times over is sixty
vectors in memory and 2^60 items when written. Maps and sets are written in order: equal values give equal text.
"""

import json
import math
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, Final

from pyagentd.lisp.errors import LispError
from pyagentd.lisp.limits import Budget, Limits
from pyagentd.lisp.values import (
    Keyword,
    LispSet,
    Pattern,
    Value,
    as_key,
    from_key,
    in_order,
    members,
    no_data,
    type_name,
)

# -- Lisp notation

ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"})


def readable(value: Value, budget: Budget | None = None) -> str:
    """Return a value in the notation of the language; strings are quoted.

    Raises:
        LispError: ``memory_exceeded`` if the text would be too long or the value is nested too deeply.
    """
    parts: list[str] = []
    _write(value, parts, budget or Budget(), 0)
    return "".join(parts)


def text(value: Value, budget: Budget | None = None) -> str:
    """Return the text of ``str``: nil is empty, a string unchanged, any other value as in ``readable``."""
    if type(value) is str:
        return value
    if value is None:
        return ""
    return readable(value, budget)


def _write(value: Value, parts: list[str], budget: Budget, depth: int) -> None:
    kind = type(value)
    if kind is list or kind is dict or kind is LispSet:
        if depth >= budget.limits.depth:
            raise budget.too_deep()
        budget.steps(1 + len(value))
        if kind is dict:
            items = [each for key in in_order(value, budget) for each in (from_key(key), value[key])]
        else:
            items = value if kind is list else members(value, budget)
        parts.append({list: "[", dict: "{", LispSet: "#{"}[kind])
        for index, item in enumerate(items):
            if index:
                parts.append(" ")
            _write(item, parts, budget, depth + 1)
        parts.append("]" if kind is list else "}")
        budget.bytes(1 + len(items))
        return
    shown = _atom(value, budget)
    budget.bytes(len(shown))
    parts.append(shown)


def _atom(value: Value, budget: Budget) -> str:
    kind = type(value)
    if kind is str:
        budget.bytes(len(value))
        return f'"{value.translate(ESCAPES)}"'
    if kind is Keyword:
        return f":{value.name}"
    if value is None:
        return "nil"
    if kind is bool:
        return "true" if value else "false"
    if kind is float:
        return number(value)
    if kind is int:
        return str(value)
    if kind is Pattern:
        return f'#"{value.text}"'
    return f"#{type_name(value)}"


def number(value: float) -> str:
    """Return a floating-point number in the notation of the language."""
    if value != value:
        return "##NaN"
    if value in {float("inf"), float("-inf")}:
        return "##Inf" if value > 0 else "##-Inf"
    return repr(value)


# -- Size of a value before it is written out: its items are counted level by level, each as often as it would be
# written, until there are too many.

_COLLECTIONS = frozenset({list, dict, LispSet})
_SHORT = 64
"""Characters up to which the map keys of a level are not counted."""


def check_extent(value: Value, limits: Limits) -> tuple[int, int]:
    """Check that a value, when written, does not exceed the limits of a run in items, text and depth.

    Returns:
        The number of its items, and of the characters of its strings.

    Raises:
        LispError: ``memory_exceeded``.
    """
    if type(value) not in _COLLECTIONS:
        return 0, len(value) if type(value) is str else 0
    level: list[Any] = [value]
    shapes = {type(value)}  # the types of the collections in the level
    items = characters = 0
    for _ in range(limits.depth):
        items += sum(map(len, level))
        if items > limits.cells:
            raise _too_large(f"{limits.cells} items")
        parts = _all_parts(level, shapes)
        kinds = set(map(type, parts))
        characters += _characters(parts, kinds) + _long_keys(level, shapes)
        if characters > limits.bytes:
            raise _too_large(f"{limits.bytes} characters")
        shapes = kinds & _COLLECTIONS
        if not shapes:
            return items, characters
        level = parts if shapes == kinds else [part for part in parts if type(part) in _COLLECTIONS]
    raise Budget(limits).too_deep()


def _all_parts(level: list[Any], shapes: set[type]) -> list[Any]:
    """Return the parts of all of ``level``, whose types ``shapes`` are."""
    if len(level) == 1 and shapes == {list}:
        return level[0]  # type: ignore[no-any-return]
    if dict not in shapes:
        return list(chain.from_iterable(level))
    return list(chain.from_iterable(map(dict.values if shapes == {dict} else _parts, level)))


def _parts(value: Any) -> Iterable[Any]:
    return value.values() if type(value) is dict else value


def _characters(parts: list[Any], kinds: set[type]) -> int:
    """Return the characters of the strings among ``parts``, which have these types."""
    if str not in kinds:
        return 0
    return sum(map(len, parts if len(kinds) == 1 else [part for part in parts if type(part) is str]))


def _long_keys(level: list[Any], shapes: set[type]) -> int:
    """Return an upper bound for the characters of map keys, or 0 if all keys are short."""
    if dict not in shapes:
        return 0
    maps = level if len(shapes) == 1 else [each for each in level if type(each) is dict]
    longest = max(map(_length, set().union(*maps)), default=0)
    return longest * sum(map(len, maps)) if longest > _SHORT else 0


def _length(key: Any) -> int:
    if type(key) is Keyword:
        return len(key.name)
    return len(key) if type(key) is str else 0


def _too_large(limit: str) -> LispError:
    return LispError(
        "memory_exceeded",
        f"a value, written out, would have more than {limit}",
        hint="Give aggregates or a part of the data, and do not nest a collection in itself again and again.",
    )


# -- JSON
#
# A keyword is ``"~:name"``; a string that begins with ``~`` is prefixed with another one; a map of keyword and string
# keys is an object, any other map ``{"~#cmap": [k, v, …]}``, a set ``{"~#set": […]}``, a pattern ``{"~#re": "…"}``,
# infinity and not-a-number ``{"~#n": "inf"}``. 5 and 5.0 stay different. Functions cannot be encoded.

_MAX_DEPTH = 220
_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def encode(value: Value, budget: Budget | None = None, depth: int = 0) -> Any:
    """Return a value as data for ``json.dumps``.

    Raises:
        LispError: ``eval_error`` for a function, ``memory_exceeded`` for a value that is nested too deeply or, with
            its shared parts written out, too large.
    """
    budget, kind = budget or Budget(), type(value)
    if kind not in _COLLECTIONS:
        made = _encode_atom(value)
        if type(made) is str:
            budget.bytes(len(made))
        return made
    if depth >= budget.limits.depth:
        raise budget.too_deep()
    budget.steps(1 + len(value))
    budget.cells(1 + len(value))
    if kind is list:
        return [encode(item, budget, depth + 1) for item in value]
    if kind is LispSet:
        return {"~#set": [encode(item, budget, depth + 1) for item in members(value, budget)]}
    keys = in_order(value, budget)
    if all(type(key) is str or type(key) is Keyword for key in keys):
        return {encode(key, budget, depth): encode(value[key], budget, depth + 1) for key in keys}
    parts: list[Any] = []
    for key in keys:
        parts += [encode(from_key(key), budget, depth + 1), encode(value[key], budget, depth + 1)]
    return {"~#cmap": parts}


def _encode_atom(value: Value) -> Any:
    kind = type(value)
    if kind is str:
        return f"~{value}" if value[:1] == "~" else value
    if kind is Keyword:
        return f"~:{value.name}"
    if value is None or kind is bool or kind is int:
        return value
    if kind is float:
        return value if math.isfinite(value) else {"~#n": repr(value)}
    if kind is Pattern:
        return {"~#re": value.text}
    raise no_data(value)


def decode(data: Any, depth: int = 0) -> Value:
    """Return the value that ``encode`` encoded as ``data``.

    Raises:
        ValueError: It is not such data.
    """
    if isinstance(data, str):
        if data[:1] != "~":
            return data
        if data[:2] == "~:":
            return Keyword(data[2:])
        if data[:2] == "~~":
            return data[1:]
        raise ValueError(f"{data[:40]!r} is not an encoded string")
    if depth > _MAX_DEPTH:
        raise ValueError("nested too deeply")
    if isinstance(data, list):
        return [decode(item, depth + 1) for item in data]
    if isinstance(data, Mapping):
        return _decode_object(data, depth + 1)
    if data is None or isinstance(data, bool | int | float):
        return data
    raise ValueError(f"a {type(data).__name__} is not JSON")


def _decode_object(data: Mapping[str, Any], depth: int) -> Value:
    if len(data) == 1:
        ((tag, inside),) = data.items()
        match tag:
            case "~#set":
                return LispSet.of(decode(item, depth) for item in inside)
            case "~#cmap":
                pairs = [decode(item, depth) for item in inside]
                return {as_key(key): item for key, item in zip(pairs[::2], pairs[1::2], strict=True)}
            case "~#re":
                return Pattern(str(inside))
            case "~#n":
                return float(inside)
    return {decode(key, depth): decode(item, depth) for key, item in data.items()}


def size(value: Value, budget: Budget | None = None, limit: int | None = None) -> int:
    """Return the size of a value in bytes: of its encoded JSON in UTF-8 without spaces. The memory is measured so.

    A function counts as 16 bytes. It stops when the size exceeds ``limit``; the result is then a lower bound.
    """
    budget, total = budget or Budget(), 0

    def walk(value: Value, depth: int) -> None:
        nonlocal total
        if limit is not None and total > limit:
            return
        kind = type(value)
        if kind not in _COLLECTIONS:
            total += _atom_size(value)
            return
        if depth >= budget.limits.depth:
            raise budget.too_deep()
        budget.steps(1 + len(value))
        total += 1 + max(1, len(value))
        if kind is dict:
            named = all(type(key) is str or type(key) is Keyword for key in value)
            total += len(value) + (0 if named else 11)
            for key, item in value.items():
                walk(from_key(key), depth + 1)
                walk(item, depth + 1)
            return
        if kind is LispSet:
            total += 10
        for item in value:
            walk(item, depth + 1)

    walk(value, 0)
    return total


def _atom_size(value: Value) -> int:
    try:
        return len(_json(_encode_atom(value)).encode("utf-8", "surrogatepass"))
    except LispError:  # a function
        return 16
