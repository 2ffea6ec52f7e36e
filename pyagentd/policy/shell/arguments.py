"""What one command does beyond its plain purpose, from its options and operands."""

from __future__ import annotations

import posixpath
import re

from pyagentd.policy.shell.found import Found
from pyagentd.policy.shell.options import Given, given
from pyagentd.policy.shell.programs import Program, roles_of
from pyagentd.policy.shell.values import Unreadable, Word

_HERE = Word(text=".")


def apply(program: Program, found: Found) -> None:
    """Add to ``found`` what its words make ``program`` do."""
    items = list(given(found.words, roles_of(program)))
    for item in items:
        _option(item, program, found)
    if not any(item.name in program.prints.split() for item in items if item.name):
        _operands(program, items, found)


def _option(item: Given, program: Program, found: Found) -> None:
    match item.role:
        case "runs":
            found.runs(item.name, item.at)
        case "does":
            found.runs(item.name, item.at, program.what)
        case "deletes":
            found.deletes(item.name, item.at)
        case "reads":
            found.read(item.value)
        case "writes":
            found.write(item.value)
        case "into" if item.value is not None:
            found.write_into(item.value)
        case "drops":
            found.write_into(_HERE)
        case "takes" if item.value is not None and item.value.varies:
            raise Unreadable(f"what `{item.value.text}` after `{item.name}` becomes cannot be told before; quote it")
        case "takes" | "operand" if program.code and item.value and re.search(program.code, item.value.text):
            found.runs(item.value.text, item.at, "makes it run or write something")


def _operands(program: Program, items: list[Given], found: Found) -> None:
    operands = [item.value for item in items if item.role == "operand" and item.value is not None]
    into = next((item.value for item in items if item.role == "into"), None)
    if program.here and into is None:
        found.write_into(_HERE)
    match program.operands:
        case _ if any(item.name in program.makes.split() for item in items):
            written = operands
        case "written":
            written = operands
        case "removed":
            written = []
            for word in operands:
                found.write(word, links=False)
        case "first":
            written = operands[:1]
        case "second":
            written = operands if any(item.name == "--reference" for item in items) else operands[1:]
        case "copied" | "moved" | "linked":
            written = []
            _copied(program, items, operands, into, found)
        case _:
            written = []
    for word in written:
        found.write(word)


def _copied(program: Program, items: list[Given], operands: list[Word], into: Word | None, found: Found) -> None:
    *sources, target = [*operands, into] if into is not None else operands or [_HERE]
    if program.operands == "linked" and not sources:
        sources, target = [target], _HERE  # `ln FILE` links to it here
    sources = [source for source in sources if not _is_remote(source)]
    reaches_source = program.operands in ("moved", "linked") or _is_hard_link(program, items)
    for source in sources:
        if reaches_source:
            # What is written to the new name of a link is written to what it links to, wherever that is.
            found.write(source, links=program.operands != "moved")
            if program.operands == "linked" and not source.text.startswith("/"):
                beside = Word(text=posixpath.dirname(target.text) or ".", home=target.home and "/" in target.text)
                found.write_into(beside, source.text)
        elif not source.varies:
            found.read(source)
    if not _is_remote(target):
        _arrive(sources or [_HERE], target, found)


def _arrive(sources: list[Word], target: Word, found: Found) -> None:
    """Add what is written where ``target`` is a directory, and where it is not."""
    if target.text.rpartition("/")[2] not in ("", ".", ".."):
        found.write(target)
    for source in sources:
        name = source.text.rstrip("/").rpartition("/")[2]
        found.write_into(target, "*" if source.varies or name in ("", ".", "..") else name)


def _is_hard_link(program: Program, items: list[Given]) -> bool:
    """Return whether ``cp`` links (``-l``, ``-s``) instead of copying; names may be abbreviated."""
    names = [item.name for item in items]
    return any(
        name in ("-l", "-s") or (len(name) > 2 and ("--link".startswith(name) or "--symbolic-link".startswith(name)))
        for name in names
    )


def _is_remote(word: Word) -> bool:
    return ":" in word.text.partition("/")[0]
