"""Core nodes to Python expressions."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Any, Final

from pyagentd.lisp import python as py
from pyagentd.lisp.builtins import BUILTINS
from pyagentd.lisp.builtins.inplace import IN_PLACE
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
    Var,
    WhereTest,
    is_number,
)
from pyagentd.lisp.operations import ARITHMETIC, ORDER, Operations
from pyagentd.lisp.ownership import Owned, changes, ends_in_change
from pyagentd.lisp.python import Place
from pyagentd.lisp.values import Keyword, as_key
from pyagentd.lisp.writing import PLAIN

_BOOLEAN: Final = frozenset(
    (
        *(
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
        ),
        *("contains?", "every?", "not-any?", "string?", "number?", "map?", "vector?", "set?", "keyword?", "boolean?"),
        *("coll?", "true?", "false?", "starts-with?", "ends-with?", "includes?"),
    )
)
"""Builtins that give true or false and nothing else."""


class Expressions(Operations, ABC):
    """Emits expressions; ``captured`` are the variables that functions inside their scope read."""

    captured: AbstractSet[Var] = frozenset()

    @abstractmethod
    def statements(self, node: Node) -> ast.expr:
        """Emit statements for a node that is no expression; return the variable that has its value."""

    def expression(self, node: Node) -> ast.expr:
        """Return a node as an expression, after emitting the statements it needs."""
        method = _EXPRESSIONS.get(type(node))
        if method is None or (not node.simple and isinstance(node, If | Logic | Fn)):
            return self.statements(node)
        found: ast.expr = method(self, node)
        return found

    def ending(self, node: Node, owned: Owned) -> ast.expr:
        """Return a simple node as an expression that may change the values of variables nothing reads after it."""
        if owned and isinstance(node, If) and ends_in_change(node, owned):
            then, otherwise = self.ending(node.then, owned), self.ending(node.otherwise, owned)
            return py.choose(self.test(node.test), then, otherwise, self.place(node))
        var = changes(node, owned) if owned else None
        if var is not None:
            assert isinstance(node, Invoke)
            return self.changed(node, var, self.place(node))
        return self.expression(node)

    def changed(self, node: Invoke, var: Var, p: Place) -> ast.expr:
        """Return a call that may change the value of a variable, which is its first argument."""
        args = self.expressions(node.args[1:])
        function = BUILTINS[node.name].function
        known = f"o·{node.name}"
        self.globals[known] = IN_PLACE[function]
        return py.call(py.name(known, p), [py.name("budget", p), py.name(var.python, p), *args], p)

    def owned(self, vars: Iterable[Var]) -> Owned:
        """Return the variables that no function inside their scope reads."""
        return frozenset(vars) - self.captured

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
                    if not isinstance(made[index], PLAIN):
                        name = self.temporary()
                        spilled.append(py.assign(name, made[index], p))
                        made[index] = py.name(name, p)
                self.block[before:before] = spilled
                held = len(made)
            if not node.simple and not isinstance(value, PLAIN):
                name = self.temporary()
                p = self.place(node)
                before = len(self.block)
                for index in range(held, len(made)):
                    if not isinstance(made[index], PLAIN):
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
        if isinstance(node, Invoke) and node.name == "seq":
            return py.is_not(self.expression(node), None, p)  # nil or a collection; no variable keeps it
        if isinstance(node, WhereTest) or (isinstance(node, Support) and node.name in {"is_something", "is_missing"}):
            return self.expression(node)
        if isinstance(node, Logic) and node.simple:
            tests = [self.test(item) for item in node.items]
            return py.both(tests, p) if node.kind == "and" else py.either(tests, p)
        return self.truth_of(self.expression(node), p)

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
        body = self.ending(arity.body, self.owned(arity.params))
        return ast.Lambda(py.arguments(params, None, p), body, **p)

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

    def _where(self, node: WhereTest) -> ast.expr:
        p = self.place(node)
        found = self.field(node.key, self.expression(node.target), [], p)
        operator, value = node.operator, node.value
        if not operator:
            return self.truth_of(found, p)
        if operator in ORDER:
            wanted = self.expression(value)
            first, again = self.twice(found, p)
            slow = py.call(
                self.support("where_order", p), [py.name("run", p), py.const(operator, p), again(), wanted], p
            )
            if not is_number(value):
                return py.call(slow.func, [*slow.args[:2], found, wanted], p)  # type: ignore[attr-defined]
            numeric = py.either([self.is_type(first, "float", p), self.is_type(again(), "int", p)], p)
            return py.choose(numeric, py.compare(again(), ORDER[operator](), wanted, p), slow, p)
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
        if count == 1:
            if name == "not":
                first, again = self.twice(args[0], p)
                return py.either([py.is_(first, None, p), py.is_(again(), False, p)], p)
            if name in {"nil?", "some?"}:
                return (py.is_ if name == "nil?" else py.is_not)(args[0], None, p)
            if name in {"inc", "dec"}:
                known = [is_number(node.args[0]), True]
                return self.arithmetic("+" if name == "inc" else "-", name, [args[0], py.const(1, p)], p, known)
        elif count == 2:
            if name in {"=", "not="}:
                return self.equal(args, negated=name == "not=", p=p)
            if name in ORDER:
                return self.order(name, args, p, list(map(is_number, node.args)))
            if name in ARITHMETIC:
                return self.arithmetic(name, name, args, p, list(map(is_number, node.args)))
        return self.call_builtin(name, args, p)


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
