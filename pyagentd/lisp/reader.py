"""The reader: parses text into forms; errors have a position and a hint.

One pattern finds tokens, and a stack holds the open brackets, so nested brackets do not use the Python stack. Other
Clojure notation is accepted too (characters, ``#_``, type hints, ``'(1 2)``, ``1e3``).
"""

import re
from bisect import bisect_right
from typing import Any, Final, NoReturn

from pyagentd.lisp.errors import LispError
from pyagentd.lisp.values import Keyword, Pattern

# Forms, with their positions; their meaning is determined by the analysis.


class Form:
    """One form; ``start`` is the offset of its first character in the text."""

    __slots__ = ("start",)

    def __init__(self, start: int) -> None:
        self.start = start


class Literal(Form):
    """nil, a boolean, number, string, keyword or pattern."""

    __slots__ = ("value",)

    def __init__(self, value: Any, start: int) -> None:
        self.value = value
        self.start = start


class Symbol(Form):
    """A name."""

    __slots__ = ("name",)

    def __init__(self, name: str, start: int) -> None:
        self.name = name
        self.start = start


class Sequence(Form):
    """Forms between two brackets."""

    __slots__ = ("items",)

    def __init__(self, items: list[Form], start: int) -> None:
        self.items = items
        self.start = start


class List(Sequence):
    """``(f x)``."""

    __slots__ = ()


class Vector(Sequence):
    """``[x y]``."""

    __slots__ = ()


class Map(Sequence):
    """``{k v}``; keys and values alternate in ``items``."""

    __slots__ = ()


class Set(Sequence):
    """``#{x y}``."""

    __slots__ = ()


class Lambda(Sequence):
    """``#(f %)``."""

    __slots__ = ()


class Quote(Sequence):
    """``'x``; one item."""

    __slots__ = ()


class Places:
    """Turns offsets in a text into lines and columns, both from 1."""

    __slots__ = ("_starts", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts: list[int] | None = None

    def of(self, offset: int) -> tuple[int, int]:
        """Return line and column of an offset."""
        if self._starts is None:
            self._starts = [0]
            found = self.text.find("\n")
            while found >= 0:
                self._starts.append(found + 1)
                found = self.text.find("\n", found + 1)
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1


MAX_DEPTH: Final = 100
"""The deepest nesting of brackets."""

MAX_TEXT: Final = 200_000
"""The largest number of characters of a program."""

MAX_FORMS: Final = 10_000
"""The largest number of literals, names and brackets of a program, each of which takes time to compile."""

MAX_DIGITS: Final = 1000
"""The largest number of digits of a number."""

_TOKEN: Final = re.compile(
    r"""
      (?P<skip>[\s,\ufeff\u200b]+|;[^\n]*|\#![^\n]*)
    | (?P<open>\#?[({]|\[)
    | (?P<close>[)\]}])
    | (?P<string>\#?"(?:[^"\\]|\\.)*")
    | (?P<number>[+-]?\d[^\s,;"()\[\]{}]*)
    | (?P<keyword>::?[^\s,;"()\[\]{}:@^`~\\]+(?::[^\s,;"()\[\]{}:@^`~\\]+)*)
    | (?P<symbol>[^\s,;"()\[\]{}\d:@^`~\\\#'][^\s,;"()\[\]{}@^`~\\]*)
    | (?P<char>\\(?:[A-Za-z]\w*|.))
    | (?P<special>\#\#-?[A-Za-z]+)
    | (?P<discard>\#_|\^)
    | (?P<quote>['@])
    """,
    re.VERBOSE | re.DOTALL,
)
_NUMBER: Final = re.compile(
    r"(?P<int>[+-]?\d+)N?|(?P<float>[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)M?|(?P<hex>[+-]?0[xX][0-9a-fA-F]+)"
)
_NO_DIGIT: Final = re.compile(r"[+-]?\.\d")
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "b": "\b", "f": "\f", "0": "\0"}
_CHARACTERS: Final = {
    "newline": "\n",
    "space": " ",
    "tab": "\t",
    "return": "\r",
    "backspace": "\b",
    "formfeed": "\f",
}
_SPECIALS: Final = {"##Inf": float("inf"), "##-Inf": float("-inf"), "##NaN": float("nan")}
_WORDS: Final = {"nil": None, "true": True, "false": False}
_CLOSERS: Final = {"(": ")", "[": "]", "{": "}", "#(": ")", "#{": "}"}
_KINDS: Final[dict[str, type[Sequence]]] = {"(": List, "[": Vector, "{": Map, "#(": Lambda, "#{": Set}
_NOT_OURS: Final = {
    "`": ("'`' is not part of the language: there are no macros", ""),
    "~": ("'~' is not part of the language: there are no macros", ""),
    ":": ("a keyword needs a name after ':'", "Write :name."),
    '"': ("unterminated string", 'Close it with ", and write \\" for a quote inside a string.'),
    "\\": ("a character is missing after '\\'", ""),
    "#": ("'#' must be followed by '(', '{' or '\"'", 'Write #(…), #{…} or #"…".'),
}


