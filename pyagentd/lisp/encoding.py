"""Values as JSON and back, for files, other processes and measuring.

A keyword is ``"~:name"``, a string that begins with ``~`` gets another one before it, a map of keyword and string
keys is an object, any other map ``{"~#cmap": [k, v, …]}``, a set ``{"~#set": […]}``, a pattern ``{"~#re": "…"}``,
numbers JSON has no word for ``{"~#n": "inf"}``. 5 and 5.0 stay different. Functions have no form.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

from pyagentd.lisp.limits import Budget
from pyagentd.lisp.values import (
    Key,
    Keyword,
    LispSet,
    Pattern,
    Value,
    as_key,
    from_key,
    in_order,
    members,
    no_data,
    too_deep,
)

_MAX_DEPTH = 220


def encode(value: Value, budget: Budget | None = None) -> Any:
    """Return a value as data that ``json.dumps`` takes.

    Raises:
        LispError: ``eval_error`` for a function, ``memory_exceeded`` for a value too deep or, with its shared parts
            written out, too large.
    """
    return _encode(value, budget or Budget(), 0)


def _encode(value: Value, budget: Budget, depth: int) -> Any:
    kind = type(value)
    if kind is str:
        budget.bytes(len(value))
        return f"~{value}" if value[:1] == "~" else value
    if kind is Keyword:
        budget.bytes(len(value.name))
        return f"~:{value.name}"
    if value is None or kind is bool or kind is int:
        return value
    if kind is float:
        return value if math.isfinite(value) else {"~#n": repr(value)}
    if kind is Pattern:
        return {"~#re": value.text}
    if kind not in {list, dict, LispSet}:
        raise no_data(value)
    if depth >= budget.limits.depth:
        raise too_deep(budget)
    budget.steps(1 + len(value))
    budget.cells(1 + len(value))
    if kind is list:
        return [_encode(item, budget, depth + 1) for item in value]
    if kind is LispSet:
        return {"~#set": [_encode(item, budget, depth + 1) for item in members(value)]}
    return _encode_map(value, budget, depth)


def _encode_map(value: dict[Key, Value], budget: Budget, depth: int) -> Any:
    keys = in_order(value)
    if all(type(key) is str or type(key) is Keyword for key in keys):
        return {_encode(key, budget, depth): _encode(value[key], budget, depth + 1) for key in keys}
    parts: list[Any] = []
    for key in keys:
        parts += [_encode(from_key(key), budget, depth + 1), _encode(value[key], budget, depth + 1)]
    return {"~#cmap": parts}


def decode(data: Any) -> Value:
    """Return the value that ``encode`` made ``data`` of.

    Raises:
        ValueError: when it is no such data.
    """
    return _decode(data, 0)


def _decode(data: Any, depth: int) -> Value:
    if isinstance(data, str):
        if data[:1] != "~":
            return data
        if data[:2] == "~:":
            return Keyword(data[2:])
        if data[:2] == "~~":
            return data[1:]
        raise ValueError(f"{data[:40]!r} is no encoded string")
    if depth > _MAX_DEPTH:
        raise ValueError("nested too deeply")
    if isinstance(data, list):
        return [_decode(item, depth + 1) for item in data]
    if isinstance(data, Mapping):
        return _decode_object(data, depth + 1)
    if data is None or isinstance(data, bool | int | float):
        return data
    raise ValueError(f"a {type(data).__name__} is no JSON")


def _decode_object(data: Mapping[str, Any], depth: int) -> Value:
    if len(data) == 1:
        ((tag, inside),) = data.items()
        match tag:
            case "~#set":
                return LispSet.of(_decode(item, depth) for item in inside)
            case "~#cmap":
                pairs = [_decode(item, depth) for item in inside]
                return {as_key(key): item for key, item in zip(pairs[::2], pairs[1::2], strict=True)}
            case "~#re":
                return Pattern(str(inside))
            case "~#n":
                return float(inside)
    return {_decode(key, depth): _decode(item, depth) for key, item in data.items()}


def size(value: Value, budget: Budget | None = None, limit: int | None = None) -> int:
    """Return how many bytes the encoded value is as JSON in UTF-8 without spaces; the measure of the memory.

    Args:
        value: What is measured; a function counts as 16 bytes.
        budget: Charged for the walk.
        limit: Stop measuring beyond so many bytes; the result is then only known to be larger.
    """
    return _Measure(budget or Budget(), limit).of(value, 0)


class _Measure:
    def __init__(self, budget: Budget, limit: int | None) -> None:
        self.budget = budget
        self.limit = limit
        self.total = 0

    def of(self, value: Value, depth: int) -> int:
        self._walk(value, depth)
        return self.total

    def _walk(self, value: Value, depth: int) -> None:
        if self.limit is not None and self.total > self.limit:
            return
        kind = type(value)
        if kind not in {list, dict, LispSet}:
            self.total += _atom_size(value)
            return
        if depth >= self.budget.limits.depth:
            raise too_deep(self.budget)
        self.budget.steps(1 + len(value))
        self.total += 1 + max(1, len(value))
        if kind is dict:
            named = all(type(key) is str or type(key) is Keyword for key in value)
            self.total += len(value) + (0 if named else 11)
            for key, item in value.items():
                self._walk(from_key(key), depth + 1)
                self._walk(item, depth + 1)
            return
        if kind is LispSet:
            self.total += 10
        for item in value:
            self._walk(item, depth + 1)


def _atom_size(value: Value) -> int:
    kind = type(value)
    if kind is str:
        written = json.dumps(value, ensure_ascii=False)
        return len(written.encode("utf-8", "surrogatepass")) + int(value[:1] == "~")
    if kind is Keyword:
        name: str = value.name
        return len(name.encode("utf-8", "surrogatepass")) + 4
    if value is None or value is True:
        return 4
    if kind is bool:
        return 5
    if isinstance(value, float) and not math.isfinite(value):
        return 10 + len(repr(value))
    if isinstance(value, int | float):
        if isinstance(value, float) or abs(value) < 1 << 64:
            return len(str(value))
        return int(value.bit_length()) // 3
    if kind is Pattern:
        pattern: str = value.text
        return len(pattern.encode("utf-8", "surrogatepass")) + 12
    return 16
