"""The compiler: turns core nodes into a Python syntax tree.

Simple nodes become expressions, others statements that store their value, such as loops and iterations over
collections. Each variable has a unique name, so the scopes of a program become scopes of Python functions.
"""

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from sys import getrefcount
from typing import Any, Final

from pyagentd.lisp import runtime
from pyagentd.lisp.analysis import (
    Apply,
    Arity,
    Builtin,
    Cond,
    Const,
    Define,
    Do,
    Each,
    Fn,
    If,
    Invoke,
    KeywordCall,
    Let,
    Local,
    Logic,
    Loop,
    Make,
    Node,
    Recur,
    RuntimeCall,
    Try,
    Var,
    WhereTest,
    is_integer,
    is_number,
)
from pyagentd.lisp.builtins import BUILTINS
from pyagentd.lisp.builtins.inplace import IN_PLACE, SOLE
from pyagentd.lisp.reader import Places
from pyagentd.lisp.values import Keyword, as_key

# Constructors of Python syntax trees; ``p`` is the position in the program, for errors and tracebacks.

Place = dict[str, int]
LOAD = ast.Load()
STORE = ast.Store()


def python_name(of: str, p: Place) -> ast.expr:
    """Return a variable as an expression."""
    return ast.Name(of, LOAD, **p)


def const(value: Any, p: Place) -> ast.expr:
    """Return a constant."""
    return ast.Constant(value, None, **p)


def call(function: ast.expr, args: list[ast.expr], p: Place) -> ast.Call:
    """Return a call."""
    return ast.Call(function, args, [], **p)


def is_(one: ast.expr, other: Any, p: Place) -> ast.expr:
    """Return ``one is other``, where ``other`` is None, true or false."""
    if isinstance(one, ast.Constant):
        return const(one.value is other, p)  # Python warns about `5 is None`
    return ast.Compare(one, [ast.Is()], [const(other, p)], **p)


def is_not(one: ast.expr, other: Any, p: Place) -> ast.expr:
    """Return ``one is not other``, where ``other`` is None, true or false."""
    if isinstance(one, ast.Constant):
        return const(one.value is not other, p)
    return ast.Compare(one, [ast.IsNot()], [const(other, p)], **p)


def same(one: ast.expr, other: ast.expr, p: Place) -> ast.expr:
    """Return ``one is other``."""
    return ast.Compare(one, [ast.Is()], [other], **p)


def compare(one: ast.expr, operator: ast.cmpop, other: ast.expr, p: Place) -> ast.expr:
    """Return a comparison."""
    return ast.Compare(one, [operator], [other], **p)


def both(tests: list[ast.expr], p: Place) -> ast.expr:
    """Return the conjunction of tests."""
    return ast.BoolOp(ast.And(), tests, **p) if len(tests) > 1 else tests[0]


def either(tests: list[ast.expr], p: Place) -> ast.expr:
    """Return the disjunction of tests."""
    return ast.BoolOp(ast.Or(), tests, **p) if len(tests) > 1 else tests[0]


def choose(test: ast.expr, then: ast.expr, otherwise: ast.expr, p: Place) -> ast.expr:
    """Return ``then if test else otherwise``."""
    return ast.IfExp(test, then, otherwise, **p)


def walrus(target: str, value: ast.expr, p: Place) -> ast.expr:
    """Return ``(target := value)``."""
    return ast.NamedExpr(ast.Name(target, STORE, **p), value, **p)


def assign(target: str, value: ast.expr, p: Place) -> ast.stmt:
    """Return ``target = value``."""
    return ast.Assign([ast.Name(target, STORE, **p)], value, None, **p)


def assign_all(targets: list[str], values: list[ast.expr], p: Place) -> ast.stmt:
    """Return ``a, b = x, y``: all values are computed before any is assigned."""
    if len(targets) == 1:
        return assign(targets[0], values[0], p)
    names: list[ast.expr] = [ast.Name(target, STORE, **p) for target in targets]
    return ast.Assign([ast.Tuple(names, STORE, **p)], ast.Tuple(values, LOAD, **p), None, **p)


def within_small(value: ast.expr, p: Place) -> ast.expr:
    """Return a test that an integer needs no charge."""
    return ast.Compare(const(-SMALL, p), [ast.Lt(), ast.Lt()], [value, const(SMALL, p)], **p)


def if_(test: ast.expr, then: list[ast.stmt], otherwise: list[ast.stmt], p: Place) -> ast.stmt:
    """Return an ``if`` statement."""
    return ast.If(test, then or [ast.Pass(**p)], otherwise, **p)


def arguments(params: list[str], rest: str | None, p: Place) -> ast.arguments:
    """Return positional-only parameters."""
    return ast.arguments(
        posonlyargs=[],
        args=[ast.arg(param, None, None, **p) for param in params],
        vararg=None if rest is None else ast.arg(rest, None, None, **p),
        kwonlyargs=[],
        kw_defaults=[],
        kwarg=None,
        defaults=[],
    )


def function(
    name: str, params: list[str], body: list[ast.stmt], p: Place, rest: str | None = None
) -> ast.FunctionDef:
    """Return a ``def``."""
    return ast.FunctionDef(
        name=name,
        args=arguments(params, rest, p),
        body=body or [ast.Pass(**p)],
        decorator_list=[],
        returns=None,
        type_comment=None,
        **p,
    )


# The basis of the compiler: names, constants, positions, and the functions that generated code calls.

SMALL: Final = 1 << 47  # below it an integer needs no charge
PLAIN: Final = (ast.Name, ast.Constant)
"""Expressions that are cheap and without side effects, so that they can be repeated."""


class Writer:
    """Names and constants of one program's generated code."""

    def __init__(self, places: Places) -> None:
        self.globals: dict[str, Any] = {
            "type": type,
            "int": int,
            "float": float,
            "dict": dict,
            "numbers·": frozenset({int, float}),
            "partial·": partial,
            "equal·": runtime.equal,
            "keys·": frozenset({str, Keyword}),
            "list": list,
            "len": len,
            "getrefcount·": getrefcount,
            "reduced·": runtime.Reduced,
            "field·": runtime.field,
        }
        self.block: list[ast.stmt] = []
        self.chargers: dict[str, int] = {}
        self.fixed: dict[str, ast.expr] = {}  # variables whose value is computed when the program starts
        self.kinds: dict[str, str] = {}  # of variables that can only be of one type
        self.sole: set[str] = set()  # variables with the only reference to their value
        self.charged: set[int] = set()  # ids of nodes whose slots another one charges
        self._places = places
        self._count = 0
        self._pool: dict[Any, str] = {}
        self._place_at: dict[int, Place] = {}

    def place(self, node: Node) -> Place:
        """Return the position of a node."""
        found = self._place_at.get(node.start)
        if found is None:
            line, column = self._places.of(node.start)
            found = {"lineno": line, "col_offset": column - 1, "end_lineno": line, "end_col_offset": column}
            self._place_at[node.start] = found
        return found

    def temporary(self, hint: str = "") -> str:
        """Return a new variable of generated code."""
        self._count += 1
        return f"{hint}·t{self._count}"

    def runtime(self, name: str, p: Place) -> ast.expr:
        """Return a function of ``runtime`` as an expression."""
        known = f"s·{name}"
        self.globals[known] = getattr(runtime, name)
        return python_name(known, p)

    def builtin(self, name: str, p: Place) -> ast.expr:
        """Return the function of a builtin as an expression, with the budget bound if it charges."""
        known = f"b·{name}"
        self.globals[known] = BUILTINS[name].function
        return python_name(known, p)

    def call_builtin(self, name: str, args: list[ast.expr], p: Place) -> ast.expr:
        """Return a call of a builtin."""
        builtin = BUILTINS[name]
        if builtin.stage and len(args) == builtin.least:
            return call(self.runtime("stage", p), [python_name("run", p), self.builtin(name, p), *args], p)
        charges = [python_name("budget", p)] if builtin.charges else []
        return call(self.builtin(name, p), [*charges, *args], p)

    def charger(self, cells: int) -> str:
        """Return a variable that holds a function which charges ``cells`` cells."""
        name = f"cells·{cells}"
        self.chargers[name] = cells
        return name

    def truth_of(self, value: ast.expr, p: Place) -> ast.expr:
        """Return a test of whether a value is true in the language."""
        first, again = self.twice(value, p)
        return both([is_not(first, None, p), is_not(again(), False, p)], p)

    def twice(self, value: ast.expr, p: Place) -> tuple[ast.expr, Callable[[], ast.expr]]:
        """Return an expression for the first use of a value, and a function that returns one for each later use."""
        if isinstance(value, ast.Name):
            return value, lambda: python_name(value.id, p)
        if isinstance(value, ast.Constant):
            return value, lambda: const(value.value, p)
        held = self.temporary()
        return walrus(held, value, p), lambda: python_name(held, p)

    def constant(self, value: Any, p: Place) -> ast.expr:
        """Return a constant as an expression, from the constant pool if it is not a Python constant."""
        if value is None or type(value) in {bool, str} or (type(value) is int and abs(value) < SMALL):
            return const(value, p)
        key = (type(value), repr(value))
        name = self._pool.get(key)
        if name is None:
            name = self._pool[key] = f"k·{len(self._pool)}"
            self.globals[name] = value
        return python_name(name, p)

    def is_type(self, value: ast.expr, name: str, p: Place) -> ast.expr:
        """Return a test of whether a value is of a type that has a name in generated code."""
        return same(call(python_name("type", p), [value], p), python_name(name, p), p)

    def is_one_of(self, value: ast.expr, types: str, p: Place) -> ast.expr:
        """Return a test of whether a value is of one of the types of that name, ``numbers·`` or ``keys·``."""
        return compare(call(python_name("type", p), [value], p), ast.In(), python_name(types, p), p)


