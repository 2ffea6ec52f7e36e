"""What generated code calls: the functions behind the special forms.

Every function takes the run first, except the few that generated code calls so often that they take only what they
need (``field``, ``equal``).
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from pyagentd.lisp.builtins import BUILTINS
from pyagentd.lisp.builtins.table import items
from pyagentd.lisp.errors import MISSING, LispError
from pyagentd.lisp.limits import Budget
from pyagentd.lisp.run import (
    Run,
    attempt,
    call_tool,
    ctx_value,
    leave_fail,
    leave_return,
    memory_get,
    memory_put,
    memory_value,
    throw,
)
from pyagentd.lisp.values import (
    Keyword,
    LispSet,
    Value,
    a_type,
    as_function,
    as_key,
    equal,
    find,
    keyword_lookup,
    lookup,
    truthy,
    wrong_arity,
)

# What ``where`` tests: the field of a map along a path, compared with a value, safe for nil.
#
# Keywords and strings of one name are equal here (booleans never are anything but themselves); ordering with nil is
# false, everything else about ordering is what ``<`` and its kin say.

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

__all__ = [
    "attempt",
    "call_tool",
    "ctx_value",
    "equal",
    "field",
    "leave_fail",
    "leave_return",
    "memory_get",
    "memory_put",
    "memory_value",
    "throw",
]

Reduced: Final = type(BUILTINS["reduced"].function(None))

STOP: Final = object()
"""What the body of a loop over a collection returns to end it."""

field = keyword_lookup


class Again(tuple[Any, ...]):
    """The values of the next turn of a loop whose turns are calls."""

    __slots__ = ()


def callee(run: Run, function: Value, count: int) -> Callable[..., Value]:
    """Return what is called, checked for the number of arguments; the call is charged."""
    run.budget.tick()
    return as_function(function, count)


def overloads(run: Run, *parts: tuple[int, Callable[..., Value]]) -> Callable[..., Value]:
    """Return a function of several bodies; a count of ``~n`` is at least ``n`` arguments."""
    exact = {count: part for count, part in parts if count >= 0}
    rest = [(~count, part) for count, part in parts if count < 0]
    least = min([*exact, *(count for count, _ in rest)])
    most = None if rest else max(exact)

    def overloaded(*args: Value) -> Value:
        count = len(args)
        part = exact.get(count)
        if part is None and rest and count >= rest[0][0]:
            part = rest[0][1]
        if part is None:
            raise wrong_arity(parts[0][1].__name__.partition("·")[0] or "fn", least, most, count)
        return part(*args)

    overloaded.arity = (least, most)  # type: ignore[attr-defined]
    overloaded.__name__ = parts[0][1].__name__
    return overloaded


def rest_list(run: Run, rest: tuple[Value, ...]) -> Value:
    """Return what a function's rest parameter is: nil when nothing is left."""
    run.budget.cells(len(rest))
    return list(rest) or None


def turns(run: Run, body: Callable[..., Value], *values: Value) -> Value:
    """Call the body of a loop for every turn."""
    tick = run.budget.tick
    result = body(*values)
    while type(result) is Again:
        tick()
        result = body(*result)
    return result


def again(run: Run, *values: Value) -> Again:
    """Return the values of a loop's next turn."""
    return Again(values)


def for_each(run: Run, value: Value, body: Callable[[Value], Value]) -> None:
    """Call ``body`` for every item until it says stop."""
    for item in run.budget.each(items("for", value, run.budget)):
        if body(item) is STOP:
            return


def over(run: Run, name: str, value: Value) -> Iterable[Value]:
    """Return the items a builtin goes through, charged as it charges them.

    Raises:
        LispError: ``eval_error`` when the value is no collection.
    """
    budget = run.budget
    found = value if type(value) is list else items("for" if name == "each" else name, value, budget)
    if name != "reduce" and name != "each":
        budget.cells(len(found))
    return budget.each(found)


