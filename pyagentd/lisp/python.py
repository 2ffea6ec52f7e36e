"""Small makers of Python syntax trees; ``p`` is the place in the Lisp text that errors and tracebacks report."""

from __future__ import annotations

import ast
from typing import Any

Place = dict[str, int]
LOAD = ast.Load()
STORE = ast.Store()


def place(line: int, column: int) -> Place:
    """Return the place of a line and column, both from 1."""
    return {"lineno": line, "col_offset": column - 1, "end_lineno": line, "end_col_offset": column}


def name(of: str, p: Place) -> ast.expr:
    """Return the value of a variable."""
    return ast.Name(of, LOAD, **p)


def const(value: Any, p: Place) -> ast.expr:
    """Return a constant."""
    return ast.Constant(value, None, **p)


def call(function: ast.expr, args: list[ast.expr], p: Place) -> ast.expr:
    """Return a call."""
    return ast.Call(function, args, [], **p)


def is_(one: ast.expr, other: Any, p: Place) -> ast.expr:
    """Return whether an expression is a singleton."""
    if isinstance(one, ast.Constant):
        return const(one.value is other, p)  # Python warns about `5 is None`
    return ast.Compare(one, [ast.Is()], [const(other, p)], **p)


def is_not(one: ast.expr, other: Any, p: Place) -> ast.expr:
    """Return whether an expression is not a singleton."""
    if isinstance(one, ast.Constant):
        return const(one.value is not other, p)
    return ast.Compare(one, [ast.IsNot()], [const(other, p)], **p)


def same(one: ast.expr, other: ast.expr, p: Place) -> ast.expr:
    """Return whether two expressions are one object."""
    return ast.Compare(one, [ast.Is()], [other], **p)


def compare(one: ast.expr, operator: ast.cmpop, other: ast.expr, p: Place) -> ast.expr:
    """Return a comparison."""
    return ast.Compare(one, [operator], [other], **p)


def both(tests: list[ast.expr], p: Place) -> ast.expr:
    """Return whether all tests hold."""
    return ast.BoolOp(ast.And(), tests, **p) if len(tests) > 1 else tests[0]


def either(tests: list[ast.expr], p: Place) -> ast.expr:
    """Return whether one of the tests holds."""
    return ast.BoolOp(ast.Or(), tests, **p) if len(tests) > 1 else tests[0]


def choose(test: ast.expr, then: ast.expr, otherwise: ast.expr, p: Place) -> ast.expr:
    """Return ``then if test else otherwise``."""
    return ast.IfExp(test, then, otherwise, **p)


def walrus(target: str, value: ast.expr, p: Place) -> ast.expr:
    """Return ``(target := value)``."""
    return ast.NamedExpr(ast.Name(target, STORE, **p), value, **p)


def assign(target: str, value: ast.expr, p: Place) -> ast.stmt:
    """Return ``target = value``."""
    return ast.Assign([ast.Name(target, STORE, **p)], value, None, **p)


def assign_all(targets: list[str], values: list[ast.expr], p: Place) -> ast.stmt:
    """Return ``a, b = x, y``: all values are computed before any is assigned."""
    if len(targets) == 1:
        return assign(targets[0], values[0], p)
    names: list[ast.expr] = [ast.Name(target, STORE, **p) for target in targets]
    return ast.Assign([ast.Tuple(names, STORE, **p)], ast.Tuple(values, LOAD, **p), None, **p)


def if_(test: ast.expr, then: list[ast.stmt], otherwise: list[ast.stmt], p: Place) -> ast.stmt:
    """Return an ``if`` statement."""
    return ast.If(test, then or [ast.Pass(**p)], otherwise, **p)


def forever(body: list[ast.stmt], p: Place) -> ast.stmt:
    """Return ``while True: body``."""
    return ast.While(const(True, p), body, [], **p)


def arguments(params: list[str], rest: str | None, p: Place) -> ast.arguments:
    """Return positional-only parameters."""
    return ast.arguments(
        posonlyargs=[],
        args=[ast.arg(param, None, None, **p) for param in params],
        vararg=None if rest is None else ast.arg(rest, None, None, **p),
        kwonlyargs=[],
        kw_defaults=[],
        kwarg=None,
        defaults=[],
    )


def function(
    name: str, params: list[str], body: list[ast.stmt], p: Place, rest: str | None = None
) -> ast.FunctionDef:
    """Return a ``def``."""
    return ast.FunctionDef(
        name=name,
        args=arguments(params, rest, p),
        body=body or [ast.Pass(**p)],
        decorator_list=[],
        returns=None,
        type_comment=None,
        **p,
    )
