"""PTC-Lisp: a small Clojure for programs that models write.

``compile(text)`` returns a ``Program``; ``run(text, context)`` compiles and runs one. Programs cannot access disk or
network; they call tools through one function that the caller passes.
"""

from pyagentd.lisp.errors import Fail, LispError, Return
from pyagentd.lisp.limits import Budget, Limits
from pyagentd.lisp.program import Program, Result, Usage, compile, run
from pyagentd.lisp.values import Keyword, LispSet

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
