"""``for``, ``doseq``, ``dotimes`` and ``while``."""

from __future__ import annotations

from pyagentd.lisp.analysis import Analysis, Scope, Tail, special
from pyagentd.lisp.core import Arity, Const, Do, Each, If, Let, Local, Loop, Node, Recur, Support, Var, written_out
from pyagentd.lisp.forms.binding import binding_vector, body, one_binding
from pyagentd.lisp.forms.destructuring import Pairs, bind, bind_all, simple_name
from pyagentd.lisp.syntax import Form, List, Literal, Vector
from pyagentd.lisp.values import Keyword


@special("for")
def for_(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(for [x xs :when test y (f x)] body)``: a vector of what body gives."""
    bindings = binding_vector(analysis, form)
    if len(form.items) < 3:
        analysis.fail("for needs a body", form, "Write (for [x xs] (inc x)).")
    start = form.start
    out = analysis.fresh()
    held = Local(out, start)

    def inner(names: dict[str, Var]) -> Node:
        return Support("collect", [held, body(analysis, form.items[2:], names, None, start)], start)

    walk = _each(analysis, form, bindings, 0, dict(scope), inner)
    return Let([(out, Support("new_vector", [], start))], Do([walk, held], start), start)


@special("doseq")
def doseq(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(doseq [x xs] body …)``: nil."""
    bindings = binding_vector(analysis, form)
    start = form.start

    def inner(names: dict[str, Var]) -> Node:
        return Do([body(analysis, form.items[2:], names, None, start), Const(None, start)], start)

    walk = _each(analysis, form, bindings, 0, dict(scope), inner)
    return Do([walk, Const(None, start)], start)


def _each(analysis: Analysis, form: List, bindings: Vector, index: int, names: dict[str, Var], inner: object) -> Node:
    """Return the walk over the bindings from ``index`` on."""
    items, start = bindings.items, form.start
    if index >= len(items):
        assert callable(inner)
        return inner(names)  # type: ignore[no-any-return]
    if index + 1 == len(items):
        analysis.fail("bindings need pairs of name and collection", bindings, "Write (for [x xs] …).")
    pattern, value = items[index], items[index + 1]
    if isinstance(pattern, Literal) and type(pattern.value) is Keyword:
        if index == 0:
            analysis.fail("the first binding names a collection", pattern, "Write (for [x xs :when (odd? x)] …).")
        return _modified(analysis, form, bindings, index, names, inner)
    before = analysis.functions
    collection = analysis.node(value, names)
    var = analysis.fresh()
    scope, pairs = dict(names), Pairs()
    bind(analysis, pattern, Local(var, start), scope, pairs)
    rest = _each(analysis, form, bindings, index + 2, scope, inner)
    function = analysis.function([Arity([var], None, Let(pairs, rest, start) if pairs else rest)], None, form, before)
    if written_out(function, 1) and not _stops(items):
        analysis.functions = before
        return Each("each", function, collection, start)
    return Support("for_each", [collection, function], start)


def _stops(items: list[Form]) -> bool:
    """Return whether one of the bindings may end a walk early."""
    return any(isinstance(each, Literal) and each.value is Keyword("while") for each in items[::2])


def _modified(
    analysis: Analysis, form: List, bindings: Vector, index: int, names: dict[str, Var], inner: object
) -> Node:
    """Return the walk from a modifier on: ``:when``, ``:while`` or ``:let``."""
    modifier, value = bindings.items[index], bindings.items[index + 1]
    assert isinstance(modifier, Literal)
    start = form.start
    match modifier.value.name:
        case "let":
            if not isinstance(value, Vector):
                analysis.fail(":let needs a vector of bindings", value, "Write :let [y (inc x)].")
            pairs, scope = bind_all(analysis, value, names)
            rest = _each(analysis, form, bindings, index + 2, scope, inner)
            return Let(pairs, rest, start) if pairs else rest
        case "when":
            test = analysis.node(value, names)
            return If(test, _each(analysis, form, bindings, index + 2, names, inner), Const(None, start), start)
        case "while":
            test = analysis.node(value, names)
            stop = Support("stop", [], start)
            return If(test, _each(analysis, form, bindings, index + 2, names, inner), stop, start)
        case other:
            return analysis.fail(f"unknown :{other}", modifier, "There are :when, :while and :let.")


@special("dotimes")
def dotimes(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(dotimes [i 3] body …)``: nil."""
    pattern, count = one_binding(analysis, form)
    start = form.start
    before = analysis.functions
    var = analysis.fresh(name := simple_name(analysis, pattern))
    inner = body(analysis, form.items[2:], {**scope, name: var}, None, start)
    function = analysis.function([Arity([var], None, inner)], None, form, before)
    return Support("times", [analysis.node(count, scope), function], start)


@special("while")
def while_(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(while test body …)``: nil; useful with ``(memory/get …)`` in its test."""
    if len(form.items) < 2:
        analysis.fail("while needs a test", form)
    before = analysis.functions
    start = form.start
    test = analysis.node(form.items[1], scope)
    turn = Do([body(analysis, form.items[2:], scope, None, start), Recur([], start)], start)
    node = If(test, turn, Const(None, start), start)
    return Loop([], [], node, start, fresh=analysis.functions > before)
