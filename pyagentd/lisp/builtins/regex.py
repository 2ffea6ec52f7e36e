r"""Regular expressions: ``#"[0-9]+"``, ``re-find`` and what uses them.

The engine is RE2, which takes time linear in the text for every pattern and a bounded amount of memory, so no pattern
of a program can hang the daemon. The price is that it has no look-around and no back-references. ``\d \w \s`` are
ASCII, as in Clojure.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from pyagentd.lisp.access import as_function
from pyagentd.lisp.builtins.arguments import string, wrong
from pyagentd.lisp.builtins.table import Family
from pyagentd.lisp.errors import LispError
from pyagentd.lisp.limits import Budget
from pyagentd.lisp.values import Pattern

FAMILY: Final = Family("Regular expressions")
define = FAMILY.define

_LONGEST: Final = 4096  # characters of a pattern
_MEMORY: Final = 4 << 20  # bytes the engine may use for one pattern
_STEP: Final = 32  # characters the engine gets through in the time of a step, with a program of one instruction


@lru_cache(maxsize=256)
def _compiled(source: str) -> tuple[Any, int]:
    """Return a compiled pattern and the number of its instructions."""
    import re2  # it takes a while to load, and most programs have no patterns

    if len(source) > _LONGEST:
        raise LispError("eval_error", f"regular expression: longer than {_LONGEST} characters")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY
    try:
        compiled = re2.compile(source, options)
    except (re2.error, UnicodeEncodeError) as error:
        raise LispError("eval_error", f"regular expression: {_reason(error)}", hint=_LACKING) from None
    return compiled, compiled.programsize


_LACKING: Final = "Look-around, back-references and possessive quantifiers do not exist; groups, classes and | do."


def _reason(error: Exception) -> str:
    """Return what the engine has against a pattern, without the part of it that it quotes."""
    said = error.args[0] if error.args else b""
    return said.decode(errors="replace").partition(":")[0] if isinstance(said, bytes) else "the text is no Unicode"


def engine(pattern: Pattern) -> Any:
    """Return the compiled form of a pattern.

    Raises:
        LispError: ``eval_error`` where it is none the engine knows.
    """
    return _compiled(pattern.text)[0]


def pattern(op: str, value: Any) -> Pattern:
    """Return the value, which must be a pattern or the text of one."""
    if type(value) is Pattern:
        return value
    if type(value) is str:
        return Pattern(value)
    raise wrong(op, "a regular expression", value, hint='Write #"…" or (re-pattern s).')


def _matches(op: str, wanted: Pattern, s: Any, budget: Budget) -> Iterator[Any]:
    """All matches of a pattern, charged for the text they go through."""
    found = _charged(op, wanted, s, budget)
    for match in engine(wanted).finditer(found):
        yield match
        budget.look()  # the next search may go through all that is left


def _charged(op: str, wanted: Pattern, s: Any, budget: Budget) -> str:
    """Return the string, once a search through it is paid for."""
    found = string(op, s)
    budget.steps(1 + len(found) * _compiled(wanted.text)[1] // _STEP)
    if not found.isascii() and any("\ud800" <= each <= "\udfff" for each in found):
        raise LispError("eval_error", f"{op}: the string is no valid Unicode")
    return found


def _groups(match: Any) -> Any:
    """Return a match as programs see it: its text, or with groups a vector of its text and theirs."""
    return [match.group(), *match.groups()] if match.re.groups else match.group()


@define("re-pattern")
def re_pattern(s: Any) -> Pattern:
    """Return the pattern with a text, for what ``#"…"`` cannot say.

    (re-find (re-pattern (str "a" "+")) "baa") => "aa"
    """
    made = pattern("re-pattern", s)
    engine(made)
    return made


@define("re-find", charges=True)
def re_find(budget: Budget, re: Any, s: Any) -> Any:
    r"""Return the first match of a pattern; with groups a vector of the match and its groups; nil when there is none.

    (re-find #"[0-9]+" "a12b3") => "12"
    (re-find #"(\w+)@(\w+)" "me@here") => ["me@here" "me" "here"]
    """
    wanted = pattern("re-find", re)
    match = engine(wanted).search(_charged("re-find", wanted, s, budget))
    return None if match is None else _groups(match)


@define("re-matches", charges=True)
def re_matches(budget: Budget, re: Any, s: Any) -> Any:
    """Return what ``re-find`` gives, if the pattern matches the whole string.

    (re-matches #"[0-9]+" "123") => "123"
    (re-matches #"[0-9]+" "12a") => nil
    """
    wanted = pattern("re-matches", re)
    match = engine(wanted).fullmatch(_charged("re-matches", wanted, s, budget))
    return None if match is None else _groups(match)


@define("re-seq", charges=True)
def re_seq(budget: Budget, re: Any, s: Any) -> Any:
    """All matches, as ``re-find`` gives them.

    (re-seq #"[0-9]+" "a12b3") => ["12" "3"]
    """
    wanted = pattern("re-seq", re)
    result = []
    for match in _matches("re-seq", wanted, s, budget):
        budget.cells(2 + engine(wanted).groups)
        budget.steps(2)
        result.append(_groups(match))
    return result


def split_by(separator: Pattern, s: str, most: int, budget: Budget) -> list[str]:
    """Return the parts between the matches of a pattern, at most `most` of them, without empty ones at the end."""
    parts: list[str] = []
    start = 0
    for match in _matches("split", separator, s, budget):
        if most and len(parts) + 1 >= most:
            break
        budget.cells(1)
        budget.steps(1)
        if match.end() == 0 or match.start() == len(s) == match.end():
            continue
        parts.append(s[start : match.start()])
        start = match.end()
    parts.append(s[start:])
    while not most and len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts


def replaced(op: str, wanted: Pattern, s: str, new: Any, most: int, budget: Budget) -> str:
    """Return the string with matches replaced by a text, where $1 is the first group, or by what a function gives."""
    make = _replacement(op, new)
    parts, start = [], 0
    for count, match in enumerate(_matches(op, wanted, s, budget)):
        if 0 <= most <= count:
            break
        budget.steps(1)
        parts += [s[start : match.start()], make(match)]
        budget.bytes(len(parts[-2]) + len(parts[-1]))
        start = match.end()
    budget.bytes(len(s) - start)
    return "".join([*parts, s[start:]])


def _replacement(op: str, new: Any) -> Any:
    if type(new) is str:
        pieces = _template(new)
        return lambda match: "".join(each if type(each) is str else _group(op, match, each) for each in pieces)
    function = as_function(new, 1, op)
    return lambda match: string(op, function(_groups(match)))


def _group(op: str, match: Any, index: int) -> str:
    if index > match.re.groups:
        raise LispError("eval_error", f"{op}: the pattern has no group {index}", hint="Write \\$ for a dollar sign.")
    return match.group(index) or ""


def _template(text: str) -> list[Any]:
    """Return the parts of a replacement: text and numbers of groups. A backslash makes the next character plain."""
    pieces: list[Any] = []
    at = 0
    while at < len(text):
        if text[at] == "\\" and at + 1 < len(text):
            at += 1
            pieces.append(text[at])
        elif text[at] == "$" and text[at + 1 : at + 2].isdecimal() and text[at + 1].isascii():
            at += 1
            pieces.append(int(text[at]))
        else:
            pieces.append(text[at])
        at += 1
    return pieces
