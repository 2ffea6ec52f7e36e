"""``case``, ``condp`` and ``where``: a value is compared with others."""

from __future__ import annotations

from pyagentd.lisp.analysis import Analysis, Ready, Scope, Tail, special
from pyagentd.lisp.core import Arity, Const, Let, Local, Logic, Node, Support, WhereTest
from pyagentd.lisp.forms.branching import choose, test_equal
from pyagentd.lisp.syntax import Form, List, Literal, Symbol, Vector
from pyagentd.lisp.values import Keyword

OPERATORS = ("=", "not=", ">", "<", ">=", "<=", "includes", "in")


@special("case")
def case(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(case value constant result (c1 c2) result default)``."""
    if len(form.items) < 3:
        analysis.fail("case needs a value and clauses", form, 'Write (case x 1 "one" "other").')
    clauses = form.items[2:]
    start = form.start
    var = analysis.fresh()
    held = Local(var, start)
    found: list[tuple[Node, Node]] = []
    for index in range(0, len(clauses) - 1, 2):
        constants = clauses[index]
        group = constants.items if isinstance(constants, List) else [constants]
        tests = [test_equal(held, analysis.quoted(each), start) for each in group]
        test = tests[0] if len(tests) == 1 else Logic("or", tests, start) if tests else Const(False, start)
        found.append((test, analysis.node(clauses[index + 1], scope, tail)))
    if len(clauses) % 2:
        found.append((Const(True, start), analysis.node(clauses[-1], scope, tail)))
    else:
        found.append((Const(True, start), Support("no_clause", [], start)))
    return Let([(var, analysis.node(form.items[1], scope))], choose(found, start), start)


@special("condp")
def condp(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(condp = value test result … default)``."""
    if len(form.items) < 4:
        analysis.fail("condp needs a predicate, a value and clauses", form, "Write (condp = x 1 :one :other).")
    clauses = form.items[3:]
    start = form.start
    var = analysis.fresh()
    held = Ready(Local(var, start))
    found: list[tuple[Node, Node]] = []
    for index in range(0, len(clauses) - 1, 2):
        test = analysis.node(List([form.items[1], clauses[index], held], clauses[index].start), scope)
        found.append((test, analysis.node(clauses[index + 1], scope, tail)))
    last = analysis.node(clauses[-1], scope, tail) if len(clauses) % 2 else Support("no_clause", [], start)
    found.append((Const(True, start), last))
    return Let([(var, analysis.node(form.items[2], scope))], choose(found, start), start)


@special("where")
def where(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(where :field op value)``: a predicate over maps; ``(where :field)`` tests for truth."""
    parts = form.items[1:]
    if len(parts) not in {1, 3}:
        analysis.fail(
            "where needs a field, or a field, an operator and a value",
            form,
            'Write (where :status = "active") or (where :active).',
        )
    path = _path(analysis, parts[0])
    if len(parts) == 1:
        return _inline(analysis, path, "", Const(None, form.start), form) or Support("where_true", [path], form.start)
    operator = parts[1]
    if not isinstance(operator, Symbol) or operator.name not in OPERATORS:
        analysis.fail("unknown operator in where", operator, f"There are {' '.join(OPERATORS)}.")
    value = analysis.node(parts[2], scope)
    if found := _inline(analysis, path, operator.name, value, form):
        return found
    return Support("where", [path, Const(operator.name, operator.start), value], form.start)


def _inline(analysis: Analysis, path: Const, operator: str, value: Node, form: Form) -> Node | None:
    """Return the frequent kinds of predicates as functions: one field, compared with a constant or a name."""
    if len(path.value) != 1 or type(path.value[0]) is not Keyword or operator in {"in", "includes"}:
        return None
    if not isinstance(value, Const) and not (isinstance(value, Local) and operator in {"<", ">", "<=", ">="}):
        return None
    var = analysis.fresh()
    test = WhereTest(path.value[0], operator, value, Local(var, form.start), form.start)
    return analysis.function([Arity([var], None, test)], None, form, analysis.functions)


def _path(analysis: Analysis, form: Form) -> Const:
    """Return the field of a ``where``: a keyword, a string, or a vector of them and of indices."""
    steps = form.items if isinstance(form, Vector) else [form]
    if not steps or not all(isinstance(each, Literal) and type(each.value) in {Keyword, str, int} for each in steps):
        analysis.fail(
            "the field of where is a keyword or a vector of keywords", form, "Write :name or [:user :name]."
        )
    return Const(tuple(each.value for each in steps if isinstance(each, Literal)), form.start)
