"""What every statement of a program is emitted with: the block it goes to, and the goal of its value.

A ``Goal`` says where a value is wanted. Functions are emitted here too, since any node may need one of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pyagentd.lisp import python as py
from pyagentd.lisp.core import Arity, Fn, Invoke, Local, Loop, Node
from pyagentd.lisp.expressions import Expressions
from pyagentd.lisp.ownership import NOTHING, Owned, chained
from pyagentd.lisp.python import Place
from pyagentd.lisp.syntax import Places


@dataclass(frozen=True, slots=True)
class Goal:
    """What is done with a value.

    Args:
        variable: It is assigned to this; None returns it from the Python function.
        loop: The loop whose value it is: ``recur`` goes there, and after the assignment the loop is left.
        leaves: Whether nothing of this block runs after it.
        again: Whether ``recur`` is a return from the function that is one turn.
        owned: Variables that nothing reads after this: what computes the value may change theirs.
    """

    variable: str | None = None
    loop: Loop | None = None
    leaves: bool = False
    again: bool = False
    owned: Owned = NOTHING


class Statements(Expressions):
    """Emits statements into the block that is open.

    Args:
        places: Turns offsets into lines and columns.
    """

    methods: ClassVar[Mapping[type[Node], Any]] = {}
    """What emits each kind of node that is no expression: called with the emitter, the node and its goal."""

    def __init__(self, places: Places) -> None:
        super().__init__(places)
        self.block: list[ast.stmt] = []
        self._loops = 0
        self._depth = 0
        self._outer: list[set[str]] = [set()]

    def _function_body(self, node: Node, goal: Goal) -> list[ast.stmt]:
        """Return the statements of a Python function of its own."""
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
        """Emit statements that make a function and bind it to ``name``."""
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
            parts.append(ast.Tuple([py.const(count, p), py.name(part, p)], py.LOAD, **p))
        self.block.append(py.assign(name, py.call(self.support("overloads", p), [py.name("run", p), *parts], p), p))

    def _define(self, arity: Arity, name: str, p: Place) -> None:
        body = self._function_body(arity.body, Goal(leaves=True, owned=self.owned(arity.params)))
        params = [var.python for var in arity.params]
        rest = None
        if arity.rest is not None:
            rest = arity.rest.python
            # Clojure's rest is nil when nothing is left.
            listed = py.call(self.support("rest_list", p), [py.name("run", p), py.name(rest, p)], p)
            at = 1 if body and isinstance(body[0], ast.Nonlocal) else 0
            body.insert(at, py.assign(rest, listed, p))
        self.block.append(py.function(name, params, body, p, rest))

    def emit(self, node: Node, goal: Goal) -> None:
        """Emit statements that compute a node and put its value where it is wanted."""
        if goal.owned and (calls := chained(node, goal.owned)):
            self._change(calls, goal)
            return
        if node.simple:
            self.reach(self.ending(node, goal.owned), goal, self.place(node))
            return
        method = self.methods.get(type(node))
        if method is None:
            self.reach(self.expression(node), goal, self.place(node))
        else:
            method(self, node, goal)

    def _change(self, calls: list[Invoke], goal: Goal) -> None:
        """Emit calls that change the value of a variable one after the other."""
        var = calls[0].args[0]
        assert isinstance(var, Local)
        p = self.place(calls[-1])
        for call in calls[:-1]:
            changed = self.changed(call, var.var, self.place(call))
            self.block.append(py.assign(var.var.python, changed, p))
        self.reach(self.changed(calls[-1], var.var, p), goal, p)

    def reach(self, value: ast.expr, goal: Goal, p: Place) -> None:
        """Emit what is done with a value."""
        if goal.variable is not None:
            self.block.append(py.assign(goal.variable, value, p))
            if goal.loop is not None:
                self.block.append(ast.Break(**p))
        elif goal.leaves:
            self.block.append(ast.Return(value, **p))
        elif not isinstance(value, ast.Name | ast.Constant):
            self.block.append(ast.Expr(value, **p))

    def statements(self, node: Node) -> ast.expr:
        """Emit statements for a node that is no expression; return the variable that has its value."""
        p = self.place(node)
        if isinstance(node, Fn):
            name = node.var.python if node.var else self.temporary("fn")
            self.define_function(node, name)
            return py.name(name, p)
        name = self.temporary()
        self.emit(node, Goal(name))
        return py.name(name, p)

    def _block_of(self, node: Node, goal: Goal) -> list[ast.stmt]:
        block, self.block = self.block, []
        self.emit(node, goal)
        made, self.block = self.block, block
        return made
