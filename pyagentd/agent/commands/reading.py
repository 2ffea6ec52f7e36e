"""Reading what was typed: is it a command, which, with what arguments.

A command is a prompt that begins with ``/`` and the first word of a name that there is; everything else is text for
the model, a path like ``/etc/passwd`` too. Arguments are words, or texts in quotation marks. Pure.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

from pyagentd.agent.commands.command import Argument, Command
from pyagentd.errors import BadRequest

_HEAD = re.compile(r"/([A-Za-z][\w:.-]*)(?!\S)")
_WORD = re.compile(r"""(?s:"((?:[^"\\]|\\.)*)"|'([^']*)')(?!\S)|(\S+)""")
_ESCAPED = re.compile(r'\\(["\\])')


class Token(NamedTuple):
    """A word, or a quoted text; ``start`` and ``end`` are where it is in the text."""

    text: str
    start: int
    end: int
    is_quoted: bool


class Typed(NamedTuple):
    """A command as it was typed."""

    command: Command
    arguments: Mapping[str, Any]


def may_be_command(text: str) -> bool:
    """Return whether a prompt looks like a command, whatever commands there are."""
    return _HEAD.match(text) is not None


def typed(text: str, known: Mapping[str, Command]) -> Typed | None:
    """Return the command that a prompt is; None when it is text for the model.

    Raises:
        BadRequest: It is one, and its arguments do not fit.
    """
    head = _HEAD.match(text)
    if head is None or not (own := [name for name in known if name.split()[0] == head[1]]):
        return None
    words = list(tokens(text, head.start() + 1))
    spelt = [token.text for token in words]
    name = max((name for name in own if name.split() == spelt[: len(name.split())]), key=len, default="")
    if not name:
        second = {each.split()[1] for each in own}
        near = get_close_matches(spelt[1], second, 1) if len(spelt) > 1 else []
        mend = f"Did you mean /{head[1]} {near[0]}?" if near else f"There is /{head[1]} {'|'.join(sorted(second))}"
        raise BadRequest(f"/{' '.join(spelt[:2])} is no command", mend=mend)
    command = known[name]
    return Typed(command, arguments_of(command, text, words[len(name.split()) :]))


def tokens(text: str, start: int) -> Iterator[Token]:
    """Yield the words of a text from ``start`` on."""
    for found in _WORD.finditer(text, start):
        double, single, bare = found.groups()
        quoted = single if double is None else _ESCAPED.sub(r"\1", double)
        yield Token(bare if quoted is None else quoted, *found.span(), bare is None)


def arguments_of(command: Command, text: str, given: list[Token]) -> dict[str, Any]:
    """Return the arguments of a command by name; raises ``BadRequest``."""
    flags = {f"--{each.name.replace('_', '-')}": each for each in command.arguments if each.takes == "flag"}
    expected = [each for each in command.arguments if each.takes != "flag"]
    found: dict[str, Any] = {}
    left = deque(given)
    while left and left[-1].text in flags and not left[-1].is_quoted:  # also behind the rest of a line
        found[flags[left.pop().text].name] = True
    end = left[-1].end if left else 0
    while left:
        token = left.popleft()
        if not token.is_quoted and token.text in flags:
            found[flags[token.text].name] = True
        elif not expected:
            raise BadRequest(f"/{command.name} takes no {token.text[:60]!r}", mend=command.synopsis)
        elif expected[0].takes == "rest":
            alone = token.is_quoted and not left
            found[expected.pop(0).name] = token.text if alone else text[token.start : end].strip()
            left.clear()
        elif expected[0].quoted and not token.is_quoted and any(each.text not in flags for each in left):
            text = " ".join([token.text, *(each.text for each in left)])[:60]
            raise BadRequest(
                f"/{command.name}: {expected[0].name} is a text of several words here",
                mend=f'Put it in quotation marks, such as "{text}"',
            )
        else:
            found[expected[0].name] = _checked(command, expected[0], token.text)
            expected.pop(0)
    if missing := next((each for each in expected if each.required), None):
        raise BadRequest(f"/{command.name} needs {_article(missing)}", mend=command.synopsis)
    return found


def _checked(command: Command, argument: Argument, value: str) -> str:
    if argument.choices and value not in argument.choices:
        raise BadRequest(
            f"/{command.name}: {value[:60]!r} is no {argument.name}", mend=f"One of {', '.join(argument.choices)}"
        )
    return value


def _article(argument: Argument) -> str:
    return argument.summary or f"a {argument.name}"
