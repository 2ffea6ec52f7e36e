"""The special forms; importing this module declares them."""

from collections.abc import Callable

from pyagentd.lisp.analysis import (
    AnalysedForm,
    Analysis,
    Arity,
    Cond,
    Const,
    Define,
    Do,
    Each,
    Fn,
    If,
    Invoke,
    KeywordCall,
    Let,
    Local,
    Logic,
    Loop,
    Make,
    Node,
    Recur,
    RuntimeCall,
    Scope,
    Tail,
    Target,
    Try,
    Var,
    WhereTest,
    can_inline,
    is_integer,
    is_number,
    special,
)
from pyagentd.lisp.errors import MISSING, LispError
from pyagentd.lisp.reader import Form, List, Literal, Map, Symbol, Vector
from pyagentd.lisp.values import Keyword

# Destructuring patterns: ``[a [b c] & rest :as all]`` and ``{:keys [a b] :or {a 1} new :old :as m}``.

Pairs = list[tuple[Var, Node]]


def simple_name(analysis: Analysis, form: Form) -> str:
    """Return the name that a form binds; it must be a symbol without namespace."""
    if isinstance(form, Symbol):
        if form.name[0] == "%" or ("/" in form.name and form.name != "/"):
            analysis.fail(f"{form.name} cannot be bound", form, "Names with '/' or '%' are taken; write {b :a/b}.")
        return form.name
    return analysis.fail("expected a name", form, "Write a symbol such as x.")


def split_rest(analysis: Analysis, items: list[Form]) -> tuple[list[Form], Form | None]:
    """Return the patterns before ``&``, and the one after it."""
    marks = [item for item in items if isinstance(item, Symbol) and item.name == "&"]
    if not marks:
        return items, None
    if items[-2:-1] != marks:
        analysis.fail("& must be followed by exactly one name", marks[0], "Write [a b & rest].")
    return items[:-2], items[-1]


