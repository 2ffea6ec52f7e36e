"""Analysis: turns forms into core nodes, resolves names, and reports errors that can be found before a run.

A special form is a function ``(analysis, form, scope, tail) -> Node`` in ``forms``. ``scope`` maps names to variables
and is not modified after it was passed on; ``tail`` is the loop or function that ``recur`` would continue, or None.
"""

import typing
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NoReturn, TypeGuard

from pyagentd.errors import did_you_mean
from pyagentd.lisp.builtins import BUILTINS
from pyagentd.lisp.errors import LispError
from pyagentd.lisp.reader import Form, Lambda, List, Literal, Map, Places, Quote, Set, Symbol, Vector
from pyagentd.lisp.values import Keyword, wrong_arity

# Core nodes: few kinds, with resolved names and without syntactic sugar.
#
# A ``simple`` node becomes one Python expression; others need statements. ``height`` is the nesting of an expression;
# beyond ``MAX_HEIGHT`` a node is not ``simple``, so that the nesting of generated code is bounded.

MAX_HEIGHT: Final = 12


class Var:
    """A variable of the program; ``python`` is its unique name in generated code.

    ``arity`` is (least, most) when the name always means one function written in the program.
    """

    __slots__ = ("arity", "integer", "mapping", "name", "number", "python")

    def __init__(self, name: str, python: str) -> None:
        self.name = name
        self.python = python
        self.arity: tuple[int, int | None] | None = None
        self.number = False  # whether it can only be a number
        self.integer = False  # whether it can only be an integer
        self.mapping = False  # whether it can only be a map


class Node:
    """A core node; ``start`` is the offset of its form in the text, ``parts`` are the nodes inside it."""

    __slots__ = ("height", "parts", "simple", "start")

    def __init__(self, start: int, parts: Sequence["Node"] = (), *, simple: bool = True) -> None:
        self.start = start
        self.parts = parts
        self.height = 1
        self.simple = simple
        if simple and parts:
            height = 1 + max(part.height for part in parts)
            self.simple = height <= MAX_HEIGHT and all(part.simple for part in parts)
            self.height = height if self.simple else 1


class Const(Node):
    """A constant: nil, boolean, number, string, keyword, pattern or quoted data."""

    __slots__ = ("value",)

    def __init__(self, value: Any, start: int) -> None:
        super().__init__(start)
        self.value = value


class Local(Node):
    """The value of a variable."""

    __slots__ = ("var",)

    def __init__(self, var: Var, start: int) -> None:
        super().__init__(start)
        self.var = var


class Builtin(Node):
    """A builtin as a value."""

    __slots__ = ("name",)

    def __init__(self, name: str, start: int) -> None:
        super().__init__(start)
        self.name = name


class Invoke(Node):
    """A call of a builtin by its name, with a valid number of arguments."""

    __slots__ = ("args", "name")

    def __init__(self, name: str, args: list[Node], start: int) -> None:
        super().__init__(start, args)
        self.name, self.args = name, args


class RuntimeCall(Node):
    """A call of a function of ``runtime``, with the run as the first argument."""

    __slots__ = ("args", "name")

    def __init__(self, name: str, args: list[Node], start: int) -> None:
        super().__init__(start, args)
        self.name, self.args = name, args


class KeywordCall(Node):
    """``(:key target default)``."""

    __slots__ = ("args", "key")

    def __init__(self, key: Any, args: list[Node], start: int) -> None:
        super().__init__(start, args)
        self.key, self.args = key, args


class WhereTest(Node):
    """``(where key operator value)`` applied to one map; the operator is "" for a test of truth."""

    __slots__ = ("key", "operator", "target", "value")

    def __init__(self, key: Any, operator: str, value: Node, target: Node, start: int) -> None:
        super().__init__(start, [value, target])
        self.key, self.operator, self.value, self.target = key, operator, value, target


class Apply(Node):
    """A call of a value that is known only at run time."""

    __slots__ = ("args", "function")

    def __init__(self, function: Node, args: list[Node], start: int) -> None:
        super().__init__(start, [function, *args])
        self.function, self.args = function, args


