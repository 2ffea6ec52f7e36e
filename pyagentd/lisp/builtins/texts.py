"""Strings: joining, cutting, splitting, searching. Positions count what a reader sees as characters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pyagentd.lisp.builtins.arguments import items, refuse, string, whole, wrong
from pyagentd.lisp.builtins.graphemes import backwards, cut, graphemes
from pyagentd.lisp.builtins.regex import replaced, split_by
from pyagentd.lisp.builtins.table import Family
from pyagentd.lisp.limits import Budget
from pyagentd.lisp.missing import MISSING
from pyagentd.lisp.printing import readable, text
from pyagentd.lisp.values import Keyword, Pattern

FAMILY: Final = Family("Strings")
define = FAMILY.define


def named(name: str, *more: str) -> tuple[str, ...]:
    """Return the names of a function that clojure.string has."""
    return (name, *more, f"str/{name}", f"string/{name}", f"clojure.string/{name}")


@define("str", charges=True)
def str_(budget: Budget, *xs: Any) -> str:
    r"""Return the texts of all arguments in one string; nil is "", keywords keep their colon.

    (str "n = " 42) => "n = 42"
    (str :a nil [1 "x"]) => ":a[1 \"x\"]"
    """
    if len(xs) == 1 and type(xs[0]) is str:
        return xs[0]
    parts, total = [], 0
    for x in xs:
        part = x if type(x) is str else shown(x, budget)
        parts.append(part)
        total += len(part)
    budget.bytes(total)
    return "".join(parts)


def shown(x: Any, budget: Budget) -> str:
    """Return what ``str`` makes of one value."""
    if type(x) is int and -_PLAIN < x < _PLAIN:
        return str(x)
    return text(x, budget)


_PLAIN: Final = 1 << 60


def concatenated(separator: str, parts: list[str], budget: Budget) -> str:
    """Return the parts in one string, charged before it is made."""
    budget.bytes(sum(map(len, parts)) + len(separator) * len(parts))
    return separator.join(parts)


@define("pr-str", charges=True)
def pr_str(budget: Budget, *xs: Any) -> str:
    r"""Return the arguments as program text, strings in quotes.

    (pr-str "a" :b) => "\"a\" :b"
    """
    return concatenated(" ", [readable(x, budget) for x in xs], budget)


@define(*named("join"), charges=True, shown="separator? coll")
def join(budget: Budget, separator_or_coll: Any, coll: Any = MISSING) -> str:
    """Return the texts of all items in one string, with a separator between them.

    (join ", " ["a" "b"]) => "a, b"
    (join [1 2 3]) => "123"
    """
    separator, source = ("", separator_or_coll) if coll is MISSING else (separator_or_coll, coll)
    found = items("join", source, budget)
    between = text(separator, budget)
    budget.steps(len(found))
    if set(map(type, found)) <= {str}:
        return concatenated(between, found, budget)
    return concatenated(between, [x if type(x) is str else shown(x, budget) for x in found], budget)


@define("subs", charges=True)
def subs(budget: Budget, s: Any, start: Any, end: Any = MISSING) -> str:
    """Return the characters from a position on, up to another one that is not included; never out of range.

    (subs "hello" 1 3) => "el"
    (subs "hello" 10) => ""
    """
    found = string("subs", s)
    first = max(0, whole("subs", start))
    before = len(found) if end is MISSING else max(0, whole("subs", end))
    budget.bytes(min(len(found), max(0, before - first)))
    budget.steps(len(found) >> 6)
    return cut(found, first, before)


@define(*named("split"), charges=True)
def split(budget: Budget, s: Any, separator: Any, limit: Any = MISSING) -> list[str]:
    """Return the parts of a string between separators; "" separates all characters. A limit is the most parts.

    (split "a,b,,c" ",") => ["a" "b" "" "c"]
    (split "abc" "") => ["a" "b" "c"]
    (split "a1b22c" #"[0-9]+") => ["a" "b" "c"]
    """
    found = string("split", s)
    most = 0 if limit is MISSING else max(0, whole("split", limit))
    if type(separator) is Pattern:
        return split_by(separator, found, most, budget)
    between = string("split", separator)
    budget.bytes(len(found))
    if not between:
        budget.cells(len(found))
        characters = graphemes(found)
        if not 0 < most < len(characters):
            return characters
        return [*characters[: most - 1], "".join(characters[most - 1 :])]
    budget.steps(len(found) >> 6)
    budget.cells(1 + found.count(between))
    return found.split(between, most - 1)


@define(*named("split-lines"), charges=True)
def split_lines(budget: Budget, s: Any) -> list[str]:
    r"""Return the lines of a string.

    (split-lines "a\nb") => ["a" "b"]
    """
    found = string("split-lines", s)
    budget.bytes(len(found))
    lines = found.replace("\r\n", "\n").split("\n")
    budget.cells(len(lines))
    while lines and not lines[-1]:
        lines.pop()
    return lines


@define(*named("replace"), charges=True)
def replace(budget: Budget, s: Any, old: Any, new: Any) -> str:
    """Return the string with all occurrences of a text, or matches of a pattern, replaced.

    (replace "hello" "l" "L") => "heLLo"
    (replace "a1b2" #"[0-9]" "#") => "a#b#"
    """
    return _replace("replace", s, old, new, budget, -1)


@define(*named("replace-first"), charges=True)
def replace_first(budget: Budget, s: Any, old: Any, new: Any) -> str:
    """Return the string with the first occurrence of a text, or match of a pattern, replaced.

    (replace-first "hello" "l" "L") => "heLlo"
    """
    return _replace("replace-first", s, old, new, budget, 1)


def _replace(op: str, s: Any, old: Any, new: Any, budget: Budget, most: int) -> str:
    found = string(op, s)
    if type(old) is Pattern:
        return replaced(op, old, found, new, most, budget)
    wanted, instead = string(op, old), string(op, new)
    budget.steps(len(found) >> 6)
    count = found.count(wanted) if most < 0 else 1
    budget.bytes(len(found) + count * max(0, len(instead) - len(wanted)))
    return found.replace(wanted, instead, most)


def _turned(op: str, s: Any, budget: Budget, turn: Callable[[str], str]) -> str:
    found = string(op, s)
    budget.bytes(len(found))
    return turn(found)


@define("upcase", *named("upper-case"), charges=True)
def upcase(budget: Budget, s: Any) -> str:
    """Return the string in upper case.

    (upcase "hello") => "HELLO"
    """
    return _turned("upper-case", s, budget, str.upper)


@define("downcase", *named("lower-case"), charges=True)
def downcase(budget: Budget, s: Any) -> str:
    """Return the string in lower case.

    (downcase "HELLO") => "hello"
    """
    return _turned("lower-case", s, budget, str.lower)


@define(*named("capitalize"), charges=True)
def capitalize(budget: Budget, s: Any) -> str:
    """Return the string with its first character in upper case and the others in lower case.

    (capitalize "hELLO") => "Hello"
    """
    return _turned("capitalize", s, budget, str.capitalize)


@define(*named("trim"), charges=True)
def trim(budget: Budget, s: Any) -> str:
    """Return the string without white space at its ends.

    (trim "  a b ") => "a b"
    """
    return _turned("trim", s, budget, str.strip)


@define(*named("triml"), charges=True)
def triml(budget: Budget, s: Any) -> str:
    """Return the string without white space at its beginning.

    (triml "  a ") => "a "
    """
    return _turned("triml", s, budget, str.lstrip)


@define(*named("trimr"), charges=True)
def trimr(budget: Budget, s: Any) -> str:
    """Return the string without white space at its end.

    (trimr " a  ") => " a"
    """
    return _turned("trimr", s, budget, str.rstrip)


@define(*named("trim-newline"), charges=True)
def trim_newline(budget: Budget, s: Any) -> str:
    r"""Return the string without line ends at its end.

    (trim-newline "a\n") => "a"
    """
    return _turned("trim-newline", s, budget, lambda found: found.rstrip("\r\n"))


@define("reverse-string", "str/reverse", "string/reverse", "clojure.string/reverse", charges=True)
def reverse_string(budget: Budget, s: Any) -> str:
    """Return the string with its characters in reverse order.

    (reverse-string "abc") => "cba"
    """
    return _turned("reverse-string", s, budget, backwards)


@define("name")
def name(x: Any) -> str:
    """Return the name of a keyword without its colon; a string is its own name.

    (name :a) => "a"
    """
    if type(x) is Keyword:
        return x.name
    if type(x) is str:
        return x
    raise wrong("name", "a keyword or string", x)


@define("keyword")
def keyword(x: Any) -> Any:
    """Return the keyword with a name; nil for nil.

    (keyword "a") => :a
    """
    if type(x) is str and x:
        return Keyword(x)
    if type(x) is Keyword or x is None:
        return x
    if x == "":
        raise refuse("keyword", "a name cannot be empty")
    raise wrong("keyword", "a string", x)
