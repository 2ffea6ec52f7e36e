"""``if`` and what is said with it: ``when``, ``cond``, ``and``, ``or``, ``do`` and their kin."""

from __future__ import annotations

from pyagentd.lisp.analysis import Analysis, Scope, Tail, special
from pyagentd.lisp.core import Cond, Const, Do, If, Invoke, Let, Local, Logic, Node
from pyagentd.lisp.forms.binding import body
from pyagentd.lisp.syntax import List


def choose(clauses: list[tuple[Node, Node]], start: int) -> Node:
    """Return the first clause whose test is true; nil when none is."""
    if not clauses:
        return Const(None, start)
    if len(clauses) <= 4:
        chosen: Node = Const(None, start)
        for test, then in reversed(clauses):
            always = isinstance(test, Const) and test.value not in {None, False}
            chosen = then if always else If(test, then, chosen, start)
        return chosen
    return Cond(clauses, start)


@special("if", "if-not")
def if_(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(if test then else)``; without ``else`` it is nil."""
    name = form.items[0].name  # type: ignore[attr-defined]
    if not 3 <= len(form.items) <= 4:
        analysis.fail(
            f"{name} needs a test and one or two branches, got {len(form.items) - 1} forms",
            form,
            f"Write ({name} test then else); use do for several forms in one branch.",
        )
    test = analysis.node(form.items[1], scope)
    then = analysis.node(form.items[2], scope, tail)
    otherwise = body(analysis, form.items[3:], scope, tail, form.start)
    if name == "if-not":
        then, otherwise = otherwise, then
    return If(test, then, otherwise, form.start)


@special("when", "when-not")
def when(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(when test body …)``."""
    name = form.items[0].name  # type: ignore[attr-defined]
    if len(form.items) < 3:
        analysis.fail(f"{name} needs a test and a body", form, f"Write ({name} test body).")
    test = analysis.node(form.items[1], scope)
    then = body(analysis, form.items[2:], scope, tail, form.start)
    nothing = Const(None, form.start)
    return If(test, nothing, then, form.start) if name == "when-not" else If(test, then, nothing, form.start)


@special("cond")
def cond(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(cond test value … :else value)``."""
    clauses = form.items[1:]
    if not clauses or len(clauses) % 2:
        analysis.fail(
            f"cond needs pairs of test and value, got {len(clauses)} forms",
            form,
            "Write (cond test value :else value).",
        )
    found = []
    for test, value in zip(clauses[::2], clauses[1::2], strict=True):
        found.append((analysis.node(test, scope), analysis.node(value, scope, tail)))
    return choose(found, form.start)


@special("and", "or")
def logic(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(and a b)``, ``(or a b)``; each stops at the first value that decides."""
    kind = form.items[0].name  # type: ignore[attr-defined]
    items = form.items[1:]
    if not items:
        return Const(True if kind == "and" else None, form.start)
    if len(items) == 1:
        return analysis.node(items[0], scope, tail)
    if len(items) == 2 and tail is not None:
        # The last one is in tail position: (and test (recur …)).
        var = analysis.fresh()
        held = Local(var, form.start)
        last = analysis.node(items[1], scope, tail)
        then, otherwise = (last, held) if kind == "and" else (held, last)
        return Let([(var, analysis.node(items[0], scope))], If(held, then, otherwise, form.start), form.start)
    return Logic(kind, analysis.nodes(items, scope), form.start)


@special("do", "time", "dosync")
def do(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(do form …)``: the value of the last; nil without any."""
    return body(analysis, form.items[1:], scope, tail, form.start)


@special("comment", "ns", "require", "use", "import", "declare")
def nothing(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """Ignore what has no meaning here; nil, whatever it says."""
    return Const(None, form.start)


@special("println", "print", "prn", "pr", "tap>")
def say(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """Evaluate what would be printed elsewhere; there is no output, so the value is nil."""
    return Do([*analysis.nodes(form.items[1:], scope), Const(None, form.start)], form.start)


@special("quote")
def quote(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(quote data)``."""
    if len(form.items) != 2:
        analysis.fail("quote needs one form", form, "Write '(1 2 3).")
    return analysis.quoted(form.items[1])


def test_equal(one: Node, other: Node, start: int) -> Node:
    """Return ``(= one other)``."""
    return Invoke("=", [one, other], start)
