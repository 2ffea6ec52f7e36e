"""From the text of a command line to what it runs, reads and writes."""

from __future__ import annotations

from pyagentd.policy.shell.grammar import Simple, parse
from pyagentd.policy.shell.values import ShellReading, SimpleCommand, Unreadable

_NOWHERE = frozenset({"/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr"})


def read(command: str) -> ShellReading:
    """Return what ``command`` runs, reads and writes when bash runs it."""
    try:
        parts = parse(command)
    except Unreadable as reason:
        return ShellReading(unreadable=str(reason))
    return ShellReading(
        commands=tuple(map(_command, parts)),
        reads=tuple(_redirected(parts, "<")),
        writes=tuple(_redirected(parts, ">")),
    )


def _command(part: Simple) -> SimpleCommand:
    words = tuple(word.text for word in part.words)
    return SimpleCommand(words=words, text=part.text, said=words)


def _redirected(parts: list[Simple], direction: str) -> list[str]:
    return [
        redirect.target.path
        for part in parts
        for redirect in part.redirects
        if direction in redirect.operator and redirect.target.text not in _NOWHERE
    ]
