"""The runtime: the ``Run``, and the functions that compiled code calls.

A ``Run`` holds what one run reads and changes: ``ctx/``, ``memory/``, the tools and the budget.
The compiler turns each special form into Python that calls the functions here; they take the run first, except
``field`` and ``equal``, which are called so often that they take only what they need.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from pyagentd.errors import PyagentdError, ToolError
from pyagentd.lisp.builtins import BUILTINS
from pyagentd.lisp.builtins.collections import Stage
from pyagentd.lisp.builtins.table import items
from pyagentd.lisp.errors import MISSING, Fail, LispError, Return
from pyagentd.lisp.limits import Budget
from pyagentd.lisp.parallel import Threads
from pyagentd.lisp.serialization import check_extent, size
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

__all__ = ["Isolation", "Result", "Run", "Tools", "Usage", "equal", "field", "memory_full"]

Tools = Callable[[str, dict[Any, Value]], Value]
"""Called with a tool's name and a map of arguments; returns the result or raises ``ToolError`` or ``LispError``."""

Isolation = Literal["none", "process"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The usage of a run, in the units of ``Limits``; ``duration_ms`` is wall time."""

    steps: int = 0
    cells: int = 0
    bytes: int = 0
    duration_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a run.

    Args:
        value: The value of the last form, or the argument of ``return`` or ``fail``.
        memory: The memory after the run, by name.
        put: Whether the run changed the memory.
        signal: "return" or "fail" if the program called it, else None.
        usage: The usage of the run.
    """

    value: Value
    memory: dict[str, Value]
    put: bool = False
    signal: Literal["return", "fail"] | None = None
    usage: Usage = Usage()


class Run:
    """The state of one run of a program."""

    __slots__ = ("budget", "context", "memory", "put", "started", "threads", "tools")

    def __init__(
        self, context: Mapping[Any, Value], memory: Mapping[Any, Value], tools: Tools | None, budget: Budget
    ) -> None:
        self.context = context
        self.put = False
        # The caller's keys can be keywords; they become strings.
        self.memory = {key.name if type(key) is Keyword else key: value for key, value in memory.items()}
        self.tools = tools
        self.budget = budget
        self.started = 0  # tool calls, those still running too
        self.threads = Threads(budget)


def ctx_value(run: Run, name: str) -> Value:
    """Return ``ctx/name``, or nil."""
    return _entry(run.context, name)


def _entry(space: Mapping[Any, Value], name: str, default: Value = None) -> Value:
    found = space.get(name, MISSING)
    return space.get(Keyword(name), default) if found is MISSING else found


def memory_get(run: Run, key: Value, default: Value = None) -> Value:
    """Return the value of the memory under a key, or the default."""
    return _entry(run.memory, _memory_key(key), default)


def memory_put(run: Run, key: Value, value: Value) -> Value:
    """Put a value into the memory and return it.

    Raises:
        LispError: ``memory_exceeded`` if the value alone exceeds the limit of the memory.
    """
    name = _memory_key(key)
    if run.threads.is_inside:
        raise LispError(
            "eval_error",
            "memory/put inside a parallel call: which one comes last would depend on time",
            hint="Return the value from the call, and put it into the memory after pmap or deref.",
        )
    limit = run.budget.limits.memory_bytes
    if size(value, run.budget, limit) > limit:
        raise memory_full(limit)
    run.memory[name] = value
    run.put = True
    return value


def memory_full(limit: int) -> LispError:
    """Return the error for a memory that is too large."""
    return LispError(
        "memory_exceeded",
        f"the memory would be larger than {limit} bytes",
        hint="Store aggregates or ids instead of whole data; what is in ctx/ need not be stored.",
    )


def _memory_key(key: Value) -> str:
    if type(key) is Keyword:
        return key.name
    if type(key) is str:
        return key
    raise LispError(
        "eval_error", f"a key of the memory is a keyword, got {a_type(key)}", hint="Write (memory/put :key value)."
    )


def call_tool(run: Run, name: Value, args: Value) -> Value:
    """Call a tool with a map of arguments.

    Raises:
        LispError: ``tool_not_found``, ``validation_error``, ``tool_error``.
    """
    if type(name) is not str:
        raise LispError("eval_error", f"the name of a tool is a string, got {a_type(name)}")
    if name == "return":
        raise Return(args)
    if name == "fail":
        raise Fail(args)
    if args is None:
        args = {}
    if type(args) is not dict:
        raise LispError(
            "validation_error",
            f"the tool {name} takes a map of arguments, got {a_type(args)}",
            hint=f'Write (call "{name}" {{:arg value}}).',
        )
    budget = run.budget
    limit = budget.limits.tool_calls
    if limit is not None and run.started >= limit:
        raise LispError("tool_error", f"the program calls tools more than {limit} times", hint="Call fewer tools.")
    if run.tools is None:
        raise LispError("tool_not_found", f"unknown tool: {name}", hint="There are no tools here.")
    check_extent(args, budget.limits)
    budget.look()
    run.started += 1
    try:
        with run.threads.wait_for_tool():
            result = run.tools(name, args)
    except (ToolError, RecursionError) as error:
        message = error.message if isinstance(error, PyagentdError) else "it is nested too deeply"
        raise LispError("tool_error", f"the tool {name} failed: {message}") from error
    items, characters = check_extent(result, budget.limits)
    budget.cells(items)  # results of tools use memory like values of the program
    budget.bytes(characters)
    budget.look()
    return result


def pmap(run: Run, function: Value, *colls: Value) -> list[Value]:
    """Call a function with each item, or the items of several collections, in parallel; the results in order."""
    budget = run.budget
    called = as_function(function, len(colls), "pmap")
    rows = list(zip(*(items("pmap", each, budget) for each in colls), strict=False))
    budget.cells((1 + len(colls)) * len(rows))
    budget.steps(len(rows))
    return run.threads.run_all([partial(called, *row) for row in rows])


def pcalls(run: Run, *functions: Value) -> list[Value]:
    """Call functions without arguments in parallel; the results in order."""
    run.budget.cells(len(functions))
    return run.threads.run_all([as_function(each, 0, "pcalls") for each in functions])


_FUTURE: Final = 128  # slots of a vector that take as much memory as a future


def future(run: Run, function: Value) -> Value:
    """Start a call in parallel to the program."""
    run.budget.cells(_FUTURE)
    run.budget.tick()
    return run.threads.future(as_function(function, 0, "future"))


def throw(run: Run, value: Value) -> Value:
    """Raise an error that ``catch`` can handle."""
    message, data = value, None
    if type(value) is dict:
        message, data = find(value, Keyword("message"), "error"), find(value, Keyword("data"), None)
    raise LispError("eval_error", BUILTINS["str"].function(run.budget, message), data=data)


def value_error(error: Exception) -> LispError:
    """Return the error of a program for an exception of Python that a value has caused."""
    if isinstance(error, ZeroDivisionError):
        return LispError("eval_error", "division by zero", hint="Test the divisor with zero? first.")
    if isinstance(error, ArithmeticError):
        return LispError("eval_error", "a number is too large for this operation")
    return LispError("eval_error", "a function cannot use a value that it was given")


_CAUGHT: Final = frozenset({"eval_error", "tool_error", "tool_not_found", "validation_error"})


def attempt(
    run: Run,
    body: Callable[[], Value],
    handler: Callable[[Value], Value] | None,
    final: Callable[[], Value] | None,
) -> Value:
    """Run ``body``; call ``handler`` with an error as a map; run ``final`` in any case.

    Errors that end the whole run (time, memory) are not caught.
    """
    try:
        if handler is None:
            return body()
        try:
            return body()
        except LispError as error:
            if error.reason not in _CAUGHT:
                raise
            return handler(_error_map(error.message, error.reason, error.data))
        except (ArithmeticError, TypeError, ValueError) as error:
            return handler(_error_map(value_error(error).message, "eval_error", None))
    finally:
        if final is not None:
            final()


def _error_map(message: str, reason: str, data: Value) -> dict[Any, Value]:
    """Return the map for an error that ``catch`` binds."""
    return {Keyword("message"): message, Keyword("reason"): Keyword(reason), Keyword("data"): data}


# The predicates of ``where``: compare a field of a map, by key or path, with a value.
#
# A keyword equals the string of its name here. Order comparisons with nil are false; otherwise they are those of
# ``<``, ``<=``, ``>`` and ``>=``.


def _field_of(value: Value, path: tuple[Any, ...]) -> Value:
    """Return the field at a path of a map, or nil."""
    for step in path:
        kind = type(value)
        if kind is dict:
            value = find(value, step, None)
        elif value is None:
            return None
        elif kind is list and type(step) is int:
            value = value[step] if 0 <= step < len(value) else None
        else:
            shown = f":{step.name}" if type(step) is Keyword else f'"{step}"'
            raise LispError("eval_error", f"where expects maps: cannot look up {shown} in {a_type(value)}")
    return value


def _name_of(value: Value) -> Value:
    return value.name if type(value) is Keyword else value


def where(run: Run, path: tuple[Any, ...], operator: str, wanted: Value) -> Callable[[Value], bool]:
    """Return the predicate of ``(where :field operator value)``; without an operator it tests for truth."""
    budget = run.budget
    if not operator:
        return lambda value: truthy(_field_of(value, path))
    if operator in {"<", ">", "<=", ">="}:
        return lambda value: where_order(run, operator, _field_of(value, path), wanted)
    if operator == "in":
        if type(wanted) not in {list, LispSet}:
            raise LispError(
                "eval_error",
                f"where: in expects a vector, got {a_type(wanted)}",
                hint='Write (where :status in ["a" "b"]).',
            )
        choices = list(map(_name_of, wanted))

        def is_one(value: Value) -> bool:
            found = _name_of(_field_of(value, path))
            return found is not None and any(equal(found, each, budget) for each in budget.each(choices))

        return is_one
    wanted = _name_of(wanted)
    if operator == "includes":

        def includes(value: Value) -> bool:
            found = _field_of(value, path)
            if type(found) is str:
                budget.steps(1 + (len(found) >> 6))
                return type(wanted) is str and wanted in found
            if type(found) is list or type(found) is LispSet:
                return any(equal(_name_of(each), wanted, budget) for each in budget.each(list(found)))
            return False

        return includes
    negated = operator == "not="
    return lambda value: equal(_name_of(_field_of(value, path)), wanted, budget) is not negated


def where_order(run: Run, operator: str, found: Value, wanted: Value) -> bool:
    """Return the result of an order comparison of ``where``: false if one value is nil."""
    return found is not None and wanted is not None and bool(BUILTINS[operator].function(found, wanted))


Reduced: Final = type(BUILTINS["reduced"].function(None))

field = keyword_lookup


class NextArguments(tuple[Any, ...]):
    """The values for the next iteration of a loop whose iterations are calls."""

    __slots__ = ()


def stage(run: Run, function: Callable[..., list[Value]], *args: Value) -> Stage:
    """Return the pipeline stage for a call of a builtin without its collection."""
    return Stage(function, run.budget, *args)


def callee(run: Run, function: Value, count: int) -> Callable[..., Value]:
    """Return a value as a Python callable, checked for the number of arguments; charges the call."""
    run.budget.tick()
    return as_function(function, count)


def overloads(run: Run, *parts: tuple[int, Callable[..., Value]]) -> Callable[..., Value]:
    """Return a function with several arities; a count of ``~n`` means at least ``n`` arguments."""
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
    """Return the value of a rest parameter: a vector, or nil without arguments."""
    run.budget.cells(len(rest))
    return list(rest) or None


def run_loop(run: Run, body: Callable[..., Value], *values: Value) -> Value:
    """Call the body of a loop for each iteration."""
    tick = run.budget.tick
    result = body(*values)
    while type(result) is NextArguments:
        tick()
        result = body(*result)
    return result


def for_each(run: Run, value: Value, body: Callable[[Value], Value]) -> None:
    """Call ``body`` for each item until it returns ``MISSING``."""
    for item in run.budget.each(items("for", value, run.budget)):
        if body(item) is MISSING:
            return


def iterate(run: Run, name: str, value: Value, cells: int) -> Iterable[Value]:
    """Return the items for a builtin to iterate over; ``cells`` are the slots that are made for each.

    Raises:
        LispError: ``eval_error`` if the value is not a collection.
    """
    budget = run.budget
    found = value if type(value) is list else items("for" if name == "each" else name, value, budget)
    if cells:
        budget.cells(cells * len(found))
    return budget.each(found)


def times(run: Run, count: Value, body: Callable[[Value], Value]) -> None:
    """Call ``body`` with 0, 1, … below ``count``."""
    if type(count) is not int:
        raise LispError("eval_error", f"dotimes expects an integer, got {a_type(count)}")
    for index in run.budget.each(range(min(count, sys.maxsize))):
        body(index)


def collect(run: Run, out: list[Value], value: Value) -> None:
    """Add an item to the vector of a ``for``."""
    run.budget.cells(1)
    out.append(value)


def make_map(run: Run, *given: Value) -> dict[Any, Value]:
    """Return a map of alternating keys and values."""
    budget = run.budget
    budget.cells(len(given))
    return {as_key(key, budget): value for key, value in zip(given[::2], given[1::2], strict=True)}


def make_set(run: Run, *given: Value) -> LispSet:
    """Return a set of values."""
    run.budget.cells(len(given))
    return LispSet.of(given, run.budget)


def take_apart(run: Run, value: Value, open_end: bool) -> list[Value]:
    """Return the items for a vector pattern; of a map or set only where it has ``&``.

    Raises:
        LispError: ``eval_error`` if the value has no items in order.
    """
    if type(value) is list:
        return value
    if open_end or value is None or type(value) is str:
        return items("destructuring", value, run.budget)
    raise LispError("eval_error", f"a vector pattern needs a vector, got {a_type(value)}")


def item(run: Run, vector: list[Value], index: int) -> Value:
    """Return an item of a vector, or nil after its end."""
    return vector[index] if index < len(vector) else None


def first_items(run: Run, vector: list[Value], count: int) -> list[Value]:
    """Return the first ``count`` items of a vector, nil for each that is missing."""
    found = vector[:count]
    return found if len(found) == count else [*found, *[None] * (count - len(found))]


def rest_of(run: Run, vector: list[Value], count: int) -> Value:
    """Return the items from index ``count``, or nil without any."""
    run.budget.cells(max(0, len(vector) - count) >> 3)
    run.budget.steps(len(vector) >> 4)
    return vector[count:] or None


def as_map(run: Run, value: Value) -> dict[Any, Value]:
    """Return the map for a map pattern; nil is an empty map.

    Raises:
        LispError: ``eval_error`` if the value is not a map.
    """
    if value is None:
        return {}
    if type(value) is dict:
        return value
    raise LispError("eval_error", f"a map pattern needs a map, got {a_type(value)}")


def look_up_or_missing(run: Run, value: Value, key: Value) -> Value:
    """Return the value for a map pattern under a key, or ``MISSING``."""
    return lookup(value, key, MISSING, run.budget)


def is_missing(run: Run, value: Value) -> bool:
    """Return whether a value is ``MISSING``."""
    return value is MISSING


def no_clause(run: Run) -> Value:
    """Raise the error for a ``case`` without a matching clause."""
    raise LispError("eval_error", "no clause fits the value", hint="Add a default as the last form of case or condp.")