# Inlined operations: lookup in maps, comparison, arithmetic.
#
# Inlined code handles common types and calls the builtin of that name for others, so errors and rare cases are the
# builtin's. Sums and products above ``SMALL`` are left to the builtin, which charges their size.

ORDER: Final[dict[str, type[ast.cmpop]]] = {"<": ast.Lt, ">": ast.Gt, "<=": ast.LtE, ">=": ast.GtE}
ARITHMETIC: Final[dict[str, type[ast.operator]]] = {"+": ast.Add, "-": ast.Sub, "*": ast.Mult}

_DIVISIONS: Final[dict[str, type[ast.operator]]] = {"mod": ast.Mod, "rem": ast.Mod, "quot": ast.FloorDiv}
_SIGNS: Final[dict[str, tuple[type[ast.cmpop], bool]]] = {
    "zero?": (ast.Eq, False),
    "pos?": (ast.Gt, False),
    "neg?": (ast.Lt, False),
    "even?": (ast.Eq, True),
    "odd?": (ast.NotEq, True),
}
"""The comparison with 0 of each, and whether it compares the last bit."""


class Operations(Writer):
    """Emits operations on expressions."""

    def field(
        self,
        key: Keyword,
        target: ast.expr,
        default: list[ast.expr],
        p: Place,
        *,
        is_map: bool = False,
        by_get: bool = False,
    ) -> ast.expr:
        """Return an inlined lookup of a keyword in a map; other values are left to ``get`` or the keyword."""
        known = self.constant(key, p)

        def elsewhere(value: ast.expr) -> ast.expr:
            if by_get:
                return self.call_builtin("get", [value, known], p)
            return call(python_name("field·", p), [known, value, *default], p)

        if isinstance(target, ast.Constant) or (default and not isinstance(default[0], PLAIN)):
            return elsewhere(target)
        first, again = self.twice(target, p)
        has = compare(known, ast.In(), again(), p)
        found = ast.Subscript(again(), known, LOAD, **p)
        slow = elsewhere(again())
        # Keys of data from JSON are strings, so these are looked up inline too.
        get = ast.Attribute(again(), "get", LOAD, **p)
        inside = choose(has, found, call(get, [const(key.name, p), *default], p), p)
        if is_map:
            return inside
        return choose(self.is_type(first, "dict", p), inside, slow, p)

    def item(self, vector: str, index: int, p: Place) -> ast.expr:
        """Return an item of a variable that is a vector, or nil after its end."""
        size = call(python_name("len", p), [python_name(vector, p)], p)
        found = ast.Subscript(python_name(vector, p), const(index, p), LOAD, **p)
        return choose(compare(size, ast.Gt(), const(index, p), p), found, const(None, p), p)

    def nth(self, args: list[ast.expr], p: Place) -> ast.expr:
        """Return ``(nth collection index)``."""
        coll, index = args
        if isinstance(index, ast.Constant) and type(index.value) is int and index.value >= 0:
            first, again = self.twice(coll, p)
            if isinstance(held := again(), ast.Name):
                slow = self.call_builtin("nth", [again(), index], p)
                return choose(self.is_type(first, "list", p), self.item(held.id, index.value, p), slow, p)
        return self.call_builtin("nth", args, p)

    def where_equal(self, found: ast.expr, wanted: Any, p: Place) -> ast.expr:
        """Return a test of whether a field equals a constant, as in ``where``."""
        if wanted is None or type(wanted) is bool:
            return is_(found, wanted, p)
        name = wanted.name if type(wanted) is Keyword else wanted
        if type(name) is not str:
            return call(python_name("equal·", p), [found, self.constant(wanted, p), python_name("budget", p)], p)
        first, again = self.twice(found, p)
        text = compare(first, ast.Eq(), const(name, p), p)
        keyword = same(again(), self.constant(Keyword(name), p), p)
        return either([text, keyword], p)

    def equal(self, args: list[ast.expr], *, negated: bool, p: Place) -> ast.expr:
        """Return ``(= one other)``."""
        one, other = args
        if isinstance(one, ast.Constant) and not isinstance(other, ast.Constant):
            one, other = other, one
        found: ast.expr
        if isinstance(other, ast.Constant) and (other.value is None or type(other.value) is bool):
            return (is_not if negated else is_)(one, other.value, p)
        if isinstance(other, ast.Constant) and type(other.value) is str:
            return compare(one, ast.NotEq() if negated else ast.Eq(), other, p)
        if (
            isinstance(other, ast.Name)
            and type(self.globals.get(other.id)) is Keyword
            and not isinstance(one, ast.Constant)
        ):
            return compare(one, ast.IsNot() if negated else ast.Is(), other, p)
        found = call(python_name("equal·", p), [one, other, python_name("budget", p)], p)
        return ast.UnaryOp(ast.Not(), found, **p) if negated else found

    def numbers(
        self, args: list[ast.expr], p: Place, known: list[bool]
    ) -> tuple[list[ast.expr], list[ast.expr]] | None:
        """Return tests that two operands are numbers, and expressions for their later use; None if not inlined."""
        are_computed = not any(isinstance(arg, PLAIN) for arg in args)
        tests: list[ast.expr] = []
        operands: list[ast.expr] = []
        for arg, is_known in zip(args, known, strict=True):
            if isinstance(arg, ast.Constant) and type(arg.value) not in {int, float}:
                return None
            if isinstance(arg, ast.Constant) or (
                isinstance(arg, ast.Name) and (is_known or type(self.globals.get(arg.id)) in {int, float})
            ):
                operands.append(arg)
                continue
            first, again = self.twice(arg, p)
            operands.append(again())
            if is_known:
                test = is_not(first, None, p)
            elif are_computed:
                test = self.is_one_of(first, "numbers·", p)
            else:
                test = either([self.is_type(first, "int", p), self.is_type(again(), "float", p)], p)
            # An operand that must be computed comes first, so that it is always evaluated.
            tests.insert(len(tests) if are_computed or isinstance(arg, PLAIN) else 0, test)
        if are_computed:  # one test, which always evaluates both operands in order
            tests = [ast.BinOp(tests[0], ast.BitAnd(), tests[1], **p)]
        return tests, operands

    def order(self, name: str, args: list[ast.expr], p: Place, known: list[bool]) -> ast.expr:
        """Return a comparison; ``known`` are the operands that are certain to be numbers."""
        if all(known):
            return compare(args[0], ORDER[name](), args[1], p)
        numbers = self.numbers(args, p, known)
        if numbers is None:
            return self.call_builtin(name, args, p)
        tests, (one, other) = numbers
        compared = compare(one, ORDER[name](), other, p)
        return choose(both(tests, p), compared, self.call_builtin(name, [one, other], p), p) if tests else compared

    def arithmetic(
        self, operator: str, name: str, args: list[ast.expr], p: Place, known: list[bool], *, integers: bool = False
    ) -> ast.expr:
        """Return a sum, difference or product; ``name`` is the builtin for other cases.

        ``integers``: both operands are certain to be integers.
        """
        numbers = self.numbers(args, p, known)
        if numbers is None or all(isinstance(arg, ast.Constant) for arg in args):
            return self.call_builtin(name, args[: 1 if name in {"inc", "dec"} else 2], p)
        tests, (one, other) = numbers
        held = self.temporary()
        computed = walrus(held, ast.BinOp(one, ARITHMETIC[operator](), other, **p), p)
        names = [arg.id for arg in args if isinstance(arg, ast.Name)]
        if len(tests) == 2 and len(names) == 2:
            test = self.of_two_unknown(ARITHMETIC[operator](), names[0], names[1], held, p)
            return choose(test, python_name(held, p), self.call_builtin(name, [one, other], p), p)
        small = self.is_small(computed, held, p, integer=integers)
        slow = self.call_builtin(name, [one] if name in {"inc", "dec"} else [one, other], p)
        return choose(both([*tests, small], p), python_name(held, p), slow, p)

    def division(self, name: str, args: list[ast.expr], p: Place, integers: list[bool]) -> ast.expr:
        """Return a quotient or remainder, inlined for integers with a positive divisor.

        ``integers`` are the operands that are certain to be integers.
        """
        operands, tests = [], []
        for arg, is_known in zip(args, integers, strict=True):
            first, again = self.twice(arg, p)
            operands.append(again)
            if not (is_known and isinstance(arg, PLAIN)):
                tests.append(self.is_type(first, "int", p))
        one, other = operands
        slow = self.call_builtin(name, [one(), other()], p)
        if all(isinstance(arg, ast.Constant) for arg in args):
            return slow
        if len(tests) == 2:
            tests = [ast.BinOp(tests[0], ast.BitAnd(), tests[1], **p)]
        positive = [compare(other(), ast.Gt(), const(0, p), p)]
        if name != "mod":
            positive.append(compare(one(), ast.GtE(), const(0, p), p))
        return choose(both([*tests, *positive], p), ast.BinOp(one(), _DIVISIONS[name](), other(), **p), slow, p)

    def sign(self, name: str, arg: ast.expr, p: Place, *, is_known: bool, integer: bool) -> ast.expr:
        """Return ``(zero? x)`` and similar tests.

        ``is_known``: the argument is certain to be a number; ``integer``: to be an integer.
        """
        first, again = self.twice(arg, p)
        operator, of_bit = _SIGNS[name]
        zero = const(0, p)
        if of_bit:
            tested = compare(ast.BinOp(again(), ast.BitAnd(), const(1, p), **p), operator(), zero, p)
        elif is_known and not isinstance(arg, ast.Constant):
            return compare(arg, operator(), zero, p)
        else:
            tested = compare(again(), operator(), zero, p)
        if integer and isinstance(arg, ast.Name):
            return tested
        return choose(self.is_type(first, "int", p), tested, self.call_builtin(name, [again()], p), p)

    def of_two_unknown(self, operator: ast.operator, one: str, other: str, held: str, p: Place) -> ast.expr:
        """Return a test that two variables are numbers, and store their result; an integer must be small.

        Types are tested once.
        """

        def is_a(name: str, kind: str) -> ast.expr:
            return self.is_type(python_name(name, p), kind, p)

        def computed() -> ast.expr:
            return walrus(held, ast.BinOp(python_name(one, p), operator, python_name(other, p), **p), p)

        of_float = both([either([is_a(other, "int"), is_a(other, "float")], p), is_not(computed(), None, p)], p)
        small = within_small(computed(), p)
        of_int = choose(is_a(other, "int"), small, both([is_a(other, "float"), is_not(computed(), None, p)], p), p)
        return choose(is_a(one, "float"), of_float, both([is_a(one, "int"), of_int], p), p)

    def is_small(self, computed: ast.expr, held: str, p: Place, *, integer: bool = False) -> ast.expr:
        """Return a test that a result, stored in a variable, needs no charge: it is a float or a small integer."""
        if integer:
            return within_small(computed, p)
        return either([self.is_type(computed, "float", p), within_small(python_name(held, p), p)], p)


