"""Core nodes to a Python syntax tree.

Simple nodes become expressions (``expressions``); the rest become ``statements`` that put a value where it is wanted,
among them ``loops`` and ``walks`` over collections. Every variable has a unique name, so scopes of the program are
flattened into the function they are in.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from pyagentd.lisp import python as py
from pyagentd.lisp.core import (
    Cond,
    Define,
    Do,
    Each,
    Fn,
    If,
    Let,
    Logic,
    Loop,
    Node,
    Recur,
    Try,
    Var,
)
from pyagentd.lisp.loops import Loops
from pyagentd.lisp.ownership import captured
from pyagentd.lisp.statements import Goal
from pyagentd.lisp.walks import Walks

ENTRY: Final = "program"


class Emitter(Loops, Walks):
    """Emits one program."""

    def program(self, node: Node) -> ast.Module:
        """Return the module that defines the program as a function."""
        self.captured = captured(node)
        body = self._function_body(node, Goal(leaves=True))
        p = self.place(node)
        for name in sorted(self._outer[0]):
            # Never runs: it tells Python that the name belongs to this function.
            body.insert(0, py.if_(py.const(False, p), [py.assign(name, py.const(None, p), p)], [], p))
        for name, cells in sorted(self.chargers.items()):
            maker = ast.Attribute(py.name("budget", p), "charger", py.LOAD, **p)
            body.insert(0, py.assign(name, py.call(maker, [py.const(cells, p)], p), p))
        made = py.function(ENTRY, ["run", "budget", "tick"], body, p)
        return ast.Module([made], [])

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
                self.block.append(py.assign(var.python, py.name(own, p), p))
        else:
            self.emit(value, Goal(var.python))

    def _let(self, node: Let, goal: Goal) -> None:
        for var, value in node.pairs:
            self._bind(var, value)
        self.emit(node.body, goal)

    def _define_name(self, node: Define, goal: Goal) -> None:
        self._outer[-1].add(node.var.python)
        self._bind(node.var, node.value)
        p = self.place(node)
        self.reach(py.name(node.var.python, p), goal, p)

    def _emit_if(self, node: If, goal: Goal) -> None:
        p = self.place(node)
        test = self.test(node.test)
        then = self._block_of(node.then, goal)
        otherwise = self._block_of(node.otherwise, goal)
        if goal.leaves:
            # The first branch has left, so the second needs no nesting.
            self.block.append(py.if_(test, then, [], p))
            self.block.extend(otherwise)
        elif then or otherwise:
            self.block.append(py.if_(test, then, otherwise, p))

    def _cond(self, node: Cond, goal: Goal) -> None:
        p = self.place(node)
        if not goal.leaves:
            # Flat, whatever the number of clauses: a function that returns from the first that holds.
            name = self.temporary("cond")
            body = self._function_body(node, Goal(leaves=True, owned=goal.owned))
            self.block.append(py.function(name, [], body, p))
            self.reach(py.call(py.name(name, p), [], p), goal, p)
            return
        for test, then in node.clauses:
            held = self.test(test)
            self.block.append(py.if_(held, self._block_of(then, goal), [], p))
        self.reach(py.const(None, p), goal, p)

    def _emit_logic(self, node: Logic, goal: Goal) -> None:
        p = self.place(node)
        name = self.temporary()
        self.emit(node.items[0], Goal(name))
        for item in node.items[1:]:
            decided = self.truth_of(py.name(name, p), p)
            if node.kind == "or":
                decided = ast.UnaryOp(ast.Not(), decided, **p)
            self.block.append(py.if_(decided, self._block_of(item, Goal(name)), [], p))
        self.reach(py.name(name, p), goal, p)

    def _try(self, node: Try, goal: Goal) -> None:
        p = self.place(node)

        def thunk(inner: Node, params: list[str]) -> ast.expr:
            made = self.temporary("try")
            self.block.append(py.function(made, params, self._function_body(inner, Goal(leaves=True)), p))
            return py.name(made, p)

        body = thunk(node.body, [])
        handler = thunk(node.handler, [node.var.python]) if node.handler and node.var else py.const(None, p)
        final = thunk(node.final, []) if node.final else py.const(None, p)
        self.reach(py.call(self.support("attempt", p), [py.name("run", p), body, handler, final], p), goal, p)

    def _emit_fn(self, node: Fn, goal: Goal) -> None:
        self.reach(self.statements(node), goal, self.place(node))

    methods: ClassVar[Mapping[type[Node], Any]] = {
        Do: _do,
        Let: _let,
        Define: _define_name,
        If: _emit_if,
        Cond: _cond,
        Logic: _emit_logic,
        Loop: Loops._loop,
        Each: Walks._each,
        Recur: Loops._recur,
        Try: _try,
        Fn: _emit_fn,
    }
