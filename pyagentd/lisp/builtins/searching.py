"""What a string has in it, and where."""

from __future__ import annotations

from typing import Any, Final

from pyagentd.lisp.builtins.arguments import integer, string, wrong
from pyagentd.lisp.builtins.graphemes import cut, length
from pyagentd.lisp.builtins.table import Family
from pyagentd.lisp.builtins.texts import named
from pyagentd.lisp.limits import Budget

FAMILY: Final = Family("Searching strings")
define = FAMILY.define


@define(*named("blank?"))
def is_blank(s: Any) -> bool:
    """Whether a string is empty or white space only; true for nil.

    (blank? " ") => true
    """
    return s is None or not string("blank?", s).strip()


@define(*named("starts-with?"))
def starts_with(s: Any, prefix: Any) -> bool:
    """Whether a string begins with another one.

    (starts-with? "hello" "he") => true
    """
    return string("starts-with?", s).startswith(string("starts-with?", prefix))


@define(*named("ends-with?"))
def ends_with(s: Any, suffix: Any) -> bool:
    """Whether a string ends with another one.

    (ends-with? "hello" "lo") => true
    """
    return string("ends-with?", s).endswith(string("ends-with?", suffix))


@define(*named("includes?"))
def includes(s: Any, part: Any) -> bool:
    """Whether a string has another one in it.

    (includes? "hello" "ell") => true
    """
    if type(s) is str and type(part) is str:
        return part in s
    if type(s) is list or type(s) is dict:
        raise wrong("includes?", "a string", s, hint="For collections write (contains? coll x).")
    return string("includes?", part) in string("includes?", s)


@define(*named("index-of"), charges=True)
def index_of(budget: Budget, s: Any, part: Any, start: Any = 0) -> Any:
    """Return the position of the first occurrence of a text, nil when there is none.

    (index-of "hello" "l") => 2
    (index-of "hello" "x") => nil
    """
    found, wanted = string("index-of", s), string("index-of", part)
    skipped = cut(found, 0, max(0, integer("index-of", start)))
    budget.steps(len(found) >> 6)
    at = found.find(wanted, len(skipped))
    return None if at < 0 else length(found[:at])


@define(*named("last-index-of"), charges=True)
def last_index_of(budget: Budget, s: Any, part: Any) -> Any:
    """Return the position of the last occurrence of a text, nil when there is none.

    (last-index-of "hello" "l") => 3
    """
    found = string("last-index-of", s)
    budget.steps(len(found) >> 6)
    at = found.rfind(string("last-index-of", part))
    return None if at < 0 else length(found[:at])