# In-place updates: calls that may modify the value of a variable that is not read afterwards.
#
# The compiler checks that the old value of the variable is dead where the result replaces it (at the end of a
# reduction's body, of an iteration, of a function), and that no closure can read the variable later. Whether anything
# else refers to the *value* is checked at run time (``builtins.inplace``).

Owned = frozenset[Var]

NOTHING: Final[Owned] = frozenset()

_SHORTENING: Final = frozenset({"rest", "next", "pop"})
"""Builtins whose call can be delayed until the other values of an iteration are computed: they call no functions."""


def captured_variables(node: Node) -> set[Var]:
    """Return the variables of a program that closures capture."""
    depth_of: dict[Var, int] = {}
    found: set[Var] = set()
    waiting: list[tuple[Node, int]] = [(node, 0)]
    read: list[tuple[Var, int]] = []
    while waiting:
        each, depth = waiting.pop()
        if isinstance(each, Local):
            read.append((each.var, depth))
            continue
        if isinstance(each, Fn):
            depth += 1
            for arity in each.arities:
                depth_of.update(dict.fromkeys(arity.params, depth))
        elif isinstance(each, Each | Loop):
            depth_of.update(dict.fromkeys(each.vars, depth))
        waiting.extend((part, depth) for part in each.parts)
    for var, depth in read:
        if depth > depth_of.get(var, -1):
            found.add(var)
    return found


def variables(node: Node) -> set[Var]:
    """Return the variables that a node reads."""
    found: set[Var] = set()
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Local):
            found.add(each.var)
        else:
            waiting.extend(each.parts)
    return found


def modified_variable(node: Node, owned: Owned) -> Var | None:
    """Return the variable whose value a call can modify, or None."""
    if not isinstance(node, Invoke) or not node.args:
        return None
    first = node.args[0]
    if not isinstance(first, Local) or first.var not in owned:
        return None
    return first.var if BUILTINS[node.name].function in IN_PLACE else None


def ends_in_change(node: Node, owned: Owned) -> bool:
    """Return whether the value of a node may come from an in-place update."""
    if isinstance(node, If):
        return ends_in_change(node.then, owned) or ends_in_change(node.otherwise, owned)
    if isinstance(node, Let):
        return ends_in_change(node.body, owned)
    if isinstance(node, Do):
        return ends_in_change(node.items[-1], owned)
    if isinstance(node, Cond):
        return any(ends_in_change(then, owned) for _, then in node.clauses)
    if isinstance(node, Each):
        return node.kind == "reduce" and isinstance(node.init, Local) and node.init.var in owned
    return chained_calls(node, owned) is not None


def chained_calls(node: Node, owned: Owned) -> list[Invoke] | None:
    """Return the calls of a chain ``(-> acc (assoc …) (update …))``, the innermost first.

    None when it is no chain that may change ``acc`` step by step: only the innermost may read it.
    """
    calls: list[Invoke] = []
    while isinstance(node, Invoke) and node.args and BUILTINS[node.name].function in IN_PLACE:
        calls.append(node)
        node = node.args[0]
    if not calls or not isinstance(node, Local) or node.var not in owned:
        return None
    for call in calls[:-1]:
        if any(node.var in variables(each) for each in call.args[1:]):
            return None
    return calls[::-1]


def can_wait(node: Node, owned: Owned) -> bool:
    """Return whether a value of the next iteration can be computed after the others: ``(rest xs)``."""
    var = modified_variable(node, owned)
    return var is not None and isinstance(node, Invoke) and node.name in _SHORTENING


