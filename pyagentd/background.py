"""Going into the background: out of reach of the terminal or editor that started us, and saying when ready.

The caller waits on a pipe until the daemon listens or has failed, so a failure is told where somebody reads it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from pyagentd.errors import PyagentdError, UserError

READY = b"ready"


def in_background(run: Callable[[Callable[[], None]], None], *, errors: Path) -> int:
    """Run ``run`` in a detached process; return 0 once it has called the function it is given.

    Args:
        run: The daemon; gets a function to call when it is ready.
        errors: The file that its standard error goes to, once it is ready.

    Raises:
        UserError: It ended before it was ready; the message is its own.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _child(run, _Report(writing, errors))
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    if said == READY:
        return 0
    raise UserError(said.decode("utf-8", "replace") or "The daemon ended before it was ready")


class _Report:
    """What the daemon says to whoever started it: once, over the pipe; from then on to its log."""

    def __init__(self, pipe: int, errors: Path) -> None:
        self._pipe: int | None = pipe
        self._errors = errors

    def ready(self) -> None:
        os.chdir("/")
        null = os.open(os.devnull, os.O_RDWR)
        log = os.open(self._errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for source, target in ((null, 0), (null, 1), (log, 2)):
            os.dup2(source, target)
        for spare in (null, log):
            if spare > 2:  # else it is a standard stream that was closed when we were started
                os.close(spare)
        self._say(READY)

    def failed(self, message: str) -> None:
        """Tell why it ended; once it was ready, its log is told instead."""
        if self._pipe is not None:
            self._say(message.encode())
        else:
            traceback.print_exc()

    def _say(self, said: bytes) -> None:
        # The number may soon be another file's: whatever is written later must not go there.
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            # Who started us may not have waited: the socket can be used before this is said.
            with contextlib.suppress(BrokenPipeError):
                os.write(pipe, said)
            os.close(pipe)


def _child(run: Callable[[Callable[[], None]], None], report: _Report) -> None:
    """Fork once more, so that nothing waits for the daemon and it can never get a terminal; does not return."""
    os.setsid()
    if os.fork():
        os._exit(0)
    code = 1
    try:
        run(report.ready)
        code = 0
    except PyagentdError as error:
        report.failed(str(error))
    except BaseException as error:
        report.failed(f"{type(error).__name__}: {error}")
    finally:
        sys.stderr.flush()
        os._exit(code)
