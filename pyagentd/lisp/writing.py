"""What every part of the emission writes with: names, constants, places, and the functions generated code calls."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from pyagentd.lisp import python as py
from pyagentd.lisp import support
from pyagentd.lisp.builtins import BUILTINS
from pyagentd.lisp.core import Node
from pyagentd.lisp.python import Place
from pyagentd.lisp.syntax import Places

SMALL: Final = 1 << 47  # comparing a float with a larger integer is slow
PLAIN: Final = (ast.Name, ast.Constant)
"""Expressions that cost nothing and change nothing, so they may be written more than once."""


class Writing:
    """Names and constants of one program's generated code.

    Args:
        places: Turns offsets into lines and columns.
    """

    def __init__(self, places: Places) -> None:
        self.globals: dict[str, Any] = {
            "type": type,
            "int": int,
            "float": float,
            "dict": dict,
            "numbers·": frozenset({int, float}),
            "partial·": partial,
            "equal·": support.equal,
            "field·": support.field,
        }
        self.block: list[ast.stmt] = []
        self.chargers: dict[str, int] = {}
        self._places = places
        self._count = 0
        self._pool: dict[Any, str] = {}
        self._place_at: dict[int, Place] = {}

    def place(self, node: Node) -> Place:
        """Return where a node stands in the text."""
        found = self._place_at.get(node.start)
        if found is None:
            found = self._place_at[node.start] = py.place(*self._places.of(node.start))
        return found

    def temporary(self, hint: str = "") -> str:
        """Return a new variable of generated code."""
        self._count += 1
        return f"{hint}·t{self._count}"

    def support(self, name: str, p: Place) -> ast.expr:
        """Return a function of the run time."""
        known = f"s·{name}"
        self.globals[known] = getattr(support, name)
        return py.name(known, p)

    def builtin(self, name: str, p: Place) -> ast.expr:
        """Return the function of a builtin, as it is called here: with the budget first where it charges."""
        known = f"b·{name}"
        self.globals[known] = BUILTINS[name].function
        return py.name(known, p)

    def call_builtin(self, name: str, args: list[ast.expr], p: Place) -> ast.expr:
        """Return a call of a builtin."""
        charges = [py.name("budget", p)] if BUILTINS[name].charges else []
        return py.call(self.builtin(name, p), [*charges, *args], p)

    def charger(self, cells: int) -> str:
        """Return the variable of the program that charges so many cells when it is called."""
        name = f"cells·{cells}"
        self.chargers[name] = cells
        return name

    def truth_of(self, value: ast.expr, p: Place) -> ast.expr:
        """Return whether a value counts as true."""
        first, again = self.twice(value, p)
        return py.both([py.is_not(first, None, p), py.is_not(again(), False, p)], p)

    def twice(self, value: ast.expr, p: Place) -> tuple[ast.expr, Callable[[], ast.expr]]:
        """Return an expression for the first use of a value, and a maker for every later one."""
        if isinstance(value, ast.Name):
            return value, lambda: py.name(value.id, p)
        if isinstance(value, ast.Constant):
            return value, lambda: py.const(value.value, p)
        held = self.temporary()
        return py.walrus(held, value, p), lambda: py.name(held, p)

    def constant(self, value: Any, p: Place) -> ast.expr:
        """Return a constant, from the pool where Python has none of its kind."""
        if value is None or type(value) in {bool, str} or (type(value) is int and abs(value) < SMALL):
            return py.const(value, p)
        key = (type(value), repr(value))
        name = self._pool.get(key)
        if name is None:
            name = self._pool[key] = f"k·{len(self._pool)}"
            self.globals[name] = value
        return py.name(name, p)

    def is_type(self, value: ast.expr, name: str, p: Place) -> ast.expr:
        """Return whether a value is of a type that generated code knows by name."""
        return py.same(py.call(py.name("type", p), [value], p), py.name(name, p), p)
