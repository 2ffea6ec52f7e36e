"""What a mission knows about a program's mistakes that the language cannot: its tools, its data, earlier programs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pyagentd.lisp.errors import LispError
from pyagentd.mission.tools import Tool
from pyagentd.spelling import did_you_mean

_UNDEFINED: Final = re.compile(r"undefined variable: (\S+)")
_DEFINES: Final = re.compile(r"\(def(?:n-?|once)?\s+([^\s()\[\]{}\"]+)")
_READS: Final = re.compile(r"(?<![\w\"/])ctx/([\w*+!?<>=-]+)")
_PRINTS: Final = re.compile(r"\((?:println|print|prn|pr|tap>)[\s)]")
_NEAR: Final = 0.8


def with_hint(error: LispError, tools: Mapping[str, Tool], before: Iterable[str | None]) -> LispError:
    """Return the error of a program with what to write instead of a name it does not know.

    Args:
        error: Any error of a program.
        tools: What the mission offers or shows.
        before: The mission's earlier programs.
    """
    unknown = _UNDEFINED.fullmatch(error.message)
    hint = unknown and _instead(unknown[1], tools, before)
    if not hint:
        return error
    made = LispError(error.reason, error.message, hint=hint)
    return made.at(error.line, error.column, error.source)


def _instead(name: str, tools: Mapping[str, Tool], before: Iterable[str | None]) -> str:
    for spelled in (name, name.removeprefix("tool/"), name.removeprefix("tools/"), name.replace("-", "_")):
        if spelled in tools:
            signature = tools[spelled].signature
            args = " ".join(f":{each.name} …" for each in signature.params) if signature else "…"
            return f'Call a tool as (call "{spelled}" {{{args}}}).'
    if any(name in _DEFINES.findall(program) for program in before if program):
        return (
            f"What def names lasts for one program. Define it again, or keep data with (memory/put :{name} …) "
            f"and read memory/{name} in later programs."
        )
    return ""


def missing(program: str, context: Mapping[str, Any]) -> list[str]:
    """Return a sentence for every name of the context that a program reads, is not there, and looks mistyped."""
    found = []
    for name in dict.fromkeys(_READS.findall(program)):
        if name in context:
            continue
        if meant := did_you_mean(name, context, shown="ctx/{}", inside=True, cutoff=_NEAR):
            found.append(f"There is no ctx/{name}, it is nil; {meant}")
    return found


def printed(program: str, value: Any) -> list[str]:
    """Return what to say to a program that prints and evaluates to nothing."""
    if value is not None or not _PRINTS.search(program):
        return []
    return ["What is printed is not shown; you read what a program evaluates to, so end it with what you want to see"]
