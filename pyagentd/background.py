"""Going into the background: out of reach of the terminal or editor that started us, and saying when ready.

The caller waits on a pipe until the daemon listens or has failed, so a failure is told where somebody reads it.
"""

from __future__ import annotations

import os
import sys
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
    if os.fork() == 0:
        os.close(reading)
        _child(run, writing, errors)
    os.close(writing)
    os.wait()
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    if said == READY:
        return 0
    raise UserError(said.decode("utf-8", "replace") or "The daemon ended before it was ready")


def _child(run: Callable[[Callable[[], None]], None], writing: int, errors: Path) -> None:
    """Fork once more, so that nothing waits for the daemon and it can never get a terminal; does not return."""
    os.setsid()
    if os.fork():
        os._exit(0)
    code = 1
    try:
        run(lambda: _ready(writing, errors))
        code = 0
    except PyagentdError as error:
        os.write(writing, str(error).encode())
    except BaseException as error:
        os.write(writing, f"{type(error).__name__}: {error}".encode())
        raise
    finally:
        sys.stderr.flush()
        os._exit(code)


def _ready(writing: int, errors: Path) -> None:
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    log = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for source, target in ((null, 0), (null, 1), (log, 2)):
        os.dup2(source, target)
    os.write(writing, READY)
    os.close(writing)
