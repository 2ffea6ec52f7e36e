"""Running a bomb the way a caller does: compile, run, and write down what came of it."""

import json
from typing import Literal

from pyagentd import lisp
from pyagentd.lisp.errors import REASONS, LispError
from pyagentd.lisp.limits import Budget, Limits
from pyagentd.lisp.serialization import encode
from tests.lisp.bombs.corpus import Bomb

LIMITS = Limits(timeout_ms=20_000, steps=40_000, cells=150_000, bytes=3_000_000, tool_calls=500)
"""A fraction of the usual, so that the corpus takes seconds; time is not a limit here, so that a hang is one."""


def set_off(bomb: Bomb, *, limits: Limits = LIMITS, isolation: Literal["none", "process"] = "none") -> str:
    """Return "return", or the reason of the error.

    Raises:
        Exception: Anything but a ``LispError``.
    """
    try:
        program = lisp.compile(bomb.program)
        result = program.run(dict(bomb.context), {}, tools=bomb.tools, limits=limits, isolation=isolation)
        json.dumps(encode(result.value, Budget(limits)))
    except LispError as error:
        assert error.reason in REASONS
        assert len(error.explain()) < 2000, "an error that is a bomb itself"
        return error.reason
    return "return"
