"""Strings: joining, splitting, searching, formatting, regular expressions, JSON. Positions count graphemes."""

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, Final, NoReturn

import re2

from pyagentd.lisp.builtins.table import (
    Family,
    graphemes,
    integer,
    items,
    length,
    mapping,
    number,
    refuse,
    reverse_text,
    slice_text,
    string,
    whole_number,
    wrong,
)
from pyagentd.lisp.errors import MISSING, LispError
from pyagentd.lisp.limits import Budget
from pyagentd.lisp.serialization import readable, size, text
from pyagentd.lisp.values import Keyword, Pattern, as_function, lookup, to_python

# Regular expressions: choosing the engine, and charging for a search.
#
# RE2 needs time linear in the length of the text and bounded memory for every pattern, so no pattern can hang the
# daemon; but it has no look-around and no back-references, and each call has a high overhead. Python's engine has
# little overhead but backtracks. So a pattern that is a plain sequence of characters and classes, such as
# ``(\w+)@(\w+)``, is matched by Python's engine if the text is so short that even the worst case is fast, and by RE2
# otherwise. Both find the same matches: ``\d \w \s`` are ASCII, as in Clojure, and ``$`` is the end of the text.

_LONGEST: Final = 4096  # characters of a pattern
_MEMORY: Final = 4 << 20  # bytes RE2 may use for one pattern
_STEP: Final = 32  # characters that an engine processes in the time of a step, for a pattern of one instruction
_WORST: Final = 1 << 20  # the largest number of comparisons in the worst case of a backtracking search: about 10 ms
_MOST_REPEATS: Final = 100  # the largest count in {n,m} that is left to Python's engine

_TOKEN: Final = re.compile(
    r"""(?P<atom>
          \\[dDwWsSnrt.\-+*?()\[\]{}|^$/\\"',:;=<>!@\#%&_~`]
        | \[\^?(?:[^\[\]\\^&|~]|\\[dDwWsnrt.\-+*?()\[\]{}|^$/\\"])+\]
        | [^\\^$.|?*+()\[\]{}]
        | \. )
      (?P<count>[*+?]|\{(?P<least>[0-9]{1,3})(?P<comma>,(?P<most>[0-9]{0,3}))?\})?(?P<lazy>\??)(?![*+?{])
    | (?P<open>\((?:\?:)?(?!\?)) | (?P<or>\|) | (?P<close>\))(?![*+?{]) | (?P<bound>\\b)(?![*+?{])
    | (?P<start>\A\^)(?![*+?{]) | (?P<end>\$\Z)""",
    re.VERBOSE | re.DOTALL,
)
_SPACE: Final = r"\t\n\f\r "  # RE2's \s, which has no vertical tab
_ASCII: Final = "".join(map(chr, range(128))) + "\uffff"  # the last stands for everything else


@dataclass(frozen=True, slots=True)
class _Item:
    """One atom of a sequence: the characters that it matches (none for a boundary) and how often."""

    takes: frozenset[str]
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class _Quick:
    """A pattern for Python's engine."""

    engine: re.Pattern[str]
    longest: int  # characters up to which a search in a text is fast even in the worst case
    size: int  # atoms, a measure of the work for one character