class Make(Node):
    """A vector, map (keys and values alternate) or set."""

    __slots__ = ("items", "kind")

    def __init__(self, kind: typing.Literal["vector", "map", "set"], items: list[Node], start: int) -> None:
        super().__init__(start, items)
        self.kind, self.items = kind, items


class If(Node):
    """``if``."""

    __slots__ = ("otherwise", "test", "then")

    def __init__(self, test: Node, then: Node, otherwise: Node, start: int) -> None:
        super().__init__(start, [test, then, otherwise])
        self.test, self.then, self.otherwise = test, then, otherwise


class Cond(Node):
    """``cond``: the first clause whose test is true, or nil."""

    __slots__ = ("clauses",)

    def __init__(self, clauses: list[tuple[Node, Node]], start: int) -> None:
        super().__init__(start, [node for clause in clauses for node in clause], simple=False)
        self.clauses = clauses


class Logic(Node):
    """``and`` or ``or`` of at least two nodes."""

    __slots__ = ("items", "kind")

    def __init__(self, kind: typing.Literal["and", "or"], items: list[Node], start: int) -> None:
        super().__init__(start, items, simple=len(items) <= 4)
        self.kind, self.items = kind, items
        self.height += len(items) - 2 if self.simple else 0


class Do(Node):
    """``do``: nodes in order, with the value of the last."""

    __slots__ = ("items",)

    def __init__(self, items: list[Node], start: int) -> None:
        super().__init__(start, items, simple=False)
        self.items = items


class Let(Node):
    """``let``: variables bound in order, and a body."""

    __slots__ = ("body", "pairs")

    def __init__(self, pairs: list[tuple[Var, Node]], body: Node, start: int) -> None:
        super().__init__(start, [*(value for _, value in pairs), body], simple=False)
        self.pairs, self.body = pairs, body


class Arity:
    """One arity of a function: parameters, rest parameter, body."""

    __slots__ = ("body", "params", "rest")

    def __init__(self, params: list[Var], rest: Var | None, body: Node) -> None:
        self.params, self.rest, self.body = params, rest, body

    @property
    def range(self) -> tuple[int, int | None]:
        """The smallest and largest number of arguments; None for unlimited."""
        return len(self.params), None if self.rest else len(self.params)


class Fn(Node):
    """``fn``; ``var`` is its own name inside its body; a ``leaf`` creates no other functions."""

    __slots__ = ("arities", "leaf", "var")

    def __init__(self, arities: list[Arity], var: Var | None, start: int, *, leaf: bool = False) -> None:
        plain = len(arities) == 1 and var is None and arities[0].rest is None
        super().__init__(start, [arity.body for arity in arities], simple=plain)
        self.arities, self.var, self.leaf = arities, var, leaf


class Each(Node):
    """A builtin that iterates over a collection, with its function inlined in the loop.

    ``kind`` is ``map``, ``filter``, ``remove``, ``reduce`` (its accumulator is the first of ``vars``, initially
    ``init``) or ``each``, whose value is nil.
    """

    __slots__ = ("body", "collection", "init", "kind", "vars")

    def __init__(self, kind: str, function: Fn, collection: Node, start: int, init: Node | None = None) -> None:
        (arity,) = function.arities
        self.kind, self.vars, self.body, self.collection, self.init = kind, arity.params, arity.body, collection, init
        super().__init__(start, [collection, arity.body, *([init] if init else [])], simple=False)
        if init is not None and is_number(init) and is_number(self.body):
            self.vars[0].number = True
            self.vars[0].integer = is_integer(init)  # the body may read it
            self.vars[0].integer = is_integer(init) and is_integer(self.body)


class Loop(Node):
    """``loop``; ``fresh`` if a function inside captures its variables, so that each iteration needs its own."""

    __slots__ = ("body", "fresh", "inits", "vars")

    def __init__(self, vars: list[Var], inits: list[Node], body: Node, start: int, *, fresh: bool) -> None:
        super().__init__(start, [*inits, body], simple=False)
        self.vars, self.inits, self.body, self.fresh = vars, inits, body, fresh


