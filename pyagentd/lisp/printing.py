"""Values as text: ``readable`` is how a program would write them, ``text`` what ``str`` makes of them.

Maps and sets are printed in their order, so equal values print alike. Every part is charged as it is printed: a value
that shares parts may be small in memory and huge as text.
"""

from __future__ import annotations

from typing import Final

from pyagentd.lisp.limits import Budget
from pyagentd.lisp.order import in_order, members
from pyagentd.lisp.values import Keyword, LispSet, Pattern, Value, from_key, too_deep

_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"})


def readable(value: Value, budget: Budget | None = None) -> str:
    """Return a value as a program would write it; strings are quoted.

    Raises:
        LispError: ``memory_exceeded`` when the text would be too long or the value is nested too deeply.
    """
    parts: list[str] = []
    _write(value, parts, budget or Budget(), 0)
    return "".join(parts)


def text(value: Value, budget: Budget | None = None) -> str:
    """Return what ``str`` makes of a value: nil is empty, a string itself, anything else as it reads."""
    if type(value) is str:
        return value
    if value is None:
        return ""
    return readable(value, budget)


def _write(value: Value, parts: list[str], budget: Budget, depth: int) -> None:
    kind = type(value)
    if kind is list or kind is dict or kind is LispSet:
        if depth >= budget.limits.depth:
            raise too_deep(budget)
        budget.steps(1 + len(value))
        if kind is dict:
            _write_map(value, parts, budget, depth)
            return
        parts.append("[" if kind is list else "#{")
        for index, item in enumerate(value if kind is list else members(value)):
            if index:
                parts.append(" ")
            _write(item, parts, budget, depth + 1)
        parts.append("]" if kind is list else "}")
        budget.bytes(1 + len(value))
        return
    shown = _atom(value, budget)
    budget.bytes(len(shown))
    parts.append(shown)


def _write_map(value: dict[Value, Value], parts: list[str], budget: Budget, depth: int) -> None:
    parts.append("{")
    for index, key in enumerate(in_order(value)):
        if index:
            parts.append(" ")
        _write(from_key(key), parts, budget, depth + 1)
        parts.append(" ")
        _write(value[key], parts, budget, depth + 1)
    parts.append("}")
    budget.bytes(2 * len(value) + 1)


def _atom(value: Value, budget: Budget) -> str:
    kind = type(value)
    if kind is str:
        budget.bytes(len(value))
        return f'"{value.translate(_ESCAPES)}"'
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
    return "#function"


def number(value: float) -> str:
    """Return a floating-point number as it reads."""
    if value != value:
        return "##NaN"
    if value in {float("inf"), float("-inf")}:
        return "##Inf" if value > 0 else "##-Inf"
    return repr(value)
