"""Which variables a program does not read any more once a call is made, so that the call may change their value.

Two things are asked: that a variable's old value is dead where a call's result takes its place (the end of a
reduction's body, of a turn of a loop, of a function), and that no function made by the program can read the variable
later. Whether anything else has the *value* is known when the program runs (``builtins.inplace``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from pyagentd.lisp.builtins import BUILTINS
from pyagentd.lisp.builtins.inplace import IN_PLACE
from pyagentd.lisp.core import (
    Apply,
    Cond,
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
    Support,
    Try,
    Var,
    WhereTest,
)

Owned = frozenset[Var]

NOTHING: Final[Owned] = frozenset()

_SHORTENING: Final = frozenset({"rest", "next", "pop"})
"""Builtins whose call may wait until the other values of a turn are known: they call nothing."""


def captured(node: Node) -> set[Var]:
    """Return the variables of a program that functions inside their scope read."""
    depth_of: dict[Var, int] = {}
    found: set[Var] = set()
    waiting: list[tuple[Node, int]] = [(node, 0)]
    read: list[tuple[Var, int]] = []
    while waiting:
        each, depth = waiting.pop()
        if isinstance(each, Local):
            read.append((each.var, depth))
            continue
        if isinstance(each, Fn):
            depth += 1
            for arity in each.arities:
                depth_of.update(dict.fromkeys(arity.params, depth))
        elif isinstance(each, Each | Loop):
            depth_of.update(dict.fromkeys(each.vars, depth))
        waiting.extend((part, depth) for part in parts(each))
    for var, depth in read:
        if depth > depth_of.get(var, -1):
            found.add(var)
    return found


def parts(node: Node) -> Iterable[Node]:
    """Return the nodes that a node is made of."""
    if isinstance(node, Invoke | Support | KeywordCall | Recur):
        return node.args
    if isinstance(node, Apply):
        return [node.function, *node.args]
    if isinstance(node, Make | Logic | Do):
        return node.items
    if isinstance(node, If):
        return [node.test, node.then, node.otherwise]
    if isinstance(node, Let):
        return [*(value for _, value in node.pairs), node.body]
    if isinstance(node, Cond):
        return [each for clause in node.clauses for each in clause]
    if isinstance(node, WhereTest):
        return [node.value, node.target]
    if isinstance(node, Fn):
        return [arity.body for arity in node.arities]
    return list(_parts_of_loop(node))


def _parts_of_loop(node: Node) -> Iterator[Node]:
    if isinstance(node, Each):
        yield from (node.collection, node.body)
        if node.init is not None:
            yield node.init
    elif isinstance(node, Loop):
        yield from (*node.inits, node.body)
    elif isinstance(node, Define):
        yield node.value
    elif isinstance(node, Try):
        yield from (each for each in (node.body, node.handler, node.final) if each is not None)


def variables(node: Node) -> set[Var]:
    """Return the variables that a node reads."""
    found: set[Var] = set()
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Local):
            found.add(each.var)
        else:
            waiting.extend(parts(each))
    return found


def changes(node: Node, owned: Owned) -> Var | None:
    """Return the variable whose value a call may change, if it is such a call."""
    if not isinstance(node, Invoke) or not node.args:
        return None
    first = node.args[0]
    if not isinstance(first, Local) or first.var not in owned:
        return None
    return first.var if BUILTINS[node.name].function in IN_PLACE else None


def ends_in_change(node: Node, owned: Owned) -> bool:
    """Return whether a value is, or may be, that of a call that changes a variable's value."""
    if isinstance(node, If):
        return ends_in_change(node.then, owned) or ends_in_change(node.otherwise, owned)
    if isinstance(node, Let):
        return ends_in_change(node.body, owned)
    if isinstance(node, Do):
        return ends_in_change(node.items[-1], owned)
    if isinstance(node, Cond):
        return any(ends_in_change(then, owned) for _, then in node.clauses)
    if isinstance(node, Each):
        return node.kind == "reduce" and isinstance(node.init, Local) and node.init.var in owned
    return chained(node, owned) is not None


def chained(node: Node, owned: Owned) -> list[Invoke] | None:
    """Return the calls of ``(-> acc (assoc …) (update …))``, the innermost first.

    None when it is no chain that may change ``acc`` step by step: only the innermost may read it.
    """
    calls: list[Invoke] = []
    while isinstance(node, Invoke) and node.args and BUILTINS[node.name].function in IN_PLACE:
        calls.append(node)
        node = node.args[0]
    if not calls or not isinstance(node, Local) or node.var not in owned:
        return None
    for call in calls[:-1]:
        if any(node.var in variables(each) for each in call.args[1:]):
            return None
    return calls[::-1]


def waits(node: Node, owned: Owned) -> bool:
    """Return whether a value of the next turn may be computed after the others: ``(rest xs)``."""
    var = changes(node, owned)
    return var is not None and isinstance(node, Invoke) and node.name in _SHORTENING
