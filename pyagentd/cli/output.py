"""What commands print: JSON for scripts, aligned columns for people.

Colour appears on a terminal only, and never with ``NO_COLOR`` set (https://no-color.org). Text of models, tools and
files is made ``printable`` before it reaches a terminal.
"""

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import IntEnum
from pathlib import Path
from typing import Any, Literal, TextIO, TypeVar

import click

from pyagentd.errors import PyagentdError, WireError
from pyagentd.words import dollars, printable

Command = TypeVar("Command", bound=Callable[..., Any])

_LINE_END = re.compile(r"\t|\r?\n")  # or the end of a cell


def json_option(command: Command) -> Command:
    """Add ``--json`` to ``command``, passed as ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, also for errors.")(command)


def print_json(value: object) -> None:
    """Print ``value`` as one line of JSON."""
    print(json.dumps(value, ensure_ascii=False), flush=True)


def print_reply(reply: object, text: str, *, as_json: bool) -> None:
    """Print a reply of the daemon: as JSON, or what people are told of it."""
    if as_json:
        print_json(reply)
    else:
        click.echo(text)


def colour(stream: TextIO) -> bool:
    """Return whether ``stream`` shows colour: a terminal that was not told otherwise."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def dim(text: str, stream: TextIO) -> str:
    """Return ``text`` marked as secondary on a ``stream`` that can show it."""
    return click.style(text, dim=True) if colour(stream) else text


def text_for(text: str, stream: TextIO) -> str:
    """Return ``text`` as it goes to ``stream``: printable on a terminal, exactly what it is elsewhere."""
    return printable(text) if stream.isatty() else text


def local_time(at_ms: int, form: str = "%Y-%m-%d %H:%M") -> str:
    """Return a moment, in milliseconds since 1970, in the time of this machine."""
    return datetime.fromtimestamp(at_ms / 1000).astimezone().strftime(form)


def note(text: str) -> None:
    """Tell the user something beside the output."""
    print(f"pyagentd: {printable(text)}", file=sys.stderr, flush=True)


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, empty: str = "") -> None:
    """Print ``rows`` under ``headings``: as a table on a terminal, separated by tabs into a pipe.

    Cells are made printable in either case: who reads a table knows no more of what is in it than a terminal does.
    ``empty`` is told on stderr when there are none.
    """
    rows = list(rows)
    if not rows and empty:
        note(empty)
    if not sys.stdout.isatty():
        for row in (headings, *rows):
            print("\t".join(printable(_LINE_END.sub(" ", cell)) for cell in row))
        return
    if not rows:
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*headings, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    Console().print(table)


def print_list(
    found: object, headings: Sequence[str], rows: Iterable[Sequence[str]], *, as_json: bool, empty: str = ""
) -> None:
    """Print what was found: as JSON, or its ``rows`` as ``print_table`` does."""
    if as_json:
        print_json(found)
    else:
        print_table(headings, rows, empty=empty)


def print_view(view: Mapping[str, Any], *, empty: str = "") -> None:
    """Print a list as the operation ``view`` returns it; without rows say ``empty``, or what the list says."""
    rows = [[str(cell["text"] or "") for cell in row["cells"]] for row in view["rows"]]
    print_table(
        [str(each["title"] or "").lower() for each in view["columns"]], rows, empty=empty or str(view["empty"])
    )
    if rows and view["more"]:
        note(f"only the first {len(rows)}")


def print_page(report: Mapping[str, Any]) -> None:
    """Print a page as the operation ``report`` returns it; what its outline folds is left out."""
    hidden = 0  # the level of the folded heading that the line stands below, 0 for none
    for line in report["lines"]:
        level = line["level"]
        if hidden and (not level or level > hidden):
            continue
        hidden = level if line["folded"] else 0
        parts = line["parts"]
        text = "".join(part if isinstance(part, str) else str(part["text"] or "") for part in parts)
        said = text_for(f"{'*' * level} {text}{' …' if hidden else ''}" if level else text, sys.stdout)
        print(click.style(said, bold=True) if level and colour(sys.stdout) else said)


# How commands write what something cost.

BUCKETS = ("input", "output", "reasoning", "cache_read", "cache_write")


def price(spent: Mapping[str, Any]) -> str:
    """Return a price for people, which is never a number when it is not known."""
    if spent["cost_usd"] is not None:
        return dollars(spent["cost_usd"])
    return f"{dollars(spent['known_usd'])} + unknown" if spent["known_usd"] else "unknown"


# Options that several commands have, with their words.


def checked_patterns(context: click.Context, option: click.Parameter, patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return what --allow was given, if each is a regular expression."""
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise click.BadParameter(f"{pattern!r} is not a regular expression: {error}") from None
    return patterns


def root_option(words: str) -> Callable[[Command], Command]:
    """Return the option ``--root``, a directory that exists; ``words`` say what it is for."""
    place = click.Path(exists=True, file_okay=False, path_type=Path)
    return click.option("--root", type=place, default=".", help=words)


def project_option(what: str) -> Callable[[Command], Command]:
    """Return the option that names the project whose ``what`` are included."""
    return root_option(f"Include the {what} of the project here (default: the current directory).")


def workplace_option(command: Command) -> Command:
    """Add the option that says where a new session may work."""
    return root_option("The directory it may work in (default: the current one).")(command)


def preset_option(command: Command) -> Command:
    """Add the option that says what a new session is made from."""
    words = "Its preset (see: pyagentd presets)."
    return click.option("--preset", metavar="PRESET", help=words)(command)


def asking_options(command: Command) -> Command:
    """Add the options that say what a run may do without asking, and whether anybody is asked."""
    words = "In this run, allow actions that match without asking, such as 'tool:Bash:make .*'. May be repeated."
    headless = click.option("--headless", is_flag=True, help="Never ask: deny what would need approval.")
    allow = click.option("--allow", multiple=True, metavar="REGEX", callback=checked_patterns, help=words)
    return allow(headless(command))


def strict_option(command: Command) -> Command:
    """Add the option that makes a denial for want of somebody to ask a failure."""
    words = "Exit 1 when a tool call was denied because nobody could be asked."
    return click.option("--strict", is_flag=True, help=words)(command)


Form = Literal["text", "json", "events"]
"""How a run is printed: text for people, one object at the end, or each event as a line."""


def stream_options(command: Command) -> Command:
    """Add the options that say in what form a run is printed, passed as ``form``."""
    for name, form, words in (
        ("--json-events", "events", "Print each event as a line of JSON."),
        ("--json", "json", "Print one JSON object at the end; errors too."),
    ):
        command = click.option(name, "form", flag_value=form, default="text", help=words)(command)
    return command


# How a command ends: exit codes, and errors as one line on stderr.
#
# ====  ======================================================
# code  meaning
# ====  ======================================================
# 0     done
# 1     the run or the request failed
# 2     wrong usage: options or arguments do not fit
# 3     the daemon is not reachable and was not started
# 130   you pressed Ctrl-C
# ====  ======================================================
#
# With ``--json`` the line is ``{"error": {"code", "message"}}``; ``code`` is that of ``pyagentd.errors``.


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


def _is_nowhere() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


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
        case FileNotFoundError() if error.filename is None and _is_nowhere():
            return "os-error", "The working directory is gone: go to another one with cd"
        case OSError():
            return "os-error", f"{error.filename}: {error.strerror}" if error.filename else (
                error.strerror or str(error)
            )
        case _:
            return "internal", f"{type(error).__name__}: {error}"
