"""What goes wrong in a program, and the two signals that end one.

A ``LispError`` names its reason, says in a sentence what to do instead, and knows its place in the text once
somebody on its way up has told it. ``Return`` and ``Fail`` are no errors: they are how ``(return v)`` and
``(fail v)`` leave a program, and derive from ``BaseException`` so that nothing below the runner catches them.
"""

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
    """A program could not be read, analysed or run to its end.

    Args:
        reason: The class of the error, such as ``eval_error``.
        message: What is wrong, with values in Lisp notation, never a Python repr.
        hint: What to write instead, or "".
        line: 1-based line in the program, or None while the place is not known.
        column: 1-based column in code points, or None.
        source: The program's text, for ``caret``.
        data: What the program itself gave with the error (``ex-info``), for its own ``catch``.

    Attributes:
        undone: Whether the run had put something into the memory, which is as it was before.
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
        super().__init__(message, mend=hint)
        self.reason: Reason = reason
        self.line = line
        self.column = column
        self.source = source
        self.data = data
        self.undone = False

    @property
    def hint(self) -> str:
        """What to write instead, or ""."""
        return self.mend

    def at(self, line: int | None, column: int | None, source: str | None = None) -> "LispError":
        """Tell the error its place unless it knows one already; return it."""
        if self.line is None and line is not None:
            self.line, self.column = line, column
        if self.source is None:
            self.source = source
        return self

    def caret(self) -> str:
        """Return the line of the error and a ``^`` below its column, or "" when the place is not known."""
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
        """Return message, hint, place and caret as one text."""
        place = "" if self.line is None else f" (line {self.line}, column {self.column})"
        parts = [f"{self.message}{place}", self.hint, self.caret()]
        return "\n".join(part for part in parts if part)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.reason, self.message, self.mend, self.line, self.column, self.source)


def _restored(
    reason: Reason, message: str, hint: str, line: int | None, column: int | None, source: str | None
) -> LispError:
    """Make a pickled error again; it crosses the boundary of an isolated process."""
    return LispError(reason, message, hint=hint, line=line, column=column, source=source)


class Signal(BaseException):
    """The program has ended itself with a value."""

    name: Literal["return", "fail"]

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class Return(Signal):
    """``(return value)``: the mission is done."""

    name = "return"


class Fail(Signal):
    """``(fail value)``: the mission cannot be done."""

    name = "fail"


# What stands for a value that is not there, since nil is a value; programs never see it.


class _Missing:
    """The type of `MISSING`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final[Any] = _Missing()
"""Default of an optional argument, and what is found under a key that is not there."""
