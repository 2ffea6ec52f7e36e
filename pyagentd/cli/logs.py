"""``pyagentd logs``: the daemon's log, as a file; the daemon need not run."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import click

from pyagentd.errors import NotFound

_POLL_S = 0.25


@click.command()
@click.option("-n", "--lines", type=click.IntRange(min=0), default=50, show_default=True, help="How many lines.")
@click.option("-f", "--follow", is_flag=True, help="Follow the log as the daemon writes; Ctrl-C ends.")
def logs(lines: int, follow: bool) -> None:
    """Print the end of the daemon's log."""
    from pyagentd.config import load_config
    from pyagentd.log import LOG_NAME

    path = load_config().runtime_dir / LOG_NAME
    if not path.exists():
        raise NotFound(f"There is no log at {path}", mend="The daemon has not run yet: pyagentd serve --detach")
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in deque(file, maxlen=lines):
            click.echo(line, nl=False)
        offset = file.tell()
    if follow:
        try:
            for text in _follow(path, offset):
                click.echo(text, nl=False)
        except KeyboardInterrupt:
            return


def _follow(path: Path, offset: int) -> Iterator[str]:
    """Yield what is appended to ``path`` after ``offset``, going over to the new file when it is rotated."""
    while True:
        with path.open(encoding="utf-8", errors="replace") as file:
            file.seek(offset)
            number = os.fstat(file.fileno()).st_ino
            while True:
                if text := file.read():
                    yield text
                elif not path.exists() or path.stat().st_ino == number:
                    time.sleep(_POLL_S)
                else:
                    break
        offset = 0
