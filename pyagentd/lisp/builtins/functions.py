"""Functions about functions.

Every call of an inner function costs a step: composing is cheap, and the calls of what was composed are not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pyagentd.lisp.access import as_function
from pyagentd.lisp.builtins.arguments import items, refuse, wrong
from pyagentd.lisp.builtins.predicates import is_callable
from pyagentd.lisp.builtins.stages import Stage, in_turn
from pyagentd.lisp.builtins.table import Family
from pyagentd.lisp.limits import Budget
from pyagentd.lisp.missing import MISSING
from pyagentd.lisp.values import as_key

FAMILY: Final = Family("Functions")
define = FAMILY.define

Made = Callable[..., Any]
"""A function a builtin has made."""


@define("identity")
def identity(x: Any) -> Any:
    """Return the argument itself.

    (identity 42) => 42
    """
    return x


def _callee(op: str, f: Any) -> Callable[[int], Made]:
    """Return the function that gives f as a Python function for a number of arguments, checked once for each."""
    if not is_callable(f):
        raise wrong(op, "a function", f)
    known: dict[int, Made] = {}

    def of(count: int) -> Made:
        found = known.get(count)
        if found is None:
            found = known[count] = as_function(f, count, op)
        return found

    return of


@define("doall")
def doall(coll: Any) -> Any:
    """Return the collection itself: there are no lazy ones.

    (doall (map inc [1 2])) => [2 3]
    """
    return coll


@define("run!", charges=True)
def run(budget: Budget, f: Any, coll: Any) -> None:
    """Call f with each item for what it does, such as calling a tool; nil.

    (run! inc [1 2]) => nil
    """
    function = as_function(f, 1, "run!")
    for item in budget.each(items("run!", coll, budget)):
        function(item)


@define("constantly")
def constantly(x: Any) -> Made:
    """Return a function that gives x whatever it is called with.

    (map (constantly 0) [1 2]) => [0 0]
    """
    return lambda *args: x


@define("apply", charges=True, shown="f args… coll")
def apply_(budget: Budget, f: Any, *args_and_coll: Any) -> Any:
    """Call f with the items of a collection as arguments; further arguments may stand before the collection.

    (apply + [1 2 3]) => 6
    (apply max 0 [1 5 3]) => 5
    """
    if not args_and_coll:
        raise refuse("apply", "expects a function and a collection of arguments", "Write (apply f coll).")
    *args, coll = args_and_coll
    found = items("apply", coll, budget)
    budget.cells(len(args) + len(found))
    budget.steps(1 + len(args) + len(found))
    return as_function(f, len(args) + len(found), "apply")(*args, *found)


@define("partial", charges=True)
def partial_(budget: Budget, f: Any, *args: Any) -> Made:
    """Return a function that calls f with these arguments and then its own.

    (map (partial + 10) [1 2]) => [11 12]
    """
    function = _callee("partial", f)
    before = len(args)

    def called(*more: Any) -> Any:
        budget.tick()
        return function(before + len(more))(*args, *more)

    return called


@define("comp", charges=True)
def comp(budget: Budget, *fs: Any) -> Made:
    """Return a function that calls the last function, the one before it with the result, and so on.

    ((comp inc count) [1 2]) => 3
    (map (comp :name :user) [{:user {:name "Ada"}}]) => ["Ada"]
    """
    if not fs:
        return identity
    if stages := [each for each in fs if type(each) is Stage]:
        if len(stages) < len(fs):
            # What is no stage takes a collection as a whole, as cat does.
            stages = [each if type(each) is Stage else Stage(as_function(each, 1, "comp")) for each in fs]
        return in_turn(stages)
    *others, innermost = fs
    outer = [as_function(each, 1, "comp") for each in reversed(others)]
    inner = _callee("comp", innermost)

    def called(*args: Any) -> Any:
        budget.tick()
        value = inner(len(args))(*args)
        for function in outer:
            budget.tick()
            value = function(value)
        return value

    return called


@define("complement", charges=True)
def complement(budget: Budget, f: Any) -> Made:
    """Return a function that gives true where f gives nil or false, and false where not.

    (filter (complement even?) [1 2 3]) => [1 3]
    """
    function = _callee("complement", f)

    def called(*args: Any) -> bool:
        budget.tick()
        answer = function(len(args))(*args)
        return answer is None or answer is False

    return called


@define("juxt", charges=True)
def juxt(budget: Budget, f: Any, *fs: Any) -> Made:
    """Return a function that calls all functions and gives a vector of the results.

    ((juxt first count) [7 8]) => [7 2]
    (map (juxt :a :b) [{:a 1 :b 2}]) => [[1 2]]
    """
    functions = [_callee("juxt", each) for each in (f, *fs)]

    def called(*args: Any) -> list[Any]:
        budget.steps(1 + len(functions))
        budget.cells(len(functions))
        return [function(len(args))(*args) for function in functions]

    return called


@define("fnil", charges=True)
def fnil(budget: Budget, f: Any, default: Any, second: Any = MISSING, third: Any = MISSING) -> Made:
    """Return a function that calls f with a default in place of a first argument that is nil.

    (update {} :n (fnil inc 0)) => {:n 1}
    """
    defaults = [each for each in (default, second, third) if each is not MISSING]
    function = _callee("fnil", f)
    if second is MISSING:

        def filled(first: Any, *args: Any) -> Any:
            return function(1 + len(args))(default if first is None else first, *args)

        filled.fills = f, default  # type: ignore[attr-defined]  # seen by what changes values in place
        return filled

    def called(*args: Any) -> Any:
        budget.tick()
        given = [instead if arg is None else arg for arg, instead in zip(args, defaults, strict=False)]
        return function(len(args))(*given, *args[len(given) :])

    return called


@define("every-pred", "all-of", charges=True)
def every_pred(budget: Budget, *preds: Any) -> Made:
    """Return a function that tells whether all predicates hold for its arguments.

    (filter (every-pred pos? even?) [-2 1 2]) => [2]
    (filter (all-of (where :a = 1) (where :b > 1)) [{:a 1 :b 2} {:a 1 :b 0}]) => [{:a 1 :b 2}]
    """
    functions = [as_function(each, 1, "every-pred") for each in preds]

    def called(*args: Any) -> bool:
        budget.steps(1 + len(functions) * len(args))
        for function in functions:
            for arg in args:
                answer = function(arg)
                if answer is None or answer is False:
                    return False
        return True

    return called


@define("some-fn", charges=True)
def some_fn(budget: Budget, *preds: Any) -> Made:
    """Return a function that gives the first answer of the predicates that is neither nil nor false, else nil.

    ((some-fn :nick :name) {:name "Ada"}) => "Ada"
    """
    functions = [as_function(each, 1, "some-fn") for each in preds]

    def called(*args: Any) -> Any:
        budget.steps(1 + len(functions) * len(args))
        for arg in args:
            for function in functions:
                answer = function(arg)
                if answer is not None and answer is not False:
                    return answer
        return None

    return called


@define("any-of", charges=True)
def any_of(budget: Budget, *preds: Any) -> Made:
    """Return a function that tells whether some predicate holds for its argument.

    (filter (any-of (where :a = 1) (where :b = 1)) [{:a 1} {:b 1} {:c 1}]) => [{:a 1} {:b 1}]
    """
    answer_of = some_fn(budget, *preds)
    return lambda *args: answer_of(*args) is not None


@define("none-of", charges=True)
def none_of(budget: Budget, *preds: Any) -> Made:
    """Return a function that tells whether no predicate holds for its argument.

    (filter (none-of (where :a = 1)) [{:a 1} {:a 2}]) => [{:a 2}]
    """
    answer_of = some_fn(budget, *preds)
    return lambda *args: answer_of(*args) is None


@define("memoize", charges=True)
def memoize(budget: Budget, f: Any) -> Made:
    """Return a function that remembers what f gave for the same arguments.

    (map (memoize inc) [1 1 2]) => [2 2 3]
    """
    function = _callee("memoize", f)
    remembered: dict[Any, Any] = {}

    def called(*args: Any) -> Any:
        budget.steps(1 + len(args))
        key = as_key(list(args), budget)
        if key not in remembered:
            budget.cells(1)
            remembered[key] = function(len(args))(*args)
        return remembered[key]

    return called
