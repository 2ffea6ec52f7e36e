"""What commands print: JSON for scripts, aligned columns for people.

Colour appears on a terminal only, and never with ``NO_COLOR`` set (https://no-color.org).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TextIO, TypeVar

import click

_F = TypeVar("_F", bound=Callable[..., Any])


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


def note(text: str) -> None:
    """Tell the user something beside the output."""
    print(f"pyagentd: {text}", file=sys.stderr, flush=True)


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print ``rows`` under ``headings`` on a terminal; without headings, separated by tabs, into a pipe."""
    if not sys.stdout.isatty():
        for row in rows:
            print("\t".join(row))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*headings, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)
