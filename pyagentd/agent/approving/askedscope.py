"""What a model asks to be added to the scope, read: from a tool's name and its words to a ``Widening``.

Looks at the disk: a pattern is made one of the files that would really be opened.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from pyagentd.errors import ToolError, UserError
from pyagentd.policy import shell
from pyagentd.policy.action import META_TOOLS
from pyagentd.policy.patterns import exactly, normalised, validate_pattern
from pyagentd.policy.widening import ROAM_KEYS, Right, Widening
from pyagentd.tools.spec import ToolSpec

_WILD = re.compile(r"[*?\[]")

_ROAM_TOOLS = ("create_roam_node_in_scope", "add_roam_tags_in_scope", "link_roam_nodes_in_scope")


def widening_for(tools: Mapping[str, ToolSpec], tool: str, patterns: Sequence[str], root: Path) -> Widening:
    """Return what ``patterns`` for ``tool`` (our name) would add to the scope; looks at the disk.

    Raises:
        ToolError: Nobody knows the tool, it has no scope, or a pattern is malformed.
    """
    right = _right_of(tools, tool)
    try:
        match right:
            case "read" | "write":
                return Widening(right=right, patterns=_unique(_path_pattern(each, root) for each in patterns))
            case "command":
                programs = [program for each in patterns for program in _programs(each)]
                return Widening(right=right, patterns=_unique(programs), commands=_unique(patterns))
            case "pattern":
                return Widening(right=right, patterns=_unique(entry for each in patterns for entry in _roam(each)))
    except UserError as error:
        raise ToolError(str(error)) from error


def asked_lines(commands: Sequence[str]) -> Iterator[str]:
    """Yield lines that show the command lines that were asked for, whole, and what each of them runs."""
    for number, text in enumerate(commands, 1):
        yield f"Command {number}, as asked for:"
        yield from (f"  {line}" for line in text.splitlines())
        reading = shell.read(text)
        if reading.unreadable is not None:
            yield f"  Nobody can tell beforehand what it does: {reading.unreadable}"
        elif len(reading.commands) > 1:
            yield "  It runs:"
            yield from (f"    {each.text}" for each in reading.commands)


def _right_of(tools: Mapping[str, ToolSpec], tool: str) -> Right:
    if tool in _ROAM_TOOLS:
        return "pattern"
    if tool in META_TOOLS:
        raise ToolError(f"{tool} has no scope that could be expanded")
    spec = tools.get(tool)
    match None if spec is None else spec.kind:
        case None | "meta" | "net" | "mcp" | "self":
            raise ToolError(f"There is no tool {tool!r} with a scope. Known: {', '.join(tools)}")
        case right:
            return right


def _path_pattern(text: str, root: Path) -> str:
    """Return ``text`` as the pattern of the files that would really be opened: absolute, links followed."""
    if "\0" in text or "\n" in text:
        raise ToolError(f"{text!r} is no pattern: it has a control character")
    pattern = normalised(text.strip())
    if not pattern.startswith(("/", "**/")):
        pattern = f"{exactly(str(root))}/{pattern.removeprefix('./')}"
    wild = _WILD.search(pattern)
    if wild is None:  # a path: of a directory everything in it is meant
        path = os.path.realpath(os.path.normpath(pattern))
        return exactly(path) + ("/**" if os.path.isdir(path) else "")  # noqa: PTH112 - text, as everywhere here
    validate_pattern(pattern)
    if pattern.startswith("**/"):
        return pattern
    directory, slash, rest = pattern[: wild.start()].rpartition("/")
    tail = slash + rest + pattern[wild.start() :]
    if "\\" in directory:
        return pattern
    return exactly(os.path.realpath(directory or "/")).rstrip("/") + tail


def _programs(command: str) -> list[str]:
    """Return what ``shell_commands.allow`` needs for each command of a line; of one not read its first word."""
    reading = shell.read(command)
    if reading.unreadable is not None or not reading.commands:
        return [_first_word(command)]
    return [each.words[0] for each in reading.commands]


def _first_word(command: str) -> str:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ToolError(f"{command!r} cannot be read as a command: {error}") from None
    word = words[0] if words else ""
    if not re.fullmatch(r"[\w.+/@-]+", word) or word.startswith("-"):
        raise ToolError(
            f"{command!r} does not begin with the name of a command. Name plain commands, such as `make`."
        )
    return word


def _roam(entry: str) -> list[str]:
    key, separator, value = entry.partition(":")
    values = [each.strip() for each in (value.split(",") if key != "subdirectory" else [value]) if each.strip()]
    if not separator or key not in ROAM_KEYS or not values:
        raise ToolError(f"{entry!r} says nothing about notes. Write subdirectory:GLOB, tags:A,B or node_ids:*")
    return [f"{key}:{each}" for each in values]


def _unique(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))
