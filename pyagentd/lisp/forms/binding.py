"""``let`` and the forms that bind one value and test it."""

from __future__ import annotations

from pyagentd.lisp.analysis import Analysis, Scope, Tail, special
from pyagentd.lisp.core import Const, Define, Do, Fn, If, Let, Local, Node, Support
from pyagentd.lisp.forms.destructuring import Pairs, bind, bind_all, simple_name
from pyagentd.lisp.syntax import Form, List, Literal, Symbol, Vector


def body(analysis: Analysis, forms: list[Form], scope: Scope, tail: Tail, start: int) -> Node:
    """Return forms one after the other; nil when there are none."""
    if not forms:
        return Const(None, start)
    if len(forms) == 1:
        return analysis.node(forms[0], scope, tail)
    first = analysis.nodes(forms[:-1], scope)
    return Do([*first, analysis.node(forms[-1], scope, tail)], start)


def binding_vector(analysis: Analysis, form: List) -> Vector:
    """Return the vector of bindings that follows the name of a form."""
    name = form.items[0].name  # type: ignore[attr-defined]
    if len(form.items) < 2 or not isinstance(form.items[1], Vector):
        analysis.fail(f"{name} needs a vector of bindings", form, f"Write ({name} [x 1] …).")
    return form.items[1]


@special("let", "let*")
def let(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(let [x 1 [a b] pair] body …)``."""
    bindings = binding_vector(analysis, form)
    if len(form.items) < 3:
        analysis.fail("let needs a body", form, "Write (let [x 1] (inc x)).")
    pairs, names = bind_all(analysis, bindings, scope)
    for var, value in pairs:
        if isinstance(value, Fn) and len(value.arities) == 1 and var.name:
            var.arity = value.arities[0].range
    inner = body(analysis, form.items[2:], names, tail, form.start)
    return Let(pairs, inner, form.start) if pairs else inner


@special("def", "defonce")
def define(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(def name "documentation" value)``."""
    if not 2 <= len(form.items) <= 4:
        analysis.fail("def needs a name and a value", form, "Write (def x 1).")
    name = simple_name(analysis, form.items[1])
    documented = len(form.items) == 4
    if documented and not (isinstance(doc := form.items[2], Literal) and type(doc.value) is str):
        analysis.fail("def needs a name and one value", form, "Write (def x 1).")
    value = analysis.node(form.items[-1], scope) if len(form.items) > 2 else Const(None, form.start)
    return Define(analysis.defined[name], value, form.start)


def one_binding(analysis: Analysis, form: List) -> tuple[Form, Form]:
    """Return pattern and value of a form that binds exactly one."""
    name = form.items[0].name  # type: ignore[attr-defined]
    bindings = binding_vector(analysis, form)
    if len(bindings.items) != 2:
        analysis.fail(f"{name} binds exactly one value", bindings, f"Write ({name} [x value] …), and let for more.")
    return bindings.items[0], bindings.items[1]


def _tested(
    analysis: Analysis,
    form: List,
    scope: Scope,
    tail: Tail,
    then: list[Form],
    otherwise: list[Form],
    *,
    nil_only: bool,
) -> Node:
    """Bind the one value of a form when it is true, or not nil."""
    pattern, value = one_binding(analysis, form)
    start = form.start
    var = analysis.fresh(pattern.name if isinstance(pattern, Symbol) else "")
    held = Local(var, start)
    names, pairs = dict(scope), Pairs()
    bind(analysis, pattern, held, names, pairs)
    inner = body(analysis, then, names, tail, start)
    test: Node = Support("is_something", [held], start) if nil_only else held
    return Let(
        [(var, analysis.node(value, scope))],
        If(test, Let(pairs, inner, start), body(analysis, otherwise, scope, tail, start), start),
        start,
    )


@special("if-let", "if-some")
def if_let(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(if-let [x value] then else)``; ``if-some`` takes false for something."""
    name = form.items[0].name  # type: ignore[attr-defined]
    if not 3 <= len(form.items) <= 4:
        analysis.fail(f"{name} needs a binding and one or two branches", form, f"Write ({name} [x value] then else).")
    return _tested(analysis, form, scope, tail, form.items[2:3], form.items[3:], nil_only=name == "if-some")


@special("when-let", "when-some")
def when_let(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(when-let [x value] body …)``."""
    name = form.items[0].name  # type: ignore[attr-defined]
    if len(form.items) < 3:
        analysis.fail(f"{name} needs a binding and a body", form, f"Write ({name} [x value] body).")
    return _tested(analysis, form, scope, tail, form.items[2:], [], nil_only=name == "when-some")
