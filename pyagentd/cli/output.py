"""What commands print: JSON for scripts, aligned columns for people.

Colour appears on a terminal only, and never with ``NO_COLOR`` set (https://no-color.org). What models, tools and
files of others say is made ``printable`` before it reaches a terminal.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TextIO, TypeVar

import click

_F = TypeVar("_F", bound=Callable[..., Any])

# Control characters, and those that reorder, hide or break lines. Joiners stay: scripts and emoji need them.
_UNSEEN = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    r"\ud800-\udfff\U000e0000-\U000e007f]|\r(?!\n)"
)


def json_option(command: _F) -> _F:
    """Add ``--json`` to ``command``, passed as ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, also for errors.")(command)


def print_json(value: object) -> None:
    """Print ``value`` as one line of JSON."""
    print(json.dumps(value, ensure_ascii=False), flush=True)


def colour(stream: TextIO) -> bool:
    """Return whether ``stream`` shows colour: a terminal that was not told otherwise."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def dim(text: str, stream: TextIO) -> str:
    """Return ``text`` marked as secondary on a ``stream`` that can show it."""
    return click.style(text, dim=True) if colour(stream) else text


def printable(text: str) -> str:
    """Return ``text`` with what a terminal would obey, or not show, made visible; line ends and tabs stay."""
    return _UNSEEN.sub(lambda found: _visible(found[0]), text)


def shown(text: str, stream: TextIO) -> str:
    """Return ``text`` as it goes to ``stream``: printable on a terminal, exactly what it is elsewhere."""
    return printable(text) if stream.isatty() else text


def _visible(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


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
            print("\t".join(map(printable, row)))
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
