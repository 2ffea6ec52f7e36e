"""Numbers from text and from other numbers."""

from __future__ import annotations

import math
import re
from typing import Any, Final

from pyagentd.lisp.builtins.arguments import number, wrong
from pyagentd.lisp.builtins.table import Family
from pyagentd.lisp.limits import Budget

FAMILY: Final = Family("Numbers from text")
define = FAMILY.define

_LONG: Final = re.compile(r"[+-]?[0-9]+")
_DOUBLE: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_DIGITS: Final = 4000  # Python refuses to read longer integers


@define("parse-long", "parse-int", "Long/parseLong", "Integer/parseInt", charges=True)
def parse_long(budget: Budget, s: Any) -> Any:
    """Return the integer a string is, nil when it is none.

    (parse-long "42") => 42
    (parse-long "4x") => nil
    """
    if type(s) is not str or len(s) > _DIGITS or not _LONG.fullmatch(s):
        return None
    if len(s) > 18:
        budget.bits(len(s) * 10 // 3)
    return int(s)


@define("parse-double", "parse-float", "Double/parseDouble", "Float/parseFloat", charges=True)
def parse_double(budget: Budget, s: Any) -> Any:
    """Return the number a string is, as a float; nil when it is none.

    (parse-double "3.5") => 3.5
    (parse-double "42") => 42.0
    (parse-double "x") => nil
    """
    if type(s) is not str or len(s) > _DIGITS or not _DOUBLE.fullmatch(s):
        return None
    budget.steps(1)
    found = float(s)
    return found if math.isfinite(found) else None


@define("parse-boolean")
def parse_boolean(s: Any) -> Any:
    """Return true for "true", false for "false", nil for everything else.

    (parse-boolean "true") => true
    """
    return {"true": True, "false": False}.get(s) if type(s) is str else None


@define("int", "long")
def int_(x: Any) -> int:
    """Return a number without its fraction.

    (int 3.9) => 3
    (int -3.9) => -3
    """
    if type(number("int", x)) is float and not math.isfinite(x):
        raise wrong("int", "a finite number", x)
    return int(x)


@define("float", "double")
def float_(x: Any) -> float:
    """Return a number as a float.

    (float 3) => 3.0
    """
    try:
        return float(number("float", x))
    except OverflowError:
        raise wrong("float", "a number in the range of floats", x) from None
