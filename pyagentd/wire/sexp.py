"""S-expressions as Emacs reads and prints them: encoding and decoding.

Pure and fast; knows nothing of frames or methods. Python becomes Lisp and back like this::

    None, False, [], ()  →  nil          nil                  →  None
    True                 →  t            t                    →  True
    dict                 →  plist        (:a-key 1)           →  list; plist_to_dict makes the dict
    list, tuple          →  list         (a b), [a b]         →  list
    Enum, Path           →  value, str   (a . b)              →  tuple
    inf, nan             →  1.0e+INF     #("text" 0 4 (…))    →  str without its properties

A lone surrogate leaves as U+FFFD; bytes and unknown types raise ``Unencodable``. A raw byte of Emacs (an octal
escape) arrives as ``os.fsdecode`` would give it. Objects without a read syntax (``#<buffer …>``) and quoted code
(``'x``) raise ``SexpError``.

``Symbol`` is our own: it equals its name as a plain string, so a handler compares ``mode == "edit"`` whether the
client sent a symbol or a string. ``sexpdata.Symbol`` never equals a string, and costs a Python-level ``__eq__``.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from pathlib import PurePath
from typing import Any, Final

from pyagentd.errors import WireError


class SexpError(WireError):
    """The text is no s-expression that can be read here."""


class Unencodable(WireError):
    """The value has no form on the wire."""


class Symbol(str):
    """A Lisp symbol; equal to its name as a string, encoded without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Symbol({str(self)!r})"


def to_symbols(value: str | tuple[str, *tuple[object, ...]] | None) -> object:
    """Return a name as a symbol, and a tuple as a list that begins with one.

    >>> to_symbols(("tool", "toolu_1"))
    (Symbol('tool'), 'toolu_1')
    """
    if value is None:
        return None
    if isinstance(value, str):
        return Symbol(value)
    return (Symbol(value[0]), *value[1:])


# Encoding ----------------------------------------------------------------------------------------------------------

_PLAIN_SYMBOL: Final = re.compile(r"[A-Za-z_:*/<>=!$%^&~|@{}][-A-Za-z0-9_:*/<>=!$%^&~|@{}+]*")
_SYMBOL_SPECIAL: Final = re.compile("[\"'\\\\;#(),.`?\\[\\]\x00-\x20\xa0]")

_Put = Callable[[str], None]


def encode(value: object) -> bytes:
    """Return ``value`` as an s-expression in UTF-8.

    Raises:
        Unencodable: It holds bytes, an unknown type, a key that is not a string, or is nested too deeply.
    """
    text = print_lisp(value)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def print_lisp(value: object) -> str:
    """Return ``value`` as an s-expression; raises as ``encode``."""
    out: list[str] = []
    try:
        _write(value, out.append)
    except RecursionError:
        raise Unencodable("The value is nested too deeply") from None
    except ValueError:  # CPython limits the digits of a conversion, quadratic in their number
        raise Unencodable("The integer has too many digits") from None
    return "".join(out)


def _write(value: Any, put: _Put) -> None:
    kind = type(value)
    if kind is str:
        # Two replacements: str.translate is 15 times slower on text that is not ASCII.
        put('"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"')
    elif value is None or value is False:
        put("nil")
    elif value is True:
        put("t")
    elif kind is int:
        put(str(value))
    elif kind is Symbol:
        put(_symbol(value))
    elif kind is dict or kind is list or kind is tuple:
        if not value:
            put("nil")
            return
        opening = "("
        if kind is dict:
            for key, item in value.items():
                if not isinstance(key, str):
                    raise Unencodable(f"A key must be a string, not {type(key).__name__}")
                put(opening + _keyword(key.value if isinstance(key, Enum) else key) + " ")
                _write(item, put)
                opening = " "
        else:
            for item in value:
                put(opening)
                _write(item, put)
                opening = " "
        put(")")
    elif kind is float:
        put(_float(value))
    else:
        _write_other(value, put)


