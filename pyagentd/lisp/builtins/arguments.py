"""What builtins ask of their arguments, and how they say that one does not fit.

Messages name the builtin, what it expects and the *type* it got. They never contain a value: an error is read by a
model, and the value may be one it must not see.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from pyagentd.lisp.builtins.graphemes import graphemes
from pyagentd.lisp.endless import Endless, no_end
from pyagentd.lisp.errors import LispError
from pyagentd.lisp.limits import Budget
from pyagentd.lisp.order import members, pairs
from pyagentd.lisp.values import Keyword, LispSet, type_name

NUMBERS: Final = frozenset({int, float})

_AN: Final = {"integer": "an integer", "nil": "nil"}


def refuse(op: str, why: str, hint: str = "") -> LispError:
    """Return the error of a call whose arguments have the right types and still make no sense."""
    return LispError("eval_error", f"{op}: {why}", hint=hint)


def wrong(op: str, expected: str, got: Any, *, item: int | None = None, hint: str = "") -> LispError:
    """Return the error of a value of the wrong type.

    Args:
        op: Name of the builtin.
        expected: What it takes, as in "a number" or "numbers".
        got: The value it was given.
        item: 0-based index of the value in the collection it came from, or None.
        hint: What to do instead, or "".
    """
    name = type_name(got)
    place = "" if item is None else f" (item {item})"
    return LispError("eval_error", f"{op}: expects {expected}, got {_AN.get(name, f'a {name}')}{place}", hint=hint)


def number(op: str, value: Any) -> Any:
    """Return the value, which must be a number."""
    if type(value) is int or type(value) is float:
        return value
    raise wrong(op, "a number", value, hint=numeric_hint(value))


def check_numbers(op: str, values: Sequence[Any]) -> None:
    """See that all values are numbers."""
    for value in values:
        if type(value) is not int and type(value) is not float:
            raise wrong(op, "numbers", value, hint=numeric_hint(value))


def numeric_hint(value: Any) -> str:
    """Return what to do about a value that should be a number."""
    if value is None:
        return "A missing value is nil: give a default with (or x 0), or leave such items out with (filter some? xs)."
    if type(value) is str:
        return "Turn text into a number with (parse-long s) or (parse-double s)."
    if type(value) is list:
        return "To use the items of a vector as arguments write (apply f xs) or (reduce f xs)."
    return ""


def integer(op: str, value: Any) -> int:
    """Return the value, which must be an integer."""
    if type(value) is int:
        return value
    raise wrong(op, "an integer", value, hint="Write (quot a b) or (int x)." if type(value) is float else "")


def whole(op: str, value: Any) -> int:
    """Return the value, a whole number, as an integer: what ``/`` gives is a float and meant as an index too."""
    return int(value) if type(value) is float and value.is_integer() else integer(op, value)


def size(op: str, value: Any) -> int:
    """Return the value, an integer that counts items; negative counts are 0, fractions are cut off."""
    if type(value) is int:
        return max(value, 0)
    if type(value) is float and value == value and abs(value) < 1e18:
        return max(int(value), 0)
    raise wrong(op, "a number of items", value, hint=f"The count comes before the collection: ({op} 3 xs).")


def string(op: str, value: Any) -> str:
    """Return the value, which must be a string."""
    if type(value) is str:
        return value
    raise wrong(op, "a string", value, hint="" if value is None else "Make a string with (str x).")


def mapping(op: str, value: Any) -> dict[Any, Any]:
    """Return the value, which must be a map; nil counts as an empty one."""
    if type(value) is dict:
        return value
    if value is None:
        return {}
    raise wrong(op, "a map", value)


def vector(op: str, value: Any) -> list[Any]:
    """Return the value, which must be a vector; nil counts as an empty one."""
    if type(value) is list:
        return value
    if value is None:
        return []
    raise wrong(op, "a vector", value)


def collection_set(op: str, value: Any, budget: Budget) -> LispSet:
    """Return the value as a set: a set itself, or the distinct items of a vector; nil counts as the empty set."""
    if type(value) is LispSet:
        return value
    if type(value) is list or value is None:
        return LispSet.of(value or (), budget)
    raise wrong(op, "a set", value, hint="Make a set with (set xs).")


def items(op: str, value: Any, budget: Budget) -> list[Any]:
    """Return the items of anything that can be gone through in order, as a list nobody may change.

    A map gives its ``[key value]`` pairs sorted by key, a set its members in order, a string its characters, nil
    nothing.
    """
    if type(value) is list:
        return value
    if value is None:
        return []
    kind = type(value)
    if kind is dict:
        budget.cells(3 * len(value))
        return pairs(value)
    if kind is LispSet:
        budget.cells(len(value))
        return members(value)
    if kind is str:
        budget.cells(len(value))
        return graphemes(value)
    if kind is Endless:
        raise no_end(op)
    raise wrong(op, "a collection", value, hint=_collection_hint(value))


def _collection_hint(value: Any) -> str:
    if callable(value) or type(value) is Keyword:
        return "The function comes first and the collection last."
    return ""


def function_named(function: Any) -> Callable[..., Any]:
    """Return the function behind one that is bound to a run's budget."""
    named: Callable[..., Any] = getattr(function, "func", function)
    return named
