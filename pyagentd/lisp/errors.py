"""Errors of programs, and the two signals that end a program.

A ``LispError`` has a reason, a hint, and a position in the program, which is added while it propagates. ``Return``
and ``Fail`` are not errors: ``(return v)`` and ``(fail v)`` raise them to leave a program; they derive from
``BaseException`` so that only ``Program.run`` catches them.
"""

from functools import partial
from typing import Any, Final, Literal, get_args

from pyagentd.errors import PyagentdError

Reason = Literal[
    "parse_error",
    "analysis_error",
    "eval_error",
    "timeout",
    "memory_exceeded",
    "tool_error",
    "tool_not_found",
    "validation_error",
]
REASONS: frozenset[str] = frozenset(get_args(Reason))


class LispError(PyagentdError):
    """A program could not be parsed, analysed or run.

    Args:
        reason: The class of the error, such as ``eval_error``.
        message: What is wrong, without Python notation.
        hint: What to write instead, or "".
        line: 1-based line in the program, or None while unknown.
        column: 1-based column in code points, or None.
        source: The program's text, for ``caret``.
        data: The data of an error that the program threw (``ex-info``), for its ``catch``.

    Attributes:
        undone: Whether changes of the memory by the run were discarded.
    """

    code = "lisp-error"

    def __init__(
        self,
        reason: Reason,
        message: str,
        *,
        hint: str = "",
        line: int | None = None,
        column: int | None = None,
        source: str | None = None,
        data: Any = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.reason: Reason = reason
        self.line = line
        self.column = column
        self.source = source
        self.data = data
        self.undone = False

    def at(self, line: int | None, column: int | None, source: str | None = None) -> "LispError":
        """Set position and source unless they are set already; return the error."""
        if self.line is None and line is not None:
            self.line, self.column = line, column
        if self.source is None:
            self.source = source
        return self

    def caret(self) -> str:
        """Return the line of the error and a ``^`` below its column, or "" while the position is unknown."""
        if self.line is None or self.column is None or self.source is None:
            return ""
        lines = self.source.split("\n")
        if self.line > len(lines):
            return ""
        text = lines[self.line - 1].rstrip("\r")
        start = max(0, self.column - 61)
        shown = text[start : start + 100]
        pad = "".join("\t" if char == "\t" else " " for char in shown[: self.column - 1 - start])
        return f"{shown}\n{pad}^"

    def explain(self) -> str:
        """Return message, position, hint and caret as one text."""
        place = "" if self.line is None else f" (line {self.line}, column {self.column})"
        parts = [f"{self.message}{place}", self.hint, self.caret()]
        return "\n".join(part for part in parts if part)

    def __reduce__(self) -> tuple[Any, ...]:
        place: dict[str, Any] = {"line": self.line, "column": self.column, "source": self.source}
        return partial(LispError, self.reason, self.message, hint=self.hint, **place), ()


class Signal(BaseException):
    """The program ends with a value."""

    name: Literal["return", "fail"]

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class Return(Signal):
    """``(return value)``: the mission succeeds."""

    name = "return"


class Fail(Signal):
    """``(fail value)``: the mission fails."""

    name = "fail"


MISSING: Final[Any] = object()
"""The default of optional arguments, and the result of looking up a missing key, since nil is a value; no program
sees it."""
