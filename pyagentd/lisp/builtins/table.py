"""How a builtin is declared: one decorated function per name, gathered by family.

A builtin is a plain Python function over Lisp values with positional parameters. Its arity is read from its
signature, its documentation from its docstring: sentences, then examples of the form ``(program) => value``, which
the language reference prints and a test runs. A function that allocates, or that calls functions of the program,
takes the run's budget as its first parameter and is declared with ``charges=True``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

_VARIADIC: Final = 0x04  # a code object's flag: it takes *args
_EXAMPLE: Final = re.compile(r"^\s*(?P<program>\S.*?) => (?P<value>.+?)\s*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Builtin:
    """A function every program may call by name.

    Args:
        name: What programs write, such as ``sum-by``.
        function: Called with the arguments; with the run's budget before them where `charges`.
        least: Fewest arguments.
        most: Most arguments, None for any number.
        doc: What it does, in sentences.
        charges: Whether `function` takes the budget as its first parameter.
        parameters: Names of the arguments as documentation shows them.
        examples: (program, value) pairs, both as program text.
        alias_of: The name it is another name of, or "".
    """

    name: str
    function: Callable[..., Any]
    least: int
    most: int | None
    doc: str
    charges: bool
    parameters: tuple[str, ...] = ()
    examples: tuple[tuple[str, str], ...] = ()
    alias_of: str = ""


class Family:
    """The builtins of one subject, in the order of their definition.

    Args:
        title: Heading of the family in the language reference.
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self.builtins: dict[str, Builtin] = {}

    def define(
        self, name: str, *aliases: str, charges: bool = False, shown: str = ""
    ) -> Callable[[Function], Function]:
        """Declare the decorated function as a builtin.

        Args:
            name: Its name.
            aliases: Other names of it.
            charges: Whether it takes the budget first.
            shown: Its arguments as documentation shows them, where they are not those of the Python function.
        """

        def declare(function: Function) -> Function:
            own = _builtin(name, function, charges, shown)
            function.lisp_name = name  # type: ignore[attr-defined]  # by which errors speak of it
            self.builtins[name] = own
            self.builtins.update({each: replace(own, name=each, alias_of=name) for each in aliases})
            return function

        return declare


def _builtin(name: str, function: Callable[..., Any], charges: bool, shown: str) -> Builtin:
    """Return the row for `function`; arity and parameter names come from its code."""
    code = function.__code__
    skipped = 1 if charges else 0
    names = tuple(each.rstrip("_").replace("_", "-") for each in code.co_varnames[skipped : code.co_argcount])
    optional = len(function.__defaults__ or ())
    variadic = bool(code.co_flags & _VARIADIC)
    rest = code.co_varnames[code.co_argcount + code.co_kwonlyargcount] if variadic else ""
    required = len(names) - optional
    named = [*names[:required], *(f"{each}?" for each in names[required:]), *([f"{rest}…"] if rest else [])]
    sentences, examples = _documentation(function.__doc__ or "")
    return Builtin(
        name=name,
        function=function,
        least=required,
        most=None if variadic else len(names),
        doc=sentences,
        charges=charges,
        parameters=tuple(shown.split() or named),
        examples=examples,
    )


def _documentation(text: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Sentences and examples of a docstring."""
    sentences, examples = [], []
    for line in text.splitlines():
        if example := _EXAMPLE.match(line):
            examples.append((example["program"], example["value"]))
        elif line.strip():
            sentences.append(line.strip())
    return " ".join(sentences), tuple(examples)