class Recur(Node):
    """``recur``: the next iteration of the innermost loop; only in tail position."""

    __slots__ = ("args",)

    def __init__(self, args: list[Node], start: int) -> None:
        super().__init__(start, args, simple=False)
        self.args = args


class Define(Node):
    """``def``: a global variable of the program."""

    __slots__ = ("value", "var")

    def __init__(self, var: Var, value: Node, start: int) -> None:
        super().__init__(start, [value], simple=False)
        self.var, self.value = var, value


class Try(Node):
    """``try``: the body, the variable and handler of ``catch``, and ``finally``."""

    __slots__ = ("body", "final", "handler", "var")

    def __init__(self, body: Node, var: Var | None, handler: Node | None, final: Node | None, start: int) -> None:
        super().__init__(start, [each for each in (body, handler, final) if each is not None], simple=False)
        self.body, self.var, self.handler, self.final = body, var, handler, final


_OF_INTEGERS: Final = frozenset({"+", "-", "*", "inc", "dec", "mod", "rem", "quot", "abs"})
"""Builtins that return an integer for integers."""
_NUMBERS: Final = _OF_INTEGERS | {"/", "count"}


def is_number(node: Node, *, integer: bool = False) -> bool:
    """Return whether the value of a node is certain to be a number, or an ``integer``."""
    if isinstance(node, Const):
        return type(node.value) is int or (type(node.value) is float and not integer)
    if isinstance(node, Local):
        return node.var.integer if integer else node.var.number
    if isinstance(node, Invoke):
        if not integer:
            return node.name in _NUMBERS
        return node.name == "count" or (node.name in _OF_INTEGERS and all(map(is_integer, node.args)))
    if isinstance(node, Let):
        return is_number(node.body, integer=integer)
    if isinstance(node, Do):
        return is_number(node.items[-1], integer=integer)
    return isinstance(node, If) and all(is_number(each, integer=integer) for each in (node.then, node.otherwise))


is_integer = partial(is_number, integer=True)


def can_inline(function: Node, count: int) -> TypeGuard[Fn]:
    """Return whether a function can be inlined in a loop that calls it with ``count`` arguments.

    One that creates other functions cannot: they would all capture the variable of the last item.
    """
    if not isinstance(function, Fn) or not function.leaf or function.var is not None:
        return False
    return len(function.arities) == 1 and function.arities[0].range == (count, count)


Scope = Mapping[str, Var]

MAX_PLACEHOLDER: Final = 40
"""The highest ``%n``."""


class Target:
    """A loop or function that ``recur`` continues, with ``count`` values."""

    __slots__ = ("count", "turns", "used")

    def __init__(self, count: int) -> None:
        self.count = count
        self.used = False
        self.turns: list[list[Node]] = []  # the arguments of each recur


Tail = Target | None
Special = Callable[["Analysis", List, Scope, Tail], Node]

FORMS: dict[str, Special] = {}
"""Special forms by name."""

CORE: Final = frozenset({"if", "do", "let", "fn", "def", "quote", "recur", "loop", "try"})
"""Special forms that a local name does not shadow."""

_LOOPS: Final = {
    "map": "map",
    "mapv": "map",
    "filter": "filter",
    "filterv": "filter",
    "remove": "remove",
    "reduce": "reduce",
}
"""Builtins whose function is inlined in their loop where possible."""