def _write_other(value: object, put: _Put) -> None:
    """Write values of subclasses and of the few other types with an obvious form."""
    match value:
        case Enum():
            _write(value.value, put)
        case Symbol():
            put(_symbol(value))
        case str() | PurePath():
            _write(str(value), put)
        case int():
            put(str(int(value)))
        case float():
            put(_float(float(value)))
        case Vector():
            put(f"[{' '.join(map(print_lisp, value))}]")
        case list() | tuple():
            _write(list(value), put)
        case Mapping():
            _write(dict(value), put)
        case bytes() | bytearray() | memoryview():
            raise Unencodable("Bytes cannot travel", hint="Decode them, or send base64.")
        case _:
            raise Unencodable(f"No form on the wire for {type(value).__name__}")


def _float(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    if math.isnan(value):
        return "0.0e+NaN"
    return "1.0e+INF" if value > 0 else "-1.0e+INF"


def _symbol(name: str) -> str:
    """Return ``name`` so that Emacs reads it as a symbol, never as a number, a dot or several tokens."""
    if _PLAIN_SYMBOL.fullmatch(name):
        return str(name)
    if not name:
        return "##"
    # As `prin1` does: a backslash makes any character part of a symbol, and a token with one is never a number.
    printed = _SYMBOL_SPECIAL.sub(r"\\\g<0>", name)
    is_number = _INTEGER.fullmatch(name) or _FLOAT.fullmatch(name)
    return "\\" + printed if is_number and printed[0] != "\\" else printed


@lru_cache(maxsize=2048)
def _keyword(key: str) -> str:
    return _symbol(":" + key.replace("_", "-"))


# Decoding ----------------------------------------------------------------------------------------------------------

_TOKENS: Final = re.compile(
    # White space as Emacs defines it: U+2028 and the like belong to symbols.
    r"""(?:[\x00-\x20\xa0]|;[^\n]*)*+
        ( "[^"\\]*+(?:\\.[^"\\]*+)*+"                        # string
        | [()\[\]] | \#\(
        | \#\# | (?!\#|\?) (?:[^\x00-\x20\xa0"'();`,\[\]\\]|\\.)++  # atom
        | \Z
        | [^\x00-\x20\xa0] )                                # what begins no token: findall must not pass over it""",
    re.VERBOSE | re.DOTALL,
)
_UNREADABLE: Final = frozenset("\"'`,?\\#")  # tokens of one character that are none

_INTEGER: Final = re.compile(r"[+-]?[0-9]+\.?")
_FLOAT: Final = re.compile(r"[+-]?(?:[0-9]+\.[0-9]+|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][+-]?[0-9]+)?")
_SPECIAL_FLOAT: Final = re.compile(r"([+-]?)[0-9]+\.[0-9]+e\+(INF|NaN)")

_ESCAPE: Final = re.compile(
    r"""\\(?: (?P<octal> [0-3]?[0-7]{1,2}(?:\\[2-3][0-7]{2})* )
            | x(?P<hex> [0-9a-fA-F]+ ) | u(?P<short> [0-9a-fA-F]{4} ) | U(?P<long> [0-9a-fA-F]{8} )
            | (?P<char> . ) )""",
    re.VERBOSE | re.DOTALL,
)
_SIMPLE_ESCAPES: Final = dict(zip("ntrfbvaeds", "\n\t\r\f\b\v\a\x1b\x7f ", strict=True)) | {"\n": "", " ": ""}
_REFUSED_ESCAPES: Final = frozenset("CMN^")  # \C-x, \M-x, \N{…}: keys, not text

_DOT: Final = object()
_CLOSERS: Final = {"(": ")", "[": "]", "#(": ")"}


def decode(source: bytes | str, *, vector: type[list[Any]] = list) -> Any:
    """Return the one value ``source`` holds.

    Args:
        source: Text, or UTF-8; other bytes are decoded as ``os.fsdecode`` does.
        vector: The type of vectors.

    Raises:
        SexpError: It is unreadable, empty, or holds more than one value. Depth is not limited.
    """
    text = source if isinstance(source, str) else source.decode("utf-8", "surrogateescape")
    items: list[Any] = []
    outer: list[tuple[list[Any], str]] = []
    opener = ""
    for token in _TOKENS.findall(text):
        if token == "(" or token == "[" or token == "#(":
            outer.append((items, opener))
            items, opener = [], token
        elif token == ")" or token == "]":
            if not outer or _CLOSERS[opener] != token:
                raise SexpError(f"Unexpected {token!r}")
            value: Any
            if opener == "#(":
                if not items or not isinstance(items[0], str) or isinstance(items[0], Symbol):
                    raise SexpError("Expected a string with properties after '#('")
                value = items[0]
            elif _DOT in items:
                value = _improper(items, opener)
            else:
                value = vector(items) if opener == "[" else items or None
            items, opener = outer.pop()
            items.append(value)
        elif token in _UNREADABLE:
            raise SexpError(f"Unreadable: {token!r}")
        elif token.startswith('"'):
            text = token[1:-1]
            items.append(_ESCAPE.sub(_unescape_one, text) if "\\" in text else text)
        elif token:
            items.append(_known_atom(token) if len(token) <= _CACHED_LENGTH else _atom(token))
    if outer:
        raise SexpError(f"{len(outer)} unclosed {opener!r}")
    if len(items) != 1 or items[0] is _DOT:
        raise SexpError(f"Expected one value, found {len(items)}")
    return items[0]


def _improper(items: list[Any], opener: str) -> Any:
    """Return ``(a . b)`` as a tuple and ``(a . nil)`` as a list.

    Emacs prints no other kind: a list after the dot would be part of this list, and a vector there has no meaning.
    """
    if opener != "(" or len(items) < 3 or items[-2] is not _DOT or sum(i is _DOT for i in items) > 1:
        raise SexpError("Misplaced dot in a list")
    head, tail = items[:-2], items[-1]
    if isinstance(tail, list | tuple):
        raise SexpError("A list or vector after a dot")
    return head if tail is None else (*head, tail)


def _atom(token: str) -> Any:
    if "\\" in token:
        return Symbol(re.sub(r"\\(.)", r"\1", token, flags=re.DOTALL))
    match token:
        case "nil":
            return None
        case "t":
            return True
        case ".":
            return _DOT
        case "##":
            return Symbol("")
    if token[0] in "+-.0123456789":
        if _INTEGER.fullmatch(token):
            try:
                return int(token.rstrip("."))
            except ValueError:  # CPython limits the digits of a conversion, quadratic in their number
                raise SexpError("The integer has too many digits") from None
        if _FLOAT.fullmatch(token):
            return float(token)
        if special := _SPECIAL_FLOAT.fullmatch(token):
            value = math.inf if special[2] == "INF" else math.nan
            return -value if special[1] == "-" else value
    return Symbol(token)


_CACHED_LENGTH: Final = 64  # so that the cache stays small whatever a client sends
_known_atom = lru_cache(maxsize=4096)(_atom)


def _unescape_one(escape: re.Match[str]) -> str:
    if char := escape["char"]:
        if char in _REFUSED_ESCAPES:
            raise SexpError(f"Unknown escape '\\{char}' in a string")
        return _SIMPLE_ESCAPES.get(char, char)
    if octal := escape["octal"]:
        # Emacs prints raw bytes like this; several in a row may be text that was never decoded.
        return bytes(int(digits, 8) for digits in octal.split("\\")).decode("utf-8", "surrogateescape")
    code = int(escape["hex"] or escape["short"] or escape["long"], 16)
    if code > 0x10FFFF:
        raise SexpError(f"No such character: {code:x}")
    return chr(code)


# Plists ------------------------------------------------------------------------------------------------------------


def plist_to_dict(plist: Sequence[Any] | None) -> dict[str, Any]:
    """Return ``(:a-key 1 …)`` as ``{"a_key": 1, …}``, also plists inside; nil becomes {}.

    Raises:
        SexpError: It is not a plist.
    """
    made = plists_to_dicts(plist) if plist else {}
    if not isinstance(made, dict):
        raise SexpError("Expected a plist: keywords, each followed by a value")
    return made


def plists_to_dicts(value: Any) -> Any:
    """Return ``value`` with every list that is a plist replaced by a dict."""
    if not isinstance(value, list | tuple):
        return value
    if isinstance(value, list) and value and _is_plist(value):
        pairs = zip(value[::2], value[1::2], strict=True)
        return {key[1:].replace("-", "_"): plists_to_dicts(each) for key, each in pairs}
    return type(value)(map(plists_to_dicts, value))


def _is_plist(items: Sequence[Any]) -> bool:
    for key in items[::2]:
        if not isinstance(key, Symbol) or not key.startswith(":"):
            return False
    return len(items) % 2 == 0


# JSON values as gptel stores the arguments of a tool call in a document: objects are plists with keyword keys, arrays
# are vectors, ``true`` is ``t``, ``false`` is ``:json-false``, ``null`` is ``:null`` and ``{}`` is ``nil``. A value
# that is written and read back is the same.


class Vector(list[Any]):
    """A vector, where it must be distinguished from a list."""

    __slots__ = ()


_FALSE: Final = Symbol(":json-false")
_NULL: Final = Symbol(":null")


def read(text: str) -> tuple[Any, int]:
    """Return the first value in ``text``, and the offset behind it; raises ``SexpError``."""
    depth = 0
    for token in _TOKENS.finditer(text):
        depth += (token[1] in _CLOSERS) - (token[1] in (")", "]"))
        if depth <= 0:
            return decode(text[: token.end()], vector=Vector), token.end()
    return decode(text), len(text)


def print_json(value: Any) -> str:
    """Return a JSON value (as ``json.loads`` gives it) as Lisp data."""
    return print_lisp(_as_lisp(value))


def print_call(name: str, arguments: Mapping[str, Any]) -> str:
    """Return a tool call as gptel stores it: ``(:name "NAME" :args (:key value …))``."""
    return print_json({"name": name, "args": dict(arguments)})


def read_call(text: str) -> tuple[str, dict[str, Any], int]:
    """Read the tool call at the beginning of ``text``.

    Returns:
        Its name, its arguments, and the offset behind it.

    Raises:
        SexpError: There is no readable call.
    """
    datum, end = read(text)
    try:
        call = to_json(datum)
    except RecursionError:
        raise SexpError("The call is nested too deeply") from None
    if not isinstance(call, dict) or not isinstance(name := call.get("name"), str):
        raise SexpError("No tool call")
    arguments = call.get("args", {})
    if not isinstance(arguments, dict):
        raise SexpError(f"The arguments of {name} are not a property list")
    return name, arguments, end


def to_json(datum: Any) -> Any:
    """Return the JSON value that ``datum`` stands for.

    Raises:
        SexpError: It is none (other symbols, lists that are no plists).
    """
    if datum is None:
        return {}
    if isinstance(datum, Symbol) and datum in (_FALSE, _NULL):
        return False if datum == _FALSE else None
    if isinstance(datum, Vector):
        return [to_json(item) for item in datum]
    if isinstance(datum, list) and _is_plist(datum):
        return {key[1:]: to_json(value) for key, value in zip(datum[::2], datum[1::2], strict=True)}
    if isinstance(datum, Symbol | list | tuple) or (isinstance(datum, float) and not math.isfinite(datum)):
        raise SexpError("A symbol or a list that stands for no JSON value")
    return datum


def _as_lisp(value: Any) -> Any:
    match value:
        case False:
            return _FALSE
        case None:
            return _NULL
        case dict():
            return [each for key, item in value.items() for each in (Symbol(f":{key}"), _as_lisp(item))]
        case list() | tuple():
            return Vector(map(_as_lisp, value))
    return value
