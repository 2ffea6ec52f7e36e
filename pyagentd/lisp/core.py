"""What analysis makes of forms: few kinds of nodes, every name resolved, every sugar gone.

``simple`` nodes become one Python expression; the others need statements. ``height`` is how deeply an expression
nests; analysis gives up ``simple`` beyond ``MAX_HEIGHT``, so that generated code nests a bounded number of times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, TypeGuard

MAX_HEIGHT: Final = 12


class Var:
    """A name that is bound somewhere; ``python`` is its unique name in generated code.

    ``arity`` is (least, most) when the name always means one function written in the program.
    """

    __slots__ = ("arity", "mapping", "name", "number", "python")

    def __init__(self, name: str, python: str) -> None:
        self.name = name
        self.python = python
        self.arity: tuple[int, int | None] | None = None
        self.number = False  # whether it can only be a number
        self.mapping = False  # whether it can only be a map


class Node:
    """A node; ``start`` is the offset of its form in the text."""

    __slots__ = ("height", "simple", "start")
    start: int
    simple: bool
    height: int

    def _of(self, start: int, parts: Sequence[Node], *, simple: bool = True) -> None:
        self.start = start
        self.height = height = 1 + max((part.height for part in parts), default=0)
        self.simple = simple and height <= MAX_HEIGHT and all(part.simple for part in parts)
        if not self.simple:
            self.height = 1


class Const(Node):
    """nil, boolean, number, string, keyword or pattern; ``quoted`` data too."""

    __slots__ = ("value",)

    def __init__(self, value: Any, start: int) -> None:
        self.value = value
        self.start = start
        self.simple = True
        self.height = 1


class Local(Node):
    """The value of a name bound in the program."""

    __slots__ = ("var",)

    def __init__(self, var: Var, start: int) -> None:
        self.var = var
        self.start = start
        self.simple = True
        self.height = 1


class Builtin(Node):
    """A builtin as a value."""

    __slots__ = ("name",)

    def __init__(self, name: str, start: int) -> None:
        self.name = name
        self.start = start
        self.simple = True
        self.height = 1


class Space(Node):
    """``ctx/name`` or ``memory/name``."""

    __slots__ = ("name", "space")

    def __init__(self, space: Literal["ctx", "memory"], name: str, start: int) -> None:
        self.space = space
        self.name = name
        self.start = start
        self.simple = True
        self.height = 1


class Invoke(Node):
    """A call of a builtin by its name, with a number of arguments it takes."""

    __slots__ = ("args", "name")

    def __init__(self, name: str, args: list[Node], start: int) -> None:
        self.name = name
        self.args = args
        self._of(start, args)


class Support(Node):
    """A call of a function of the run time (``support``) with the run before the arguments."""

    __slots__ = ("args", "name")

    def __init__(self, name: str, args: list[Node], start: int) -> None:
        self.name = name
        self.args = args
        self._of(start, args)


class KeywordCall(Node):
    """``(:key target default)``."""

    __slots__ = ("args", "key")

    def __init__(self, key: Any, args: list[Node], start: int) -> None:
        self.key = key
        self.args = args
        self._of(start, args)


class WhereTest(Node):
    """``(where key operator value)`` of one map; the operator is "" for the test for truth."""

    __slots__ = ("key", "operator", "target", "value")

    def __init__(self, key: Any, operator: str, value: Node, target: Node, start: int) -> None:
        self.key = key
        self.operator = operator
        self.value = value
        self.target = target
        self._of(start, [value, target])


class Apply(Node):
    """A call of whatever ``function`` turns out to be."""

    __slots__ = ("args", "function")

    def __init__(self, function: Node, args: list[Node], start: int) -> None:
        self.function = function
        self.args = args
        self._of(start, [function, *args])


class Make(Node):
    """A vector, map (keys and values alternate) or set."""

    __slots__ = ("items", "kind")

    def __init__(self, kind: Literal["vector", "map", "set"], items: list[Node], start: int) -> None:
        self.kind = kind
        self.items = items
        self._of(start, items)


class If(Node):
    """``test`` decides between two."""

    __slots__ = ("otherwise", "test", "then")

    def __init__(self, test: Node, then: Node, otherwise: Node, start: int) -> None:
        self.test = test
        self.then = then
        self.otherwise = otherwise
        self._of(start, [test, then, otherwise])


class Cond(Node):
    """The first clause whose test is true; nil when none is."""

    __slots__ = ("clauses",)

    def __init__(self, clauses: list[tuple[Node, Node]], start: int) -> None:
        self.clauses = clauses
        self._of(start, [], simple=False)


class Logic(Node):
    """``and`` or ``or`` of at least two."""

    __slots__ = ("items", "kind")

    def __init__(self, kind: Literal["and", "or"], items: list[Node], start: int) -> None:
        self.kind = kind
        self.items = items
        self._of(start, items, simple=len(items) <= 4)
        self.height += len(items) - 2 if self.simple else 0


class Do(Node):
    """One after the other; the value of the last."""

    __slots__ = ("items",)

    def __init__(self, items: list[Node], start: int) -> None:
        self.items = items
        self._of(start, [], simple=False)


class Let(Node):
    """Names bound one after the other, then a body."""

    __slots__ = ("body", "pairs")

    def __init__(self, pairs: list[tuple[Var, Node]], body: Node, start: int) -> None:
        self.pairs = pairs
        self.body = body
        self._of(start, [], simple=False)


class Arity:
    """One way to call a function: its parameters, the one for the rest, the body."""

    __slots__ = ("body", "params", "rest")

    def __init__(self, params: list[Var], rest: Var | None, body: Node) -> None:
        self.params = params
        self.rest = rest
        self.body = body

    @property
    def range(self) -> tuple[int, int | None]:
        """The least and the most arguments."""
        return len(self.params), None if self.rest else len(self.params)


class Fn(Node):
    """A function; ``var`` is its own name inside itself; a ``leaf`` makes no other functions."""

    __slots__ = ("arities", "leaf", "var")

    def __init__(self, arities: list[Arity], var: Var | None, start: int, *, leaf: bool = False) -> None:
        self.arities = arities
        self.var = var
        self.leaf = leaf
        plain = len(arities) == 1 and var is None and arities[0].rest is None
        self._of(start, [arities[0].body], simple=plain)


class Each(Node):
    """A builtin that goes through a collection, with its function written out in the loop.

    ``kind`` is ``map``, ``filter``, ``remove``, ``reduce`` (its accumulator is the first of ``vars`` and begins as
    ``init``) or ``each``, which gives nil.
    """

    __slots__ = ("body", "collection", "init", "kind", "vars")

    def __init__(self, kind: str, function: Fn, collection: Node, start: int, init: Node | None = None) -> None:
        self.kind = kind
        self.vars = function.arities[0].params
        self.body = function.arities[0].body
        self.collection = collection
        self.init = init
        if init is not None and is_number(init) and is_number(self.body):
            self.vars[0].number = True
        self._of(start, [], simple=False)


class Loop(Node):
    """``loop``; ``fresh`` when a function made inside keeps its variables, so each turn needs its own."""

    __slots__ = ("body", "fresh", "inits", "vars")

    def __init__(self, vars: list[Var], inits: list[Node], body: Node, start: int, *, fresh: bool) -> None:
        self.vars = vars
        self.inits = inits
        self.body = body
        self.fresh = fresh
        self._of(start, [], simple=False)


class Recur(Node):
    """The next turn of the innermost loop; only where its value would be the loop's."""

    __slots__ = ("args",)

    def __init__(self, args: list[Node], start: int) -> None:
        self.args = args
        self._of(start, [], simple=False)


