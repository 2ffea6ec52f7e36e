r"""Regular expressions: which engine searches, and what a search costs.

RE2 takes time linear in the text for every pattern and a bounded amount of memory, so no pattern of a program can
hang the daemon; the price is that it has no look-around and no back-references, and that a call of it is slow.
Python's own engine is quick to call but backtracks. So a pattern that is a plain sequence of characters and classes,
such as ``(\w+)@(\w+)``, goes to Python's engine wherever the text is so short that even the worst search is over
soon; all else goes to RE2. Both give the same matches: ``\d \w \s`` are ASCII, as in Clojure, and ``$`` is the end
of the text.
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
_STEP: Final = 32  # characters an engine gets through in the time of a step, with a program of one instruction
_WORST: Final = 1 << 20  # most comparisons that a search by backtracking may take: about 10 ms
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
    """One atom of a sequence: the characters it takes, how often, none for a boundary."""

    takes: frozenset[str]
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class _Quick:
    """A pattern for Python's engine.

    Args:
        engine: The compiled pattern.
        power: The worst search takes time proportional to the length of the text to this power,
        factor: times this.
        size: Atoms, as a measure of the work for one character.
    """

    engine: re.Pattern[str]
    power: int
    factor: int
    size: int

    def suits(self, text: str) -> bool:
        """Return whether the worst search through a text is over soon."""
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
    """The text that the pattern matches, where it matches only one."""

    def __post_init__(self) -> None:
        self.quick = _quick(self.source)
        self.literal = self.source if self.source and not set(self.source) & set("\\^$.|?*+()[]{}") else None
        if self.quick is None:
            _ = self.linear  # errors come now

    @cached_property
    def linear(self) -> Any:
        """The pattern compiled for RE2.

        Raises:
            LispError: ``eval_error`` where it is none that RE2 knows.
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
        """Instructions that the engine goes through for one character."""
        return self.quick.size if self.quick else int(self.linear.programsize)

    @cached_property
    def groups(self) -> int:
        """Number of its groups."""
        return int(self.quick.engine.groups if self.quick else self.linear.groups)

    def charge(self, op: str, text: str, budget: Budget) -> None:
        """Pay for a search through a text.

        Raises:
            LispError: ``timeout``; ``eval_error`` where the text is no valid Unicode.
        """
        budget.steps(1 + len(text) * self.size // _STEP)
        if not text.isascii() and any("\ud800" <= each <= "\udfff" for each in text):
            raise LispError("eval_error", f"{op}: the string is no valid Unicode")

    def engine(self, text: str) -> Any:
        """Return the compiled pattern that may search a text: of Python or of RE2, which have the same methods."""
        return self.quick.engine if self.quick is not None and self.quick.suits(text) else self.linear

    def whole(self, text: str, cells: int, budget: Budget) -> re.Pattern[str] | None:
        """Return Python's pattern where all matches in a text may be found by one call, None otherwise.

        Args:
            text: What is searched.
            cells: The slots that a match takes.
            budget: Must allow for a match at every character.
        """
        quick = self.quick
        fits = budget.cells_used + cells * (len(text) + 1) <= budget.limits.cells
        return quick.engine if quick is not None and fits and quick.suits(text) else None

    def matches(self, op: str, text: str, budget: Budget) -> Iterator[Any]:
        """Return all matches in a text, charged for the search."""
        self.charge(op, text, budget)
        for match in self.engine(text).finditer(text):
            yield match
            budget.look()  # the next search may go through all that is left


@lru_cache(maxsize=256)
def _matcher(source: str) -> Matcher:
    return Matcher(source)


def matcher(pattern: Pattern) -> Matcher:
    """Return a pattern compiled; it is kept for the next time.

    Raises:
        LispError: ``eval_error`` where it is none that RE2 knows.
    """
    return _matcher(pattern.text)


_LACKING: Final = "Look-around, back-references and possessive quantifiers do not exist; groups, classes and | do."


def _reason(error: Exception) -> str:
    """Return what RE2 has against a pattern, without the part of it that it quotes."""
    said = error.args[0] if error.args else b""
    return said.decode(errors="replace").partition(":")[0] if isinstance(said, bytes) else "the text is no Unicode"


def _quick(source: str) -> _Quick | None:
    """Return a pattern for Python's engine; None where only RE2 may search it."""
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
        return None  # the engines differ in how they go on after an empty match
    return _measured(engine, items, choices)


def _joined(items: list[_Item], begins: list[int]) -> bool:
    """Put one item in the place of alternatives; whether each takes a fixed number of characters.

    Args:
        items: Those at the end are the alternatives.
        begins: Where each begins.
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
    """Return an atom of RE2 as Python writes it."""
    if atom == r"\s":
        return f"[{_SPACE}]"
    if atom == r"\S":
        return f"[^{_SPACE}]"
    return re.sub(r"\\(.)", lambda found: _SPACE if found[1] == "s" else found[0], atom) if atom[0] == "[" else atom


def _counts(token: re.Match[str]) -> tuple[int, int | None]:
    """Return the least and the most repetitions of an atom; None is any number."""
    if token["least"] is not None:
        least = int(token["least"])
        return least, (least if token["comma"] is None else int(token["most"]) if token["most"] else None)
    return {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(token["count"] or "", (1, 1))


def _measured(engine: re.Pattern[str], items: list[_Item], choices: int) -> _Quick | None:
    """Return the pattern with the most that a search may take.

    A search begins at every character. The last atom never has to give anything back. One that is repeated without
    end, and may give back what the next takes too, multiplies the work by the length of the text.
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
