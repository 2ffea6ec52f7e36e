"""What ``where`` tests: the field of a map along a path, compared with a value, safe for nil.

Keywords and strings of one name are equal here (booleans never are anything but themselves); ordering with nil is
false, everything else about ordering is what ``<`` and its kin say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pyagentd.lisp.access import find
from pyagentd.lisp.builtins import BUILTINS
from pyagentd.lisp.errors import LispError
from pyagentd.lisp.limits import Budget
from pyagentd.lisp.order import equal
from pyagentd.lisp.values import Keyword, LispSet, Value, a_type, truthy

Get = Callable[[Value], Value]
Predicate = Callable[[Value], bool]


def getter(path: tuple[Any, ...]) -> Get:
    """Return the function that finds the field; nil where the path ends early."""
    if len(path) == 1 and type(path[0]) is Keyword:
        key = path[0]
        name = key.name

        def field(value: Value) -> Value:
            if type(value) is dict:
                return value[key] if key in value else value.get(name)
            return _step(value, key)

        return field

    def along(value: Value) -> Value:
        for step in path:
            value = _step(value, step)
        return value

    return along


def _step(value: Value, step: Any) -> Value:
    kind = type(value)
    if kind is dict:
        return find(value, step, None)
    if value is None:
        return None
    if kind is list and type(step) is int:
        return value[step] if 0 <= step < len(value) else None
    shown = f":{step.name}" if type(step) is Keyword else f'"{step}"'
    raise LispError("eval_error", f"where expects maps: cannot look up {shown} in {a_type(value)}")


def _named(value: Value) -> Value:
    return value.name if type(value) is Keyword else value


def is_true(get: Get) -> Predicate:
    """Return the test for truth."""
    return lambda value: truthy(get(value))


def _equals(get: Get, wanted: Value, budget: Budget) -> Predicate:
    wanted = _named(wanted)
    if type(wanted) is str:
        return lambda value: (found := get(value)) == wanted or (type(found) is Keyword and found.name == wanted)
    return lambda value: equal(_named(get(value)), wanted, budget)


def _differs(get: Get, wanted: Value, budget: Budget) -> Predicate:
    equals = _equals(get, wanted, budget)
    return lambda value: not equals(value)


def _ordered(name: str) -> Callable[[Get, Value, Budget], Predicate]:
    compare = BUILTINS[name].function

    def predicate(get: Get, wanted: Value, budget: Budget) -> Predicate:
        def holds(value: Value) -> bool:
            found = get(value)
            if found is None or wanted is None:
                return False
            return bool(compare(found, wanted))

        return holds

    return predicate


def _includes(get: Get, wanted: Value, budget: Budget) -> Predicate:
    wanted = _named(wanted)

    def holds(value: Value) -> bool:
        found = get(value)
        kind = type(found)
        if kind is str:
            budget.steps(1 + (len(found) >> 6))
            return type(wanted) is str and wanted in found
        if kind is list or kind is LispSet:
            return any(equal(_named(each), wanted, budget) for each in budget.each(list(found)))
        return False

    return holds


def _in(get: Get, wanted: Value, budget: Budget) -> Predicate:
    if type(wanted) not in {list, LispSet}:
        raise LispError(
            "eval_error",
            f"where: in expects a vector, got {a_type(wanted)}",
            hint='Write (where :status in ["a" "b"]).',
        )
    choices = [_named(each) for each in wanted]

    def holds(value: Value) -> bool:
        found = _named(get(value))
        return found is not None and any(equal(found, each, budget) for each in budget.each(choices))

    return holds


WHERE: Final[dict[str, Callable[[Get, Value, Budget], Predicate]]] = {
    "=": _equals,
    "not=": _differs,
    "includes": _includes,
    "in": _in,
    **{name: _ordered(name) for name in ("<", ">", "<=", ">=")},
}
