r"""Regular expressions: choosing the engine, and charging for a search.

RE2 needs time linear in the length of the text and bounded memory for every pattern, so no pattern can hang the
daemon; but it has no look-around and no back-references, and each call has a high overhead. Python's engine has
little overhead but backtracks. So a pattern that is a plain sequence of characters and classes, such as
``(\w+)@(\w+)``, is matched by Python's engine if the text is so short that even the worst case is fast, and by RE2
otherwise. Both find the same matches: ``\d \w \s`` are ASCII, as in Clojure, and ``$`` is the end of the text.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, Final

import re2

from pyagentd.lisp.errors import LispError
from pyagentd.lisp.limits import Budget
from pyagentd.lisp.values import Pattern

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
    """A pattern for Python's engine.

    Args:
        engine: The compiled pattern.
        power: The worst case is ``factor`` times the length of the text to this power.
        factor: See ``power``.
        size: Number of atoms, a measure of the work for one character.
    """

    engine: re.Pattern[str]
    power: int
    factor: int
    size: int

    def suits(self, text: str) -> bool:
        """Return whether a search in a text is fast even in the worst case."""
        return bool(len(text) ** self.power * self.factor <= _WORST)


@dataclass
class Matcher:
    """A compiled pattern.

    Args:
        source: The text of the pattern.
    """

    source: str
    quick: _Quick | None = field(init=False)
    literal: str | None = field(init=False)
    """The only text that the pattern matches, or None."""

    def __post_init__(self) -> None:
        self.quick = _quick(self.source)
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
        return self.quick.engine if self.quick is not None and self.quick.suits(text) else self.linear

    def whole(self, text: str, cells: int, budget: Budget) -> re.Pattern[str] | None:
        """Return Python's pattern if all matches in a text may be found by one call, else None.

        Args:
            text: The text.
            cells: The slots of one match.
            budget: Must have room for a match at each character.
        """
        quick = self.quick
        fits = budget.cells_used + cells * (len(text) + 1) <= budget.limits.cells
        return quick.engine if quick is not None and fits and quick.suits(text) else None

    def matches(self, op: str, text: str, budget: Budget) -> Iterator[Any]:
        """Return all matches in a text, and charge for the search."""
        self.charge(op, text, budget)
        for match in self.engine(text).finditer(text):
            yield match
            budget.look()  # the next match may be far away


@lru_cache(maxsize=256)
def _matcher(source: str) -> Matcher:
    return Matcher(source)


def matcher(pattern: Pattern) -> Matcher:
    """Return a compiled pattern, cached.

    Raises:
        LispError: ``eval_error`` if RE2 does not accept it.
    """
    return _matcher(pattern.text)


_LACKING: Final = "Look-around, back-references and possessive quantifiers do not exist; groups, classes and | do."


def _reason(error: Exception) -> str:
    """Return RE2's error message for a pattern, without the part of the pattern that it quotes."""
    said = error.args[0] if error.args else b""
    return said.decode(errors="replace").partition(":")[0] if isinstance(said, bytes) else "the text is no Unicode"


def _quick(source: str) -> _Quick | None:
    """Return a pattern for Python's engine; None if only RE2 may be used."""
    if len(source) > _MOST_REPEATS:
        return None
    parts: list[str] = []
    items: list[_Item] = []
    starts: list[list[int]] = [[0]]  # for every group that is open, where its alternatives begin
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
                if not starts or not _joined(items, begins):
                    return None
                choices *= len(begins)
            continue
        atom = _in_python(token["atom"])
        least, most = _counts(token)
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
    if len(starts) != 1 or not _joined(items, starts[0]):
        return None
    choices *= len(starts[0])
    try:
        engine = re.compile("".join(parts), re.ASCII)
    except re.error:
        return None
    if not sum(item.least for item in items):
        return None  # the engines continue differently after an empty match
    return _measured(engine, items, choices)


def _joined(items: list[_Item], begins: list[int]) -> bool:
    """Replace alternatives by one item; return False if the length of one is not fixed.

    Args:
        items: The items; those at the end are the alternatives.
        begins: The index at which each alternative begins.
    """
    if len(begins) == 1:
        return True
    branches = [items[begin:end] for begin, end in pairwise([*begins, len(items)])]
    if not all(branches) or not all(0 < each.least == each.most for branch in branches for each in branch):
        return False
    lengths = [sum(each.least for each in branch) for branch in branches]
    del items[begins[0] :]
    items.append(_Item(frozenset().union(*(branch[0].takes for branch in branches)), min(lengths), max(lengths)))
    return True


def _in_python(atom: str) -> str:
    """Return an atom of RE2 in Python's syntax."""
    if atom == r"\s":
        return f"[{_SPACE}]"
    if atom == r"\S":
        return f"[^{_SPACE}]"
    return re.sub(r"\\(.)", lambda found: _SPACE if found[1] == "s" else found[0], atom) if atom[0] == "[" else atom


def _counts(token: re.Match[str]) -> tuple[int, int | None]:
    """Return the smallest and largest number of repetitions of an atom; None for unlimited."""
    if token["least"] is not None:
        least = int(token["least"])
        return least, (least if token["comma"] is None else int(token["most"]) if token["most"] else None)
    return {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(token["count"] or "", (1, 1))


def _measured(engine: re.Pattern[str], items: list[_Item], choices: int) -> _Quick | None:
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
    return _Quick(engine, power, factor, len(items) * choices)
