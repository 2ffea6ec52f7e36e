"""PTC-Lisp: a small Clojure for programs that models write.

``compile(text)`` gives a ``Program``, ``run(text, context)`` runs one. Nothing here touches disk, network or clock
beyond the monotonic one; tools are called through one function that the caller gives.
"""

from pyagentd.lisp.errors import Fail, LispError, Return
from pyagentd.lisp.limits import Budget, Limits
from pyagentd.lisp.program import Program, Result, ToolCall, Usage, compile, run
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
    "ToolCall",
    "Usage",
    "compile",
    "run",
]