def times(run: Run, count: Value, body: Callable[[Value], Value]) -> None:
    """Call ``body`` with 0, 1, … below ``count``."""
    if type(count) is not int:
        raise LispError("eval_error", f"dotimes expects an integer, got {a_type(count)}")
    for index in run.budget.each(range(count)):
        body(index)


def stop(run: Run) -> Any:
    """Return what ends a ``for``."""
    return STOP


def new_vector(run: Run) -> list[Value]:
    """Return the vector that a ``for`` fills."""
    return []


def collect(run: Run, out: list[Value], value: Value) -> None:
    """Add an item to the vector of a ``for``."""
    run.budget.cells(1)
    out.append(value)


def make_map(run: Run, *given: Value) -> dict[Any, Value]:
    """Return the map of alternating keys and values."""
    budget = run.budget
    budget.cells(len(given))
    return {as_key(key, budget): value for key, value in zip(given[::2], given[1::2], strict=True)}


def make_set(run: Run, *given: Value) -> LispSet:
    """Return the set of its members."""
    run.budget.cells(len(given))
    return LispSet.of(given, run.budget)


def take_apart(run: Run, value: Value, count: int, open_end: bool) -> list[Value]:
    """Return the items that a vector pattern takes; without ``&`` there must be enough of them.

    Raises:
        LispError: ``eval_error`` when the value is no vector or too short.
    """
    if type(value) is not list:
        if open_end or value is None:
            value = items("destructuring", value, run.budget)
        else:
            raise LispError("eval_error", f"a vector pattern needs a vector, got {a_type(value)}")
    if len(value) < count and not open_end:
        raise LispError(
            "eval_error",
            f"a pattern of {count} names needs a vector with as many items, got {len(value)}",
            hint="Write [a b & rest] when there may be fewer.",
        )
    return value  # type: ignore[no-any-return]


def item(run: Run, vector: list[Value], index: int) -> Value:
    """Return an item of a vector, nil beyond its end."""
    return vector[index] if index < len(vector) else None


def rest_of(run: Run, vector: list[Value], count: int) -> Value:
    """Return the items from ``count`` on; nil when there are none."""
    run.budget.cells(max(0, len(vector) - count) >> 3)
    run.budget.steps(len(vector) >> 4)
    return vector[count:] or None


def as_map(run: Run, value: Value) -> dict[Any, Value]:
    """Return what a map pattern looks into: nil is an empty map.

    Raises:
        LispError: ``eval_error`` for anything that has no keys.
    """
    if value is None:
        return {}
    if type(value) is dict:
        return value
    raise LispError("eval_error", f"a map pattern needs a map, got {a_type(value)}")


def where_order(run: Run, operator: str, found: Value, wanted: Value) -> bool:
    """Return what ``where`` says of two values in order: false when one is nil."""
    return found is not None and wanted is not None and bool(BUILTINS[operator].function(found, wanted))


def found(run: Run, value: Value, key: Value) -> Value:
    """Return what a map pattern finds under a key that is no keyword."""
    return lookup(value, key, None, run.budget)


def found_or_missing(run: Run, value: Value, key: Value) -> Value:
    """Return what a map pattern finds under a key, or the mark of nothing."""
    return lookup(value, key, MISSING, run.budget)


def is_missing(run: Run, value: Value) -> bool:
    """Return whether nothing was found."""
    return value is MISSING


def no_clause(run: Run) -> Value:
    """Raise the error of a ``case`` without a clause for its value."""
    raise LispError("eval_error", "no clause fits the value", hint="Add a default as the last form of case or condp.")


def where_true(run: Run, path: tuple[Any, ...]) -> Callable[[Value], bool]:
    """Return the predicate of ``(where :field)``."""
    return is_true(getter(path))


def where(run: Run, path: tuple[Any, ...], operator: str, wanted: Value) -> Callable[[Value], bool]:
    """Return the predicate of ``(where :field operator value)``."""
    return WHERE[operator](getter(path), wanted, run.budget)