@dataclass
class Matcher:
    """A compiled pattern."""

    source: str
    quick: _Quick | None = field(init=False)
    literal: str | None = field(init=False)  # the only text that the pattern matches

    def __post_init__(self) -> None:
        self.quick = _quick_pattern(self.source)
        self.literal = self.source if self.source and not set(self.source) & set("\\^$.|?*+()[]{}") else None
        if self.quick is None:
            _ = self.linear  # raises errors now

    @cached_property
    def linear(self) -> Any:
        """The pattern compiled for RE2.

        Raises:
            LispError: ``eval_error`` if RE2 does not accept it.
        """
        if len(self.source) > _LONGEST:
            raise LispError("eval_error", f"regular expression: longer than {_LONGEST} characters")
        options = re2.Options()
        options.log_errors = False
        options.max_mem = _MEMORY
        try:
            return re2.compile(self.source, options)
        except (re2.error, UnicodeEncodeError) as error:
            raise LispError("eval_error", f"regular expression: {_reason(error)}", hint=_LACKING) from None

    @cached_property
    def size(self) -> int:
        """The largest number of instructions that the engine executes for one character."""
        return self.quick.size if self.quick else int(self.linear.programsize)

    @cached_property
    def groups(self) -> int:
        """The number of groups."""
        return int(self.quick.engine.groups if self.quick else self.linear.groups)

    def charge(self, op: str, text: str, budget: Budget) -> None:
        """Charge for a search in a text.

        Raises:
            LispError: ``timeout``; ``eval_error`` if the text is not valid Unicode.
        """
        budget.steps(1 + len(text) * self.size // _STEP)
        if not text.isascii() and any("\ud800" <= each <= "\udfff" for each in text):
            raise LispError("eval_error", f"{op}: the string is not valid Unicode")

    def engine(self, text: str) -> Any:
        """Return the compiled pattern for a text, of Python or of RE2, which have the same methods."""
        quick = self.quick
        return quick.engine if quick is not None and len(text) <= quick.longest else self.linear

    def whole(self, text: str, cells: int, budget: Budget) -> re.Pattern[str] | None:
        """Return Python's pattern if all matches in a text may be found by one call, else None.

        The budget must have room for a match of ``cells`` slots at each character.
        """
        quick = self.quick
        fits = budget.cells_used + cells * (len(text) + 1) <= budget.limits.cells
        return quick.engine if quick is not None and fits and len(text) <= quick.longest else None

    def matches(self, op: str, text: str, budget: Budget) -> Iterator[Any]:
        """Return all matches in a text, and charge for the search."""
        self.charge(op, text, budget)
        for match in self.engine(text).finditer(text):
            yield match
            budget.look()  # the next match may be far away


_matcher: Final = lru_cache(maxsize=256)(Matcher)


def matcher(pattern: Pattern) -> Matcher:
    """Return a compiled pattern, cached.

    Raises:
        LispError: ``eval_error`` if RE2 does not accept it.
    """
    found: Matcher | None = pattern.matcher
    if found is None:
        found = pattern.matcher = _matcher(pattern.text)
    return found


_LACKING: Final = "Look-around, back-references and possessive quantifiers do not exist; groups, classes and | do."


def _reason(error: Exception) -> str:
    """Return RE2's error message for a pattern, without the part of the pattern that it quotes."""
    said = error.args[0] if error.args else b""
    return said.decode(errors="replace").partition(":")[0] if isinstance(said, bytes) else "the text is no Unicode"


def _quick_pattern(source: str) -> _Quick | None:
    """Return a pattern for Python's engine; None if only RE2 may be used."""
    if len(source) > _MOST_REPEATS:
        return None
    parts: list[str] = []
    items: list[_Item] = []
    starts: list[list[int]] = [[0]]  # the starts of the alternatives, for every open group
    choices = 1
    at = 0
    while at < len(source):
        token = _TOKEN.match(source, at)
        if token is None:
            return None
        at = token.end()
        if token["atom"] is None:
            parts.append(r"\Z" if token["end"] else token[0])
            if token["bound"] or token["end"]:
                items.append(_Item(frozenset(), 0, 0))
            elif token["open"]:
                starts.append([len(items)])
            elif token["or"]:
                starts[-1].append(len(items))
            elif token["close"]:
                begins = starts.pop()
                if not starts or not _join_alternatives(items, begins):
                    return None
                choices *= len(begins)
            continue
        atom = _python_atom(token["atom"])
        least, most = _repeat_counts(token)
        if max(least, most or 0) > _MOST_REPEATS:
            return None
        parts.append(atom + token[0][len(token["atom"]) :])
        try:
            takes = frozenset(re.findall(atom, _ASCII, re.ASCII))
        except re.error:
            return None
        if not token["atom"].isascii():
            takes |= {"\uffff"}
        items.append(_Item(takes, least, most))
    if len(starts) != 1 or not _join_alternatives(items, starts[0]):
        return None
    choices *= len(starts[0])
    try:
        engine = re.compile("".join(parts), re.ASCII)
    except re.error:
        return None
    if not sum(item.least for item in items):
        return None  # the engines continue differently after an empty match
    return _with_cost(engine, items, choices)


def _join_alternatives(items: list[_Item], begins: list[int]) -> bool:
    """Replace the alternatives that begin at these indices by one item; return False if one has no fixed length."""
    if len(begins) == 1:
        return True
    branches = [items[begin:end] for begin, end in pairwise([*begins, len(items)])]
    if not all(branches) or not all(0 < each.least == each.most for branch in branches for each in branch):
        return False
    lengths = [sum(each.least for each in branch) for branch in branches]
    del items[begins[0] :]
    items.append(_Item(frozenset().union(*(branch[0].takes for branch in branches)), min(lengths), max(lengths)))
    return True


def _python_atom(atom: str) -> str:
    """Return an atom of RE2 in Python's syntax."""
    if atom == r"\s":
        return f"[{_SPACE}]"
    if atom == r"\S":
        return f"[^{_SPACE}]"
    return re.sub(r"\\(.)", lambda found: _SPACE if found[1] == "s" else found[0], atom) if atom[0] == "[" else atom


def _repeat_counts(token: re.Match[str]) -> tuple[int, int | None]:
    """Return the smallest and largest number of repetitions of an atom; None for unlimited."""
    if token["least"] is not None:
        least = int(token["least"])
        return least, (least if token["comma"] is None else int(token["most"]) if token["most"] else None)
    return {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(token["count"] or "", (1, 1))


def _with_cost(engine: re.Pattern[str], items: list[_Item], choices: int) -> _Quick | None:
    """Return the pattern with the cost of the worst case.

    A search starts at each character. The last atom is never backtracked into. Each other atom with unlimited
    repetition that can match the same characters as the next one multiplies the work by the length of the text.
    """
    endless, overlapping = 0, 0
    factor = choices * (1 + sum(item.least for item in items) // 8)
    for item, after in pairwise(items):
        if item.most is None:
            endless += 1
            overlapping += not after.least or bool(item.takes & after.takes)
        else:
            factor *= 1 + item.most - item.least
    if factor > _STEP * 8:
        return None
    power = min(1 + endless, 2 + overlapping)
    # The worst case takes ``factor`` times the length of the text to this power.
    longest = 1 + round((_WORST / factor) ** (1 / power))
    while longest**power * factor > _WORST:
        longest -= 1
    return _Quick(engine, longest, len(items) * choices)


# ``format``: a template with directives as in C and Java.

formatting_define: Final = Family("Formatting")

_DIRECTIVE: Final = re.compile(
    r"%(?:(?P<index>[0-9]{1,3})\$)?(?P<flags>[-+ 0,#]*)(?P<width>[0-9]*)(?:\.(?P<precision>[0-9]*))?(?P<kind>.?)",
    re.DOTALL,
)
_WIDEST: Final = 1000
_DECIMALS: Final = Context(prec=_WIDEST + 309)  # a float has at most 309 digits before the point
_KINDS: Final = "s d i f e g x X o b c n %"


@formatting_define("format", charges=True)
def format_(budget: Budget, template: Any, *args: Any) -> str:
    """Return the template with each directive replaced by the next argument.

    ``%s`` is a text, ``%d`` an integer, ``%.2f`` a number with two decimals, ``%x`` hexadecimal.

    (format "%s is %d" "Ada" 36) => "Ada is 36"
    (format "%.2f|%5d|%-5s|%05d|%,d" 3.14159 42 "ab" 7 1234567) => "3.14|   42|ab   |00007|1,234,567"
    """
    waiting = iter(args)
    parts, start = [], 0
    found = string("format", template)
    for match in _DIRECTIVE.finditer(found):
        budget.steps(1)
        parts += [found[start : match.start()], _format_directive(match, args, waiting, budget)]
        budget.bytes(len(parts[-2]) + len(parts[-1]))
        start = match.end()
    budget.bytes(len(found) - start)
    return "".join([*parts, found[start:]])


def _format_directive(match: re.Match[str], args: tuple[Any, ...], waiting: Any, budget: Budget) -> str:
    """Return the text for one directive."""
    kind, flags = match["kind"], match["flags"]
    if kind == "%" or kind == "n":
        return "%" if kind == "%" else "\n"
    of = kind.lower() if kind in ("S", "E", "G", "X") else kind
    if of not in _TYPES:
        raise refuse(
            "format", "the template has an unknown directive", f"Known are {_KINDS}; write %% for a percent sign."
        )
    width = int(match["width"] or 0)
    precision = None if match["precision"] is None else int(match["precision"] or 0)
    if width > _WIDEST or (precision or 0) > _WIDEST:
        raise refuse("format", f"a width or precision above {_WIDEST}")
    value, python = _argument(match["index"], args, waiting), _TYPES[of]
    align, sign = "<" if "-" in flags else "", "+" if "+" in flags else " " if " " in flags else ""
    if python == "s":
        made = ("nil" if value is None else text(value, budget))[:precision]
        made = format(made, f"{align or '>'}{width}")
    else:
        value = _number(of, value, precision)
        zeros = "0" if "0" in flags and not align else ""
        rounded = f".{6 if precision is None else precision}" if python in "efg" else ""
        made = format(value, f"{align}{sign}{zeros}{width}{',' if ',' in flags else ''}{rounded}{python}")
    return made.upper() if kind.isupper() else made


_TYPES: Final = {**dict.fromkeys("scb", "s"), **dict.fromkeys("di", "d"), **{kind: kind for kind in "xoefg"}}
"""Python's type of format for each kind of directive."""


def _number(kind: str, value: Any, precision: int | None) -> Any:
    """Return the argument of a directive that takes a number."""
    if kind in "dixo":
        if kind in "di" and type(value) is float:
            raise wrong("format", "an integer for %d", value, hint="Write %.0f, or (int x).")
        return integer("format", value)
    try:
        shown = float(number("format", value))
    except OverflowError:
        raise wrong("format", "a number in the range of floats", value) from None
    if kind != "f" or not math.isfinite(shown):
        return shown
    # In decimals, halves away from zero, as ``round`` does.
    digits = 6 if precision is None else precision
    return Decimal(repr(shown)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP, _DECIMALS)


def _argument(index: str | None, args: tuple[Any, ...], waiting: Any) -> Any:
    if index is not None and 0 < int(index) <= len(args):
        return args[int(index) - 1]
    try:
        return next(waiting) if index is None else args[len(args)]
    except (StopIteration, IndexError):
        raise refuse("format", "there are more directives than arguments") from None


# Regular expressions: ``#"[0-9]+"``, ``re-find`` and related functions.

regex_define: Final = Family("Regular expressions")


def pattern(op: str, value: Any) -> Pattern:
    """Return the value, which must be a pattern or the text of one."""
    if type(value) is Pattern:
        return value
    if type(value) is str:
        return Pattern(value)
    raise wrong(op, "a regular expression", value, hint='Write #"…" or (re-pattern s).')


def _groups(match: Any) -> Any:
    """Return a match as programs see it: its text, or with groups a vector of its text and theirs."""
    groups = match.groups()
    return [match.group(), *groups] if groups else match.group()


@regex_define("re-pattern")
def re_pattern(s: Any) -> Pattern:
    """Return the pattern of a text, for patterns that ``#"…"`` cannot express.

    (re-find (re-pattern (str "a" "+")) "baa") => "aa"
    """
    made = pattern("re-pattern", s)
    matcher(made)
    return made


@regex_define("re-find", charges=True)
def re_find(budget: Budget, re: Any, s: Any) -> Any:
    r"""Return the first match of a pattern; with groups, a vector of the match and its groups; nil without a match.

    (re-find #"[0-9]+" "a12b3") => "12"
    (re-find #"(\w+)@(\w+)" "me@here") => ["me@here" "me" "here"]
    """
    wanted = matcher(re if type(re) is Pattern else pattern("re-find", re))
    found = s if type(s) is str else string("re-find", s)
    wanted.charge("re-find", found, budget)
    match = wanted.engine(found).search(found)
    return None if match is None else _groups(match)


@regex_define("re-matches", charges=True)
def re_matches(budget: Budget, re: Any, s: Any) -> Any:
    """Return the result of ``re-find`` if the pattern matches the whole string, else nil.

    (re-matches #"[0-9]+" "123") => "123"
    (re-matches #"[0-9]+" "12a") => nil
    """
    wanted, found = matcher(pattern("re-matches", re)), string("re-matches", s)
    wanted.charge("re-matches", found, budget)
    match = wanted.engine(found).fullmatch(found)
    return None if match is None else _groups(match)


@regex_define("re-seq", charges=True)
def re_seq(budget: Budget, re: Any, s: Any) -> Any:
    """Return all matches, each as ``re-find`` returns it.

    (re-seq #"[0-9]+" "a12b3") => ["12" "3"]
    """
    wanted, found = matcher(pattern("re-seq", re)), string("re-seq", s)
    slots = 2 + wanted.groups
    if (quick := wanted.whole(found, slots, budget)) is not None:
        wanted.charge("re-seq", found, budget)
        result: list[Any] = list(map(_groups, quick.finditer(found))) if wanted.groups else quick.findall(found)
        budget.cells(slots * len(result))
        budget.steps(2 * len(result))
        budget.look()
        return result
    result = []
    for match in wanted.matches("re-seq", found, budget):
        budget.cells(slots)
        budget.steps(2)
        result.append(_groups(match))
    return result


def split_by(separator: Pattern, s: str, most: int, budget: Budget, *, keeps: bool) -> list[str]:
    """Return the parts between the matches of a pattern, at most `most`; `keeps` retains empty parts at the end."""
    wanted = matcher(separator)
    parts: list[str]
    quick = None if most or wanted.groups else wanted.whole(s, 1, budget)
    if quick is not None:
        wanted.charge("split", s, budget)
        parts = quick.split(s)
        budget.cells(len(parts))
        budget.steps(len(parts))
        budget.look()
    else:
        parts = _split_slowly(wanted, s, most, budget)
    while not keeps and len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts


def _split_slowly(separator: Matcher, s: str, most: int, budget: Budget) -> list[str]:
    parts: list[str] = []
    start = 0
    for match in separator.matches("split", s, budget):
        if most and len(parts) + 1 >= most:
            break
        budget.cells(1)
        budget.steps(1)
        if match.end() == 0 or match.start() == len(s) == match.end():
            continue
        parts.append(s[start : match.start()])
        start = match.end()
    parts.append(s[start:])
    return parts


def replace_matches(op: str, wanted: Pattern, s: str, new: Any, most: int, budget: Budget) -> str:
    """Return the string with matches replaced by a text, where $1 is the first group, or by a function of them."""
    found = matcher(wanted)
    if type(new) is str and (template := _python_template(new, found)) is not None:
        quick = found.whole(s, 0, budget)
        # An upper bound: a match at every character, and every group as long as the text.
        longest = (len(s) + 1) * (len(new) + 1)
        if quick is not None and budget.bytes_used + longest <= budget.limits.bytes:
            found.charge(op, s, budget)
            made = quick.sub(template, s, max(most, 0))
            budget.bytes(len(made))
            budget.look()
            return made
    make = _replacement(op, new)
    parts, start = [], 0
    for count, match in enumerate(found.matches(op, s, budget)):
        if 0 <= most <= count:
            break
        budget.steps(1)
        parts += [s[start : match.start()], make(match)]
        budget.bytes(len(parts[-2]) + len(parts[-1]))
        start = match.end()
    budget.bytes(len(s) - start)
    return "".join([*parts, s[start:]])


def _python_template(new: str, wanted: Matcher) -> str | None:
    """Return a replacement in Python's syntax; None if it names a missing group."""
    if "$" not in new and "\\" not in new:
        return new
    pieces = _template(new)
    if any(type(each) is int and each > wanted.groups for each in pieces):
        return None
    return "".join(f"\\g<{each}>" if type(each) is int else each.replace("\\", r"\\") for each in pieces)


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


define: Final = Family("Strings")


def string_names(name: str, *more: str) -> tuple[str, ...]:
    """Return the names of a function in ``clojure.string``."""
    return (name, *more, f"str/{name}", f"string/{name}", f"clojure.string/{name}")


@define("str", charges=True)
def str_(budget: Budget, *xs: Any) -> str:
    r"""Return the texts of all arguments as one string; nil is "", keywords have their colon.

    (str "n = " 42) => "n = 42"
    (str :a nil [1 "x"]) => ":a[1 \"x\"]"
    """
    if len(xs) == 1 and type(xs[0]) is str:
        return xs[0]
    parts, total = [], 0
    for x in xs:
        part = x if type(x) is str else value_text(x, budget)
        parts.append(part)
        total += len(part)
    budget.bytes(total)
    return "".join(parts)


def value_text(x: Any, budget: Budget) -> str:
    """Return the text that ``str`` returns for one value."""
    if type(x) is int and -_PLAIN < x < _PLAIN:
        return str(x)
    return text(x, budget)


_PLAIN: Final = 1 << 60


def concatenate(separator: str, parts: list[str], budget: Budget) -> str:
    """Return the parts in one string, charged before it is made."""
    budget.bytes(sum(map(len, parts)) + len(separator) * len(parts))
    return separator.join(parts)


@define("pr-str", charges=True)
def pr_str(budget: Budget, *xs: Any) -> str:
    r"""Return the arguments as program text, with strings in quotes.

    (pr-str "a" :b) => "\"a\" :b"
    """
    return concatenate(" ", [readable(x, budget) for x in xs], budget)


@define(*string_names("join"), charges=True, shown="separator? coll")
def join(budget: Budget, separator_or_coll: Any, coll: Any = MISSING) -> str:
    """Return the texts of all items as one string, with a separator between them.

    (join ", " ["a" "b"]) => "a, b"
    (join [1 2 3]) => "123"
    """
    separator, source = ("", separator_or_coll) if coll is MISSING else (separator_or_coll, coll)
    found = items("join", source, budget)
    between = text(separator, budget)
    budget.steps(len(found))
    if set(map(type, found)) <= {str}:
        return concatenate(between, found, budget)
    return concatenate(between, [x if type(x) is str else value_text(x, budget) for x in found], budget)


@define("subs", charges=True)
def subs(budget: Budget, s: Any, start: Any, end: Any = MISSING) -> str:
    """Return the characters from a position up to but not including another one; positions out of range are adjusted.

    (subs "hello" 1 3) => "el"
    (subs "hello" 10) => ""
    """
    found = string("subs", s)
    first = max(0, whole_number("subs", start))
    before = len(found) if end is MISSING else max(0, whole_number("subs", end))
    budget.bytes(min(len(found), max(0, before - first)))
    budget.steps(len(found) >> 6)
    return slice_text(found, first, before)


@define(*string_names("split"), charges=True)
def split(budget: Budget, s: Any, separator: Any, limit: Any = MISSING) -> list[str]:
    """Return the parts of a string between separators; "" splits into characters. At most limit parts.

    A pattern leaves out empty parts at the end, without a limit; -1 keeps them.

    (split "a,b,,c" ",") => ["a" "b" "" "c"]
    (split "abc" "") => ["a" "b" "c"]
    (split "a1b22c" #"[0-9]+") => ["a" "b" "c"]
    """
    found = s if type(s) is str else string("split", s)
    most = 0 if limit is MISSING else max(0, whole_number("split", limit))
    if type(separator) is Pattern:
        literal = matcher(separator).literal
        keeps = limit is not MISSING and limit != 0
        if literal is None or most:
            return split_by(separator, found, most, budget, keeps=keeps)
        if len(found) >= _SHORT:
            budget.steps(1 + (len(found) >> 6))
            budget.cells(1 + found.count(literal))
            parts = found.split(literal)
        else:
            parts = found.split(literal)
            budget.cells(len(parts))
        while not keeps and len(parts) > 1 and not parts[-1]:
            parts.pop()
        return parts
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
    return found.split(between, min(most, 1 + len(found)) - 1)


@define(*string_names("split-lines"), charges=True)
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


@define(*string_names("replace"), charges=True, shown="s old new")
def replace(budget: Budget, s: Any, old: Any, new: Any = MISSING) -> Any:
    """Return the string with all occurrences of a text, or matches of a pattern, replaced.

    For a map and a collection it returns the items, each replaced by the map's value for it, if there is one.

    (replace "hello" "l" "L") => "heLLo"
    (replace "a1b2" #"[0-9]" "#") => "a#b#"
    (replace {1 :one} [1 2]) => [:one 2]
    """
    if new is MISSING:
        instead, found = mapping("replace", s), items("replace", old, budget)
        budget.cells(len(found))
        return [lookup(instead, each, each, budget) for each in found]
    if type(s) is str and type(old) is str and type(new) is str and len(s) * (1 + len(new)) < _SHORT:
        made = s.replace(old, new)
        budget.bytes(len(made))
        return made
    return _replace("replace", s, old, new, budget, -1)


_SHORT: Final = 1 << 14  # characters up to which a result is charged after it was made


@define(*string_names("replace-first"), charges=True)
def replace_first(budget: Budget, s: Any, old: Any, new: Any) -> str:
    """Return the string with the first occurrence of a text, or match of a pattern, replaced.

    (replace-first "hello" "l" "L") => "heLlo"
    """
    return _replace("replace-first", s, old, new, budget, 1)


def _replace(op: str, s: Any, old: Any, new: Any, budget: Budget, most: int) -> str:
    found = string(op, s)
    if type(old) is Pattern:
        return replace_matches(op, old, found, new, most, budget)
    wanted, instead = string(op, old), string(op, new)
    budget.steps(len(found) >> 6)
    count = found.count(wanted) if most < 0 else 1
    budget.bytes(len(found) + count * max(0, len(instead) - len(wanted)))
    return found.replace(wanted, instead, most)


def _declare_change(op: str, change: Callable[[str], str], doc: str, *names: str) -> None:
    """Declare a function that changes all of a string."""

    def changed(budget: Budget, s: Any) -> str:
        found = string(op, s)
        budget.bytes(len(found))
        return change(found)

    changed.__doc__ = doc
    define(*(names or string_names(op)), charges=True)(changed)


_declare_change(
    "upper-case",
    str.upper,
    'Return the string in upper case.\n(upcase "hello") => "HELLO"',
    "upcase",
    *string_names("upper-case"),
)
_declare_change(
    "lower-case",
    str.lower,
    'Return the string in lower case.\n(downcase "HELLO") => "hello"',
    "downcase",
    *string_names("lower-case"),
)
_declare_change(
    "capitalize",
    str.capitalize,
    "Return the string with its first character in upper case and the others in lower case.\n"
    '(capitalize "hELLO") => "Hello"',
)
_declare_change("trim", str.strip, 'Return the string without white space at both ends.\n(trim "  a b ") => "a b"')
_declare_change(
    "triml", str.lstrip, 'Return the string without white space at its beginning.\n(triml "  a ") => "a "'
)
_declare_change("trimr", str.rstrip, 'Return the string without white space at its end.\n(trimr " a  ") => " a"')
_declare_change(
    "trim-newline",
    lambda found: found.rstrip("\r\n"),
    'Return the string without line breaks at its end.\n(trim-newline "a\\n") => "a"',
)
_declare_change(
    "reverse-string",
    reverse_text,
    'Return the string with its characters in reverse order.\n(reverse-string "abc") => "cba"',
    *("reverse-string", "str/reverse", "string/reverse", "clojure.string/reverse"),
)


@define("name")
def name(x: Any) -> str:
    """Return the name of a keyword, without the colon and the part before a slash; a string is returned unchanged.

    (name :a) => "a"
    (name :shop/price) => "price"
    """
    if type(x) is Keyword:
        return x.name.rpartition("/")[2] or x.name
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


# Searching in strings.

searching_define: Final = Family("Searching strings")


@searching_define(*string_names("blank?"), charges=True)
def is_blank(budget: Budget, s: Any) -> bool:
    """Whether a string is empty or only white space; true for nil.

    (blank? " ") => true
    """
    if s is None:
        return True
    budget.steps(len(string("blank?", s)) >> 6)
    return not s or s.isspace()


@searching_define(*string_names("starts-with?"))
def starts_with(s: Any, prefix: Any) -> bool:
    """Whether a string begins with another one.

    (starts-with? "hello" "he") => true
    """
    return string("starts-with?", s).startswith(string("starts-with?", prefix))


@searching_define(*string_names("ends-with?"))
def ends_with(s: Any, suffix: Any) -> bool:
    """Whether a string ends with another one.

    (ends-with? "hello" "lo") => true
    """
    return string("ends-with?", s).endswith(string("ends-with?", suffix))


@searching_define(*string_names("includes?"), charges=True)
def includes(budget: Budget, s: Any, part: Any) -> bool:
    """Whether a string contains another one.

    (includes? "hello" "ell") => true
    """
    if type(s) is str and type(part) is str:
        if len(s) >= _SHORT:
            budget.steps(len(s) >> 6)
        return part in s
    if type(s) is list or type(s) is dict:
        raise wrong("includes?", "a string", s, hint="For collections write (contains? coll x).")
    return string("includes?", part) in string("includes?", s)


@searching_define(*string_names("index-of"), charges=True)
def index_of(budget: Budget, s: Any, part: Any, start: Any = 0) -> Any:
    """Return the position of the first occurrence of a text, or nil.

    (index-of "hello" "l") => 2
    (index-of "hello" "x") => nil
    """
    found, wanted = string("index-of", s), string("index-of", part)
    skipped = slice_text(found, 0, max(0, integer("index-of", start)))
    budget.steps(len(found) >> 6)
    at = found.find(wanted, len(skipped))
    return None if at < 0 else length(found[:at])


@searching_define(*string_names("last-index-of"), charges=True)
def last_index_of(budget: Budget, s: Any, part: Any) -> Any:
    """Return the position of the last occurrence of a text, or nil.

    (last-index-of "hello" "l") => 3
    """
    found = string("last-index-of", s)
    budget.steps(len(found) >> 6)
    at = found.rfind(string("last-index-of", part))
    return None if at < 0 else length(found[:at])


# JSON text, which many tools return; parsed and written within the budget.

jsontext_define: Final = Family("JSON")

_DIGITS: Final = 3900  # as many as an integer of the default limit has


def _integer(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise ValueError("a number is too long")
    return int(digits)


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER: Final = json.JSONDecoder(parse_int=_integer, parse_constant=_constant)


@jsontext_define("parse-json", "json/parse-string", "json/read-str", "json/decode", charges=True)
def parse_json(budget: Budget, s: Any) -> Any:
    r"""Return the value of a JSON text; keys are strings, which keywords find.

    (parse-json "{\"a\": [1, null]}") => {"a" [1 nil]}
    (:a (parse-json "{\"a\": 5}")) => 5
    """
    text = string("parse-json", s)
    budget.bytes(len(text))
    budget.cells(len(text) // 2)  # no value takes fewer characters than a digit and a comma
    budget.steps(1 + len(text) // 8)
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise refuse("parse-json", f"not JSON at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise budget.too_deep() from None
    except ValueError:
        raise refuse("parse-json", "a number is too long or invalid") from None


@jsontext_define("to-json", "json/generate-string", "json/write-str", "json/encode", charges=True)
def to_json(budget: Budget, x: Any) -> str:
    r"""Return a value as JSON text; keywords become strings, sets become arrays.

    (to-json {:a [1 nil :b]}) => "{\"a\":[1,null,\"b\"]}"
    """
    budget.bytes(size(x, budget, budget.limits.bytes))
    try:
        return json.dumps(to_python(x), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError):
        raise refuse("to-json", "infinite numbers, and keys that are collections, cannot be JSON") from None