class Bindings:
    """What patterns bind: ``names`` is the scope after them, ``pairs`` are variables and values in order."""

    def __init__(self, analysis: Analysis, scope: Scope) -> None:
        self.analysis = analysis
        self.names = dict(scope)
        self.pairs: Pairs = []

    def around(self, body: Node, start: int) -> Node:
        """Return the node for ``body`` with the bindings before it."""
        return Let(self.pairs, body, start) if self.pairs else body

    def bind(self, pattern: Form, value: Node, *, rest: bool = False) -> None:
        """Bind ``pattern`` to ``value``; a vector pattern for the ``rest`` of arguments accepts any number."""
        if isinstance(pattern, Symbol):
            name = simple_name(self.analysis, pattern)
            self.names[name] = self.hold(value, pattern.start, name).var
        elif isinstance(pattern, Vector):
            self._vector(pattern, value, lenient=rest)
        elif isinstance(pattern, Map):
            if rest:
                self.analysis.fail("a map cannot follow &", pattern, "Take one map: (fn [{:keys [a b]}] …).")
            self._map(pattern, self._as_local(value))
        else:
            self.analysis.fail(
                "unsupported pattern",
                pattern,
                "Bind a name, a vector [a b & rest] or a map {:keys [a b] :or {…} :as m}.",
            )

    def hold(self, value: Node, start: int, name: str = "") -> Local:
        """Return a new variable with a value."""
        var = self.analysis.new_variable(name)
        var.number, var.integer = is_number(value), is_integer(value)
        self.pairs.append((var, value))
        return Local(var, start)

    def parameter(self, pattern: Form, start: int, *, rest: bool = False) -> Var:
        """Return the variable of a parameter."""
        if isinstance(pattern, Symbol):
            name = simple_name(self.analysis, pattern)
            var = self.names[name] = self.analysis.new_variable(name)
            return var
        var = self.analysis.new_variable()
        self.bind(pattern, Local(var, start), rest=rest)
        return var

    def _as_local(self, value: Node) -> Local:
        """Return a variable for a value that is used more than once."""
        return value if isinstance(value, Local) else self.hold(value, value.start)

    def _vector(self, pattern: Vector, value: Node, *, lenient: bool) -> None:
        items = list(pattern.items)
        whole: Form | None = None
        if len(items) >= 2 and _is_keyword(items[-2], "as"):
            whole = items[-1]
            del items[-2:]
        items, rest = split_rest(self.analysis, items)
        if whole is not None:
            value = self._as_local(value)
            self.bind(whole, value)
        start = pattern.start
        parts = self.analysis.new_variable()
        open_end = lenient or rest is not None
        self.pairs.append((parts, RuntimeCall("take_apart", [value, Const(open_end, start)], start)))
        for index, item in enumerate(items):
            if isinstance(item, Symbol) and item.name == "_":
                continue
            self.bind(item, RuntimeCall("item", [Local(parts, start), Const(index, start)], start))
        if rest is not None:
            left = RuntimeCall("rest_of", [Local(parts, start), Const(len(items), start)], start)
            self.bind(rest, left, rest=True)

    def _map(self, pattern: Map, whole: Local) -> None:
        defaults = _defaults(self.analysis, pattern)
        var = self.analysis.new_variable()
        var.mapping = True
        self.pairs.append((var, RuntimeCall("as_map", [whole], whole.start)))
        value = Local(var, whole.start)
        for key, target in zip(pattern.items[::2], pattern.items[1::2], strict=True):
            if _is_keyword(key, "as"):
                self.bind(Symbol(simple_name(self.analysis, target), target.start), whole)
            elif isinstance(key, Literal) and type(key.value) is Keyword:
                self._option(key, target, value, defaults)
            elif isinstance(target, Literal) and isinstance(target.value, str | Keyword | int):
                self._key(key, target.value, value, defaults)
            else:
                self.analysis.fail("unsupported pattern", target, "Write {name :key}, the new name before the key.")
        for name in defaults:
            if name not in self.names:
                self.analysis.fail(f":or gives a default for {name}, which is not bound", pattern)

    def _option(self, key: Literal, target: Form, value: Local, defaults: dict[str, Form]) -> None:
        """Bind the names after ``:keys`` or ``:strs``; ``:or`` was read before."""
        option = key.value.name
        if option in {"keys", "strs"}:
            if not isinstance(target, Vector):
                self.analysis.fail(f":{option} needs a vector of names", target, f"Write {{:{option} [a b]}}.")
            for item in target.items:
                if isinstance(item, Literal) and type(item.value) is Keyword:
                    item = Symbol(item.value.name, item.start)
                name = simple_name(self.analysis, item)
                self._key(item, name if option == "strs" else Keyword(name), value, defaults)
        elif option != "or":
            self.analysis.fail(
                f"unsupported pattern :{option}", key, "There are :keys, :strs, :or and :as; or {name :key}."
            )

    def _key(self, pattern: Form, key: str | Keyword | int, value: Local, defaults: dict[str, Form]) -> None:
        """Bind ``pattern`` to the value of the map under ``key``, or to its default if the key is missing."""
        start = pattern.start
        default = defaults.get(pattern.name) if isinstance(pattern, Symbol) else None
        found: Node
        if default is not None:
            held = self.hold(RuntimeCall("look_up_or_missing", [value, Const(key, start)], start), start)
            instead = self.analysis.node(default, self.names)
            found = If(RuntimeCall("is_missing", [held], start), instead, held, start)
        elif type(key) is Keyword:
            found = KeywordCall(key, [value], start)
        else:
            found = Invoke("get", [value, Const(key, start)], start)
        self.bind(pattern, found)


def _defaults(analysis: Analysis, pattern: Map) -> dict[str, Form]:
    for key, target in zip(pattern.items[::2], pattern.items[1::2], strict=True):
        if _is_keyword(key, "or"):
            if not isinstance(target, Map):
                analysis.fail(":or needs a map of defaults", target, "Write {:keys [a] :or {a 1}}.")
            return {
                simple_name(analysis, name): value
                for name, value in zip(target.items[::2], target.items[1::2], strict=True)
            }
    return {}


def _is_keyword(form: Form, name: str) -> bool:
    return isinstance(form, Literal) and type(form.value) is Keyword and form.value.name == name


