"""``format``: numbers and texts in a template of the kind C and Java know."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from pyagentd.lisp.builtins.arguments import integer, number, refuse, string, wrong
from pyagentd.lisp.builtins.table import Family
from pyagentd.lisp.limits import Budget
from pyagentd.lisp.printing import text

FAMILY: Final = Family("Formatting")
define = FAMILY.define

_DIRECTIVE: Final = re.compile(
    r"%(?:(?P<index>[0-9]{1,3})\$)?(?P<flags>[-+ 0,#(]*)(?P<width>[0-9]*)(?:\.(?P<precision>[0-9]*))?(?P<kind>.?)",
    re.DOTALL,
)
_WIDEST: Final = 1000
_KINDS: Final = "s d i f e g x X o b c n %"


@define("format", charges=True)
def format_(budget: Budget, template: Any, *args: Any) -> str:
    """Return the template with each directive replaced by an argument.

    ``%s`` is a text, ``%d`` an integer, ``%.2f`` a number with two decimals, ``%x`` hexadecimal.

    (format "%s is %d" "Ada" 36) => "Ada is 36"
    (format "%.2f|%5d|%-5s|%05d|%,d" 3.14159 42 "ab" 7 1234567) => "3.14|   42|ab   |00007|1,234,567"
    """
    waiting = iter(args)
    parts, start = [], 0
    found = string("format", template)
    for match in _DIRECTIVE.finditer(found):
        budget.steps(1)
        parts += [found[start : match.start()], _formatted(match, args, waiting, budget)]
        budget.bytes(len(parts[-2]) + len(parts[-1]))
        start = match.end()
    budget.bytes(len(found) - start)
    return "".join([*parts, found[start:]])


def _formatted(match: re.Match[str], args: tuple[Any, ...], waiting: Any, budget: Budget) -> str:
    """Return what one directive becomes."""
    kind, flags = match["kind"], match["flags"]
    if kind == "%" or kind == "n":
        return "%" if kind == "%" else "\n"
    make = _MAKERS.get(kind.lower() if kind in ("S", "E", "G", "X") else kind)
    if make is None:
        raise refuse(
            "format", "the template has an unknown directive", f"Known are {_KINDS}; write %% for a percent sign."
        )
    width, precision = (
        int(match["width"] or 0),
        int(match["precision"] or 0) if match["precision"] is not None else None,
    )
    if width > _WIDEST or (precision or 0) > _WIDEST:
        raise refuse("format", f"a width or precision above {_WIDEST}")
    made = make(_argument(match["index"], args, waiting), flags, precision, budget)
    return _padded(made.upper() if kind.isupper() else made, flags, width)


def _argument(index: str | None, args: tuple[Any, ...], waiting: Any) -> Any:
    if index is not None and 0 < int(index) <= len(args):
        return args[int(index) - 1]
    try:
        return next(waiting) if index is None else args[len(args)]
    except (StopIteration, IndexError):
        raise refuse("format", "there are more directives than arguments") from None


def _padded(made: str, flags: str, width: int) -> str:
    if "-" in flags:
        return made.ljust(width)
    if "0" in flags and made[-1:].isalnum():
        signs = len(made) - len(made.lstrip("+-( "))
        return made[:signs] + made[signs:].rjust(width - signs, "0")
    return made.rjust(width)


def _signed(made: str, flags: str) -> str:
    """Return a number's text with the sign its flags ask for."""
    if made.startswith("-"):
        return f"({made[1:]})" if "(" in flags else made
    return ("+" if "+" in flags else " " if " " in flags else "") + made


def _text(value: Any, flags: str, precision: int | None, budget: Budget) -> str:
    return ("nil" if value is None else text(value, budget))[:precision]


def _decimal(value: Any, flags: str, precision: int | None, budget: Budget) -> str:
    if type(value) is float:
        raise wrong("format", "an integer for %d", value, hint="Write %.0f, or (int x).")
    return _signed(f"{integer('format', value):{',' if ',' in flags else ''}d}", flags)


def _fixed(value: Any, flags: str, precision: int | None, budget: Budget) -> str:
    return _fraction("f", value, flags, precision)


def _scientific(value: Any, flags: str, precision: int | None, budget: Budget) -> str:
    return _fraction("e", value, flags, precision)


def _general(value: Any, flags: str, precision: int | None, budget: Budget) -> str:
    return _fraction("g", value, flags, precision)


def _fraction(kind: str, value: Any, flags: str, precision: int | None) -> str:
    digits = 6 if precision is None else precision
    try:
        return _signed(f"{float(number('format', value)):{',' if ',' in flags else ''}.{digits}{kind}}", flags)
    except OverflowError:
        raise wrong("format", "a number in the range of floats", value) from None


def _in_base(spec: str) -> Callable[[Any, str, int | None, Budget], str]:
    return lambda value, flags, precision, budget: _signed(f"{integer('format', value):{spec}}", flags)


_MAKERS: Final[dict[str, Callable[[Any, str, int | None, Budget], str]]] = {
    "s": _text,
    "c": _text,
    "b": _text,
    "d": _decimal,
    "i": _decimal,
    "f": _fixed,
    "e": _scientific,
    "g": _general,
    "x": _in_base("x"),
    "o": _in_base("o"),
}
