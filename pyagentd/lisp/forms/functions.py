"""Functions and loops: ``fn``, ``defn``, ``letfn``, ``loop`` and ``recur``."""

from __future__ import annotations

from pyagentd.lisp.analysis import Analysis, Scope, Tail, Target, special
from pyagentd.lisp.core import Arity, Define, Fn, Let, Local, Loop, Node, Recur, Var, is_number
from pyagentd.lisp.forms.binding import binding_vector, body
from pyagentd.lisp.forms.destructuring import Pairs, bind, simple_name
from pyagentd.lisp.syntax import Form, List, Literal, Map, Symbol, Vector


@special("fn", "fn*")
def fn(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(fn name? [params] body …)`` or ``(fn ([x] …) ([x y] …))``."""
    rest = form.items[1:]
    var = None
    names = dict(scope)
    if rest and isinstance(rest[0], Symbol):
        name = simple_name(analysis, rest[0])
        var = names[name] = analysis.fresh(name)
        rest = rest[1:]
    return _function(analysis, form, rest, names, var)


def _function(analysis: Analysis, form: Form, rest: list[Form], scope: Scope, var: Var | None) -> Fn:
    """Return the function whose parameters and bodies are ``rest``."""
    while rest and isinstance(rest[0], Literal) and len(rest) > 1:
        rest = rest[1:]  # documentation
    if rest and isinstance(rest[0], Map) and len(rest) > 1:
        rest = rest[1:]  # attributes
    if rest and isinstance(rest[0], Vector):
        rest = [List(rest, form.start)]
    if not rest:
        analysis.fail("a function needs parameters", form, "Write (fn [x] (inc x)).")
    if var is not None and len(rest) == 1:
        var.arity = _declared(rest[0])
    analysis_lambda, analysis.in_lambda = analysis.in_lambda, False
    before = analysis.functions
    arities = [_arity(analysis, each, scope) for each in rest]
    analysis.in_lambda = analysis_lambda
    _check_overloads(analysis, form, arities)
    return analysis.function(arities, var, form, before)


def _declared(form: Form) -> tuple[int, int | None] | None:
    """Return how many arguments a function takes, before its body has been looked at."""
    if not isinstance(form, List) or not form.items or not isinstance(form.items[0], Vector):
        return None
    names = [each.name if isinstance(each, Symbol) else "" for each in form.items[0].items]
    if "&" in names:
        return names.index("&"), None
    return len(names), len(names)


def _check_overloads(analysis: Analysis, form: Form, arities: list[Arity]) -> None:
    counts = [len(each.params) for each in arities if each.rest is None]
    if len(set(counts)) != len(counts) or sum(each.rest is not None for each in arities) > 1:
        analysis.fail("two bodies of a function take the same number of arguments", form)


def _arity(analysis: Analysis, form: Form, scope: Scope) -> Arity:
    if not isinstance(form, List) or not form.items or not isinstance(form.items[0], Vector):
        analysis.fail("a function needs a vector of parameters", form, "Write (fn [x] (inc x)).")
    patterns = list(form.items[0].items)
    names, pairs = dict(scope), Pairs()
    rest: Var | None = None
    if len(patterns) >= 2 and isinstance(mark := patterns[-2], Symbol) and mark.name == "&":
        rest = _parameter(analysis, patterns[-1], form, names, pairs, rest=True)
        del patterns[-2:]
    for each in patterns:
        if isinstance(each, Symbol) and each.name == "&":
            analysis.fail("& must be followed by exactly one name", each, "Write [a & rest].")
    params = [_parameter(analysis, each, form, names, pairs) for each in patterns]
    target = Target(len(params) + (rest is not None))
    before = analysis.functions
    inner = body(analysis, form.items[1:], names, target, form.start)
    if pairs:
        inner = Let(pairs, inner, form.start)
    if target.used:
        params, rest, inner = _looping(analysis, params, rest, inner, form.start, fresh=analysis.functions > before)
    return Arity(params, rest, inner)


def _looping(
    analysis: Analysis, params: list[Var], rest: Var | None, inner: Node, start: int, *, fresh: bool
) -> tuple[list[Var], Var | None, Node]:
    """Return parameters and body of a function that recurs: its parameters are the variables of a loop."""
    outside = [analysis.fresh(var.name) for var in params]
    outside_rest = analysis.fresh(rest.name) if rest else None
    variables = [*params, *([rest] if rest else [])]
    inits: list[Node] = [Local(var, start) for var in [*outside, *([outside_rest] if outside_rest else [])]]
    return outside, outside_rest, Loop(variables, inits, inner, start, fresh=fresh)


def _parameter(
    analysis: Analysis, pattern: Form, form: Form, names: dict[str, Var], pairs: Pairs, *, rest: bool = False
) -> Var:
    """Return the variable of one parameter; what a pattern binds goes to ``pairs``."""
    if isinstance(pattern, Symbol):
        name = simple_name(analysis, pattern)
        var = names[name] = analysis.fresh(name)
        return var
    var = analysis.fresh()
    bind(analysis, pattern, Local(var, form.start), names, pairs, rest=rest)
    return var


@special("defn", "defn-")
def defn(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(defn name "documentation" [params] body …)``."""
    if len(form.items) < 3:
        analysis.fail("defn needs a name, parameters and a body", form, "Write (defn double [x] (* 2 x)).")
    name = simple_name(analysis, form.items[1])
    var = analysis.defined[name]
    once = var.arity is None and name not in analysis.redefined
    node = _function(analysis, form, form.items[2:], scope, var if once else None)
    if len(node.arities) == 1 and once:
        var.arity = node.arities[0].range
    node.var = None
    return Define(var, node, form.start)


@special("letfn")
def letfn(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(letfn [(even [n] …) (odd [n] …)] body …)``: functions that know each other."""
    bindings = binding_vector(analysis, form)
    names = dict(scope)
    found: list[tuple[Var, List]] = []
    for each in bindings.items:
        if not isinstance(each, List) or not each.items:
            analysis.fail("letfn binds functions", each, "Write (letfn [(double [x] (* 2 x))] …).")
        name = simple_name(analysis, each.items[0])
        var = names[name] = analysis.fresh(name)
        found.append((var, each))
    pairs: Pairs = []
    for var, each in found:
        node = _function(analysis, each, each.items[1:], names, var)
        node.var = None
        pairs.append((var, node))
    inner = body(analysis, form.items[2:], names, tail, form.start)
    return Let(pairs, inner, form.start) if pairs else inner


@special("loop")
def loop(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(loop [i 0] (if (< i 3) (recur (inc i)) i))``."""
    bindings = binding_vector(analysis, form)
    if len(bindings.items) % 2:
        analysis.fail("bindings need pairs of name and value", bindings, "Write (loop [i 0] …).")
    start = form.start
    variables: list[Var] = []
    firsts: list[Node] = []
    outer, pairs = Pairs(), Pairs()
    names = dict(scope)
    patterns = bindings.items[::2]
    for pattern, value in zip(patterns, bindings.items[1::2], strict=True):
        # The bindings that follow see the first value; the loop has a variable of its own.
        first = Local(analysis.fresh(), start)
        outer.append((first.var, analysis.node(value, names)))
        first.var.number = is_number(outer[-1][1])
        firsts.append(first)
        bind(analysis, pattern, first, names, outer)
        variables.append(analysis.fresh(pattern.name if isinstance(pattern, Symbol) else ""))
    for pattern, var in zip(patterns, variables, strict=True):
        if isinstance(pattern, Symbol):
            names[pattern.name] = var
        else:
            bind(analysis, pattern, Local(var, start), names, pairs)
    target = Target(len(variables))
    before = analysis.functions
    inner = body(analysis, form.items[2:], names, target, start)
    if pairs:
        inner = Let(pairs, inner, start)
    if target.used:
        _infer_numbers(target, variables, firsts)
        inner = Loop(variables, firsts, inner, start, fresh=analysis.functions > before)
    else:
        outer.extend(zip(variables, firsts, strict=True))
    return Let(outer, inner, start) if outer else inner


def _infer_numbers(target: Target, variables: list[Var], firsts: list[Node]) -> None:
    """Mark the variables of a loop that are numbers in every turn: at first, and whatever ``recur`` gives them."""
    for var, first in zip(variables, firsts, strict=True):
        var.number = is_number(first)
    changed = True
    while changed:
        changed = False
        for args in target.turns:
            for var, arg in zip(variables, args, strict=True):
                if var.number and not is_number(arg):
                    var.number, changed = False, True


@special("recur")
def recur(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(recur value …)``."""
    if tail is None:
        analysis.fail(
            "recur must be the last thing its loop or function does",
            form,
            "Put (recur …) at the end of a branch, or call the function by its name.",
        )
    if len(form.items) - 1 != tail.count:
        analysis.fail(f"recur needs {tail.count} values here, got {len(form.items) - 1}", form)
    tail.used = True
    args = analysis.nodes(form.items[1:], scope)
    tail.turns.append(args)
    return Recur(args, form.start)
