"""The forms of a signature before they mean anything: names, keywords, literals and brackets, each with its place.

Shorthand and Malli share one grammar here, so either may stand inside the other; ``data`` makes the same forms from
Python values. A form knows where it came from and so how to complain.
"""

import re
from dataclasses import dataclass, replace
from typing import Any, Literal

from pyagentd.errors import SignatureError

Kind = Literal["name", "keyword", "string", "number", "vector", "braces", "parens", "arrow", "type", "constant"]

MAX_DEPTH = 64
"""Brackets inside brackets: nobody means more, and every reader after this one recurses."""

_TOKEN = re.compile(
    r"""
      (?P<space>\s+)
    | (?P<comma>,)
    | (?P<arrow>->)
    | (?P<open>[(\[{])
    | (?P<close>[)\]}])
    | (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<keyword>:(?:(?!->)[\w\-.*+!?/<>=%&$\#])+)
    | (?P<number>[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\w.]))
    | (?P<name>[^\W\d](?:(?!->)[\w-])*[?!]?)
    | (?P<mark>\?)
    """,
    re.VERBOSE | re.DOTALL,
)
_PLAIN = re.compile(r"[^\W\d](?:(?!->)[\w-])*[?!]?")
_KEYWORD = re.compile(r"(?:(?!->)[\w\-.*+!?/<>=%&$#])+")
_CLOSES = {"(": ")", "[": "]", "{": "}"}
_BRACKETS: dict[str, Kind] = {"(": "parens", "[": "vector", "{": "braces"}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\"}
_LONGEST_NUMBER = 300
_STRAY = (
    ('"', "this string is never closed", 'Add a `"`'),
    (":", "no type follows this colon", "Write one, as in `:int`"),
    (";", "`;` separates nothing", "Separate fields by commas or spaces"),
    ("|", "`|` joins nothing", "A choice is written `[:or :int :string]`"),
    ("=→⇒", "`{}` has no meaning here", "A result follows `->`; what may be absent ends in `?`"),
    ("'“”‘’`", "`{}` quotes nothing", 'Strings stand in double quotes: `"a"`'),
    ("0123456789.@$/", "`{}` has no meaning here", "Names begin with a letter or `_`; others are written as strings"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One form.

    Attributes:
        kind: What it looks like; ``type`` is a type that is already one, ``constant`` true, false and nil in data.
        value: Text of a name or keyword (without colon), the literal, or the forms inside brackets.
        source: The text it was read from; "" for data.
        offset: Where in it; -1 for data.
        optional: Whether a ``?`` stands behind it.
        after_comma: Whether a comma stands before it.
    """

    kind: Kind
    value: Any
    source: str = ""
    offset: int = -1
    optional: bool = False
    after_comma: bool = False

    def error(self, message: str, mend: str = "") -> SignatureError:
        """Return the error that something is wrong with this form."""
        return _error(message, self.source, self.offset, mend)


def read(text: str) -> tuple[Form, ...]:
    """Return the forms of ``text``.

    Raises:
        SignatureError: Something that can be no part of a signature, or brackets that do not pair.
    """
    return _Reader(text).forms()


def is_plain(name: str) -> bool:
    """Return whether ``name`` can be written without quotes."""
    return _PLAIN.fullmatch(name) is not None


def is_keyword(name: str) -> bool:
    """Return whether ``name`` behind a colon is read as one keyword."""
    return _KEYWORD.fullmatch(name) is not None


def _error(message: str, source: str, offset: int, mend: str = "") -> SignatureError:
    if offset < 0:
        return SignatureError(message, mend=mend)
    before = source[:offset]
    line = before.count("\n") + 1
    return SignatureError(message, source=source, line=line, column=offset - before.rfind("\n"), mend=mend)


class _Reader:
    """Reads one text; every open bracket has a list of what is inside it so far."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._open: list[int] = []
        self._inside: list[list[Form]] = [[]]
        self._comma = -1

    def forms(self) -> tuple[Form, ...]:
        at = 0
        while at < len(self._text):
            found = _TOKEN.match(self._text, at)
            if found is None:
                raise self._stray(at)
            self._take(str(found.lastgroup), found[0], at)
            at = found.end()
        if self._open:
            where = self._open[-1]
            bracket = self._text[where]
            raise self._error(f"this `{bracket}` is never closed", where, f"Add a `{_CLOSES[bracket]}`")
        self._no_loose_comma()
        return tuple(self._inside[0])

    def _take(self, kind: str, text: str, at: int) -> None:
        match kind:
            case "space":
                pass
            case "comma":
                self._take_comma(at)
            case "open":
                self._take_open(at)
            case "close":
                self._take_close(text, at)
            case "mark":
                self._take_mark(at)
            case "string":
                self._add("string", self._unescaped(text, at), at)
            case "number":
                self._add("number", self._number(text, at), at)
            case "keyword":
                self._add("keyword", text[1:], at)
            case "name":
                self._add("name", text, at)
            case _:
                self._add("arrow", text, at)

    def _add(self, kind: Kind, value: Any, at: int) -> None:
        form = Form(kind=kind, value=value, source=self._text, offset=at, after_comma=self._comma >= 0)
        self._comma = -1
        self._inside[-1].append(form)

    def _take_comma(self, at: int) -> None:
        if not self._inside[-1] or self._comma >= 0:
            raise self._error("nothing stands before this comma", at, "Take the comma out")
        self._comma = at

    def _take_open(self, at: int) -> None:
        if len(self._open) == MAX_DEPTH:
            raise self._error(
                f"brackets are nested more than {MAX_DEPTH} deep", at, "Use :map or :any for deep values"
            )
        # What is inside comes later; until then the form keeps the place and whether a comma stood before it.
        self._add(_BRACKETS[self._text[at]], (), at)
        self._open.append(at)
        self._inside.append([])

    def _take_close(self, text: str, at: int) -> None:
        if not self._open:
            raise self._error(f"this `{text}` closes nothing", at, "Take it out, or open it before")
        where = self._open.pop()
        bracket = self._text[where]
        if text != _CLOSES[bracket]:
            message = f"`{text}` closes the `{bracket}` of column {self._column(where)}"
            raise self._error(message, at, f"Write `{_CLOSES[bracket]}`")
        self._no_loose_comma()
        inside = self._inside.pop()
        self._inside[-1][-1] = replace(self._inside[-1][-1], value=tuple(inside))

    def _take_mark(self, at: int) -> None:
        inside = self._inside[-1]
        touches = at > 0 and not self._text[at - 1].isspace() and self._text[at - 1] not in ",([{"
        if not inside or not touches:
            raise self._error("`?` stands alone", at, "Write it right behind the type it makes optional")
        last = inside[-1]
        if last.optional or (last.kind == "keyword" and last.value.endswith("?")):
            raise self._error("it is optional already", at, "Take the second `?` out")
        inside[-1] = replace(last, optional=True)

    def _no_loose_comma(self) -> None:
        if self._comma >= 0:
            raise self._error("nothing follows this comma", self._comma, "Take the comma out")

    def _unescaped(self, text: str, at: int) -> str:
        def plain(found: re.Match[str]) -> str:
            if found[1] not in _ESCAPES:
                place = at + 1 + found.start()
                raise self._error(f"`{found[0]}` is no escape", place, r"There are \" \\ \n \r \t")
            return _ESCAPES[found[1]]

        return re.sub(r"\\(.)", plain, text[1:-1], flags=re.DOTALL)

    def _number(self, text: str, at: int) -> int | float:
        if len(text) > _LONGEST_NUMBER:
            raise self._error(f"a number of more than {_LONGEST_NUMBER} characters", at)
        return float(text) if set(text) & set(".eE") else int(text)

    def _stray(self, at: int) -> SignatureError:
        char = self._text[at]
        if char == ":" and self._inside[-1] and self._inside[-1][-1].kind in ("name", "string"):
            name = self._inside[-1][-1].value
            return self._error("this colon is not needed", at, f"Colons stand before types: `{name} :int`")
        for signs, message, mend in _STRAY:
            if char in signs:
                return self._error(message.format(char), at, mend)
        return self._error(f"`{char}` has no meaning here", at)

    def _column(self, at: int) -> int:
        return at - self._text.rfind("\n", 0, at)

    def _error(self, message: str, at: int, mend: str = "") -> SignatureError:
        return _error(message, self._text, at, mend)