def bind_all(analysis: Analysis, bindings: Vector, scope: Scope) -> Bindings:
    """Return the bindings of a binding vector."""
    if len(bindings.items) % 2:
        analysis.fail(
            f"bindings need pairs of name and value, got {len(bindings.items)} forms",
            bindings,
            "Write [name value name value].",
        )
    made = Bindings(analysis, scope)
    for pattern, value in zip(bindings.items[::2], bindings.items[1::2], strict=True):
        made.bind(pattern, analysis.node(value, made.names))
    return made


# ``let``, ``def``, and forms that bind one value and test it.


def body(analysis: Analysis, forms: list[Form], scope: Scope, tail: Tail, start: int) -> Node:
    """Return the node for forms in order; nil without any."""
    if not forms:
        return Const(None, start)
    if len(forms) == 1:
        return analysis.node(forms[0], scope, tail)
    first = analysis.nodes(forms[:-1], scope)
    return Do([*first, analysis.node(forms[-1], scope, tail)], start)


def binding_vector(analysis: Analysis, form: List) -> Vector:
    """Return the binding vector of a form."""
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
    made = bind_all(analysis, bindings, scope)
    for var, value in made.pairs:
        if isinstance(value, Fn) and len(value.arities) == 1 and var.name:
            var.arity = value.arities[0].range
    return made.around(body(analysis, form.items[2:], made.names, tail, form.start), form.start)


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
    """Return pattern and value of a form with exactly one binding."""
    name = form.items[0].name  # type: ignore[attr-defined]
    bindings = binding_vector(analysis, form)
    if len(bindings.items) != 2:
        analysis.fail(f"{name} binds exactly one value", bindings, f"Write ({name} [x value] …), and let for more.")
    return bindings.items[0], bindings.items[1]


