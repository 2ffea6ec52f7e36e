"""Operations that programs do all the time, written out in place: looking into maps, comparing, adding.

What is written out handles the common types only and hands anything else to the builtin of that name, so errors and
rare cases are the builtin's. Sums and products are kept below ``SMALL`` here: larger ones are the builtin's, which
charges their size.
"""

from __future__ import annotations

import ast
from typing import Any, Final

from pyagentd.lisp import python as py
from pyagentd.lisp.python import Place
from pyagentd.lisp.values import Keyword
from pyagentd.lisp.writing import PLAIN, SMALL, Writing

ORDER: Final[dict[str, type[ast.cmpop]]] = {"<": ast.Lt, ">": ast.Gt, "<=": ast.LtE, ">=": ast.GtE}
ARITHMETIC: Final[dict[str, type[ast.operator]]] = {"+": ast.Add, "-": ast.Sub, "*": ast.Mult}


class Operations(Writing):
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
        """Return what a map has under a keyword, found in place; ``get`` is laxer with other values."""
        known = self.constant(key, p)

        def elsewhere(value: ast.expr) -> ast.expr:
            if by_get:
                return self.call_builtin("get", [value, known], p)
            return py.call(py.name("field·", p), [known, value, *default], p)

        if isinstance(target, ast.Constant) or (default and not isinstance(default[0], PLAIN)):
            return elsewhere(target)
        first, again = self.twice(target, p)
        has = py.compare(known, ast.In(), again(), p)
        found = ast.Subscript(again(), known, py.LOAD, **p)
        slow = elsewhere(again())
        # Keys of what came from JSON are strings: they are tried in place too.
        name = py.const(key.name, p)
        named = ast.Subscript(again(), name, py.LOAD, **p)
        nothing = default[0] if default else py.const(None, p)
        inside = py.choose(has, found, py.choose(py.compare(name, ast.In(), again(), p), named, nothing, p), p)
        if is_map:
            return inside
        return py.choose(self.is_type(first, "dict", p), inside, slow, p)

    def where_equal(self, found: ast.expr, wanted: Any, p: Place) -> ast.expr:
        """Return whether a field equals a constant, as ``where`` says."""
        if wanted is None or type(wanted) is bool:
            return py.is_(found, wanted, p)
        name = wanted.name if type(wanted) is Keyword else wanted
        if type(name) is not str:
            return py.call(py.name("equal·", p), [found, self.constant(wanted, p), py.name("budget", p)], p)
        first, again = self.twice(found, p)
        text = py.compare(first, ast.Eq(), py.const(name, p), p)
        keyword = py.same(again(), self.constant(Keyword(name), p), p)
        return py.either([text, keyword], p)

    def equal(self, args: list[ast.expr], *, negated: bool, p: Place) -> ast.expr:
        """Return ``(= one other)``."""
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

    def numbers(
        self, args: list[ast.expr], p: Place, known: list[bool]
    ) -> tuple[list[ast.expr], list[ast.expr]] | None:
        """Return tests that two operands are numbers, and the operands after that; None when it is not worth it."""
        if not any(isinstance(arg, PLAIN) for arg in args):
            return self.computed_numbers(args, p, known)
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
            tests.insert(0 if not isinstance(arg, PLAIN) else len(tests), py.either(kinds, p))
            operands.append(again())
        return tests, operands

    def computed_numbers(
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

    def order(self, name: str, args: list[ast.expr], p: Place, known: list[bool]) -> ast.expr:
        """Return a comparison; ``known`` says which operands can only be numbers."""
        numbers = self.numbers(args, p, known)
        if numbers is None:
            return self.call_builtin(name, args, p)
        tests, (one, other) = numbers
        compared = py.compare(one, ORDER[name](), other, p)
        return (
            py.choose(py.both(tests, p), compared, self.call_builtin(name, [one, other], p), p) if tests else compared
        )

    def arithmetic(self, operator: str, name: str, args: list[ast.expr], p: Place, known: list[bool]) -> ast.expr:
        """Return a sum, difference or product; ``name`` is the builtin for what is not done in place."""
        numbers = self.numbers(args, p, known)
        if numbers is None or all(isinstance(arg, ast.Constant) for arg in args):
            return self.call_builtin(name, args[: 1 if name in {"inc", "dec"} else 2], p)
        tests, (one, other) = numbers
        held = self.temporary()
        computed = py.walrus(held, ast.BinOp(one, ARITHMETIC[operator](), other, **p), p)
        names = [arg.id for arg in args if isinstance(arg, ast.Name)]
        if len(tests) == 2 and len(names) == 2:
            test = self.of_two_unknown(ARITHMETIC[operator](), names[0], names[1], held, p)
            return py.choose(test, py.name(held, p), self.call_builtin(name, [one, other], p), p)
        small = self.is_small(computed, held, p)
        slow = self.call_builtin(name, [one] if name in {"inc", "dec"} else [one, other], p)
        return py.choose(py.both([*tests, small], p), py.name(held, p), slow, p)

    def of_two_unknown(self, operator: ast.operator, one: str, other: str, held: str, p: Place) -> ast.expr:
        """Return whether two variables are numbers with a small result, then held; no type is asked twice."""

        def is_a(name: str, kind: str) -> ast.expr:
            return py.same(py.call(py.name("type", p), [py.name(name, p)], p), py.name(kind, p), p)

        def within(bound: float) -> ast.expr:
            computed = py.walrus(held, ast.BinOp(py.name(one, p), operator, py.name(other, p), **p), p)
            return ast.Compare(py.const(-bound, p), [ast.Lt(), ast.Lt()], [computed, py.const(bound, p)], **p)

        large = float(SMALL)
        of_float = py.both([py.either([is_a(other, "int"), is_a(other, "float")], p), within(large)], p)
        of_int = py.choose(is_a(other, "int"), within(SMALL), py.both([is_a(other, "float"), within(large)], p), p)
        return py.choose(is_a(one, "float"), of_float, py.both([is_a(one, "int"), of_int], p), p)

    def is_small(self, computed: ast.expr, held: str, p: Place) -> ast.expr:
        """Return whether a result, held in a variable, is far from where integers grow and floats end.

        Each type is compared with its own: a float and an integer compare slowly.
        """

        def within(bound: float) -> ast.expr:
            return ast.Compare(py.const(-bound, p), [ast.Lt(), ast.Lt()], [py.name(held, p), py.const(bound, p)], **p)

        is_float = py.same(py.call(py.name("type", p), [computed], p), py.name("float", p), p)
        return py.choose(is_float, within(float(SMALL)), within(SMALL), p)
