"""Options that several commands have, with their words."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])


def checked_patterns(context: click.Context, option: click.Parameter, patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return what --allow was given, if each is a regular expression."""
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise click.BadParameter(f"{pattern!r} is no regular expression: {error}") from None
    return patterns


def root_option(words: str) -> Callable[[_Command], _Command]:
    """Return the option ``--root``, a directory that exists; ``words`` say what it is for."""
    place = click.Path(exists=True, file_okay=False, path_type=Path)
    return click.option("--root", type=place, default=".", help=words)


def project_option(what: str) -> Callable[[_Command], _Command]:
    """Return the option that names the project whose ``what`` are included."""
    return root_option(f"Include the {what} of the project here (default: the current directory).")


def workplace_option(command: _Command) -> _Command:
    """Add the option that says where a new session may work."""
    return root_option("The directory it may work in (default: the current one).")(command)


def preset_option(command: _Command) -> _Command:
    """Add the option that says what a new session is made from."""
    words = "What to make it from (see: pyagentd presets)."
    return click.option("--preset", metavar="PRESET", help=words)(command)


def asking_options(command: _Command) -> _Command:
    """Add the options that say what a run may do without asking, and whether anybody is asked."""
    words = "Let this run do without asking what matches, as in 'tool:Bash:make .*'. May be repeated."
    headless = click.option("--headless", is_flag=True, help="Never ask: deny what would need approval.")
    allow = click.option("--allow", multiple=True, metavar="REGEX", callback=checked_patterns, help=words)
    return allow(headless(command))


def strict_option(command: _Command) -> _Command:
    """Add the option that makes a denial for want of somebody to ask a failure."""
    words = "Exit 1 when a tool call was denied because nobody could be asked."
    return click.option("--strict", is_flag=True, help=words)(command)


def stream_options(command: _Command) -> _Command:
    """Add the options that say in what form a run is printed, passed as ``as_json`` and ``as_events``."""
    events = click.option("--json-events", "as_events", is_flag=True, help="Print each event as a line of JSON.")
    one = click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end; errors too.")
    return one(events(command))
