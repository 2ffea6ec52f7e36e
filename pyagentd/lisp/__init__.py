"""PTC-Lisp: a small Clojure for programs that models write.

``compile(text)`` returns a ``Program``, which contains only code and can be run any number of times, in any thread;
``run(text, context)`` compiles and runs one. The state of a run is in its ``runtime.Run``; if the program fails,
changes of the memory are discarded. Programs cannot access disk or network; they call tools through one function that
the caller passes.
"""

from collections.abc import Callable, Mapping
from types import CodeType, TracebackType
from typing import Any, Literal

import pyagentd.lisp.forms  # noqa: F401 -- declares the special forms
from pyagentd.lisp import isolation as isolated
from pyagentd.lisp.analysis import analyse
from pyagentd.lisp.compiler import ENTRY, Emitter
from pyagentd.lisp.errors import Fail, LispError, Return, Signal
from pyagentd.lisp.limits import DEFAULT_LIMITS, Budget, Limits
from pyagentd.lisp.reader import read
from pyagentd.lisp.runtime import Isolation, Result, Run, Tools, Usage, memory_full, value_error
from pyagentd.lisp.serialization import check_extent, size
from pyagentd.lisp.values import Keyword, LispSet, Value

__all__ = [
    "Budget",
    "Fail",
    "Keyword",
    "Limits",
    "LispError",
    "LispSet",
    "Program",
    "Result",
    "Return",
    "Usage",
    "compile",
    "run",
]

_FILE = "<lisp>"
_TOO_NESTED = "the program is nested too deeply or too large to compile"
_python_compile = compile


class Program:
    """A compiled program; ``entry`` is the function that the generated code defines."""

    __slots__ = ("_entry", "source")

    def __init__(self, source: str, entry: Callable[..., Value]) -> None:
        self.source = source
        self._entry = entry

    def run(
        self,
        context: Mapping[Any, Value] | None = None,
        memory: Mapping[str, Value] | None = None,
        tools: Tools | None = None,
        limits: Limits = DEFAULT_LIMITS,
        cancelled: Callable[[], bool] | None = None,
        isolation: Isolation = "none",
    ) -> Result:
        """Run the program.

        Args:
            context: The values of ``ctx/name``, by name or keyword.
            memory: The values of ``memory/name``; not modified, the new memory is in the result.
            tools: Calls a tool.
            limits: The limits of the run.
            cancelled: Called regularly; true ends the run.
            isolation: ``process`` runs it in a child process with limits of the operating system.

        Raises:
            LispError: With reason, position and hint.
        """
        context, memory = context or {}, memory or {}
        if isolation == "process":
            return isolated.run(
                self.source, context=context, memory=memory, tools=tools, limits=limits, cancelled=cancelled
            )
        budget = Budget(limits, cancelled=cancelled)
        running = Run(context, memory, tools, budget)
        signal: Literal["return", "fail"] | None = None
        try:
            try:
                try:
                    value = self._entry(running, budget, budget.tick)
                except Signal as ended:
                    value, signal = ended.value, ended.name
                running.threads.finish()
            except Signal as ended:  # of a future that was never read
                if signal is None:
                    value, signal = ended.value, ended.name
            check_extent(value, limits)  # shared parts count as often as they will be written
            if running.put and size(running.memory, budget, limits.memory_bytes) > limits.memory_bytes:
                raise memory_full(limits.memory_bytes)
        except LispError as error:
            error.undone = running.put
            raise self._locate_error(error, error.__traceback__) from error.__cause__
        except (RecursionError, MemoryError, ArithmeticError, NameError, TypeError, ValueError) as error:
            explained = _explain_exception(error)
            explained.undone = running.put
            raise self._locate_error(explained, error.__traceback__) from error
        finally:
            running.threads.end()
        return Result(
            value=value,
            memory=running.memory,
            put=running.put,
            signal=signal,
            usage=Usage(
                steps=budget.steps_used,
                cells=budget.cells_used,
                bytes=budget.bytes_used,
                duration_ms=budget.duration_ms,
            ),
        )

    def _locate_error(self, error: LispError, traceback: TracebackType | None) -> LispError:
        """Set the position of an error to that of the innermost form that was running."""
        found: tuple[int | None, int | None] = error.line, error.column
        while error.line is None and traceback is not None:
            code: CodeType = traceback.tb_frame.f_code
            if code.co_filename == _FILE:
                line, _, column, _ = list(code.co_positions())[traceback.tb_lasti // 2]
                if line is not None and column is not None:
                    found = line, column + 1
            traceback = traceback.tb_next
        return error.at(*found, self.source)


def _explain_exception(error: Exception) -> LispError:
    """Return the error of a program for an exception of Python."""
    if isinstance(error, RecursionError):
        return LispError(
            "memory_exceeded",
            "functions call each other, or values are nested, too deeply",
            hint="Use loop and recur, or reduce, instead of a function that calls itself for every item.",
        )
    if isinstance(error, MemoryError):
        return LispError("memory_exceeded", "the program needs more memory than there is")
    if isinstance(error, NameError):
        name = str(error).partition("'")[2].partition("·")[0]
        return LispError("eval_error", f"{name} is used before it is defined", hint=f"Put (def {name} …) before it.")
    return value_error(error)


def compile(text: str) -> Program:
    """Parse, analyse and compile a program.

    Raises:
        LispError: ``parse_error`` or ``analysis_error``, with the place; ``eval_error`` and ``validation_error`` for
            a call that could only fail.
    """
    forms, places = read(text)
    try:
        emitter = Emitter(places)
        module = emitter.program(analyse(forms, places))
        code = _python_compile(module, _FILE, "exec", dont_inherit=True)
    except (RecursionError, MemoryError, SyntaxError, OverflowError):
        line, column = places.of(forms[0].start)
        raise LispError(
            "analysis_error",
            _TOO_NESTED,
            hint="Name parts of it with let, or make several smaller programs.",
            line=line,
            column=column,
            source=text,
        ) from None
    namespace = emitter.globals
    exec(code, namespace)  # the compiler made the whole tree: the program's text is only data in it
    return Program(text, namespace[ENTRY])


def run(text: str, context: Mapping[Any, Value] | None = None, **options: Any) -> Result:
    """Compile and run a program; the arguments are those of ``Program.run``."""
    return compile(text).run(context, **options)
