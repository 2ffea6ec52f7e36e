"""What must hold for every text: it is a program with a value, or there is an error that says why not."""

import re
from typing import Any

from pyagentd import lisp
from pyagentd.errors import ToolError
from pyagentd.lisp.errors import REASONS, LispError
from pyagentd.lisp.limits import Budget, Limits
from pyagentd.lisp.reader import MAX_DIGITS
from pyagentd.lisp.serialization import decode, encode, readable
from pyagentd.lisp.values import Pattern, equal, from_key

_PROGRAM = 10_000  # characters; what is much longer has more parts than a program may have
LIMITS = Limits(timeout_ms=3000, steps=30_000, cells=30_000, bytes=300_000, bits=4096, depth=60, tool_calls=5)
"""Small ones, so that many programs are tried in a second."""

K = lisp.Keyword
_DATA = {type(None), bool, int, float, str, lisp.Keyword, list, dict, lisp.LispSet, Pattern}
_NAME = re.compile(r"[A-Za-z0-9_?!*+<>=-]+")
CONTEXT = {
    "rows": [{"a": n, "b": f"b{n % 3}", "c": None if n % 2 else n / 2} for n in range(6)],
    "maps": [{K("a"): n, K("b"): {K("c"): [n, -n]}} for n in range(4)],
    "text": "one two,three\né\u0301 ﷽",
    "none": None,
}
MEMORY = {"k": [1, "two", K("three")]}


def tool(name: str, args: dict[Any, Any]) -> Any:
    """Answer as tools do: with what they were given, badly, or not at all."""
    match name:
        case "t":
            return {K("args"): args, "list": [1, 2.5, None, True]}
        case "broken":
            raise ToolError("it is broken")
        case _:
            raise LispError("tool_not_found", f'there is no tool "{name}"')


def check(text: str) -> str:
    """Compile and run ``text``; return how it ended, "value" or the reason of its error.

    Raises:
        Exception: Anything else than a ``LispError`` with a documented reason and a sentence is a finding, and so
            is a value that cannot be written and read back.
    """
    try:
        program = lisp.compile(text)
    except LispError as error:
        assert error.reason in REASONS - {"timeout", "memory_exceeded", "tool_error"}, error.reason
        _sensible(error, text)
        return error.reason
    try:
        result = program.run(CONTEXT, MEMORY, tools=tool, limits=LIMITS)
    except LispError as error:
        assert error.reason in REASONS, error.reason
        _sensible(error, text)
        return error.reason
    _round_trip(result.value)
    for value in result.memory.values():
        _round_trip(value)
    return "value"


def _sensible(error: LispError, text: str) -> None:
    assert error.message.strip(), "an error without a message"
    for leak in ("Traceback", "<function", "<built-in", " object at 0x", "<class '", "NoneType"):
        assert leak not in error.message or leak in text, error.message
    if error.line is not None:
        assert error.column is not None
        lines = text.split("\n")
        assert 1 <= error.line <= len(lines), f"line {error.line} of {len(lines)}"
        assert 1 <= error.column <= len(lines[error.line - 1]) + 1, f"column {error.column}"
        error.caret()
    error.explain()


def _round_trip(value: Any) -> None:
    """What is printed reads back as the same value; what is encoded decodes to it."""
    budget = Budget(LIMITS)
    try:
        printed = readable(value, budget)
        encoded = encode(value, budget)
    except LispError as error:
        assert error.reason in ("memory_exceeded", "timeout") or _within(value, _opaque), error.message
        return
    if _unequal_to_itself(value):
        return
    back = decode(encoded)
    assert equal(back, value, Budget(LIMITS)), f"{value!r} is encoded as {encoded!r}"
    if len(printed) < _PROGRAM and not _within(value, _unwritable):
        read = lisp.compile(printed).run(limits=Limits()).value
        assert equal(read, value, Budget(LIMITS)), f"{value!r} is printed as {printed!r}"


def _parts(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [*map(from_key, value), *value.values()]
    return list(value) if isinstance(value, list | lisp.LispSet) else []


def _within(value: Any, what: Any) -> bool:
    return what(value) or any(_within(part, what) for part in _parts(value))


def _opaque(part: Any) -> bool:
    """Whether it is not data: a function, or the result of ``reduced``."""
    return type(part) not in _DATA


def _unwritable(part: Any) -> bool:
    """Whether there is no text for it: no data, a keyword that was made of any text, a number no program may hold."""
    if isinstance(part, int) and abs(part) >= 10**MAX_DIGITS:
        return True
    return _opaque(part) or (isinstance(part, lisp.Keyword) and not _NAME.fullmatch(part.name))


def _unequal_to_itself(value: Any) -> bool:
    return _within(value, lambda part: part != part)  # NaN