def read(text: str) -> tuple[list[Form], Places]:
    """Return the forms of a program.

    Raises:
        LispError: ``parse_error`` with its place.
    """
    return _Reader(text).read()


class _Open:
    """An open bracket, or a prefix that needs one form."""

    __slots__ = ("items", "start", "token")

    def __init__(self, token: str, start: int) -> None:
        self.token = token
        self.start = start
        self.items: list[Form] = []


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.places = Places(text)
        self.stack = [_Open("", 0)]
        self.count = 0
        self.fresh_line: int | None = None  # offset of a bracket in column 1 although others are open

    def read(self) -> tuple[list[Form], Places]:
        text, offset, length = self.text, 0, len(self.text)
        if length > MAX_TEXT:
            self.fail(f"the program has more than {MAX_TEXT} characters", 0)
        match_at = _TOKEN.match
        while offset < length:
            match = match_at(text, offset)
            if match is None:
                message, hint = _NOT_OURS.get(text[offset], (f"unexpected character {text[offset]!r}", ""))
                if text.startswith('#"', offset):
                    message, hint = _NOT_OURS['"']
                self.fail(message, offset, hint)
            kind, token = match.lastgroup, match.group()
            if kind != "skip":
                self.token(kind or "", token, offset)
            offset = match.end()
        if len(self.stack) > 1:
            self.fail_unclosed()
        forms = self.stack[0].items
        if not forms:
            self.fail("the program is empty", 0, "Write one expression, such as (return {:done true}).")
        return forms, self.places

    def token(self, kind: str, token: str, start: int) -> None:
        match kind:
            case "open":
                self.open(token, start)
            case "close":
                self.close(token, start)
            case "discard" | "quote":
                self.push(_Open(token, start), start)
            case "symbol":
                if _NO_DIGIT.match(token):
                    self.fail(f"{_shorten(token)} is not a number", start, "Write a digit before the point: 0.5.")
                self.add(Literal(_WORDS[token], start) if token in _WORDS else Symbol(token, start))
            case "keyword":
                self.add(Literal(Keyword(token.lstrip(":")), start))
            case "number":
                self.add(Literal(self.number(token, start), start))
            case "string":
                value = Pattern(token[2:-1]) if token[0] == "#" else self.string(token, start)
                self.add(Literal(value, start))
            case "char":
                self.add(Literal(self.character(token, start), start))
            case _:
                if token not in _SPECIALS:
                    self.fail(f"unknown number {token}", start, "There are ##Inf, ##-Inf and ##NaN.")
                self.add(Literal(_SPECIALS[token], start))

    def push(self, opened: _Open, start: int) -> None:
        if len(self.stack) > MAX_DEPTH:
            self.fail(
                f"nested deeper than {MAX_DEPTH} levels",
                start,
                "Name parts of the program with let, or use -> and ->>.",
            )
        self.stack.append(opened)

    def open(self, token: str, start: int) -> None:
        if len(self.stack) > 1 and self.fresh_line is None and start and self.text[start - 1] == "\n":
            self.fresh_line = start
        self.push(_Open(token, start), start)

    def close(self, token: str, start: int) -> None:
        opened = self.stack[-1]
        if opened.token not in _CLOSERS:
            if opened.token:
                self.fail(f"nothing follows {opened.token!r}", opened.start)
            self.fail(f"surplus '{token}': nothing is open here", start, f"Remove this '{token}'.")
        wanted = _CLOSERS[opened.token]
        if token != wanted:
            line, column = self.places.of(opened.start)
            self.fail(
                f"'{token}' does not close '{opened.token}' opened at line {line} column {column}",
                start,
                f"Write '{wanted}' before or instead of this '{token}'.",
            )
        self.stack.pop()
        if opened.token == "{" and len(opened.items) % 2:
            self.fail(
                f"a map needs pairs of key and value, got {len(opened.items)} forms",
                opened.start,
                "Write a value after every key, or #{…} for a set.",
            )
        self.add(_KINDS[opened.token](opened.items, opened.start))

    def add(self, form: Form) -> None:
        """Add a complete form to the innermost open bracket or prefix."""
        self.count += 1
        if self.count > MAX_FORMS:
            self.fail(
                f"the program has more than {MAX_FORMS} parts",
                form.start,
                "Read data from ctx/ instead of writing it out.",
            )
        while True:
            waiting = self.stack[-1]
            if waiting.token == "'":
                self.stack.pop()
                form = Quote([form], waiting.start)
            elif waiting.token == "@":
                self.stack.pop()
                form = List([Symbol("deref", waiting.start), form], waiting.start)
            elif waiting.token in {"#_", "^"}:
                self.stack.pop()
                return
            else:
                waiting.items.append(form)
                return

    def number(self, token: str, start: int) -> int | float:
        match = _NUMBER.fullmatch(token)
        if match is None:
            hint = "Write (/ 1 2) for a fraction." if "/" in token else "A name cannot begin with a digit."
            self.fail(f"{_shorten(token)} is not a number", start, hint)
        if len(token) > MAX_DIGITS:
            self.fail(f"a number has more than {MAX_DIGITS} digits", start)
        if match["int"]:
            return int(match["int"])
        if match["hex"]:
            return int(match["hex"], 16)
        value = float(match["float"])
        if value in {float("inf"), float("-inf")}:
            self.fail(f"{_shorten(token)} is larger than any floating-point number", start)
        return value

    def string(self, token: str, start: int) -> str:
        body = token[1:-1]
        if "\\" not in body:
            return body
        if "\\\n" in body or "\\\r" in body:
            self.fail("a backslash at the end of a line inside a string", start, "Write \\n for a new line.")

        def unescape(match: re.Match[str]) -> str:
            name: str = match[1]
            if len(name) == 5:
                return chr(int(name[1:], 16))
            # An unknown escape is kept as it is: "\d" is a backslash and a d.
            return _ESCAPES.get(name, match[0])

        return _without_surrogates(_ESCAPE.sub(unescape, body))

    def character(self, token: str, start: int) -> str:
        name = token[1:]
        if len(name) == 1:
            return name
        if name in _CHARACTERS:
            return _CHARACTERS[name]
        if re.fullmatch("u[0-9a-fA-F]{4}", name):
            return _without_surrogates(chr(int(name[1:], 16)))
        return self.fail(
            f"unknown character {_shorten(token)}", start, f"There are {', '.join(chr(92) + n for n in _CHARACTERS)}."
        )

    def fail_unclosed(self) -> NoReturn:
        opened = self.stack[-1]
        if opened.token not in _CLOSERS:
            self.fail(f"nothing follows {opened.token!r}", opened.start)
        line, column = self.places.of(opened.start)
        missing = "".join(_CLOSERS.get(each.token, "") for each in reversed(self.stack[1:]))
        hint = f"Add {missing} at the end"
        if self.fresh_line is not None:
            hint += f", or close what is open before line {self.places.of(self.fresh_line)[0]}"
        self.fail(f"unclosed '{opened.token}' opened at line {line} column {column}", opened.start, f"{hint}.")

    def fail(self, message: str, offset: int, hint: str = "") -> NoReturn:
        line, column = self.places.of(offset)
        raise LispError("parse_error", message, hint=hint, line=line, column=column, source=self.text)


def _shorten(token: str) -> str:
    return token if len(token) <= 40 else f"{token[:40]}…"


def _without_surrogates(text: str) -> str:
    """Join escaped surrogate pairs; a lone surrogate becomes U+FFFD, since it cannot be encoded."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