# Compiling core nodes: simple ones to Python expressions, others to statements that store their value at a ``Goal``.

_BOOLEAN: Final = frozenset(
    (
        *("=", "not=", "<", ">", "<=", ">=", "not", "nil?", "some?", "empty?", "zero?", "pos?", "neg?", "even?"),
        *("odd?", "contains?", "every?", "not-any?", "string?", "number?", "map?", "vector?", "set?", "keyword?"),
        *("boolean?", "coll?", "true?", "false?", "starts-with?", "ends-with?", "includes?"),
    )
)
"""Builtins that always return true or false."""

_COUNTING: Final[dict[str, type[ast.operator]]] = {**ARITHMETIC, "inc": ast.Add, "dec": ast.Sub}
_COUNTING.pop("*")


@dataclass(frozen=True, slots=True)
class InPlaceCall:
    """A call that may modify the value of a variable."""

    tests: list[ast.expr]  # the conditions for the inlined in-place update
    call: ast.Call | None  # the inlined in-place update, if there is one
    slow: ast.expr  # the call otherwise


@dataclass(frozen=True, slots=True)
class Goal:
    """The destination of a value."""

    variable: str | None = None  # to assign to; None returns the value from the Python function
    loop: Loop | None = None  # whose value it is: ``recur`` continues it, and a ``break`` follows the assignment
    leaves: bool = False  # the assignment is the last statement that runs in this block
    again: bool = False  # ``recur`` returns from the function that is one iteration
    owned: Owned = NOTHING  # variables that are not read afterwards, so that their values may be modified


def _plain_key(node: Node) -> bool:
    """Return whether a constant is the same as a key."""
    return isinstance(node, Const) and node.value == as_key(node.value) and type(node.value) is not bool


def _is_display(node: Make) -> bool:
    """Return whether a Python display can make the collection: a vector, or a map with constant keys."""
    return node.kind == "vector" or (node.kind == "map" and all(map(_plain_key, node.items[::2])))


def _cells(node: Make) -> int:
    """Return the slots of a collection and of those that are written inside of it."""
    inside = (each for each in node.items if isinstance(each, Make) and _is_display(each))
    return len(node.items) + sum(map(_cells, inside))


def _is_boolean(node: Node) -> bool:
    return (isinstance(node, Invoke) and node.name in _BOOLEAN) or (
        isinstance(node, Const) and type(node.value) is bool
    )


def _contains_recur(node: Node) -> bool:
    """Return whether a node contains a ``recur`` to an enclosing loop or function."""
    if isinstance(node, Recur):
        return True
    return not isinstance(node, Loop | Fn) and any(map(_contains_recur, node.parts))


def _is_unreduced(node: Each) -> bool:
    """Return whether a reduction only adds to its initial collection, so that it cannot end early."""

    def is_plain(each: Node) -> bool:
        if isinstance(each, If):
            return is_plain(each.then) and is_plain(each.otherwise)
        if isinstance(each, Local):
            return each.var is node.vars[0]
        return isinstance(each, Invoke) and each.name in {"conj", "assoc", "update", "update-in"}

    return isinstance(node.init, Make) and is_plain(node.body)


def _only_grows(node: Each) -> bool:
    """Return whether a reduction reads its result only to add to it, so that nothing else refers to it meanwhile."""
    result = node.vars[0]

    def grows(each: Node) -> bool:
        if isinstance(each, If):
            return result not in variables(each.test) and grows(each.then) and grows(each.otherwise)
        if isinstance(each, Local):
            return each.var is result
        return (
            isinstance(each, Invoke)
            and each.name in {"conj", "assoc"}
            and isinstance(each.args[0], Local)
            and not any(result in variables(arg) for arg in each.args[1:])
        )

    return isinstance(node.init, Make) and grows(node.body)


_MOST_ITEMS = 8


def _items_of_one(pairs: Sequence[tuple[Var, Node]]) -> dict[int, tuple[Var, Node]]:
    """Return the pairs at the beginning that bind items of one vector, by index; none where its rest is bound too."""
    found: dict[int, tuple[Var, Node]] = {}
    vector: Var | None = None
    for pair in pairs:
        match pair[1]:
            case RuntimeCall(name="item", args=[Local(var=var), Const(value=index)]) if vector in (None, var):
                vector = var
                if index >= _MOST_ITEMS:
                    return {}
                found[index] = pair
            case RuntimeCall(name="rest_of", args=[Local(var=var), _]) if vector is var:
                return {}
            case _:
                break
    return found


MAX_LOOPS: Final = 8
"""The deepest nesting of loops in one Python function, which allows 20 nested blocks."""


ENTRY: Final = "program"


