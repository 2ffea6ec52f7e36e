"""Lisp data as Emacs prints and reads it, as far as session documents need it.

Knows the printed form of strings, symbols, numbers, lists and vectors, and the mapping between JSON values and the
plists in which gptel stores the arguments of a tool call: objects are plists with keyword keys, arrays are vectors,
``true`` is ``t``, ``false`` is ``:json-false``, ``null`` is ``:null`` and ``{}`` is ``nil``. Writing a JSON value
and reading it back gives the same value; strings keep their newlines as they are. Never evaluates anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_TOKEN = re.compile(
    r"""[\x00-\x20\xa0]* (?:;[^\n]*\n[\x00-\x20\xa0]*)* (?:
        (?P<open>[(\[])
      | (?P<close>[)\]])
      | "(?P<string>[^"\\]*(?:\\.[^"\\]*)*)"
      | (?P<atom>(?:\\.|[^\x00-\x20\xa0"'`,;()\[\]\\])+)
    )""",
    re.VERBOSE | re.DOTALL,
)
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?|[0-9]*\.[0-9]+(?:[eE][-+]?[0-9]+)?|[0-9]+(?:\.[0-9]*)?[eE][-+]?[0-9]+)\Z")
_SPECIAL_IN_SYMBOL = re.compile("[\"'\\\\;#(),.`?\\[\\]\x00-\x20\xa0]")
_STRING_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|x[0-9a-fA-F]+(?:\\ )?|[0-7]{1,3}|.)", re.DOTALL)
_CONTROL = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "a": "\a", "b": "\b", "e": "\x1b", "v": "\v", "d": "\x7f"}


class LispError(ValueError):
    """The text is no Lisp data we know."""


class Symbol(str):
    """A symbol, by its name; keywords keep their colon."""

    __slots__ = ()


class Vector(list[Any]):
    """A vector; lists are plain Python lists."""

    __slots__ = ()


NIL = Symbol("nil")


def read(text: str, start: int = 0) -> tuple[Any, int]:
    """Return the datum at ``start`` of ``text`` and the offset right after it.

    Raises:
        LispError: The datum is incomplete or uses syntax other than strings, symbols, numbers, lists and vectors.
    """
    stack: list[list[Any]] = []
    position = start
    while True:
        token = _TOKEN.match(text, position)
        if token is None:
            raise LispError(f"unreadable Lisp at offset {position}")
        position = token.end()
        kind = token.lastgroup
        if kind == "open":
            stack.append([] if token["open"] == "(" else Vector())
            continue
        if kind == "close":
            if not stack or isinstance(stack[-1], Vector) != (token["close"] == "]"):
                raise LispError(f"unbalanced parenthesis at offset {position - 1}")
            value: Any = stack.pop()
        else:
            value = _read_string(token["string"]) if kind == "string" else _read_atom(token["atom"])
        if not stack:
            return value, position
        stack[-1].append(value)


def print_string(text: str) -> str:
    """Return ``text`` as a Lisp string; newlines and other controls stay as they are."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def print_symbol(name: str) -> str:
    """Return the symbol called ``name`` the way ``prin1`` escapes it."""
    printed = _SPECIAL_IN_SYMBOL.sub(r"\\\g<0>", name)
    return "\\" + printed if _NUMBER.match(name) else printed


def print_json(value: Any) -> str:
    """Return a JSON value (as ``json.loads`` gives it) as Lisp data."""
    pieces: list[str] = []
    _print(value, pieces.append)
    return "".join(pieces)


def print_call(name: str, arguments: Mapping[str, Any]) -> str:
    """Return a tool call as gptel stores it: ``(:name "NAME" :args (:key value …))``."""
    return f"(:name {print_string(name)} :args {print_json(dict(arguments))})"


def read_call(text: str) -> tuple[str, dict[str, Any], int]:
    """Read the tool call that ``text`` begins with.

    Returns:
        Its name, its arguments, and the offset right after it.

    Raises:
        LispError: There is no readable call.
    """
    datum, end = read(text)
    call = to_json(datum)
    if not isinstance(call, dict) or not isinstance(name := call.get("name"), str):
        raise LispError("no tool call")
    arguments = call.get("args", {})
    if not isinstance(arguments, dict):
        raise LispError(f"the arguments of {name} are no property list")
    return name, arguments, end


def to_json(datum: Any) -> Any:
    """Return the JSON value that ``datum`` stands for.

    Raises:
        LispError: It stands for none (other symbols, lists that are no plists).
    """
    match datum:
        case Symbol():
            if datum in _CONSTANTS:
                return {} if datum == "nil" else _CONSTANTS[datum]
            raise LispError(f"the symbol {datum} stands for no JSON value")
        case Vector():
            return [to_json(item) for item in datum]
        case list():
            return _plist(datum)
    return datum


_CONSTANTS = {"nil": None, "t": True, ":json-false": False, ":null": None}


def _plist(items: Sequence[Any]) -> dict[str, Any]:
    keys = items[::2]
    if len(items) % 2 or not all(isinstance(key, Symbol) and key.startswith(":") for key in keys):
        raise LispError("not a property list")
    return {key[1:]: to_json(value) for key, value in zip(keys, items[1::2], strict=True)}


def _print(value: Any, put: Callable[[str], None]) -> None:
    match value:
        case str():
            put(print_string(value))
        case True:
            put("t")
        case False:
            put(":json-false")
        case None:
            put(":null")
        case int() | float():
            put(json.dumps(value, allow_nan=False))
        case dict():
            _print_plist(value, put)
        case list() | tuple():
            _print_items(value, put)
        case _:
            raise TypeError(f"not a JSON value: {value!r}")


def _print_plist(mapping: Mapping[str, Any], put: Callable[[str], None]) -> None:
    if not mapping:
        put("nil")
        return
    opening = "(:"
    for key, value in mapping.items():
        put(opening + _SPECIAL_IN_SYMBOL.sub(r"\\\g<0>", key) + " ")
        _print(value, put)
        opening = " :"
    put(")")


def _print_items(items: Sequence[Any], put: Callable[[str], None]) -> None:
    put("[")
    for index, item in enumerate(items):
        if index:
            put(" ")
        _print(item, put)
    put("]")


def _read_atom(text: str) -> Any:
    if "\\" not in text:
        if _NUMBER.match(text):
            return _read_number(text)
        if text.startswith(("#", "?")):
            raise LispError(f"unsupported Lisp syntax {text[:20]}")
    return Symbol(re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL))


def _read_number(text: str) -> int | float:
    if any(char in text for char in ".eE") and not text.endswith("."):
        return float(text)
    try:
        return int(text.rstrip("."))
    except ValueError as error:  # thousands of digits
        raise LispError(f"a number of {len(text)} digits") from error


def _read_string(raw: str) -> str:
    return _STRING_ESCAPE.sub(_unescape, raw) if "\\" in raw else raw


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    if code in ("\n", " "):
        return ""
    if code[0] in "uUx" and len(code) > 1:
        return chr(int(code[1:].removesuffix("\\ "), 16))
    if code[0] in "01234567":
        return chr(int(code, 8))
    return _CONTROL.get(code, code)
