"""Core nodes to Python expressions; the few operations that programs do all the time are written out in place.

What is written out handles the common types only and hands anything else to the builtin of that name, so errors and
rare cases are the builtin's. Sums and products are kept below ``_SMALL`` here: larger ones are the builtin's, which
charges their size.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from pyagentd.lisp import python as py
from pyagentd.lisp import support
from pyagentd.lisp.builtins import BUILTINS
from pyagentd.lisp.core import (
    Apply,
    Builtin,
    Const,
    Fn,
    If,
    Invoke,
    KeywordCall,
    Local,
    Logic,
    Make,
    Node,
    Space,
    Support,
    WhereTest,
    is_number,
)
from pyagentd.lisp.python import Place
from pyagentd.lisp.syntax import Places
from pyagentd.lisp.values import Keyword, as_key

_SMALL: Final = 1 << 47  # comparing a float with a larger integer is slow
_BOOLEAN: Final = frozenset(
    (
        "=",
        "not=",
        "<",
        ">",
        "<=",
        ">=",
        "not",
        "nil?",
        "some?",
        "empty?",
        "zero?",
        "pos?",
        "neg?",
        "even?",
        "odd?",
        "contains?",
        "every?",
        "not-any?",
        "string?",
        "number?",
        "map?",
        "vector?",
        "set?",
        "keyword?",
        "boolean?",
        "coll?",
        "true?",
        "false?",
        "starts-with?",
        "ends-with?",
        "includes?",
    )
)
_ORDER: Final[dict[str, type[ast.cmpop]]] = {"<": ast.Lt, ">": ast.Gt, "<=": ast.LtE, ">=": ast.GtE}
_ARITHMETIC: Final[dict[str, type[ast.operator]]] = {"+": ast.Add, "-": ast.Sub, "*": ast.Mult}
_PLAIN: Final = (ast.Name, ast.Constant)


class Expressions(ABC):
    """Emits expressions.

    Args:
        places: Turns offsets into lines and columns.
    """

    def __init__(self, places: Places) -> None:
        self.globals: dict[str, Any] = {
            "type": type,
            "int": int,
            "float": float,
            "dict": dict,
            "numbers·": frozenset({int, float}),
            "partial·": partial,
            "equal·": support.equal,
            "field·": support.field,
        }
        self.block: list[ast.stmt] = []
        self.chargers: dict[str, int] = {}
        self._places = places
        self._count = 0
        self._pool: dict[Any, str] = {}
        self._place_at: dict[int, Place] = {}

    @abstractmethod
    def statements(self, node: Node) -> ast.expr:
        """Emit statements for a node that is no expression; return the variable that has its value."""

    def place(self, node: Node) -> Place:
        """Return where a node stands in the text."""
        found = self._place_at.get(node.start)
        if found is None:
            found = self._place_at[node.start] = py.place(*self._places.of(node.start))
        return found

    def temporary(self, hint: str = "") -> str:
        """Return a new variable of generated code."""
        self._count += 1
        return f"{hint}·t{self._count}"

    def support(self, name: str, p: Place) -> ast.expr:
        """Return a function of the run time."""
        known = f"s·{name}"
        self.globals[known] = getattr(support, name)
        return py.name(known, p)

    def builtin(self, name: str, p: Place) -> ast.expr:
        """Return the function of a builtin, as it is called here: with the budget first where it charges."""
        known = f"b·{name}"
        self.globals[known] = BUILTINS[name].function
        return py.name(known, p)

    def call_builtin(self, name: str, args: list[ast.expr], p: Place) -> ast.expr:
        """Return a call of a builtin."""
        charges = [py.name("budget", p)] if BUILTINS[name].charges else []
        return py.call(self.builtin(name, p), [*charges, *args], p)

    def charger(self, cells: int) -> str:
        """Return the variable of the program that charges so many cells when it is called."""
        name = f"cells·{cells}"
        self.chargers[name] = cells
        return name

    # Nodes

    def expression(self, node: Node) -> ast.expr:
        """Return a node as an expression, after emitting the statements it needs."""
        method = _EXPRESSIONS.get(type(node))
        if method is None or (not node.simple and isinstance(node, If | Logic | Fn)):
            return self.statements(node)
        found: ast.expr = method(self, node)
        return found

    def expressions(self, nodes: list[Node]) -> list[ast.expr]:
        """Return nodes as expressions that may stand side by side and are evaluated in their order."""
        made: list[ast.expr] = []
        held = 0
        for node in nodes:
            before = len(self.block)
            value = self.expression(node)
            if len(self.block) > before:
                # Statements were needed: what stands to the left is computed before them.
                p = self.place(node)
                spilled: list[ast.stmt] = []
                for index in range(held, len(made)):
                    if not isinstance(made[index], _PLAIN):
                        name = self.temporary()
                        spilled.append(py.assign(name, made[index], p))
                        made[index] = py.name(name, p)
                self.block[before:before] = spilled
                held = len(made)
            if not node.simple and not isinstance(value, _PLAIN):
                name = self.temporary()
                p = self.place(node)
                before = len(self.block)
                for index in range(held, len(made)):
                    if not isinstance(made[index], _PLAIN):
                        each = self.temporary()
                        self.block.append(py.assign(each, made[index], p))
                        made[index] = py.name(each, p)
                self.block.append(py.assign(name, value, p))
                value = py.name(name, p)
                held = len(made)
            made.append(value)
        return made

    def test(self, node: Node) -> ast.expr:
        """Return an expression that Python takes for true when the value of the node counts as true."""
        p = self.place(node)
        if isinstance(node, Const):
            return py.const(node.value is not None and node.value is not False, p)
        if isinstance(node, Invoke) and node.name in _BOOLEAN:
            return self.expression(node)
        if isinstance(node, WhereTest) or (isinstance(node, Support) and node.name in {"is_something", "is_missing"}):
            return self.expression(node)
        if isinstance(node, Logic) and node.simple:
            tests = [self.test(item) for item in node.items]
            return py.both(tests, p) if node.kind == "and" else py.either(tests, p)
        return self.truth_of(self.expression(node), p)

    def truth_of(self, value: ast.expr, p: Place) -> ast.expr:
        """Return whether a value counts as true."""
        first, again = self.twice(value, p)
        return py.both([py.is_not(first, None, p), py.is_not(again(), False, p)], p)

    def twice(self, value: ast.expr, p: Place) -> tuple[ast.expr, Callable[[], ast.expr]]:
        """Return an expression for the first use of a value, and a maker for every later one."""
        if isinstance(value, ast.Name):
            return value, lambda: py.name(value.id, p)
        if isinstance(value, ast.Constant):
            return value, lambda: py.const(value.value, p)
        held = self.temporary()
        return py.walrus(held, value, p), lambda: py.name(held, p)

    def constant(self, value: Any, p: Place) -> ast.expr:
        """Return a constant, from the pool where Python has none of its kind."""
        if value is None or type(value) in {bool, str} or (type(value) is int and abs(value) < _SMALL):
            return py.const(value, p)
        key = (type(value), repr(value))
        name = self._pool.get(key)
        if name is None:
            name = self._pool[key] = f"k·{len(self._pool)}"
            self.globals[name] = value
        return py.name(name, p)

    def _const(self, node: Const) -> ast.expr:
        return self.constant(node.value, self.place(node))

    def _local(self, node: Local) -> ast.expr:
        return py.name(node.var.python, self.place(node))

    def _builtin(self, node: Builtin) -> ast.expr:
        p = self.place(node)
        function = self.builtin(node.name, p)
        if BUILTINS[node.name].charges:
            return py.call(py.name("partial·", p), [function, py.name("budget", p)], p)
        return function

    def _space(self, node: Space) -> ast.expr:
        p = self.place(node)
        return py.call(self.support(f"{node.space}_value", p), [py.name("run", p), py.const(node.name, p)], p)

    def _support(self, node: Support) -> ast.expr:
        p = self.place(node)
        args = self.expressions(node.args)
        if node.name == "is_something":
            return py.is_not(args[0], None, p)
        if node.name == "as_map" and isinstance(args[0], ast.Name):
            slow = py.call(self.support("as_map", p), [py.name("run", p), args[0]], p)
            return py.choose(self.is_type(py.name(args[0].id, p), "dict", p), py.name(args[0].id, p), slow, p)
        return py.call(self.support(node.name, p), [py.name("run", p), *args], p)

    def _make(self, node: Make) -> ast.expr:
        p = self.place(node)
        items = self.expressions(node.items)
        if node.kind == "set" or (node.kind == "map" and not all(map(_plain_key, node.items[::2]))):
            return py.call(self.support(f"make_{node.kind}", p), [py.name("run", p), *items], p)
        made: ast.expr
        if node.kind == "vector":
            made = ast.List(items, py.LOAD, **p)
        else:
            made = ast.Dict(list(items[::2]), items[1::2], **p)
        if not items:
            return made
        charged = py.call(py.name(self.charger(len(items)), p), [], p)
        return py.choose(py.is_(charged, None, p), made, py.const(None, p), p)

    def _if(self, node: If) -> ast.expr:
        p = self.place(node)
        return py.choose(self.test(node.test), self.expression(node.then), self.expression(node.otherwise), p)

    def _logic(self, node: Logic) -> ast.expr:
        p = self.place(node)
        if all(_is_boolean(item) for item in node.items):
            return self.test(node)
        chosen = self.expression(node.items[-1])
        for item in reversed(node.items[:-1]):
            first, again = self.twice(self.expression(item), p)
            if node.kind == "and":
                true = py.both([py.is_not(first, None, p), py.is_not(again(), False, p)], p)
                chosen = py.choose(true, chosen, again(), p)
            else:
                false = py.either([py.is_(first, None, p), py.is_(again(), False, p)], p)
                chosen = py.choose(false, chosen, again(), p)
        return chosen

    def _fn(self, node: Fn) -> ast.expr:
        p = self.place(node)
        arity = node.arities[0]
        params = [var.python for var in arity.params]
        return ast.Lambda(py.arguments(params, None, p), self.expression(arity.body), **p)

    def _apply(self, node: Apply) -> ast.expr:
        p = self.place(node)
        count = len(node.args)
        function, *args = self.expressions([node.function, *node.args])
        if isinstance(node.function, Local) and _takes(node.function.var.arity, count):
            tick = py.is_(py.call(py.name("tick", p), [], p), None, p)
            return py.choose(tick, py.call(function, args, p), py.const(None, p), p)
        callee = py.call(self.support("callee", p), [py.name("run", p), function, py.const(count, p)], p)
        return py.call(callee, args, p)

    def _keyword_call(self, node: KeywordCall) -> ast.expr:
        p = self.place(node)
        target, *default = self.expressions(node.args)
        local = node.args[0]
        return self.field(node.key, target, default, p, is_map=isinstance(local, Local) and local.var.mapping)

    def field(
        self, key: Keyword, target: ast.expr, default: list[ast.expr], p: Place, *, is_map: bool = False
    ) -> ast.expr:
        """Return what a map has under a keyword; the keyword itself is tried in place."""
        known = self.constant(key, p)
        if isinstance(target, ast.Constant) or (default and not isinstance(default[0], _PLAIN)):
            return py.call(py.name("field·", p), [known, target, *default], p)
        first, again = self.twice(target, p)
        has = py.compare(known, ast.In(), again(), p)
        found = ast.Subscript(again(), known, py.LOAD, **p)
        slow = py.call(py.name("field·", p), [known, again(), *default], p)
        # Keys of what came from JSON are strings: they are tried in place too.
        name = py.const(key.name, p)
        named = ast.Subscript(again(), name, py.LOAD, **p)
        nothing = default[0] if default else py.const(None, p)
        inside = py.choose(has, found, py.choose(py.compare(name, ast.In(), again(), p), named, nothing, p), p)
        if is_map:
            return inside
        return py.choose(self.is_type(first, "dict", p), inside, slow, p)

    def is_type(self, value: ast.expr, name: str, p: Place) -> ast.expr:
        """Return whether a value is of a type that generated code knows by name."""
        return py.same(py.call(py.name("type", p), [value], p), py.name(name, p), p)

    def _where(self, node: WhereTest) -> ast.expr:
        p = self.place(node)
        found = self.field(node.key, self.expression(node.target), [], p)
        operator, value = node.operator, node.value
        if not operator:
            return self.truth_of(found, p)
        if operator in _ORDER:
            wanted = self.expression(value)
            first, again = self.twice(found, p)
            slow = py.call(
                self.support("where_order", p), [py.name("run", p), py.const(operator, p), again(), wanted], p
            )
            if not is_number(value):
                return py.call(slow.func, [*slow.args[:2], found, wanted], p)  # type: ignore[attr-defined]
            numeric = py.either([self.is_type(first, "float", p), self.is_type(again(), "int", p)], p)
            return py.choose(numeric, py.compare(again(), _ORDER[operator](), wanted, p), slow, p)
        assert isinstance(value, Const)
        equal = self._where_equal(found, value.value, p)
        return equal if operator == "=" else ast.UnaryOp(ast.Not(), equal, **p)

    def _where_equal(self, found: ast.expr, wanted: Any, p: Place) -> ast.expr:
        if wanted is None or type(wanted) is bool:
            return py.is_(found, wanted, p)
        name = wanted.name if type(wanted) is Keyword else wanted
        if type(name) is not str:
            return py.call(py.name("equal·", p), [found, self.constant(wanted, p), py.name("budget", p)], p)
        first, again = self.twice(found, p)
        text = py.compare(first, ast.Eq(), py.const(name, p), p)
        keyword = py.same(again(), self.constant(Keyword(name), p), p)
        return py.either([text, keyword], p)

    def _invoke(self, node: Invoke) -> ast.expr:
        p = self.place(node)
        name, count = node.name, len(node.args)
        if count == 2 and name == "get" and isinstance(key := node.args[1], Const) and type(key.value) is Keyword:
            (target,) = self.expressions(node.args[:1])
            return self.field(key.value, target, [], p)
        args = self.expressions(node.args)
        if count == 1:
            if name == "not":
                first, again = self.twice(args[0], p)
                return py.either([py.is_(first, None, p), py.is_(again(), False, p)], p)
            if name in {"nil?", "some?"}:
                return (py.is_ if name == "nil?" else py.is_not)(args[0], None, p)
            if name in {"inc", "dec"}:
                known = [is_number(node.args[0]), True]
                return self._arithmetic("+" if name == "inc" else "-", name, [args[0], py.const(1, p)], p, known)
        elif count == 2:
            if name in {"=", "not="}:
                return self._equal(args, negated=name == "not=", p=p)
            if name in _ORDER:
                return self._order(name, args, p, list(map(is_number, node.args)))
            if name in _ARITHMETIC:
                return self._arithmetic(name, name, args, p, list(map(is_number, node.args)))
        return self.call_builtin(name, args, p)

    def _equal(self, args: list[ast.expr], *, negated: bool, p: Place) -> ast.expr:
        one, other = args
        if isinstance(one, ast.Constant) and not isinstance(other, ast.Constant):
            one, other = other, one
        found: ast.expr
        if isinstance(other, ast.Constant) and (other.value is None or type(other.value) is bool):
            return (py.is_not if negated else py.is_)(one, other.value, p)
        if isinstance(other, ast.Constant) and type(other.value) is str:
            return py.compare(one, ast.NotEq() if negated else ast.Eq(), other, p)
        if (
            isinstance(other, ast.Name)
            and type(self.globals.get(other.id)) is Keyword
            and not isinstance(one, ast.Constant)
        ):
            return py.compare(one, ast.IsNot() if negated else ast.Is(), other, p)
        found = py.call(py.name("equal·", p), [one, other, py.name("budget", p)], p)
        return ast.UnaryOp(ast.Not(), found, **p) if negated else found

    def _numbers(
        self, args: list[ast.expr], p: Place, known: list[bool]
    ) -> tuple[list[ast.expr], list[ast.expr]] | None:
        """Return tests that two operands are numbers, and the operands after that; None when it is not worth it."""
        if not any(isinstance(arg, _PLAIN) for arg in args):
            return self._computed_numbers(args, p, known)
        tests: list[ast.expr] = []
        operands: list[ast.expr] = []
        for arg, is_known in zip(args, known, strict=True):
            if isinstance(arg, ast.Constant):
                if type(arg.value) not in {int, float}:
                    return None
                operands.append(arg)
                continue
            if isinstance(arg, ast.Name) and type(self.globals.get(arg.id)) in {int, float}:
                operands.append(arg)
                continue
            if is_known and isinstance(arg, ast.Name):
                operands.append(arg)
                continue
            first, again = self.twice(arg, p)
            if is_known:
                tests.insert(0, py.is_not(first, None, p))
                operands.append(again())
                continue
            kinds = [
                py.same(py.call(py.name("type", p), [each], p), py.name(kind, p), p)
                for each, kind in ((first, "int"), (again(), "float"))
            ]
            # What has to be computed comes first, so that it is computed whatever the other one is.
            tests.insert(0 if not isinstance(arg, _PLAIN) else len(tests), py.either(kinds, p))
            operands.append(again())
        return tests, operands

    def _computed_numbers(
        self, args: list[ast.expr], p: Place, known: list[bool]
    ) -> tuple[list[ast.expr], list[ast.expr]]:
        """Return one test that computes both operands, in their order and whatever the first one is."""
        tests: list[ast.expr] = []
        operands: list[ast.expr] = []
        for arg, is_known in zip(args, known, strict=True):
            first, again = self.twice(arg, p)
            if is_known:
                tests.append(py.is_not(first, None, p))
            else:
                kind = py.call(py.name("type", p), [first], p)
                tests.append(py.compare(kind, ast.In(), py.name("numbers·", p), p))
            operands.append(again())
        return [ast.BinOp(tests[0], ast.BitAnd(), tests[1], **p)], operands

    def _order(self, name: str, args: list[ast.expr], p: Place, known: list[bool]) -> ast.expr:
        numbers = self._numbers(args, p, known)
        if numbers is None:
            return self.call_builtin(name, args, p)
        tests, (one, other) = numbers
        compared = py.compare(one, _ORDER[name](), other, p)
        return (
            py.choose(py.both(tests, p), compared, self.call_builtin(name, [one, other], p), p) if tests else compared
        )

    def _arithmetic(self, operator: str, name: str, args: list[ast.expr], p: Place, known: list[bool]) -> ast.expr:
        numbers = self._numbers(args, p, known)
        if numbers is None or all(isinstance(arg, ast.Constant) for arg in args):
            return self.call_builtin(name, args[: 1 if name in {"inc", "dec"} else 2], p)
        tests, (one, other) = numbers
        held = self.temporary()
        computed = py.walrus(held, ast.BinOp(one, _ARITHMETIC[operator](), other, **p), p)
        small = self._is_small(computed, held, p)
        slow = self.call_builtin(name, [one] if name in {"inc", "dec"} else [one, other], p)
        return py.choose(py.both([*tests, small], p), py.name(held, p), slow, p)

    def _is_small(self, computed: ast.expr, held: str, p: Place) -> ast.expr:
        """Return whether a result, held in a variable, is far from where integers grow and floats end.

        Each type is compared with its own: a float and an integer compare slowly.
        """

        def within(bound: float) -> ast.expr:
            return ast.Compare(py.const(-bound, p), [ast.Lt(), ast.Lt()], [py.name(held, p), py.const(bound, p)], **p)

        is_float = py.same(py.call(py.name("type", p), [computed], p), py.name("float", p), p)
        return py.choose(is_float, within(float(_SMALL)), within(_SMALL), p)


def _takes(arity: tuple[int, int | None] | None, count: int) -> bool:
    return arity is not None and arity[0] <= count and (arity[1] is None or count <= arity[1])


def _plain_key(node: Node) -> bool:
    """Return whether a constant is its own key."""
    return isinstance(node, Const) and node.value == as_key(node.value) and type(node.value) is not bool


def _is_boolean(node: Node) -> bool:
    return (isinstance(node, Invoke) and node.name in _BOOLEAN) or (
        isinstance(node, Const) and type(node.value) is bool
    )


_EXPRESSIONS: dict[type[Node], Any] = {
    Const: Expressions._const,
    Local: Expressions._local,
    Builtin: Expressions._builtin,
    Space: Expressions._space,
    Support: Expressions._support,
    Make: Expressions._make,
    If: Expressions._if,
    Logic: Expressions._logic,
    Fn: Expressions._fn,
    Apply: Expressions._apply,
    KeywordCall: Expressions._keyword_call,
    WhereTest: Expressions._where,
    Invoke: Expressions._invoke,
}
