"""Comparison, predicates, functions of functions, and errors.

Every call of an inner function costs a step: composing functions is cheap, calling the composition is charged.
"""

import operator
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

from pyagentd.lisp.builtins.collections import Stage, run_stages
from pyagentd.lisp.builtins.table import (
    NUMBERS,
    Family,
    check_numbers,
    integer,
    items,
    mapping,
    number,
    refuse,
    string,
    wrong,
)
from pyagentd.lisp.errors import MISSING
from pyagentd.lisp.limits import Budget
from pyagentd.lisp.parallel import Future
from pyagentd.lisp.values import Keyword, LispSet, as_function, compare, equal, find, type_name

# Equality and order: ``= not= < > <= >= compare`` and ``not``.
#
# Equality is deep and does not distinguish 1 from 1.0. Order is for numbers; ``compare`` and ``sort`` also order
# strings, keywords, booleans and vectors among themselves, with nil before everything.

comparing_define: Final = Family("Comparison and logic")


@comparing_define("=", "==", charges=True)
def equals(budget: Budget, first: Any, *others: Any) -> bool:
    """Whether all are equal; collections are compared by content, and 1 equals 1.0.

    (= 1 1.0) => true
    (= [1 {:a 2}] [1 {:a 2}]) => true
    (= 1 "1") => false
    """
    return all(equal(first, each, budget) for each in others)


@comparing_define("not=", charges=True)
def differs(budget: Budget, first: Any, *others: Any) -> bool:
    """Whether not all are equal.

    (not= 1 2) => true
    """
    return not equals(budget, first, *others)


_TEXTS: Final = "Order text, dates too, with compare: (neg? (compare a b)); the last one is (last (sort xs))."


def _order(op: str, holds: Callable[[Any, Any], bool], doc: str) -> Callable[..., bool]:
    """Declare a comparison of neighbouring numbers."""

    def is_ordered(first: Any, *numbers: Any) -> bool:
        every = (first, *numbers)
        if set(map(type, every)) == {str}:
            raise wrong(op, "numbers", first, hint=_TEXTS)
        check_numbers(op, every)
        return all(map(holds, every, numbers))

    is_ordered.__doc__ = doc
    return comparing_define(op)(is_ordered)


less = _order("<", operator.lt, "Whether each number is less than the next.\n(< 1 2 3) => true")
greater = _order(">", operator.gt, "Whether each number is greater than the next.\n(> 3 2 1) => true")
at_most = _order("<=", operator.le, "Whether no number is greater than the next.\n(<= 1 1 2) => true")
at_least = _order(">=", operator.ge, "Whether no number is less than the next.\n(>= 3 3 1) => true")


@comparing_define("compare", charges=True)
def compare_(budget: Budget, a: Any, b: Any) -> int:
    """Return -1, 0 or 1 if a is less than, equal to or greater than b; nil comes first, different types are an error.

    (compare 1 2) => -1
    (compare "b" "a") => 1
    (compare nil 0) => -1
    """
    return compare(a, b, budget)


@comparing_define("not")
def not_(x: Any) -> bool:
    """Whether x is nil or false.

    (not nil) => true
    (not 0) => false
    """
    return x is None or x is False


# Predicates: the type of a value, its sign, whether it is nil.

predicates_define: Final = Family("Predicates")

_CALLABLE: Final = frozenset({Keyword, dict, LispSet})
_COLLECTIONS: Final = frozenset({list, dict, LispSet})


def is_function(x: Any) -> bool:
    """Return whether x is a function."""
    return type_name(x) == "function" and callable(x)


def is_callable(x: Any) -> bool:
    """Return whether x can be called."""
    return type(x) in _CALLABLE or is_function(x)