class Define(Node):
    """``def``: a name of the whole program."""

    __slots__ = ("value", "var")

    def __init__(self, var: Var, value: Node, start: int) -> None:
        self.var = var
        self.value = value
        self._of(start, [], simple=False)


class Try(Node):
    """``try``: what errors are bound to, what is done with them, and what is done at the end."""

    __slots__ = ("body", "final", "handler", "var")

    def __init__(self, body: Node, var: Var | None, handler: Node | None, final: Node | None, start: int) -> None:
        self.body = body
        self.var = var
        self.handler = handler
        self.final = final
        self._of(start, [], simple=False)


_NUMBERS: Final = frozenset({"+", "-", "*", "/", "inc", "dec", "mod", "rem", "quot", "count", "abs"})


def is_number(node: Node) -> bool:
    """Return whether the value of a node can only be a number."""
    if isinstance(node, Const):
        return type(node.value) is int or type(node.value) is float
    if isinstance(node, Local):
        return node.var.number
    if isinstance(node, Invoke):
        return node.name in _NUMBERS
    if isinstance(node, Let):
        return is_number(node.body)
    if isinstance(node, Do):
        return is_number(node.items[-1])
    return isinstance(node, If) and is_number(node.then) and is_number(node.otherwise)


def written_out(function: Node, count: int) -> TypeGuard[Fn]:
    """Return whether a function can be written out in the loop that calls it with ``count`` arguments.

    One that makes other functions cannot: they would all see the last item.
    """
    if not isinstance(function, Fn) or not function.leaf or function.var is not None:
        return False
    return len(function.arities) == 1 and function.arities[0].range == (count, count)
