"""What reaches out of a program: tools, memory, ``return`` and ``fail``; and errors that are caught (SPEC 004)."""

from __future__ import annotations

from pyagentd.lisp.analysis import Analysis, Scope, Tail, special
from pyagentd.lisp.core import Const, Make, Node, Support, Try
from pyagentd.lisp.errors import LispError
from pyagentd.lisp.forms.binding import body
from pyagentd.lisp.forms.destructuring import simple_name
from pyagentd.lisp.syntax import Form, List, Literal, Symbol
from pyagentd.lisp.values import Keyword

ENDS = {"return": "leave_return", "fail": "leave_fail"}


@special("call")
def call(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(call "tool" {:arg value})``; the tools ``return`` and ``fail`` end the program (DD-23, DD-24)."""
    args = form.items[1:]
    if not args:
        analysis.fail("call needs the name of a tool", form, 'Write (call "tool" {:arg value}).')
    if len(args) > 2 or (len(args) == 2 and _never_a_map(args[1]) and not _ends(args[0])):
        error = LispError(
            "validation_error",
            "a tool takes one map of arguments, not positional ones",
            hint='Write (call "tool" {:arg value}).',
        )
        raise analysis.placed(error, form)
    name = args[0]
    if isinstance(name, Literal) and type(name.value) is not str:
        analysis.fail("the name of a tool is a string", name, 'Write (call "tool" {:arg value}).')
    if isinstance(name, Symbol) and name.name not in scope and name.name not in analysis.defined:
        analysis.fail("the name of a tool is a string", name, f'Write (call "{name.name}" {{:arg value}}).')
    if isinstance(name, Literal) and name.value in ENDS:
        value = analysis.node(args[1], scope) if len(args) == 2 else Const(None, form.start)
        return Support(ENDS[name.value], [value], form.start)
    given = analysis.node(args[1], scope) if len(args) == 2 else Make("map", [], form.start)
    return Support("call_tool", [analysis.node(name, scope), given], form.start)


def _never_a_map(form: Form) -> bool:
    return isinstance(form, Literal) and form.value is not None


def _ends(form: Form) -> bool:
    return isinstance(form, Literal) and form.value in ENDS


@special("return", "fail")
def leave(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(return value)`` and ``(fail value)`` end the program with a value, nil without one (DD-23)."""
    name = form.items[0].name  # type: ignore[attr-defined]
    if len(form.items) > 2:
        analysis.fail(f"{name} takes one value, got {len(form.items) - 1}", form, f"Write ({name} {{:key value}}).")
    value = analysis.node(form.items[1], scope) if len(form.items) == 2 else Const(None, form.start)
    return Support(ENDS[name], [value], form.start)


@special("memory/put")
def put(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(memory/put :key value)``: the value."""
    if len(form.items) != 3:
        analysis.fail("memory/put needs a key and a value", form, "Write (memory/put :key value).")
    return Support("memory_put", [_key(analysis, form, scope), analysis.node(form.items[2], scope)], form.start)


@special("memory/get")
def get(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(memory/get :key default)``: the value, or the default, or nil."""
    if not 2 <= len(form.items) <= 3:
        analysis.fail("memory/get needs a key", form, "Write (memory/get :key).")
    args = [_key(analysis, form, scope), *analysis.nodes(form.items[2:], scope)]
    return Support("memory_get", args, form.start)


def _key(analysis: Analysis, form: List, scope: Scope) -> Node:
    key = form.items[1]
    if isinstance(key, Literal) and type(key.value) not in {Keyword, str}:
        analysis.fail("a key of the memory is a keyword", key, "Write (memory/put :key value) and (memory/get :key).")
    return analysis.node(key, scope)


@special("throw")
def throw(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(throw "message")`` or ``(throw (ex-info "message" {…}))``: an error that ``catch`` gets."""
    if len(form.items) != 2:
        analysis.fail("throw needs one value", form, 'Write (throw "what is wrong").')
    return Support("throw", [analysis.node(form.items[1], scope)], form.start)


@special("try")
def try_(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(try body … (catch e handler …) (finally …))``; ``e`` is a map of ``:message`` and ``:reason``."""
    forms, final, handler, var = form.items[1:], None, None, None
    if forms and _is(forms[-1], "finally"):
        final = body(analysis, forms.pop().items[1:], scope, None, form.start)  # type: ignore[attr-defined]
    if forms and _is(forms[-1], "catch"):
        clause = forms.pop()
        assert isinstance(clause, List)
        # (catch e …) and Clojure's (catch Exception e …) alike.
        named = (
            2 if len(clause.items) > 2 and isinstance(clause.items[2], Symbol) and _is_class(clause.items[1]) else 1
        )
        if len(clause.items) <= named:
            analysis.fail("catch needs a name for the error", clause, "Write (catch e (:message e)).")
        name = simple_name(analysis, clause.items[named])
        var = analysis.fresh(name)
        handler = body(analysis, clause.items[named + 1 :], {**scope, name: var}, None, form.start)
    for each in forms:
        if _is(each, "catch") or _is(each, "finally"):
            analysis.fail("try takes one catch, and finally after it", each)
    inner = body(analysis, forms, scope, None, form.start)
    if handler is None and final is None:
        return inner
    analysis.functions += 1  # becomes a function
    return Try(inner, var, handler, final, form.start)


def _is(form: Form, name: str) -> bool:
    return (
        isinstance(form, List)
        and bool(form.items)
        and isinstance(form.items[0], Symbol)
        and form.items[0].name == name
    )


def _is_class(form: Form) -> bool:
    """Return whether a name is that of a class of exceptions, which we have none of: all are caught alike."""
    return isinstance(form, Literal) or (isinstance(form, Symbol) and (form.name[0].isupper() or "." in form.name))
