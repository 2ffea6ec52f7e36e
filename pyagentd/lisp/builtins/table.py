"""Declaring builtins: one decorated function for each name, grouped in families.

A builtin is a plain Python function over Lisp values with positional parameters. Its arity is read from its
signature, its documentation from its docstring: sentences, then examples of the form ``(program) => value``, which
the language reference prints and a test runs. A function that allocates, or that calls functions of the program,
takes the run's budget as its first parameter and is declared with ``charges=True``.
"""

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import regex

from pyagentd.lisp.errors import LispError
from pyagentd.lisp.limits import Budget
from pyagentd.lisp.values import WAIT, Endless, Keyword, LispSet, a_type, members, no_end, pairs, type_name

Function = TypeVar("Function", bound=Callable[..., Any])

_VARIADIC: Final = 0x04  # a code object's flag: it takes *args
_EXAMPLE: Final = re.compile(r"^\s*(?P<program>\S.*?) => (?P<value>.+?)\s*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Builtin:
    """A function that programs call by name."""

    name: str  # what programs write, such as ``sum-by``
    function: Callable[..., Any]  # called with the arguments; with the run's budget before them where it ``charges``
    least: int  # arguments
    most: int | None  # arguments; None for any number
    doc: str  # its description, in sentences
    charges: bool
    stage: bool = False  # a call without its last argument, a collection, is a pipeline stage
    parameters: tuple[str, ...] = ()  # names of the arguments as documentation shows them
    examples: tuple[tuple[str, str], ...] = ()  # (program, value), both as program text
    alias_of: str = ""  # the name it is another name of


FAMILIES: Final[list["Family"]] = []
"""All families, in the order of the language reference."""


class Family:
    """The builtins of one subject, in the order of their definition; calling it declares one."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.builtins: dict[str, Builtin] = {}
        FAMILIES.append(self)

    def __call__(
        self, name: str, *aliases: str, charges: bool = False, stage: bool = False, shown: str = ""
    ) -> Callable[[Function], Function]:
        """Declare the decorated function as a builtin.

        Args:
            name: Its name.
            aliases: Other names of it.
            charges: Whether it takes the budget first.
            stage: Whether a call without the collection, its last required argument, is a pipeline stage.
            shown: Its arguments in documentation, if they differ from those of the Python function.
        """

        def declare(function: Function) -> Function:
            own = _builtin(name, function, charges, stage, shown)
            function.lisp_name = name  # type: ignore[attr-defined]  # by which errors speak of it
            self.builtins[name] = own
            self.builtins.update({each: replace(own, name=each, alias_of=name) for each in aliases})
            return function

        return declare


def _builtin(name: str, function: Callable[..., Any], charges: bool, stage: bool, shown: str) -> Builtin:
    """Return the row for `function`; arity and parameter names come from its code."""
    code = function.__code__
    skipped = 1 if charges else 0
    names = tuple(each.rstrip("_").replace("_", "-") for each in code.co_varnames[skipped : code.co_argcount])
    optional = len(function.__defaults__ or ())
    variadic = bool(code.co_flags & _VARIADIC)
    rest = code.co_varnames[code.co_argcount + code.co_kwonlyargcount] if variadic else ""
    required = len(names) - optional
    named = [*names[:required], *(f"{each}?" for each in names[required:]), *([f"{rest}…"] if rest else [])]
    sentences, examples = [], []
    for line in (function.__doc__ or "").splitlines():
        if example := _EXAMPLE.match(line):
            examples.append((example["program"], example["value"]))
        elif line.strip():
            sentences.append(line.strip())
    return Builtin(
        name=name,
        function=function,
        least=required - stage,
        most=None if variadic else len(names),
        doc=" ".join(sentences),
        charges=charges,
        stage=stage,
        parameters=tuple(shown.split() or named),
        examples=tuple(examples),
    )


# Strings are indexed by grapheme, which a reader sees as one character.


_CLUSTER: Final = regex.compile(r"\X")


def graphemes(text: str) -> list[str]:
    """Return the characters of a text."""
    return list(text) if _is_simple(text) else _CLUSTER.findall(text)


def length(text: str) -> int:
    """Return the number of characters of a text."""
    return len(text) if _is_simple(text) else sum(1 for _ in _CLUSTER.finditer(text))


def slice_text(text: str, start: int, end: int) -> str:
    """Return the characters from start to before end."""
    return text[start:end] if _is_simple(text) else "".join(_CLUSTER.findall(text)[start:end])


def reverse_text(text: str) -> str:
    """Return the text with its characters in reverse order."""
    return text[::-1] if _is_simple(text) else "".join(reversed(_CLUSTER.findall(text)))


def _is_simple(text: str) -> bool:
    """Whether every code point is a grapheme of its own; only CR LF is not in ASCII."""
    return text.isascii() and "\r\n" not in text


# Checking the arguments of builtins, and the errors for those that do not fit.
#
# Messages name the builtin, what it expects and the *type* it got. They never contain a value: a model
# reads the error, and the value may be private.

NUMBERS: Final = frozenset({int, float})


def refuse(op: str, why: str, hint: str = "") -> LispError:
    """Return the error for arguments of the right types that are not valid."""
    return LispError("eval_error", f"{op}: {why}", hint=hint)


def wrong(op: str, expected: str, got: Any, *, item: int | None = None, hint: str = "") -> LispError:
    """Return the error for a value of the wrong type; ``item`` is its index in the collection it came from."""
    place = "" if item is None else f" (item {item})"
    return LispError("eval_error", f"{op}: expects {expected}, got {a_type(got)}{place}", hint=hint)


def number(op: str, value: Any) -> Any:
    """Return the value, which must be a number."""
    if type(value) is int or type(value) is float:
        return value
    raise wrong(op, "a number", value, hint=numeric_hint(value))


def check_numbers(op: str, values: Sequence[Any]) -> None:
    """Check that all values are numbers."""
    for value in values:
        if type(value) is not int and type(value) is not float:
            raise wrong(op, "numbers", value, hint=numeric_hint(value))


def numeric_hint(value: Any) -> str:
    """Return the hint for a value that should be a number."""
    if value is None:
        return "A missing value is nil: give a default with (or x 0), or leave such items out with (filter some? xs)."
    if type(value) is str:
        return "Turn text into a number with (parse-long s) or (parse-double s)."
    if type(value) is list:
        return "To use the items of a vector as arguments write (apply f xs) or (reduce f xs)."
    return WAIT if type_name(value) == "future" else ""


def integer(op: str, value: Any) -> int:
    """Return the value, which must be an integer."""
    if type(value) is int:
        return value
    raise wrong(op, "an integer", value, hint="Write (quot a b) or (int x)." if type(value) is float else "")


def whole_number(op: str, value: Any) -> int:
    """Return the value as an integer; a float without fraction is accepted, since ``/`` returns floats."""
    return int(value) if type(value) is float and value.is_integer() else integer(op, value)


def size(op: str, value: Any) -> int:
    """Return the value as a number of items; negative numbers become 0, fractions are cut off."""
    if type(value) is int:
        return min(max(value, 0), sys.maxsize)
    if type(value) is float and value == value and abs(value) < 1e18:
        return max(int(value), 0)
    raise wrong(op, "a number of items", value, hint=f"The count comes before the collection: ({op} 3 xs).")


def string(op: str, value: Any) -> str:
    """Return the value, which must be a string."""
    if type(value) is str:
        return value
    raise wrong(op, "a string", value, hint="" if value is None else "Make a string with (str x).")


def mapping(op: str, value: Any) -> dict[Any, Any]:
    """Return the value, which must be a map; nil stands for an empty one."""
    if type(value) is dict:
        return value
    if value is None:
        return {}
    raise wrong(op, "a map", value)


def vector(op: str, value: Any) -> list[Any]:
    """Return the value, which must be a vector; nil stands for an empty one."""
    if type(value) is list:
        return value
    if value is None:
        return []
    raise wrong(op, "a vector", value)


def collection_set(op: str, value: Any, budget: Budget) -> LispSet:
    """Return the value as a set: a set itself, or the distinct items of a vector; nil stands for the empty set."""
    if type(value) is LispSet:
        return value
    if type(value) is list or value is None:
        return LispSet.of(value or (), budget)
    raise wrong(op, "a set", value, hint="Make a set with (set xs).")


def items(op: str, value: Any, budget: Budget) -> list[Any]:
    """Return the items of a collection, string or nil as a list, which must not be changed.

    A map gives its ``[key value]`` pairs sorted by key, a set its members in order, a string its characters, nil
    nothing.
    """
    if type(value) is list:
        return value
    if value is None:
        return []
    kind = type(value)
    if kind is dict:
        budget.cells(3 * len(value))
        return pairs(value, budget)
    if kind is LispSet:
        budget.cells(len(value))
        return members(value, budget)
    if kind is str:
        budget.cells(len(value))
        return graphemes(value)
    if kind is Endless:
        raise no_end(op)
    is_function = callable(value) or type(value) is Keyword
    hint = "The function comes first and the collection last." if is_function else ""
    raise wrong(op, "a collection", value, hint=hint)


def function_named(function: Any) -> Callable[..., Any]:
    """Return the function of a partial that binds a run's budget."""
    named: Callable[..., Any] = getattr(function, "func", function)
    return named
