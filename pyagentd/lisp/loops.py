"""Loops that go on with ``recur``: as loops of Python, or as calls where functions keep the variables of a turn."""

from __future__ import annotations

import ast
from typing import Final

from pyagentd.lisp import python as py
from pyagentd.lisp.core import Const, Invoke, Local, Loop, Recur
from pyagentd.lisp.ownership import NOTHING, Owned, ends_in_change, variables, waits
from pyagentd.lisp.python import Place
from pyagentd.lisp.statements import Goal, Statements

MAX_LOOPS: Final = 8
"""Loops inside loops in one Python function, which allows 20 nested blocks."""


class Loops(Statements):
    """Emits ``loop`` and ``recur``."""

    def _loop(self, node: Loop, goal: Goal) -> None:
        p = self.place(node)
        inits = self.expressions(node.inits)
        names = [var.python for var in node.vars]
        if node.fresh or self._loops >= MAX_LOOPS:
            self._loop_of_calls(node, names, inits, goal, p)
            return
        if names:
            self.block.append(py.assign_all(names, inits, p))
        owned = self.owned(node.vars)
        inner = Goal(leaves=True, loop=node, owned=owned)
        result = None
        if goal.variable is not None or not goal.leaves:
            result = self.temporary()
            inner = Goal(result, loop=node, leaves=True, owned=owned)
        self._loops += 1
        body = self._block_of(node.body, inner)
        self._loops -= 1
        tick: ast.stmt = ast.Expr(py.call(py.name("tick", p), [], p), **p)
        self.block.append(py.forever([tick, *body], p))
        if result is not None:
            self.reach(py.name(result, p), goal, p)

    def _loop_of_calls(self, node: Loop, names: list[str], inits: list[ast.expr], goal: Goal, p: Place) -> None:
        """Emit a loop whose every turn is a call, so that functions made inside keep the variables of their turn."""
        name = self.temporary("loop")
        body = self._function_body(node.body, Goal(leaves=True, loop=node, again=True))
        self.block.append(py.function(name, names, body, p))
        turns = py.call(self.support("turns", p), [py.name("run", p), py.name(name, p), *inits], p)
        self.reach(turns, goal, p)

    def _recur(self, node: Recur, goal: Goal) -> None:
        p = self.place(node)
        loop = goal.loop
        assert loop is not None, "analysis lets recur stand only where its loop ends"
        if goal.again:
            args = self.expressions(node.args)
            again = py.call(self.support("again", p), [py.name("run", p), *args], p)
            self.block.append(ast.Return(again, **p))
            return
        if node.args:
            self._next_turn(node, loop, p)
        self.block.append(ast.Continue(**p))

    def _next_turn(self, node: Recur, loop: Loop, p: Place) -> None:
        """Emit the assignment of a turn's values to the variables of the loop."""
        names = [var.python for var in loop.vars]
        owned = self._owned_by_each(node, self.owned(loop.vars))
        if not any(owned):
            self.block.append(py.assign_all(names, self.expressions(node.args), p))
            return
        held: list[str] = []
        values: list[ast.expr] = []
        late = [bool(each) and waits(arg, each) for arg, each in zip(node.args, owned, strict=True)]
        for arg, each, wait in zip(node.args, owned, late, strict=True):
            if wait or isinstance(arg, Const):
                values.append(py.const(None, p) if wait else self.expression(arg))
                continue
            held.append(self.temporary())
            self.emit(arg, Goal(held[-1], owned=each))
            values.append(py.name(held[-1], p))
        for index, (arg, wait) in enumerate(zip(node.args, late, strict=True)):
            if wait:
                assert isinstance(arg, Invoke)
                assert isinstance(arg.args[0], Local)
                values[index] = self.changed(arg, arg.args[0].var, p)
        self.block.append(py.assign_all(names, values, p))
        # One variable has each value, not two.
        self.block.extend(py.assign(name, py.const(None, p), p) for name in held)

    def _owned_by_each(self, node: Recur, owned: Owned) -> list[Owned]:
        """Return for each value of the next turn the variables that it may change.

        No other value may read them, unless it is computed before.
        """
        found: list[Owned] = []
        read = [variables(arg) for arg in node.args]
        one_waits = sum(waits(arg, owned) for arg in node.args) == 1
        for index, arg in enumerate(node.args):
            elsewhere = set().union(*read[:index], *read[index + 1 :])
            free = owned - elsewhere
            if not ends_in_change(arg, free):
                free = owned if one_waits and waits(arg, owned) else NOTHING
            found.append(free)
        return found
