"""``->``, ``->>`` and their kin: a value handed from step to step.

A chain becomes a sequence of bindings, not calls inside calls, so its length costs no nesting.
"""

from __future__ import annotations

from pyagentd.lisp.analysis import Analysis, Ready, Scope, Tail, special
from pyagentd.lisp.core import Const, If, Let, Local, Node, Support, Var, is_number
from pyagentd.lisp.forms.destructuring import simple_name
from pyagentd.lisp.syntax import Form, List, Symbol

_NESTED = 4
"""A chain of so many steps is short enough to stay one expression."""


def _step(form: Form, value: Node, *, last: bool) -> Form:
    """Return a step as a call with the value as its first or last argument."""
    argument = Ready(value)
    if not isinstance(form, List) or not form.items or _makes_function(form):
        return List([form, argument], form.start)
    if last:
        return List([*form.items, argument], form.start)
    return List([form.items[0], argument, *form.items[1:]], form.start)


def _makes_function(form: List) -> bool:
    """Return whether a step is itself a function written out, which is called with the value."""
    head = form.items[0]
    return isinstance(head, Symbol) and head.name in {"fn", "fn*"}


class _Chain:
    """Bindings of a chain that grows."""

    def __init__(self, analysis: Analysis, start: int) -> None:
        self.analysis = analysis
        self.start = start
        self.pairs: list[tuple[Var, Node]] = []

    def hold(self, node: Node) -> Local:
        """Bind the value of a step and return its name."""
        var = self.analysis.fresh()
        var.number = is_number(node)
        self.pairs.append((var, node))
        return Local(var, self.start)

    def end(self, node: Node) -> Node:
        return Let(self.pairs, node, self.start) if self.pairs else node


@special("->", "->>")
def thread(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(-> x (f a) g)`` is ``(g (f x a))``; ``->>`` puts the value last."""
    name = form.items[0].name  # type: ignore[attr-defined]
    if len(form.items) < 2:
        analysis.fail(f"{name} needs a value", form, f"Write ({name} x (f) (g)).")
    steps = form.items[2:]
    chain = _Chain(analysis, form.start)
    node = analysis.node(form.items[1], scope)
    for step in steps:
        value = chain.hold(node) if len(steps) > _NESTED else node
        node = analysis.node(_step(step, value, last=name == "->>"), scope)
    return chain.end(node)


@special("some->", "some->>")
def thread_some(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """Like ``->`` and ``->>``; stops with nil at the first nil."""
    name = form.items[0].name  # type: ignore[attr-defined]
    if len(form.items) < 2:
        analysis.fail(f"{name} needs a value", form, f"Write ({name} x (f) (g)).")
    chain = _Chain(analysis, form.start)
    node = analysis.node(form.items[1], scope)
    for step in form.items[2:]:
        value = chain.hold(node)
        called = analysis.node(_step(step, value, last=name == "some->>"), scope)
        node = If(Support("is_something", [value], form.start), called, Const(None, form.start), form.start)
    return chain.end(node)


@special("cond->", "cond->>")
def thread_cond(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(cond-> x test (f a))``: every step whose test is true."""
    name = form.items[0].name  # type: ignore[attr-defined]
    clauses = form.items[2:]
    if len(form.items) < 2 or len(clauses) % 2:
        analysis.fail(f"{name} needs a value and pairs of test and step", form, f"Write ({name} x test (f)).")
    chain = _Chain(analysis, form.start)
    node = analysis.node(form.items[1], scope)
    for test, step in zip(clauses[::2], clauses[1::2], strict=True):
        value = chain.hold(node)
        called = analysis.node(_step(step, value, last=name == "cond->>"), scope)
        node = If(analysis.node(test, scope), called, value, form.start)
    return chain.end(node)


@special("as->")
def thread_as(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(as-> x name (f a name) (g name b))``."""
    if len(form.items) < 3:
        analysis.fail("as-> needs a value and a name", form, "Write (as-> x $ (f a $)).")
    name = simple_name(analysis, form.items[2])
    chain = _Chain(analysis, form.start)
    node = analysis.node(form.items[1], scope)
    for step in form.items[3:]:
        value = chain.hold(node)
        node = analysis.node(step, {**scope, name: value.var})
    return chain.end(node)


@special("doto")
def doto(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(doto x (f a))``: every step is called with the value, which is the result."""
    if len(form.items) < 2:
        analysis.fail("doto needs a value", form)
    chain = _Chain(analysis, form.start)
    value = chain.hold(analysis.node(form.items[1], scope))
    for step in form.items[2:]:
        chain.hold(analysis.node(_step(step, value, last=False), scope))
    return chain.end(value)
