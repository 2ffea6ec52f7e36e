"""Output of commands: JSON for scripts, aligned columns for people.

Colour is used on a terminal only, and not if ``NO_COLOR`` is set (https://no-color.org). Text of models, tools and
files is passed through ``printable`` before it is printed on a terminal.
"""

import json
import math
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
    """Print a reply of the daemon: as JSON, or as ``text``."""
    if as_json:
        print_json(reply)
    else:
        click.echo(text)


def colour(stream: TextIO) -> bool:
    """Return whether ``stream`` is a terminal on which colour is not switched off."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def dim(text: str, stream: TextIO) -> str:
    """Return ``text`` in dim style if ``stream`` shows colour."""
    return click.style(text, dim=True) if colour(stream) else text


def text_for(text: str, stream: TextIO) -> str:
    """Return ``text`` for ``stream``: made printable for a terminal, otherwise unchanged."""
    return printable(text) if stream.isatty() else text


def local_time(at_ms: int, form: str = "%Y-%m-%d %H:%M") -> str:
    """Format a time in milliseconds since 1970 as local time."""
    return datetime.fromtimestamp(at_ms / 1000).astimezone().strftime(form)


def note(text: str) -> None:
    """Print a remark for the user on stderr."""
    print(f"pyagentd: {printable(text)}", file=sys.stderr, flush=True)


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, empty: str = "") -> None:
    """Print ``rows`` under ``headings``: as a table on a terminal, with tabs into a pipe.

    Cells are made printable in both cases. Without rows, ``empty`` is printed on stderr.
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
    """Print ``found`` as JSON, or ``rows`` with ``print_table``."""
    if as_json:
        print_json(found)
    else:
        print_table(headings, rows, empty=empty)


def print_view(view: Mapping[str, Any], *, empty: str = "") -> None:
    """Print a reply of the operation ``view``; without rows print ``empty``, or the list's own text for that case."""
    rows = [[str(cell["text"] or "") for cell in row["cells"]] for row in view["rows"]]
    print_table(
        [str(each["title"] or "").lower() for each in view["columns"]], rows, empty=empty or str(view["empty"])
    )
    if rows and view["more"]:
        note(f"only the first {len(rows)}")


def print_page(report: Mapping[str, Any]) -> None:
    """Print a reply of the operation ``report`` without its folded parts."""
    hidden = 0  # the level of the folded heading above the line, 0 for none
    for line in report["lines"]:
        level = line["level"]
        if hidden and (not level or level > hidden):
            continue
        hidden = level if line["folded"] else 0
        parts = line["parts"]
        text = "".join(part if isinstance(part, str) else str(part["text"] or "") for part in parts)
        shown = text_for(f"{'*' * level} {text}{' …' if hidden else ''}" if level else text, sys.stdout)
        print(click.style(shown, bold=True) if level and colour(sys.stdout) else shown)


# Formatting of costs.

BUCKETS = ("input", "output", "reasoning", "cache_read", "cache_write")


def price(spent: Mapping[str, Any]) -> str:
    """Return a price as text; it contains "unknown" if a part of it is not known."""
    if spent["cost_usd"] is not None:
        return dollars(spent["cost_usd"])
    return f"{dollars(spent['known_usd'])} + unknown" if spent["known_usd"] else "unknown"


# Options that several commands share.


class AmountRange(click.FloatRange):
    """A range of numbers without NaN and infinity, which are in every open range of ``click``."""

    name = "number"  # in errors; ``click`` says "float range"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number; fails with an error for the user if it is not in the range."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


def checked_patterns(context: click.Context, option: click.Parameter, patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the values of --allow; raises an error if one is not a regular expression."""
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise click.BadParameter(f"{pattern!r} is not a regular expression: {error}") from None
    return patterns


def root_option(words: str) -> Callable[[Command], Command]:
    """Return the option ``--root``, an existing directory; ``words`` are its help."""
    place = click.Path(exists=True, file_okay=False, path_type=Path)
    return click.option("--root", type=place, default=".", help=words)


def project_option(what: str) -> Callable[[Command], Command]:
    """Return the option for the project whose ``what`` (such as hooks) are included."""
    return root_option(f"Include the {what} of the project here (default: the current directory).")


def workplace_option(command: Command) -> Command:
    """Add the option for the project of a new session."""
    return root_option("The directory it may work in (default: the current one).")(command)


def preset_option(command: Command) -> Command:
    """Add the option for the preset of a new session."""
    words = "Its preset (see: pyagentd presets)."
    return click.option("--preset", metavar="PRESET", help=words)(command)


def asking_options(command: Command) -> Command:
    """Add the options for actions allowed without asking, and for running without questions."""
    words = "In this run, allow actions that match without asking, such as 'tool:Bash:make .*'. May be repeated."
    headless = click.option("--headless", is_flag=True, help="Never ask: deny what would need approval.")
    allow = click.option("--allow", multiple=True, metavar="REGEX", callback=checked_patterns, help=words)
    return allow(headless(command))


def strict_option(command: Command) -> Command:
    """Add the option that exits with a failure if a call was denied because no human could be asked."""
    words = "Exit 1 when a tool call was denied because nobody could be asked."
    return click.option("--strict", is_flag=True, help=words)(command)


Form = Literal["text", "json", "events"]
"""The form in which a run is printed: text for people, one object at the end, or each event as a line."""


def stream_options(command: Command) -> Command:
    """Add the options for the form in which a run is printed, passed as ``form``."""
    for name, form, words in (
        ("--json-events", "events", "Print each event as a line of JSON."),
        ("--json", "json", "Print one JSON object at the end; errors too."),
    ):
        command = click.option(name, "form", flag_value=form, default="text", help=words)(command)
    return command


# Exit codes, and errors as one line on stderr.
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
    """The exit status of a command; stable, because scripts rely on it."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    INTERRUPTED = 130  # 128 plus the number of SIGINT, as in shells


def exit_code(error: Exception) -> ExitCode:
    """Return the exit code for ``error``."""
    match error:
        case click.UsageError():
            return ExitCode.USAGE
        case WireError():  # the daemon is unreachable, or the connection was lost
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