@special("if-let", "if-some", "when-let", "when-some")
def bind_if(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(if-let [x value] then else)``, ``(when-let [x value] body …)``; those with ``some`` test for nil only."""
    name = form.items[0].name  # type: ignore[attr-defined]
    is_if, start = name.startswith("if"), form.start
    if len(form.items) < 3 or (is_if and len(form.items) > 4):
        needs, shown = ("one or two branches", "then else") if is_if else ("a body", "body")
        analysis.fail(f"{name} needs a binding and {needs}", form, f"Write ({name} [x value] {shown}).")
    then, otherwise = (form.items[2:3], form.items[3:]) if is_if else (form.items[2:], [])
    pattern, value = one_binding(analysis, form)
    var = analysis.new_variable(pattern.name if isinstance(pattern, Symbol) else "")
    held = Local(var, start)
    made = Bindings(analysis, scope)
    made.bind(pattern, held)
    inner = body(analysis, then, made.names, tail, start)
    test: Node = RuntimeCall("is_something", [held], start) if name.endswith("some") else held
    return Let(
        [(var, analysis.node(value, scope))],
        If(test, Let(made.pairs, inner, start), body(analysis, otherwise, scope, tail, start), start),
        start,
    )


# ``if``, ``when``, ``cond``, ``and``, ``or``, ``do`` and similar forms.


def choose(clauses: list[tuple[Node, Node]], start: int) -> Node:
    """Return the node for the first clause whose test is true, or nil."""
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
    if len(form.items) < 2:
        analysis.fail(f"{name} needs a test", form, f"Write ({name} test body).")
    test = analysis.node(form.items[1], scope)
    nothing = Const(None, form.start)
    then = body(analysis, form.items[2:], scope, tail, form.start) if len(form.items) > 2 else nothing
    return If(test, nothing, then, form.start) if name == "when-not" else If(test, then, nothing, form.start)


@special("cond")
def cond(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(cond test value … :else value)``."""
    clauses = form.items[1:]
    if not clauses:
        return Const(None, form.start)
    if len(clauses) % 2:
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
    """``(and a b)``, ``(or a b)``; the later forms are evaluated only if needed."""
    kind = form.items[0].name  # type: ignore[attr-defined]
    items = form.items[1:]
    if not items:
        return Const(True if kind == "and" else None, form.start)
    if len(items) == 1:
        return analysis.node(items[0], scope, tail)
    if len(items) == 2 and tail is not None:
        # The last one is in tail position: (and test (recur …)).
        bindings = Bindings(analysis, scope)
        held = bindings.hold(analysis.node(items[0], scope), form.start)
        last = analysis.node(items[1], scope, tail)
        then, otherwise = (last, held) if kind == "and" else (held, last)
        return bindings.around(If(held, then, otherwise, form.start), form.start)
    return Logic(kind, analysis.nodes(items, scope), form.start)


@special("do", "time")
def do(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(do form …)``: the value of the last; nil without any."""
    return body(analysis, form.items[1:], scope, tail, form.start)


@special("ns", "require", "use")
def require(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """Note the short names in ``(require '[clojure.string :as s])`` and ``ns``; nil."""
    waiting: list[Form] = [*form.items]
    while waiting:
        items: list[Form] = getattr(waiting.pop(), "items", [])
        waiting += items
        for of, mark, short in zip(items[:1], items[1:2], items[2:3], strict=False):
            if isinstance(of, Symbol) and _is_keyword(mark, "as") and isinstance(short, Symbol):
                analysis.spaces[short.name] = of.name
    return Const(None, form.start)


@special("comment", "import", "declare")
def ignore(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """Ignore a form that has no meaning here; nil."""
    return Const(None, form.start)


@special("println", "print", "prn", "pr", "tap>")
def discard_output(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """Evaluate the arguments of a printing form; nothing is printed, and the value is nil."""
    return Do([*analysis.nodes(form.items[1:], scope), Const(None, form.start)], form.start)


@special("quote")
def quote(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(quote data)``."""
    if len(form.items) != 2:
        analysis.fail("quote needs one form", form, "Write '(1 2 3).")
    return analysis.quoted_data(form.items[1])


# Tool calls, memory, ``return`` and ``fail``; throwing and catching errors.

ENDS = ("return", "fail")


@special("call")
def call(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(call "tool" {:arg value})``; the tools ``return`` and ``fail`` end the program."""
    args = form.items[1:]
    if not args:
        analysis.fail("call needs the name of a tool", form, 'Write (call "tool" {:arg value}).')
    is_map = len(args) < 2 or not isinstance(args[1], Literal) or args[1].value is None  # as far as is known here
    if len(args) > 2 or not (is_map or (isinstance(args[0], Literal) and args[0].value in ENDS)):
        error = LispError(
            "validation_error",
            "a tool takes one map of arguments, not positional ones",
            hint='Write (call "tool" {:arg value}).',
        )
        raise analysis.locate_error(error, form)
    name = args[0]
    if isinstance(name, Literal) and type(name.value) is not str:
        analysis.fail("the name of a tool is a string", name, 'Write (call "tool" {:arg value}).')
    if isinstance(name, Symbol) and name.name not in scope and name.name not in analysis.defined:
        analysis.fail("the name of a tool is a string", name, f'Write (call "{name.name}" {{:arg value}}).')
    nothing = Const(None, form.start) if isinstance(name, Literal) and name.value in ENDS else None
    given = analysis.node(args[1], scope) if len(args) == 2 else nothing or Make("map", [], form.start)
    return RuntimeCall("call_tool", [analysis.node(name, scope), given], form.start)


@special("pmap")
def pmap(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(pmap f coll …)``: as ``map``, with the calls in parallel."""
    if len(form.items) < 3:
        analysis.fail("pmap needs a function and a collection", form, "Write (pmap (fn [x] …) coll).")
    return RuntimeCall("pmap", analysis.nodes(form.items[1:], scope), form.start)


@special("pcalls")
def pcalls(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(pcalls f g …)``: the results of functions without arguments, called in parallel."""
    return RuntimeCall("pcalls", analysis.nodes(form.items[1:], scope), form.start)


@special("pvalues")
def pvalues(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(pvalues a b …)``: the values of expressions that are evaluated in parallel."""
    return RuntimeCall("pcalls", [_thunk(analysis, form, [each], scope) for each in form.items[1:]], form.start)


@special("future")
def future(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(future body …)``: starts the body in parallel; ``deref`` or ``@`` waits for its value."""
    return RuntimeCall("future", [_thunk(analysis, form, form.items[1:], scope)], form.start)


def _thunk(analysis: Analysis, form: List, forms: list[Form], scope: Scope) -> Fn:
    """Return a function without arguments that evaluates forms."""
    before = analysis.functions
    return analysis.function([Arity([], None, body(analysis, forms, scope, None, form.start))], None, form, before)


@special("return", "fail")
def end_program(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(return value)`` and ``(fail value)`` end the program with a value, nil without one."""
    name = form.items[0].name  # type: ignore[attr-defined]
    if len(form.items) > 2:
        analysis.fail(f"{name} takes one value, got {len(form.items) - 1}", form, f"Write ({name} {{:key value}}).")
    value = analysis.node(form.items[1], scope) if len(form.items) == 2 else Const(None, form.start)
    return RuntimeCall("call_tool", [Const(name, form.start), value], form.start)


@special("memory/put")
def put(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(memory/put :key value)``: the value."""
    if len(form.items) != 3:
        analysis.fail("memory/put needs a key and a value", form, "Write (memory/put :key value).")
    return RuntimeCall("memory_put", [_key(analysis, form, scope), analysis.node(form.items[2], scope)], form.start)


@special("memory/get")
def get(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(memory/get :key default)``: the value, or the default, or nil."""
    if not 2 <= len(form.items) <= 3:
        analysis.fail("memory/get needs a key", form, "Write (memory/get :key).")
    args = [_key(analysis, form, scope), *analysis.nodes(form.items[2:], scope)]
    return RuntimeCall("memory_get", args, form.start)


def _key(analysis: Analysis, form: List, scope: Scope) -> Node:
    key = form.items[1]
    if isinstance(key, Literal) and type(key.value) not in {Keyword, str}:
        analysis.fail("a key of the memory is a keyword", key, "Write (memory/put :key value) and (memory/get :key).")
    return analysis.node(key, scope)


@special("throw")
def throw(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(throw "message")`` or ``(throw (ex-info "message" {…}))``: raise an error for ``catch``."""
    if len(form.items) != 2:
        analysis.fail("throw needs one value", form, 'Write (throw "what is wrong").')
    return RuntimeCall("throw", [analysis.node(form.items[1], scope)], form.start)


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
        var = analysis.new_variable(name)
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
    """Return whether a name is that of an exception class; these are ignored, since ``catch`` catches all errors."""
    return isinstance(form, Literal) or (isinstance(form, Symbol) and (form.name[0].isupper() or "." in form.name))


# Functions and loops: ``fn``, ``defn``, ``loop`` and ``recur``.


@special("fn", "fn*")
def fn(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(fn name? [params] body …)`` or ``(fn ([x] …) ([x y] …))``."""
    rest = form.items[1:]
    var = None
    names = dict(scope)
    if rest and isinstance(rest[0], Symbol):
        name = simple_name(analysis, rest[0])
        var = names[name] = analysis.new_variable(name)
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
        var.arity = _declared_arity(rest[0])
    analysis_lambda, analysis.in_lambda = analysis.in_lambda, False
    before = analysis.functions
    arities = [_arity(analysis, each, scope) for each in rest]
    analysis.in_lambda = analysis_lambda
    counts = [len(each.params) for each in arities if each.rest is None]
    if len(set(counts)) != len(counts) or sum(each.rest is not None for each in arities) > 1:
        analysis.fail("two bodies of a function take the same number of arguments", form)
    return analysis.function(arities, var, form, before)


def _declared_arity(form: Form) -> tuple[int, int | None] | None:
    """Return the number of arguments of a function, before its body is analysed."""
    if not isinstance(form, List) or not form.items or not isinstance(form.items[0], Vector):
        return None
    names = [each.name if isinstance(each, Symbol) else "" for each in form.items[0].items]
    if "&" in names:
        return names.index("&"), None
    return len(names), len(names)


def _arity(analysis: Analysis, form: Form, scope: Scope) -> Arity:
    if not isinstance(form, List) or not form.items or not isinstance(form.items[0], Vector):
        analysis.fail("a function needs a vector of parameters", form, "Write (fn [x] (inc x)).")
    patterns, others = split_rest(analysis, form.items[0].items)
    made = Bindings(analysis, scope)
    rest = made.parameter(others, form.start, rest=True) if others else None
    params = [made.parameter(each, form.start) for each in patterns]
    target = Target(len(params) + (rest is not None))
    before = analysis.functions
    inner = made.around(body(analysis, form.items[1:], made.names, target, form.start), form.start)
    if target.used:
        params, rest, inner = _as_loop(analysis, params, rest, inner, form.start, fresh=analysis.functions > before)
    return Arity(params, rest, inner)


def _as_loop(
    analysis: Analysis, params: list[Var], rest: Var | None, inner: Node, start: int, *, fresh: bool
) -> tuple[list[Var], Var | None, Node]:
    """Return parameters and body of a function with ``recur``: its parameters are the variables of a loop."""
    outside = [analysis.new_variable(var.name) for var in params]
    outside_rest = analysis.new_variable(rest.name) if rest else None
    variables = [*params, *([rest] if rest else [])]
    inits: list[Node] = [Local(var, start) for var in [*outside, *([outside_rest] if outside_rest else [])]]
    return outside, outside_rest, Loop(variables, inits, inner, start, fresh=fresh)


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


@special("loop")
def loop(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(loop [i 0] (if (< i 3) (recur (inc i)) i))``."""
    bindings = binding_vector(analysis, form)
    if len(bindings.items) % 2:
        analysis.fail("bindings need pairs of name and value", bindings, "Write (loop [i 0] …).")
    start = form.start
    variables: list[Var] = []
    firsts: list[Node] = []
    outer = Bindings(analysis, scope)
    patterns = bindings.items[::2]
    for pattern, value in zip(patterns, bindings.items[1::2], strict=True):
        # Later bindings refer to the initial value; the loop has a variable of its own.
        first = outer.hold(analysis.node(value, outer.names), start)
        firsts.append(first)
        outer.bind(pattern, first)
        variables.append(analysis.new_variable(pattern.name if isinstance(pattern, Symbol) else ""))
    each_turn = Bindings(analysis, outer.names)
    for pattern, var in zip(patterns, variables, strict=True):
        if isinstance(pattern, Symbol):
            each_turn.names[pattern.name] = var
        else:
            each_turn.bind(pattern, Local(var, start))
    target = Target(len(variables))
    before = analysis.functions
    inner = each_turn.around(body(analysis, form.items[2:], each_turn.names, target, start), start)
    if target.used:
        _infer_numbers(target, variables, firsts)
        inner = Loop(variables, firsts, inner, start, fresh=analysis.functions > before)
    else:
        outer.pairs.extend(zip(variables, firsts, strict=True))
    return outer.around(inner, start)


def _infer_numbers(target: Target, variables: list[Var], firsts: list[Node]) -> None:
    """Mark the variables of a loop that are always numbers, or integers: initially and in each ``recur``."""
    for var, first in zip(variables, firsts, strict=True):
        var.number, var.integer = is_number(first), is_integer(first)
    changed = True
    while changed:
        changed = False
        for args in target.turns:
            for var, arg in zip(variables, args, strict=True):
                if var.number and not is_number(arg):
                    var.number, changed = False, True
                if var.integer and not is_integer(arg):
                    var.integer, changed = False, True


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


# ``for``, ``doseq`` and ``dotimes``.


@special("for")
def for_(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(for [x xs :when test y (f x)] body)``: a vector of the values of the body."""
    bindings = binding_vector(analysis, form)
    if len(form.items) < 3:
        analysis.fail("for needs a body", form, "Write (for [x xs] (inc x)).")
    start = form.start
    made = Bindings(analysis, scope)
    held = made.hold(Make("vector", [], start), start)

    def inner(names: Scope) -> Node:
        return RuntimeCall("collect", [held, body(analysis, form.items[2:], names, None, start)], start)

    return made.around(Do([_loops(analysis, form, bindings, scope, inner), held], start), start)


@special("doseq")
def doseq(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(doseq [x xs] body …)``: nil."""
    bindings = binding_vector(analysis, form)
    start = form.start

    def inner(names: Scope) -> Node:
        return Do([body(analysis, form.items[2:], names, None, start), Const(None, start)], start)

    return Do([_loops(analysis, form, bindings, scope, inner), Const(None, start)], start)


def _loops(
    analysis: Analysis, form: List, bindings: Vector, scope: Scope, inner: Callable[[Scope], Node], index: int = 0
) -> Node:
    """Return the nested loops over the bindings from ``index``, around what ``inner`` returns."""
    items, start = bindings.items, form.start
    if index >= len(items):
        return inner(scope)
    if index + 1 == len(items):
        analysis.fail("bindings need pairs of name and collection", bindings, "Write (for [x xs] …).")
    pattern, value = items[index], items[index + 1]

    def rest(names: Scope) -> Node:
        return _loops(analysis, form, bindings, names, inner, index + 2)

    if isinstance(pattern, Literal) and type(pattern.value) is Keyword:
        modifier = pattern.value.name
        if index == 0:
            analysis.fail("the first binding names a collection", pattern, "Write (for [x xs :when (odd? x)] …).")
        if modifier == "let":
            if not isinstance(value, Vector):
                analysis.fail(":let needs a vector of bindings", value, "Write :let [y (inc x)].")
            made = bind_all(analysis, value, scope)
            return made.around(rest(made.names), start)
        if modifier not in {"when", "while"}:
            analysis.fail(f"unknown :{modifier}", pattern, "There are :when, :while and :let.")
        otherwise = Const(None, start) if modifier == "when" else Const(MISSING, start)
        return If(analysis.node(value, scope), rest(scope), otherwise, start)
    before = analysis.functions
    collection = analysis.node(value, scope)
    var = analysis.new_variable()
    made = Bindings(analysis, scope)
    made.bind(pattern, Local(var, start))
    function = analysis.function([Arity([var], None, made.around(rest(made.names), start))], None, form, before)
    may_stop = any(isinstance(each, Literal) and each.value is Keyword("while") for each in items[::2])
    if can_inline(function, 1) and not may_stop:
        analysis.functions = before
        return Each("each", function, collection, start)
    return RuntimeCall("for_each", [collection, function], start)


@special("dotimes")
def dotimes(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(dotimes [i 3] body …)``: nil."""
    pattern, count = one_binding(analysis, form)
    start = form.start
    before = analysis.functions
    var = analysis.new_variable(name := simple_name(analysis, pattern))
    inner = body(analysis, form.items[2:], {**scope, name: var}, None, start)
    function = analysis.function([Arity([var], None, inner)], None, form, before)
    return RuntimeCall("times", [analysis.node(count, scope), function], start)


# ``case``, ``condp`` and ``where``: comparing a value with others.

OPERATORS = ("=", "not=", ">", "<", ">=", "<=", "includes", "in")


@special("case")
def case(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(case value constant result (c1 c2) result default)``."""
    if len(form.items) < 3:
        analysis.fail("case needs a value and clauses", form, 'Write (case x 1 "one" "other").')
    start = form.start
    bindings = Bindings(analysis, scope)
    held = bindings.hold(analysis.node(form.items[1], scope), start)

    def test(constants: Form) -> Node:
        group = constants.items if isinstance(constants, List) else [constants]
        tests: list[Node] = [Invoke("=", [held, analysis.quoted_data(each)], start) for each in group]
        return tests[0] if len(tests) == 1 else Logic("or", tests, start) if tests else Const(False, start)

    return bindings.around(_first_fitting(analysis, form.items[2:], test, scope, tail, start), start)


def _first_fitting(
    analysis: Analysis, clauses: list[Form], test: Callable[[Form], Node], scope: Scope, tail: Tail, start: int
) -> Node:
    """Return the node for the first clause whose test is true, or the default, or an error without one."""
    found: list[tuple[Node, Node]] = []
    for index in range(0, len(clauses) - 1, 2):
        found.append((test(clauses[index]), analysis.node(clauses[index + 1], scope, tail)))
    last = analysis.node(clauses[-1], scope, tail) if len(clauses) % 2 else RuntimeCall("no_clause", [], start)
    return choose([*found, (Const(True, start), last)], start)


@special("condp")
def condp(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(condp = value test result … default)``."""
    if len(form.items) < 4:
        analysis.fail("condp needs a predicate, a value and clauses", form, "Write (condp = x 1 :one :other).")
    start, predicate = form.start, form.items[1]
    bindings = Bindings(analysis, scope)
    held = AnalysedForm(bindings.hold(analysis.node(form.items[2], scope), start))

    def test(value: Form) -> Node:
        return analysis.node(List([predicate, value, held], value.start), scope)

    return bindings.around(_first_fitting(analysis, form.items[3:], test, scope, tail, start), start)


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
    operator, value = "", analysis.node(parts[2], scope) if len(parts) == 3 else Const(None, form.start)
    if len(parts) == 3:
        if not isinstance(name := parts[1], Symbol) or name.name not in OPERATORS:
            analysis.fail("unknown operator in where", name, f"There are {' '.join(OPERATORS)}.")
        operator = name.name
    made = RuntimeCall("where", [path, Const(operator, form.start), value], form.start)
    return _inline(analysis, path, operator, value, form) or made


def _inline(analysis: Analysis, path: Const, operator: str, value: Node, form: Form) -> Node | None:
    """Return a function node for common predicates: one field compared with a constant or a variable; else None."""
    if len(path.value) != 1 or type(path.value[0]) is not Keyword or operator in {"in", "includes"}:
        return None
    if not isinstance(value, Const) and not (isinstance(value, Local) and operator in {"<", ">", "<=", ">="}):
        return None
    var = analysis.new_variable()
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


# Threading: ``->``, ``->>`` and similar forms.
#
# A long chain becomes a sequence of bindings instead of nested calls, so that nesting does not grow with its length.

_NESTED = 4
"""The largest number of steps of a chain that is compiled as one expression."""


def _step(form: Form, value: Node, *, last: bool) -> Form:
    """Return a step as a call with the value as the first or last argument."""
    argument = AnalysedForm(value)
    if not isinstance(form, List) or not form.items:
        return List([form, argument], form.start)
    head = form.items[0]
    if isinstance(head, Symbol) and head.name in {"fn", "fn*"}:  # it is called with the value
        return List([form, argument], form.start)
    if last:
        return List([*form.items, argument], form.start)
    return List([head, argument, *form.items[1:]], form.start)


@special("->", "->>", "some->", "some->>", "cond->", "cond->>")
def thread(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(-> x (f a) g)`` is ``(g (f x a))``; ``->>`` passes the value as last argument.

    ``some->`` stops with nil at the first nil, ``(cond-> x test (f a))`` applies each step whose test is true.
    """
    name = form.items[0].name  # type: ignore[attr-defined]
    kind, last, steps = name.partition("-")[0], name.endswith(">>"), form.items[2:]
    if kind == "cond" and (len(form.items) < 2 or len(steps) % 2):
        analysis.fail(f"{name} needs a value and pairs of test and step", form, f"Write ({name} x test (f)).")
    if len(form.items) < 2:
        analysis.fail(f"{name} needs a value", form, f"Write ({name} x (f) (g)).")
    chain = Bindings(analysis, scope)
    node = analysis.node(form.items[1], scope)
    if kind == "cond":
        for test, step in zip(steps[::2], steps[1::2], strict=True):
            value = chain.hold(node, form.start)
            called = analysis.node(_step(step, value, last=last), scope)
            node = If(analysis.node(test, scope), called, value, form.start)
    elif kind == "some":
        for step in steps:
            value = chain.hold(node, form.start)
            called = analysis.node(_step(step, value, last=last), scope)
            node = If(RuntimeCall("is_something", [value], form.start), called, Const(None, form.start), form.start)
    else:
        for step in steps:
            of = chain.hold(node, form.start) if len(steps) > _NESTED else node
            node = analysis.node(_step(step, of, last=last), scope)
    return chain.around(node, form.start)


@special("as->")
def thread_as(analysis: Analysis, form: List, scope: Scope, tail: Tail) -> Node:
    """``(as-> x name (f a name) (g name b))``."""
    if len(form.items) < 3:
        analysis.fail("as-> needs a value and a name", form, "Write (as-> x $ (f a $)).")
    name = simple_name(analysis, form.items[2])
    chain = Bindings(analysis, scope)
    node = analysis.node(form.items[1], scope)
    for step in form.items[3:]:
        value = chain.hold(node, form.start)
        node = analysis.node(step, {**scope, name: value.var})
    return chain.around(node, form.start)