_ELSEWHERE: Final = {
    "atom": "There are no atoms: use let, loop or reduce, or (memory/put :key value).",
    "swap!": "There are no atoms: use reduce, or (memory/put :key value).",
    "reset!": "There are no atoms: use (memory/put :key value).",
    "volatile!": "There are no volatiles: use let, loop or reduce.",
    "while": "Values do not change: use loop and recur.",
    "doto": "Values do not change: use ->, or do with several calls.",
    "list*": "Write (into [a b] coll), or (cons a coll).",
    "nthnext": "Write (drop n coll).",
    "tree-seq": "Write a function that calls itself for the children, with mapcat.",
    "letfn": "Define the functions with defn; they can call each other.",
    "memoize": "Compute the values once: bind them with let, or put them into a map with reduce.",
    **dict.fromkeys(
        ("bit-and", "bit-or", "bit-xor", "bit-not", "bit-shift-left", "bit-shift-right", "bit-test"),
        "There are no operations on bits: use quot, mod and pow.",
    ),
    **dict.fromkeys(
        ("clojure.set", "set"),
        "Of clojure.set there are union, intersection, difference, subset?, superset?, rename-keys and map-invert: "
        "use filter, map and group-by instead of the others.",
    ),
    "lazy-seq": "Nothing is lazy: use iterate, or loop and recur.",
    **dict.fromkeys(
        ("rand", "rand-int", "rand-nth", "shuffle", "random-uuid"),
        "There is no chance in programs: the same data gives the same result.",
    ),
    "defmacro": "There are no macros: write a function with defn.",
    "ctx": "Write ctx/name for one value of the context.",
    "memory": "Write memory/name for one value of the memory.",
    "tool": 'Call a tool as (call "name" {:arg value}).',
    "recur": "recur is a form of its own: (recur value …) at the end of a loop or function.",
}


_NO_JAVA: Final = "There are no Java classes and methods: write (upper-case s), (includes? s part), (:message e)."


class AnalysedForm(Form):
    """An argument that has been analysed already, passed in place of its form."""

    __slots__ = ("node",)

    def __init__(self, node: Node) -> None:
        self.node = node
        self.start = node.start


def special(*names: str) -> Callable[[Special], Special]:
    """Declare the decorated function as the analysis of the special forms of these names."""

    def declare(function: Special) -> Special:
        for name in names:
            FORMS[name] = function
        return function

    return declare