class Emitter(Operations):
    """Compiles one program."""

    def __init__(self, places: Places) -> None:
        super().__init__(places)
        self.captured: set[Var] = set()  # variables that closures capture
        self._loops = 0
        self._depth = 0
        self._outer: list[set[str]] = [set()]

    def program(self, node: Node) -> ast.Module:
        """Return the module that defines the program as a function."""
        self.captured = captured_variables(node)
        body = self._function_body(node, Goal(leaves=True))
        p = self.place(node)
        for name in sorted(self._outer[0]):
            # Never executed: it makes the name local to this function.
            body.insert(0, if_(const(False, p), [assign(name, const(None, p), p)], [], p))
        for name, cells in sorted(self.chargers.items()):
            maker = ast.Attribute(python_name("budget", p), "charger", LOAD, **p)
            body.insert(0, assign(name, call(maker, [const(cells, p)], p), p))
        for fixed, value in self.fixed.items():
            body.insert(0, assign(fixed, value, p))
        made = function(ENTRY, ["run", "budget", "tick"], body, p)
        return ast.Module([made], [])

    def expression(self, node: Node) -> ast.expr:
        """Return a node as an expression, after emitting the statements it needs."""
        method = _EXPRESSIONS.get(type(node))
        if method is None or (not node.simple and isinstance(node, If | Logic | Fn)):
            return self.statements(node)
        found: ast.expr = method(self, node)
        return found

    def modifying_expression(self, node: Node, owned: Owned) -> ast.expr:
        """Return a simple node as an expression that may modify the values of ``owned`` variables."""
        if owned and isinstance(node, If) and ends_in_change(node, owned):
            then, otherwise = (
                self.modifying_expression(node.then, owned),
                self.modifying_expression(node.otherwise, owned),
            )
            return choose(self.test(node.test), then, otherwise, self.place(node))
        var = modified_variable(node, owned) if owned else None
        if var is not None:
            assert isinstance(node, Invoke)
            return self.modifying_call(node, var, self.place(node))
        return self.expression(node)

    def modifying_call(self, node: Invoke, var: Var, p: Place) -> ast.expr:
        """Return a call that may modify the value of a variable, its first argument."""
        change = self._in_place_call(node, var, p)
        if change.call is None:
            return change.slow
        test = both([*change.tests, is_(change.call, None, p)], p)
        return choose(test, python_name(var.python, p), change.slow, p)

    def update_statement(self, node: Invoke, var: Var, p: Place) -> ast.stmt:
        """Return the statement that assigns an in-place update to its variable."""
        change = self._in_place_call(node, var, p)
        if change.call is None:
            return assign(var.python, change.slow, p)
        done: ast.stmt = ast.Expr(change.call, **p)
        method = change.call.func
        assert isinstance(method, ast.Attribute)
        if not change.tests:
            return done
        if method.attr == "__setitem__":
            key, value = change.call.args
            done = ast.Assign([ast.Subscript(method.value, key, STORE, **p)], value, None, **p)
        return if_(both(change.tests, p), [done], [assign(var.python, change.slow, p)], p)

    def _in_place_call(self, node: Invoke, var: Var, p: Place) -> InPlaceCall:
        args = self.expressions(node.args[1:])
        function = BUILTINS[node.name].function
        known = f"o·{node.name}"
        self.globals[known] = IN_PLACE[function]

        def elsewhere(args: list[ast.expr]) -> ast.expr:
            return call(python_name(known, p), [python_name("budget", p), python_name(var.python, p), *args], p)

        if not any(var in variables(each) for each in node.args[1:]):
            if node.name == "conj" and len(args) == 1:
                return self._append_call(var, args[0], elsewhere(args), p)
            if node.name == "assoc" and len(args) == 2:
                return self._put_call(var, args, elsewhere, p)
            if node.name in {"update", "update-in"} and (found := self._update_call(node, var, args, elsewhere, p)):
                return found
        return InPlaceCall([], None, elsewhere(args))

    def _sole(self, value: ast.expr, kind: str, p: Place) -> list[ast.expr]:
        """Return tests that a value is of a type and has only one reference."""
        if isinstance(value, ast.Name) and value.id in self.sole and self.kinds.get(value.id) == kind:
            return []
        count = call(python_name("getrefcount·", p), [value], p)
        is_sole = compare(count, ast.Eq(), const(SOLE - 1, p), p)
        if isinstance(value, ast.Name) and self.kinds.get(value.id) == kind:
            return [is_sole]
        return [self.is_type(value, kind, p), is_sole]

    def _append_call(self, var: Var, item: ast.expr, slow: ast.expr, p: Place) -> InPlaceCall:
        """Return ``(conj var item)``."""
        known = python_name(var.python, p)
        append = call(ast.Attribute(known, "append", LOAD, **p), [item], p)
        if var.python in self.sole and self.kinds.get(var.python) == "list":
            return InPlaceCall([], append, slow)  # charged after the loop, which adds at most one for each item
        charged = is_(call(python_name(self.charger(1), p), [], p), None, p)
        return InPlaceCall([*self._sole(known, "list", p), charged], append, slow)

    def _put_call(
        self, var: Var, args: list[ast.expr], elsewhere: Callable[[list[ast.expr]], ast.expr], p: Place
    ) -> InPlaceCall:
        """Return ``(assoc var key value)``: inlined for a key that exists."""
        known = python_name(var.python, p)
        tests, key = self._key(args[0], p)
        there = compare(key(), ast.In(), known, p)
        put = call(ast.Attribute(known, "__setitem__", LOAD, **p), [key(), args[1]], p)
        return InPlaceCall([*tests, *self._sole(known, "dict", p), there], put, elsewhere([key(), args[1]]))

    def _key(self, key: ast.expr, p: Place) -> tuple[list[ast.expr], Callable[[], ast.expr]]:
        """Return tests that a key is a string or keyword, which evaluate it, and a function for its later uses."""
        first, again = self.twice(key, p)
        if isinstance(key, ast.Constant) and type(key.value) is str:
            return [], again
        if isinstance(key, ast.Name) and type(self.globals.get(key.id)) is Keyword:
            return [], again
        return [self.is_one_of(first, "keys·", p)], again

    def _update_call(
        self,
        node: Invoke,
        var: Var,
        args: list[ast.expr],
        elsewhere: Callable[[list[ast.expr]], ast.expr],
        p: Place,
    ) -> InPlaceCall | None:
        """Return ``(update var key inc)`` or ``(update-in var [key …] (fnil + 0) number)``, None for other functions.

        Inlined for an existing number.
        """
        function, more = node.args[2], args[2:]
        if isinstance(function, Invoke) and function.name == "fnil" and len(function.args) == 2:
            function = function.args[0]
        if not isinstance(function, Builtin) or function.name not in _COUNTING:
            return None
        if len(more) != (function.name in ARITHMETIC):
            return None
        path = [args[0]]
        if node.name == "update-in":
            if not isinstance(args[0], ast.IfExp) or not isinstance(args[0].body, ast.List):
                return None
            path = args[0].body.elts  # what `_make` emits for a vector
        computed: list[ast.expr] = []
        keys: list[Callable[[], ast.expr]] = []
        for each in path:
            tests, again = self._key(each, p)
            computed += tests
            keys.append(again)
        by = const(1, p)
        if more:
            first, number = self.twice(more[0], p)
            computed.append(self.is_one_of(first, "numbers·", p))
            more, by = [number()], number()
        tests = computed[:1]
        for each in computed[1:]:  # `&` evaluates all, also after a false one
            tests = [ast.BinOp(tests[0], ast.BitAnd(), each, **p)]
        inner = python_name(var.python, p)
        for again in keys[:-1]:
            tests += [*self._sole(inner, "dict", p), compare(again(), ast.In(), inner, p)]
            inner = ast.Subscript(inner, again(), LOAD, **p)
        tests += [*self._sole(inner, "dict", p), compare(keys[-1](), ast.In(), inner, p)]
        old, new = self.temporary(), self.temporary()
        found = walrus(old, ast.Subscript(inner, keys[-1](), LOAD, **p), p)
        computed_new = walrus(new, ast.BinOp(python_name(old, p), _COUNTING[function.name](), by, **p), p)
        tests.append(self.is_one_of(found, "numbers·", p) if more else self.is_type(found, "int", p))
        tests.append(self.is_small(computed_new, new, p, integer=not more))
        put = call(ast.Attribute(inner, "__setitem__", LOAD, **p), [keys[-1](), python_name(new, p)], p)
        where: ast.expr = keys[0]()
        if isinstance(args[0], ast.IfExp):
            vector = ast.List([again() for again in keys], LOAD, **p)
            where = choose(args[0].test, vector, const(None, p), p)
        return InPlaceCall(tests, put, elsewhere([where, args[1], *more]))

    def uncaptured(self, vars: Iterable[Var]) -> Owned:
        """Return the variables that no closure captures."""
        return frozenset(vars) - self.captured

    def expressions(self, nodes: list[Node]) -> list[ast.expr]:
        """Return nodes as expressions, such as arguments of a call, that are evaluated in order."""
        made: list[ast.expr] = []
        held = 0

        def hold(at: int, p: Place) -> None:
            """Store the expressions so far in variables, before the statements of the block from ``at``."""
            nonlocal held
            names: list[ast.stmt] = []
            for index in range(held, len(made)):
                if not isinstance(made[index], PLAIN):
                    name = self.temporary()
                    names.append(assign(name, made[index], p))
                    made[index] = python_name(name, p)
            self.block[at:at] = names
            held = len(made)

        for node in nodes:
            before = len(self.block)
            value = self.expression(node)
            if len(self.block) > before:
                hold(before, self.place(node))
            if not node.simple and not isinstance(value, PLAIN):
                p, name = self.place(node), self.temporary()
                hold(len(self.block), p)
                self.block.append(assign(name, value, p))
                value = python_name(name, p)
            made.append(value)
        return made

    def test(self, node: Node) -> ast.expr:
        """Return a Python condition that is true if the value of the node is true in the language."""
        p = self.place(node)
        if isinstance(node, Const):
            return const(node.value is not None and node.value is not False, p)
        if isinstance(node, Invoke) and node.name in _BOOLEAN:
            return self.expression(node)
        if isinstance(node, Invoke) and node.name == "seq":
            return is_not(self.expression(node), None, p)  # nil or a collection; no variable keeps it
        if isinstance(node, WhereTest) or (
            isinstance(node, RuntimeCall) and node.name in {"is_something", "is_missing"}
        ):
            return self.expression(node)
        if isinstance(node, Logic) and node.simple:
            tests = [self.test(item) for item in node.items]
            return both(tests, p) if node.kind == "and" else either(tests, p)
        return self.truth_of(self.expression(node), p)

    def _const(self, node: Const) -> ast.expr:
        return self.constant(node.value, self.place(node))

    def _local(self, node: Local) -> ast.expr:
        return python_name(node.var.python, self.place(node))

    def _builtin(self, node: Builtin) -> ast.expr:
        p = self.place(node)
        function = self.builtin(node.name, p)
        if BUILTINS[node.name].charges:
            return call(python_name("partial·", p), [function, python_name("budget", p)], p)
        return function

    def _runtime_call(self, node: RuntimeCall) -> ast.expr:
        p = self.place(node)
        args = self.expressions(node.args)
        if node.name == "is_something":
            return is_not(args[0], None, p)
        usual = {"as_map": "dict", "take_apart": "list"}.get(node.name)
        if usual is not None and not isinstance(args[0], ast.Constant):
            first, again = self.twice(args[0], p)
            other = call(self.runtime(node.name, p), [python_name("run", p), again(), *args[1:]], p)
            return choose(self.is_type(first, usual, p), again(), other, p)
        made = call(self.runtime(node.name, p), [python_name("run", p), *args], p)
        match node.name, args:
            case "item", [ast.Name(id=vector), ast.Constant(value=int(index))]:
                return self.item(vector, index, p)
        return made

    def _make(self, node: Make) -> ast.expr:
        p = self.place(node)
        if not _is_display(node):
            items = self.expressions(node.items)
            return call(self.runtime(f"make_{node.kind}", p), [python_name("run", p), *items], p)
        inside = [each for each in node.items if isinstance(each, Make) and _is_display(each)]
        self.charged.update(map(id, inside))
        items = self.expressions(node.items)
        is_vector = node.kind == "vector"
        made: ast.expr = ast.List(items, LOAD, **p) if is_vector else ast.Dict(list(items[::2]), items[1::2], **p)
        cells = _cells(node)
        if not cells or id(node) in self.charged:
            return made
        charged = call(python_name(self.charger(cells), p), [], p)
        return choose(is_(charged, None, p), made, const(None, p), p)

    def _if(self, node: If) -> ast.expr:
        p = self.place(node)
        return choose(self.test(node.test), self.expression(node.then), self.expression(node.otherwise), p)

    def _logic(self, node: Logic) -> ast.expr:
        p = self.place(node)
        if all(_is_boolean(item) for item in node.items):
            return self.test(node)
        chosen = self.expression(node.items[-1])
        for item in reversed(node.items[:-1]):
            first, again = self.twice(self.expression(item), p)
            true = both([is_not(first, None, p), is_not(again(), False, p)], p)
            chosen = choose(true, *((chosen, again()) if node.kind == "and" else (again(), chosen)), p)
        return chosen

    def _fn(self, node: Fn) -> ast.expr:
        p = self.place(node)
        arity = node.arities[0]
        params = [var.python for var in arity.params]
        body = self.modifying_expression(arity.body, self.uncaptured(arity.params))
        return ast.Lambda(arguments(params, None, p), body, **p)

    def _apply(self, node: Apply) -> ast.expr:
        p = self.place(node)
        count = len(node.args)
        function, *args = self.expressions([node.function, *node.args])
        arity = node.function.var.arity if isinstance(node.function, Local) else None
        if arity is not None and arity[0] <= count and (arity[1] is None or count <= arity[1]):
            tick = is_(call(python_name("tick", p), [], p), None, p)
            return choose(tick, call(function, args, p), const(None, p), p)
        callee = call(self.runtime("callee", p), [python_name("run", p), function, const(count, p)], p)
        return call(callee, args, p)

    def _keyword_call(self, node: KeywordCall) -> ast.expr:
        p = self.place(node)
        target, *default = self.expressions(node.args)
        local = node.args[0]
        return self.field(node.key, target, default, p, is_map=isinstance(local, Local) and local.var.mapping)

    def _where(self, node: WhereTest) -> ast.expr:
        p = self.place(node)
        found = self.field(node.key, self.expression(node.target), [], p)
        operator, value = node.operator, node.value
        if not operator:
            return self.truth_of(found, p)
        if operator in ORDER:
            wanted = self.expression(value)
            first, again = self.twice(found, p)
            slow = call(
                self.runtime("where_order", p), [python_name("run", p), const(operator, p), again(), wanted], p
            )
            if not is_number(value):
                return call(slow.func, [*slow.args[:2], found, wanted], p)
            numeric = either([self.is_type(first, "float", p), self.is_type(again(), "int", p)], p)
            return choose(numeric, compare(again(), ORDER[operator](), wanted, p), slow, p)
        assert isinstance(value, Const)
        equal = self.where_equal(found, value.value, p)
        return equal if operator == "=" else ast.UnaryOp(ast.Not(), equal, **p)

    def _invoke(self, node: Invoke) -> ast.expr:
        p = self.place(node)
        name, count = node.name, len(node.args)
        if count == 2 and name == "get" and isinstance(key := node.args[1], Const) and type(key.value) is Keyword:
            (target,) = self.expressions(node.args[:1])
            return self.field(key.value, target, [], p, by_get=True)
        args = self.expressions(node.args)
        if name == "fnil" and all(isinstance(each, Builtin | Const) for each in node.args):
            once = f"once·{len(self.fixed)}"
            self.fixed[once] = self.call_builtin(name, args, p)
            return python_name(once, p)
        if count == 1:
            if name in _SIGNS:
                return self.sign(name, args[0], p, is_known=is_number(node.args[0]), integer=is_integer(node.args[0]))
            if name == "not":
                return ast.UnaryOp(ast.Not(), self.truth_of(args[0], p), **p)
            if name in {"nil?", "some?"}:
                return (is_ if name == "nil?" else is_not)(args[0], None, p)
            if name in {"inc", "dec"}:
                known = [is_number(node.args[0]), True]
                operator, integer = "+" if name == "inc" else "-", is_integer(node.args[0])
                return self.arithmetic(operator, name, [args[0], const(1, p)], p, known, integers=integer)
        elif count == 2:
            if name == "nth":
                return self.nth(args, p)
            if name in {"=", "not="}:
                return self.equal(args, negated=name == "not=", p=p)
            if name in ORDER:
                return self.order(name, args, p, list(map(is_number, node.args)))
            if name in _DIVISIONS:
                return self.division(name, args, p, list(map(is_integer, node.args)))
            if name in ARITHMETIC:
                integers = all(map(is_integer, node.args))
                return self.arithmetic(name, name, args, p, list(map(is_number, node.args)), integers=integers)
        return self.call_builtin(name, args, p)

    # Statements.

    def _function_body(self, node: Node, goal: Goal) -> list[ast.stmt]:
        """Return the statements of a Python function."""
        block, loops = self.block, self._loops
        self.block, self._loops = [], 0
        self._outer.append(set())
        self._depth += 1
        self.emit(node, goal)
        body, defined = self.block, self._outer.pop()
        self._depth -= 1
        self.block, self._loops = block, loops
        if defined and self._depth:
            body.insert(0, ast.Nonlocal(sorted(defined), **self.place(node)))
        self._outer[-1] |= defined
        return body

    def define_function(self, node: Fn, name: str) -> None:
        """Emit statements that define a function and assign it to ``name``."""
        p = self.place(node)
        if len(node.arities) == 1:
            self._define(node.arities[0], name, p)
            return
        parts = []
        for arity in node.arities:
            part = self.temporary(name.partition("·")[0])
            self._define(arity, part, p)
            least, most = arity.range
            count: Any = least if most is not None else ~least
            parts.append(ast.Tuple([const(count, p), python_name(part, p)], LOAD, **p))
        self.block.append(assign(name, call(self.runtime("overloads", p), [python_name("run", p), *parts], p), p))

    def _define(self, arity: Arity, name: str, p: Place) -> None:
        body = self._function_body(arity.body, Goal(leaves=True, owned=self.uncaptured(arity.params)))
        params = [var.python for var in arity.params]
        rest = None
        if arity.rest is not None:
            rest = arity.rest.python
            # As in Clojure, the rest is nil without further arguments.
            listed = call(self.runtime("rest_list", p), [python_name("run", p), python_name(rest, p)], p)
            at = 1 if body and isinstance(body[0], ast.Nonlocal) else 0
            body.insert(at, assign(rest, listed, p))
        self.block.append(function(name, params, body, p, rest))

    def emit(self, node: Node, goal: Goal) -> None:
        """Emit statements that evaluate a node and store its value as the goal specifies."""
        if goal.owned and (calls := chained_calls(node, goal.owned)):
            self._emit_changes(calls, goal)
            return
        in_branch = isinstance(node, If) and goal.variable is not None and ends_in_change(node, goal.owned)
        if node.simple and not in_branch:
            self.reach(self.modifying_expression(node, goal.owned), goal, self.place(node))
            return
        method = _STATEMENTS.get(type(node))
        if method is None:
            self.reach(self.expression(node), goal, self.place(node))
        else:
            method(self, node, goal)

    def _emit_changes(self, calls: list[Invoke], goal: Goal) -> None:
        """Emit a chain of calls that modify the value of a variable."""
        var = calls[0].args[0]
        assert isinstance(var, Local)
        p = self.place(calls[-1])
        for call in calls[:-1]:
            self.block.append(self.update_statement(call, var.var, self.place(call)))
        if goal.variable == var.var.python and goal.loop is None:
            self.block.append(self.update_statement(calls[-1], var.var, p))
            return
        self.reach(self.modifying_call(calls[-1], var.var, p), goal, p)

    def reach(self, value: ast.expr, goal: Goal, p: Place) -> None:
        """Emit the statement that stores a value as the goal specifies."""
        if goal.variable is not None:
            if not isinstance(value, ast.Name) or value.id != goal.variable:
                self.block.append(assign(goal.variable, value, p))
            if goal.loop is not None:
                self.block.append(ast.Break(**p))
        elif goal.leaves:
            self.block.append(ast.Return(value, **p))
        elif not isinstance(value, ast.Name | ast.Constant):
            self.block.append(ast.Expr(value, **p))

    def statements(self, node: Node) -> ast.expr:
        """Emit statements for a node that is not simple; return the variable with its value."""
        p = self.place(node)
        if isinstance(node, Fn):
            name = node.var.python if node.var else self.temporary("fn")
            self.define_function(node, name)
            return python_name(name, p)
        name = self.temporary()
        self.emit(node, Goal(name))
        return python_name(name, p)

    def _block_of(self, node: Node, goal: Goal) -> list[ast.stmt]:
        block, self.block = self.block, []
        self.emit(node, goal)
        made, self.block = self.block, block
        return made

    # ``loop`` and ``recur``: as Python loops, or as calls if closures capture the variables of an iteration.

    def _loop(self, node: Loop, goal: Goal) -> None:
        p = self.place(node)
        inits = self.expressions(node.inits)
        names = [var.python for var in node.vars]
        if node.fresh or self._loops >= MAX_LOOPS:
            # The iterations are calls, so that closures capture the variables of their iteration.
            turn = self.temporary("loop")
            body = self._function_body(node.body, Goal(leaves=True, loop=node, again=True))
            self.block.append(function(turn, names, body, p))
            turns = call(self.runtime("run_loop", p), [python_name("run", p), python_name(turn, p), *inits], p)
            self.reach(turns, goal, p)
            return
        if names:
            self.block.append(assign_all(names, inits, p))
        owned = self.uncaptured(node.vars)
        inner = Goal(leaves=True, loop=node, owned=owned)
        result = None
        if goal.variable is not None or not goal.leaves:
            result = self.temporary()
            inner = Goal(result, loop=node, leaves=True, owned=owned)
        self._loops += 1
        body = self._block_of(node.body, inner)
        self._loops -= 1
        tick = ast.Name(self.temporary(), STORE, **p)
        ticks = ast.Attribute(python_name("budget", p), "ticks", LOAD, **p)
        self.block.append(ast.For(tick, ticks, body, [], None, **p))
        if result is not None:
            self.reach(python_name(result, p), goal, p)

    def _recur(self, node: Recur, goal: Goal) -> None:
        p = self.place(node)
        loop = goal.loop
        assert loop is not None, "analysis lets recur stand only where its loop ends"
        if goal.again:
            args = self.expressions(node.args)
            again = call(self.runtime("NextArguments", p), [ast.Tuple(args, LOAD, **p)], p)
            self.block.append(ast.Return(again, **p))
            return
        if node.args:
            self._next_turn(node, loop, p)
        self.block.append(ast.Continue(**p))

    def _next_turn(self, node: Recur, loop: Loop, p: Place) -> None:
        """Emit the assignment of the next values to the variables of the loop."""
        names = [var.python for var in loop.vars]
        owned = self._owned_by_each(node, self.uncaptured(loop.vars))
        if not any(owned):
            self.block.append(assign_all(names, self.expressions(node.args), p))
            return
        held: list[str] = []
        values: list[ast.expr] = []
        late = [bool(each) and can_wait(arg, each) for arg, each in zip(node.args, owned, strict=True)]
        for arg, each, wait in zip(node.args, owned, late, strict=True):
            if wait or isinstance(arg, Const):
                values.append(const(None, p) if wait else self.expression(arg))
                continue
            held.append(self.temporary())
            self.emit(arg, Goal(held[-1], owned=each))
            values.append(python_name(held[-1], p))
        for index, (arg, wait) in enumerate(zip(node.args, late, strict=True)):
            if wait:
                assert isinstance(arg, Invoke)
                assert isinstance(arg.args[0], Local)
                values[index] = self.modifying_call(arg, arg.args[0].var, p)
        self.block.append(assign_all(names, values, p))
        # Clear the temporaries, so that each value has one reference, not two.
        self.block.extend(assign(name, const(None, p), p) for name in held)

    def _owned_by_each(self, node: Recur, owned: Owned) -> list[Owned]:
        """Return for each value of the next iteration the variables whose values it may modify.

        No other value may read them, unless it is computed before.
        """
        found: list[Owned] = []
        read = [variables(arg) for arg in node.args]
        one_waits = sum(can_wait(arg, owned) for arg in node.args) == 1
        for index, arg in enumerate(node.args):
            elsewhere = set().union(*read[:index], *read[index + 1 :])
            free = owned - elsewhere
            if not ends_in_change(arg, free):
                free = owned if one_waits and can_wait(arg, owned) else NOTHING
            found.append(free)
        return found

    # Iterating over collections: ``map``, ``filter``, ``remove``, ``reduce``, ``doseq`` and ``for``.

    def _each(self, node: Each, goal: Goal) -> None:
        p = self.place(node)
        if self._loops >= MAX_LOOPS:
            name = self.temporary("each")
            self.block.append(function(name, [], self._function_body(node, Goal(leaves=True)), p))
            self.reach(call(python_name(name, p), [], p), goal, p)
            return
        if node.kind == "reduce":
            assert node.init is not None
            accumulator = node.vars[0].python
            initial, collection = self.expressions([node.init, node.collection])
            self.block.append(assign(accumulator, initial, p))
            read = variables(node.body) | variables(node.collection)
            if isinstance(node.init, Local) and node.init.var in goal.owned - read:
                # An inner reduction may modify its value, since the variable is not read afterwards.
                self.block.append(assign(node.init.var.python, const(None, p), p))
        else:
            collection = self.expression(node.collection)
        slots = 0 if node.kind in {"reduce", "each"} else 1 + self._cells_of_each(node)
        over = call(
            self.runtime("iterate", p), [python_name("run", p), const(node.kind, p), collection, const(slots, p)], p
        )
        source = self.temporary()
        self.block.append(assign(source, over, p))
        if node.body.simple and node.kind in {"map", "filter", "remove"}:
            self.reach(self._comprehension(node, source, p), goal, p)
            return
        result = accumulator if node.kind == "reduce" else None
        if node.kind not in {"reduce", "each"}:
            result = self.temporary()
            self.block.append(assign(result, ast.List([], LOAD, **p), p))
        self.block.append(self._loop_over(node, source, result, p))
        if result in self.sole and self.kinds[result] == "list":
            assert isinstance(node.init, Make)
            grown = call(python_name("len", p), [python_name(result, p)], p)
            added = ast.BinOp(grown, ast.Sub(), const(len(node.init.items), p), **p)
            cells = ast.Attribute(python_name("budget", p), "cells", LOAD, **p)
            self.block.append(ast.Expr(call(cells, [added], p), **p))
        self.reach(python_name(result, p) if result else const(None, p), goal, p)
        if goal.owned and node.kind == "reduce" and goal.variable is not None and goal.loop is None:
            self.block.append(assign(accumulator, const(None, p), p))  # one variable has the value, not two

    def _cells_of_each(self, node: Each) -> int:
        """Return the slots of the collection that ``map`` makes of each item, which are charged before the loop."""
        value = node.body
        while isinstance(value, Let):
            value = value.body
        if node.kind != "map" or not isinstance(value, Make) or not _is_display(value):
            return 0
        self.charged.add(id(value))
        return _cells(value)

    def _comprehension(self, node: Each, source: str, p: Place) -> ast.expr:
        item = node.vars[-1].python
        value = self.expression(node.body) if node.kind == "map" else python_name(item, p)
        tests = []
        if node.kind == "filter":
            tests = [self.test(node.body)]
        elif node.kind == "remove":
            tests = [ast.UnaryOp(ast.Not(), self.test(node.body), **p)]
        walk = ast.comprehension(ast.Name(item, STORE, **p), python_name(source, p), tests, 0)
        return ast.ListComp(value, [walk], **p)

    def _loop_over(self, node: Each, source: str, result: str | None, p: Place) -> ast.stmt:
        """Return the ``for`` statement that adds the results to ``result``."""
        item = node.vars[-1].python
        self._loops += 1
        collection = node.collection
        if isinstance(collection, Invoke) and collection.name == "range" and not _contains_recur(node.body):
            node.vars[-1].number = True
            node.vars[-1].integer = all(map(is_integer, collection.args))
        is_unreduced = node.kind == "reduce" and _is_unreduced(node)
        if is_unreduced and isinstance(node.init, Make) and result:
            self.kinds[result] = {"vector": "list", "map": "dict"}.get(node.init.kind, "")
            if _only_grows(node) and node.vars[0] not in self.captured:
                self.sole.add(result)
        if node.kind == "each":
            body = self._block_of(node.body, Goal())
        elif node.kind == "reduce":
            body = self._block_of(node.body, Goal(result, owned=self.uncaptured(node.vars[:1])))
            if result and not is_number(node.body) and not is_unreduced:
                ended = self.is_type(python_name(result, p), "reduced·", p)
                whole = assign(result, ast.Attribute(python_name(result, p), "value", LOAD, **p), p)
                body.append(if_(ended, [whole, ast.Break(**p)], [], p))
        else:
            block, self.block = self.block, []
            value = self.expression(node.body)
            if node.kind == "map":
                self._append(result, value, p)
            else:
                test = self.truth_of(value, p)
                held, self.block = self.block, []
                self._append(result, python_name(item, p), p)
                adding, self.block = self.block, held
                self.block.append(if_(test, *((adding, []) if node.kind == "filter" else ([], adding)), p))
            body, self.block = self.block, block
        self._loops -= 1
        return ast.For(ast.Name(item, STORE, **p), python_name(source, p), body or [ast.Pass(**p)], [], None, **p)

    def _append(self, out: str | None, value: ast.expr, p: Place) -> None:
        append = ast.Attribute(python_name(out or "", p), "append", LOAD, **p)
        self.block.append(ast.Expr(call(append, [value], p), **p))

    # Other nodes.

    def _do(self, node: Do, goal: Goal) -> None:
        for item in node.items[:-1]:
            self.emit(item, Goal())
        self.emit(node.items[-1], goal)

    def _bind(self, var: Var, value: Node) -> None:
        if isinstance(value, Fn) and not (value.simple and value.var is None):
            own = value.var.python if value.var else var.python
            self.define_function(value, own)
            if own != var.python:
                p = self.place(value)
                self.block.append(assign(var.python, python_name(own, p), p))
        else:
            self.emit(value, Goal(var.python))

    def _let(self, node: Let, goal: Goal) -> None:
        at = 0
        while at < len(node.pairs):
            items = _items_of_one(node.pairs[at:])
            if len(items) > 1:
                self._bind_items(items)
            else:
                self._bind(*node.pairs[at])
            at += max(1, len(items))
        self.emit(node.body, goal)

    def _bind_items(self, items: Mapping[int, tuple[Var, Node]]) -> None:
        """Bind variables to items of one vector, by index: ``a, b = vector if len(vector) == 2 else …``."""
        value = next(iter(items.values()))[1]
        assert isinstance(value, RuntimeCall)
        p, vector, count = self.place(value), self.expression(value.args[0]), max(items) + 1
        first, again = self.twice(vector, p)
        fits = compare(call(python_name("len", p), [first], p), ast.Eq(), const(count, p), p)
        other = call(self.runtime("first_items", p), [python_name("run", p), again(), const(count, p)], p)
        names = [items[index][0].python if index in items else self.temporary() for index in range(count)]
        targets: list[ast.expr] = [ast.Name(name, STORE, **p) for name in names]
        unpacked = choose(fits, again(), other, p)
        self.block.append(ast.Assign([ast.Tuple(targets, STORE, **p)], unpacked, None, **p))

    def _define_name(self, node: Define, goal: Goal) -> None:
        self._outer[-1].add(node.var.python)
        self._bind(node.var, node.value)
        p = self.place(node)
        self.reach(python_name(node.var.python, p), goal, p)

    def _emit_if(self, node: If, goal: Goal) -> None:
        p = self.place(node)
        test = self.test(node.test)
        then = self._block_of(node.then, goal)
        otherwise = self._block_of(node.otherwise, goal)
        if goal.leaves:
            # The first branch does not continue, so the second needs no ``else``.
            self.block.append(if_(test, then, [], p))
            self.block.extend(otherwise)
        elif then or otherwise:
            self.block.append(if_(test, then, otherwise, p))

    def _cond(self, node: Cond, goal: Goal) -> None:
        p = self.place(node)
        if not goal.leaves:
            # A function that returns from the first true clause, so that nesting does not grow with the clauses.
            name = self.temporary("cond")
            body = self._function_body(node, Goal(leaves=True, owned=goal.owned))
            self.block.append(function(name, [], body, p))
            self.reach(call(python_name(name, p), [], p), goal, p)
            return
        for test, then in node.clauses:
            held = self.test(test)
            self.block.append(if_(held, self._block_of(then, goal), [], p))
        self.reach(const(None, p), goal, p)

    def _emit_logic(self, node: Logic, goal: Goal) -> None:
        p = self.place(node)
        name = self.temporary()
        self.emit(node.items[0], Goal(name))
        for item in node.items[1:]:
            decided = self.truth_of(python_name(name, p), p)
            if node.kind == "or":
                decided = ast.UnaryOp(ast.Not(), decided, **p)
            self.block.append(if_(decided, self._block_of(item, Goal(name)), [], p))
        self.reach(python_name(name, p), goal, p)

    def _try(self, node: Try, goal: Goal) -> None:
        p = self.place(node)

        def thunk(inner: Node, params: list[str]) -> ast.expr:
            made = self.temporary("try")
            self.block.append(function(made, params, self._function_body(inner, Goal(leaves=True)), p))
            return python_name(made, p)

        body = thunk(node.body, [])
        handler = thunk(node.handler, [node.var.python]) if node.handler and node.var else const(None, p)
        final = thunk(node.final, []) if node.final else const(None, p)
        self.reach(call(self.runtime("attempt", p), [python_name("run", p), body, handler, final], p), goal, p)


_EXPRESSIONS: dict[type[Node], Any] = {
    Const: Emitter._const,
    Local: Emitter._local,
    Builtin: Emitter._builtin,
    RuntimeCall: Emitter._runtime_call,
    Make: Emitter._make,
    If: Emitter._if,
    Logic: Emitter._logic,
    Fn: Emitter._fn,
    Apply: Emitter._apply,
    KeywordCall: Emitter._keyword_call,
    WhereTest: Emitter._where,
    Invoke: Emitter._invoke,
}

_STATEMENTS: dict[type[Node], Any] = {
    Do: Emitter._do,
    Let: Emitter._let,
    Define: Emitter._define_name,
    If: Emitter._emit_if,
    Cond: Emitter._cond,
    Logic: Emitter._emit_logic,
    Loop: Emitter._loop,
    Each: Emitter._each,
    Recur: Emitter._recur,
    Try: Emitter._try,
    Fn: lambda self, node, goal: self.reach(self.statements(node), goal, self.place(node)),
}
