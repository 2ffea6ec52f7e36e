"""Core nodes to a Python syntax tree.

Simple nodes become expressions (``expressions``); the rest become statements that put a value where it is wanted: a
``Goal``. Every variable has a unique name, so scopes of the program are flattened into the function they are in.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any, Final

from pyagentd.lisp import python as py
from pyagentd.lisp.core import (
    Arity,
    Cond,
    Const,
    Define,
    Do,
    Each,
    Fn,
    If,
    Invoke,
    Let,
    Local,
    Logic,
    Loop,
    Node,
    Recur,
    Try,
    Var,
    is_number,
)
from pyagentd.lisp.expressions import Expressions
from pyagentd.lisp.ownership import NOTHING, Owned, captured, chained, ends_in_change, variables, waits
from pyagentd.lisp.python import Place
from pyagentd.lisp.syntax import Places

ENTRY: Final = "program"
_MAX_LOOPS: Final = 8
"""Loops inside loops in one Python function, which allows 20 nested blocks."""


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


class Emitter(Expressions):
    """Emits one program.

    Args:
        places: Turns offsets into lines and columns.
    """

    def __init__(self, places: Places) -> None:
        super().__init__(places)
        self.block: list[ast.stmt] = []
        self._loops = 0
        self._depth = 0
        self._outer: list[set[str]] = [set()]

    # Functions

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

    # Statements

    def emit(self, node: Node, goal: Goal) -> None:
        """Emit statements that compute a node and put its value where it is wanted."""
        if goal.owned and (calls := chained(node, goal.owned)):
            self._change(calls, goal)
            return
        if node.simple:
            self.reach(self.ending(node, goal.owned), goal, self.place(node))
            return
        method = _STATEMENTS.get(type(node))
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

    def _loop(self, node: Loop, goal: Goal) -> None:
        p = self.place(node)
        inits = self.expressions(node.inits)
        names = [var.python for var in node.vars]
        if node.fresh or self._loops >= _MAX_LOOPS:
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

    def _each(self, node: Each, goal: Goal) -> None:
        p = self.place(node)
        if self._loops >= _MAX_LOOPS:
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
    Fn: Emitter._emit_fn,
}