_PREDICATES: Final[Sequence[tuple[str, Callable[[Any], bool], str]]] = (
    ("nil?", lambda x: x is None, "Whether x is nil.\n(nil? nil) => true"),
    ("some?", lambda x: x is not None, "Whether x is not nil.\n(some? false) => true"),
    ("true?", lambda x: x is True, "Whether x is the boolean true.\n(true? 1) => false"),
    ("false?", lambda x: x is False, "Whether x is the boolean false.\n(false? nil) => false"),
    ("boolean?", lambda x: type(x) is bool, "Whether x is true or false.\n(boolean? false) => true"),
    ("number?", lambda x: type(x) in NUMBERS, "Whether x is a number.\n(number? 1.5) => true"),
    ("int? integer?", lambda x: type(x) is int, "Whether x is an integer.\n(int? 1) => true\n(int? 1.0) => false"),
    ("float? double?", lambda x: type(x) is float, "Whether x is a float.\n(float? 1.0) => true"),
    ("string?", lambda x: type(x) is str, 'Whether x is a string.\n(string? "a") => true'),
    ("keyword?", lambda x: type(x) is Keyword, "Whether x is a keyword.\n(keyword? :a) => true"),
    ("vector? list? sequential? seq?", lambda x: type(x) is list, "Whether x is a vector.\n(vector? [1]) => true"),
    ("map?", lambda x: type(x) is dict, "Whether x is a map.\n(map? {:a 1}) => true"),
    ("set?", lambda x: type(x) is LispSet, "Whether x is a set.\n(set? #{1}) => true"),
    (
        "coll? seqable?",
        lambda x: type(x) in _COLLECTIONS,
        'Whether x is a vector, map or set.\n(coll? {}) => true\n(coll? "a") => false',
    ),
    ("fn?", is_function, "Whether x is a function.\n(fn? inc) => true\n(fn? :a) => false"),
    ("ifn?", is_callable, "Whether x can be called: true for functions, keywords, maps and sets.\n(ifn? :a) => true"),
    (
        "zero?",
        lambda x: type(x) in NUMBERS and x == 0,
        "Whether x is the number 0.\n(zero? 0.0) => true\n(zero? nil) => false",
    ),
    ("pos?", lambda x: bool(number("pos?", x) > 0), "Whether a number is greater than 0.\n(pos? 1) => true"),
    ("neg?", lambda x: bool(number("neg?", x) < 0), "Whether a number is less than 0.\n(neg? -1) => true"),
    ("even?", lambda n: integer("even?", n) & 1 == 0, "Whether an integer is even.\n(even? 4) => true"),
    ("odd?", lambda n: integer("odd?", n) & 1 == 1, "Whether an integer is odd.\n(odd? 3) => true"),
    ("pos-int?", lambda x: type(x) is int and x > 0, "Whether x is an integer greater than 0.\n(pos-int? 1) => true"),
    ("neg-int?", lambda x: type(x) is int and x < 0, "Whether x is an integer less than 0.\n(neg-int? -1) => true"),
    (
        "nat-int?",
        lambda x: type(x) is int and x >= 0,
        "Whether x is an integer that is not negative.\n(nat-int? 0) => true",
    ),
    (
        "boolean",
        lambda x: x is not None and x is not False,
        "Return false for nil and false, true for everything else.\n(boolean 0) => true",
    ),
)
"""Names, test, and documentation with an example."""

for _names, _holds, _doc in _PREDICATES:
    _holds.__doc__ = _doc
    predicates_define(*_names.split())(_holds)


@predicates_define("type")
def type_(x: Any) -> Keyword:
    """Return the type of x as a keyword.

    (type [1]) => :vector
    (type nil) => :nil
    """
    return Keyword(type_name(x).replace(" ", "-"))


define: Final = Family("Functions")

Made = Callable[..., Any]
"""A function created by a builtin."""


@define("identity")
def identity(x: Any) -> Any:
    """Return the argument itself.

    (identity 42) => 42
    """
    return x


def _callee(op: str, f: Any) -> Callable[[int], Made]:
    """Return a function from a number of arguments to f as a Python callable, checked once for each number."""
    if not is_callable(f):
        raise wrong(op, "a function", f)
    return cache(lambda count: as_function(f, count, op))


@define("doall")
def doall(coll: Any) -> Any:
    """Return the collection, since nothing is lazy.

    (doall (map inc [1 2])) => [2 3]
    """
    return coll