class Analysis:
    """The analysis of one program."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.functions = 0  # functions so far; tells whether a loop has one inside
        self.defined: dict[str, Var] = {}
        self._names = 0
        self.redefined: set[str] = set()
        self.spaces: dict[str, str] = {}  # the short names that ``require`` gives to namespaces
        self.in_lambda = False  # inside #(…), which cannot be nested

    def new_variable(self, name: str = "") -> Var:
        """Return a new variable."""
        self._names += 1
        return Var(name, f"{name}··{self._names}")

    def fail(self, message: str, form: Form, hint: str = "") -> NoReturn:
        """Raise the error for an invalid form.

        Raises:
            LispError: ``analysis_error`` at the form.
        """
        raise self.locate_error(LispError("analysis_error", message, hint=hint), form)

    def node(self, form: Form, scope: Scope, tail: Tail = None) -> Node:
        """Return the node for a form."""
        kind = type(form)
        if kind is List:
            return self._list(form, scope, tail)  # type: ignore[arg-type]
        if isinstance(form, Literal):
            return Const(form.value, form.start)
        if isinstance(form, Symbol):
            return self.name(form, scope)
        if isinstance(form, AnalysedForm):
            return form.node
        if isinstance(form, Vector):
            return Make("vector", self.nodes(form.items, scope), form.start)
        if isinstance(form, Map):
            return Make("map", self.nodes(form.items, scope), form.start)
        if isinstance(form, Set):
            return Make("set", self.nodes(form.items, scope), form.start)
        if isinstance(form, Lambda):
            return self._lambda_of(form, scope)
        assert isinstance(form, Quote)
        return self.quoted_data(form.items[0])

    def nodes(self, forms: list[Form], scope: Scope) -> list[Node]:
        """Return the nodes for forms that are evaluated in order."""
        node = self.node
        return [node(form, scope) for form in forms]

    def quoted_data(self, form: Form) -> Node:
        """Return quoted data: lists are vectors, names are not values."""
        if isinstance(form, Symbol):
            self.fail(
                f"'{form.name}: names are not values here",
                form,
                f'Use the keyword :{form.name} or the string "{form.name}".',
            )
        if isinstance(form, Literal):
            return Const(form.value, form.start)
        if isinstance(form, Vector | List):
            return Make("vector", [self.quoted_data(item) for item in form.items], form.start)
        if isinstance(form, Map | Set):
            kind: Any = "map" if isinstance(form, Map) else "set"
            return Make(kind, [self.quoted_data(item) for item in form.items], form.start)
        return self.fail("only data can be quoted", form)

    def name(self, form: Symbol, scope: Scope) -> Node:
        """Return the node for a symbol."""
        name = form.name
        var = scope.get(name) or self.defined.get(name)
        if var is not None:
            return Local(var, form.start)
        if name.startswith("ctx/") and len(name) > 4:
            return RuntimeCall("ctx_value", [Const(name[4:], form.start)], form.start)
        if name.startswith("memory/") and len(name) > 7 and name not in FORMS:
            return RuntimeCall("memory_get", [Const(name[7:], form.start)], form.start)
        if (builtin := self._full_name(name)) in BUILTINS:
            return Builtin(builtin, form.start)
        if name in FORMS:
            self.fail(f"{name} is a form, not a function", form, f"Wrap it in a function: #({name} %).")
        return self._fail_unknown(form, scope)

    def _full_name(self, name: str) -> str:
        """Return the name of a builtin with an alias of its namespace, given by ``require``, resolved."""
        space, slash, short = name.partition("/")
        return f"{self.spaces[space]}/{short}" if slash and space in self.spaces else name

    def _fail_unknown(self, form: Symbol, scope: Scope) -> NoReturn:
        name = form.name
        if name.startswith("%"):
            self.fail(f"{name} stands for an argument inside #(…) only", form, "Write (fn [x] …) or #(… %).")
        hint = _ELSEWHERE.get(self._full_name(name).partition("/")[0], "")
        if name[0] == "." or name[-1] == ".":
            hint = _NO_JAVA
        if name.startswith("data/"):
            hint = f"Did you mean ctx/{name[5:]}?"
        if not hint:
            known = [*scope, *self.defined, *BUILTINS, *FORMS]
            if meant := did_you_mean(name, known, shown="{}", cutoff=0.7):
                hint = meant
            elif "/" in name and (plain := name.rpartition("/")[2]) in BUILTINS:
                hint = f"Did you mean {plain}?"
            elif "/" in name:
                hint = _NO_JAVA if name[0].isupper() else ""
            else:
                hint = f"Bind it with let, or read ctx/{name} if it is given to the program."
        self.fail(f"undefined variable: {name}", form, hint)

    def _list(self, form: List, scope: Scope, tail: Tail) -> Node:
        items = form.items
        if not items:
            self.fail("() calls nothing", form, "Write [] for an empty vector, {} for an empty map.")
        head = items[0]
        if isinstance(head, Symbol):
            name = head.name
            if head.start == form.start and isinstance(items[1], Symbol):
                try:
                    self.name(items[1], scope)
                except LispError as error:  # in the specification, @ can only precede a future
                    error.reason = "parse_error"
                    raise
            bound = name in scope or name in self.defined
            if name in FORMS and (not bound or name in CORE):
                return FORMS[name](self, form, scope, tail)
            if not bound and (builtin := self._full_name(name)) in BUILTINS:
                return self.invoke(builtin, self.nodes(items[1:], scope), form)
        function = self.node(head, scope)
        args = self.nodes(items[1:], scope)
        if isinstance(head, Literal) and type(head.value) is Keyword:
            if 1 <= len(args) <= 2:
                return KeywordCall(head.value, args, form.start)
            raise self.locate_error(wrong_arity(f":{head.value.name}", 1, 2, len(args)), form)
        if isinstance(function, Local) and (arity := function.var.arity):
            least, most = arity
            if len(args) < least or (most is not None and len(args) > most):
                raise self.locate_error(wrong_arity(function.var.name, least, most, len(args)), form)
        return Apply(function, args, form.start)

    def locate_error(self, error: LispError, form: Form) -> LispError:
        """Set the position of an error to that of a form."""
        return error.at(*self.places.of(form.start), self.places.text)

    def invoke(self, name: str, args: list[Node], form: Form) -> Node:
        """Return a call of a builtin.

        Raises:
            LispError: ``eval_error`` when it does not take so many arguments.
        """
        builtin = BUILTINS[name]
        if len(args) < builtin.least or (builtin.most is not None and len(args) > builtin.most):
            raise self.locate_error(wrong_arity(name, builtin.least, builtin.most, len(args)), form)
        kind = _LOOPS.get(name)
        if kind and len(args) == 2 and kind != "reduce" and can_inline(args[0], 1):
            self.functions -= 1
            return Each(kind, args[0], args[1], form.start)
        if kind == "reduce" and len(args) == 3 and can_inline(args[0], 2):
            self.functions -= 1
            return Each(kind, args[0], args[2], form.start, init=args[1])
        return Invoke(name, args, form.start)

    def function(self, arities: list[Arity], var: Var | None, form: Form, before: int) -> Fn:
        """Return a function node and count it; ``before`` is the count before its body was analysed."""
        leaf = self.functions == before
        self.functions += 1
        return Fn(arities, var, form.start, leaf=leaf)

    def _lambda_of(self, form: Lambda, scope: Scope) -> Node:
        if self.in_lambda:
            self.fail("#(…) inside #(…)", form, "Write the inner one as (fn [x] …).")
        highest, rest = self._placeholders(form)
        params = [self.new_variable(f"%{index}") for index in range(1, highest + 1)]
        names = dict(scope) | {var.name: var for var in params}
        if params:
            names["%"] = params[0]
        others = self.new_variable("%&") if rest else None
        if others:
            names["%&"] = others
        self.in_lambda = True
        before = self.functions
        items = form.items
        # #(42) returns 42 and #(%) its argument, as models expect; #(f %) is a call.
        alone = items[0] if len(items) == 1 else None
        literal = alone is not None and (not isinstance(alone, Symbol) or alone.name[0] == "%")
        body = items[0] if literal else List(items, form.start)
        node = self.node(body, names)
        self.in_lambda = False
        return self.function([Arity(params, others, node)], None, form, before)

    def _placeholders(self, form: Lambda) -> tuple[int, bool]:
        """Return the highest ``%n`` in a lambda, and whether it contains ``%&``."""
        highest, rest, waiting = 0, False, list(form.items)
        while waiting:
            each = waiting.pop()
            if isinstance(each, Symbol) and each.name.startswith("%"):
                number = each.name[1:] or "1"
                if number == "&":
                    rest = True
                elif not number.isdecimal() or not 1 <= int(number[:4]) <= MAX_PLACEHOLDER:
                    self.fail(f"{each.name} is not an argument", each, f"Write %, %1 to %{MAX_PLACEHOLDER}, or %&.")
                else:
                    highest = max(highest, int(number))
            elif hasattr(each, "items"):
                waiting.extend(each.items)
        return highest, rest


def analyse(forms: list[Form], places: Places) -> Node:
    """Return the node for a program: its forms in order.

    Raises:
        LispError: ``analysis_error``, or ``eval_error`` and ``validation_error`` for calls that could only fail.
    """
    analysis = Analysis(places)
    waiting = list(forms)
    while waiting:  # a variable for each name that the program defines: functions can refer to later definitions
        form = waiting.pop()
        items: list[Form] = getattr(form, "items", [])
        waiting.extend(items)
        called = type(form) is List or type(form) is Lambda  # #(def x 1) is #((def x 1))
        if called and len(items) > 1 and isinstance(items[0], Symbol) and isinstance(items[1], Symbol):
            if items[0].name not in {"def", "defn", "defn-", "defonce"}:
                continue
            name = items[1].name
            if name in analysis.defined:
                analysis.redefined.add(name)
            else:
                analysis.defined[name] = analysis.new_variable(name)
    nodes = analysis.nodes(forms, {})
    return nodes[0] if len(nodes) == 1 else Do(nodes, forms[0].start)
