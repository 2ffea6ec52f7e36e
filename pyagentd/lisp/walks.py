"""Walks over collections: what maps, filters or reduces them, or does something for each item."""

from __future__ import annotations

import ast

from pyagentd.lisp import python as py
from pyagentd.lisp.core import Each, Local, is_number
from pyagentd.lisp.loops import MAX_LOOPS
from pyagentd.lisp.ownership import variables
from pyagentd.lisp.python import Place
from pyagentd.lisp.statements import Goal, Statements


class Walks(Statements):
    """Emits ``Each``."""

    def _each(self, node: Each, goal: Goal) -> None:
        p = self.place(node)
        if self._loops >= MAX_LOOPS:
            name = self.temporary("each")
            self.block.append(py.function(name, [], self._function_body(node, Goal(leaves=True)), p))
            self.reach(py.call(py.name(name, p), [], p), goal, p)
            return
        if node.kind == "reduce":
            assert node.init is not None
            accumulator = node.vars[0].python
            initial, collection = self.expressions([node.init, node.collection])
            self.block.append(py.assign(accumulator, initial, p))
            moved = self._moved(node, goal)
            if moved:
                self.block.append(py.assign(moved, py.const(None, p), p))
        else:
            collection = self.expression(node.collection)
        over = py.call(self.support("over", p), [py.name("run", p), py.const(node.kind, p), collection], p)
        source = self.temporary()
        self.block.append(py.assign(source, over, p))
        if node.body.simple and node.kind in {"map", "filter", "remove"}:
            self.reach(self._comprehension(node, source, p), goal, p)
            return
        result = accumulator if node.kind == "reduce" else None
        if node.kind not in {"reduce", "each"}:
            result = self.temporary()
            self.block.append(py.assign(result, ast.List([], py.LOAD, **p), p))
        self.block.append(self._loop_over(node, source, result, p))
        self.reach(py.name(result, p) if result else py.const(None, p), goal, p)
        if goal.owned and node.kind == "reduce" and goal.variable is not None and goal.loop is None:
            self.block.append(py.assign(accumulator, py.const(None, p), p))  # one variable has the value, not two

    def _moved(self, node: Each, goal: Goal) -> str | None:
        """Return the variable that gives its value up to a reduction inside, which nothing reads after it."""
        init = node.init
        if not isinstance(init, Local) or init.var not in goal.owned:
            return None
        read = variables(node.body) | variables(node.collection)
        return None if init.var in read else init.var.python

    def _comprehension(self, node: Each, source: str, p: Place) -> ast.expr:
        item = node.vars[-1].python
        value = self.expression(node.body) if node.kind == "map" else py.name(item, p)
        tests = []
        if node.kind == "filter":
            tests = [self.test(node.body)]
        elif node.kind == "remove":
            tests = [ast.UnaryOp(ast.Not(), self.test(node.body), **p)]
        walk = ast.comprehension(ast.Name(item, py.STORE, **p), py.name(source, p), tests, 0)
        return ast.ListComp(value, [walk], **p)

    def _loop_over(self, node: Each, source: str, result: str | None, p: Place) -> ast.stmt:
        """Return the ``for`` that adds to ``result`` what its kind adds."""
        item = node.vars[-1].python
        self._loops += 1
        if node.kind == "each":
            body = self._block_of(node.body, Goal())
        elif node.kind == "reduce":
            body = self._block_of(node.body, Goal(result, owned=self.owned(node.vars[:1])))
            if result and not is_number(node.body):
                ended = py.call(self.support("is_reduced", p), [py.name(result, p)], p)
                whole = py.assign(result, ast.Attribute(py.name(result, p), "value", py.LOAD, **p), p)
                body.append(py.if_(ended, [whole, ast.Break(**p)], [], p))
        else:
            block, self.block = self.block, []
            value = self.expression(node.body)
            if node.kind == "map":
                self._append(result, value, p)
            else:
                test = self.truth_of(value, p)
                held, self.block = self.block, []
                self._append(result, py.name(item, p), p)
                adding, self.block = self.block, held
                self.block.append(py.if_(test, *((adding, []) if node.kind == "filter" else ([], adding)), p))
            body, self.block = self.block, block
        self._loops -= 1
        return ast.For(ast.Name(item, py.STORE, **p), py.name(source, p), body or [ast.Pass(**p)], [], None, **p)

    def _append(self, out: str | None, value: ast.expr, p: Place) -> None:
        append = ast.Attribute(py.name(out or "", p), "append", py.LOAD, **p)
        self.block.append(ast.Expr(py.call(append, [value], p), **p))