@define("run!", charges=True)
def run(budget: Budget, f: Any, coll: Any) -> None:
    """Call f with each item for its side effects, such as tool calls; return nil.

    (run! inc [1 2]) => nil
    """
    function = as_function(f, 1, "run!")
    for item in budget.each(items("run!", coll, budget)):
        function(item)


@define("constantly")
def constantly(x: Any) -> Made:
    """Return a function that returns x for any arguments.

    (map (constantly 0) [1 2]) => [0 0]
    """
    return lambda *args: x


@define("apply", charges=True, shown="f args… coll")
def apply_(budget: Budget, f: Any, *args_and_coll: Any) -> Any:
    """Call f with the items of a collection as arguments; other arguments can be given before the collection.

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


@define("deref")
def deref(future: Any) -> Any:
    """Wait for a future and return its value, as @future does.

    (deref (future (+ 1 1))) => 2
    (map deref [(future 1) (future 2)]) => [1 2]
    """
    if type(future) is not Future:
        raise wrong(
            "deref", "a future", future, hint="There are no atoms: use let, reduce or (memory/put :key value)."
        )
    return future.result()


@define("partial", charges=True)
def partial_(budget: Budget, f: Any, *args: Any) -> Made:
    """Return a function that calls f with these arguments followed by its own.

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
    """Return a function that calls the last function, then the one before it with the result, and so on.

    ((comp inc count) [1 2]) => 3
    (map (comp :name :user) [{:user {:name "Ada"}}]) => ["Ada"]
    """
    if not fs:
        return identity
    if stages := [each for each in fs if type(each) is Stage]:
        if len(stages) < len(fs):
            # A function that is not a stage, such as cat, is called with the whole collection.
            stages = [each if type(each) is Stage else Stage(as_function(each, 1, "comp")) for each in fs]
        return Stage(run_stages, stages)
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
    """Return a function that returns true if f returns nil or false, and false otherwise.

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
    """Return a function that returns a vector of the results of all functions.

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
    """Return a function that calls f with a default for a nil first argument.

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
    """Return a function that tests whether all predicates are true for its arguments.

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
    """Return a function that returns the first true result of the predicates, or nil.

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
    """Return a function that tests whether some predicate is true for its argument.

    (filter (any-of (where :a = 1) (where :b = 1)) [{:a 1} {:b 1} {:c 1}]) => [{:a 1} {:b 1}]
    """
    answer_of = some_fn(budget, *preds)
    return lambda *args: answer_of(*args) is not None


@define("none-of", charges=True)
def none_of(budget: Budget, *preds: Any) -> Made:
    """Return a function that tests whether no predicate is true for its argument.

    (filter (none-of (where :a = 1)) [{:a 1} {:a 2}]) => [{:a 2}]
    """
    answer_of = some_fn(budget, *preds)
    return lambda *args: answer_of(*args) is None


# Errors as values: the arguments of ``throw`` and the errors that ``catch`` binds.

errors_define: Final = Family("Errors")

_MESSAGE: Final = Keyword("message")
_DATA: Final = Keyword("data")


@errors_define("ex-info")
def ex_info(message: Any, data: Any = MISSING) -> dict[Any, Any]:
    """Return an error for ``throw``: a map of its message and optional data.

    (ex-info "no such user" {:id 7}) => {:message "no such user" :data {:id 7}}
    """
    made = {_MESSAGE: string("ex-info", message)}
    return made if data is MISSING else {**made, _DATA: mapping("ex-info", data)}


@errors_define("ex-message")
def ex_message(error: Any) -> Any:
    """Return the message of an error.

    (try (throw "too late") (catch e (ex-message e))) => "too late"
    """
    return find(mapping("ex-message", error), _MESSAGE, None)


@errors_define("ex-data")
def ex_data(error: Any) -> Any:
    """Return the data of an error, or nil.

    (ex-data (ex-info "late" {:by 3})) => {:by 3}
    """
    return find(mapping("ex-data", error), _DATA, None)
