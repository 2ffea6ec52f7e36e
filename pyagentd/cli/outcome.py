"""How a command ends: exit codes, and errors as one line on stderr.

====  ================================================
code  meaning
====  ================================================
0     done
1     the run or the request failed
2     wrong usage: options or arguments do not fit
3     the daemon is not reachable and was not started
130   you pressed Ctrl-C
====  ================================================

With ``--json`` the line is ``{"error": {"code", "message"}}``; ``code`` is that of ``pyagentd.errors``.
"""

from __future__ import annotations

import json
import sys
from enum import IntEnum

import click

from pyagentd.cli.output import printable
from pyagentd.errors import PyagentdError, WireError


class ExitCode(IntEnum):
    """What a command's exit status says; stable, scripts rely on it."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    INTERRUPTED = 130  # 128 and the number of SIGINT, as shells have it


def exit_code(error: Exception) -> ExitCode:
    """Return the exit code that belongs to ``error``."""
    match error:
        case click.UsageError():
            return ExitCode.USAGE
        case WireError():  # Unreachable, or lost on the way
            return ExitCode.UNREACHABLE
        case _:
            return ExitCode.FAILED


def report(error: Exception, *, as_json: bool) -> None:
    """Print ``error`` on stderr as one line."""
    code, message = _describe(error)
    message = " ".join(message.split())
    if as_json:
        line = json.dumps({"error": {"code": code, "message": message}}, ensure_ascii=False)
    else:
        line = f"pyagentd: {printable(message)}"
    print(line, file=sys.stderr)


def _describe(error: Exception) -> tuple[str, str]:
    match error:
        case PyagentdError():
            return error.code, str(error)
        case click.UsageError():
            path = error.ctx.command_path if error.ctx else "pyagentd"
            message = error.format_message()
            return "usage", f"{message}{'' if message.endswith(('.', '?')) else '.'} See {path} --help"
        case click.ClickException():
            return "failed", error.format_message()
        case OSError():
            return "os-error", f"{error.filename}: {error.strerror}" if error.filename else str(error)
        case _:
            return "internal", f"{type(error).__name__}: {error}"
