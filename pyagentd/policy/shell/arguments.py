"""What one command does beyond its plain purpose, from its options and operands."""

from __future__ import annotations

import posixpath
import re

from pyagentd.policy.shell.found import Found
from pyagentd.policy.shell.options import Given, given
from pyagentd.policy.shell.program import Program, roles_of
from pyagentd.policy.shell.values import Unreadable, Word, names

_HERE = Word(text=".")
_KEEP_LINKS = "-a --archive -d -P --no-dereference -R -r --recursive -l --links"  # of cp and rsync
_NO_MODES = names("-R -v -c -f -h -H -L -P --from")


def apply(program: Program, found: Found) -> None:
    """Add to ``found`` what its words make ``program`` do."""
    items = list(given(found.words, roles_of(program)))
    for item in items:
        _option(item, program, found)
    if found.fed and sum(item.role == "operand" and not _is_input(item.value) for item in items) < program.feeds:
        found.runs("< …", what="takes what it runs from its input")
    if not any(item.certain and item.name in program.prints.split() for item in items):
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
        case "suffix" if item.value is not None and "/" in item.value.text:
            raise Unreadable(f"`{found.program} {item.name}` with a `/` writes elsewhere")
        case "writes":
            found.write(item.value)
            if program.beside == "*" and item.value is not None:
                found.write_beside(item.value)
        case "into" if item.value is not None:
            found.write_into(item.value)
        case "drops":
            found.write_into(_HERE)
        case "takes" if item.value is not None and item.value.varies:
            raise Unreadable(f"what `{item.value.text}` after `{item.name}` becomes cannot be told before; quote it")
        case "takes" | "operand" if program.code and item.value and re.search(program.code, item.value.text):
            found.runs(item.value.text, item.at, program.what)


def _operands(program: Program, items: list[Given], found: Found) -> None:
    operands = [item.value for item in items if item.role == "operand" and item.value is not None]
    into = next((item.value for item in items if item.role == "into"), None)
    found.links = program.links
    if program.here and into is None:
        found.write_into(_HERE)
    match program.operands:
        case "written":
            written = operands
        case "removed":
            written = []
            for word in operands:
                found.write(word, links=False)
        case "first":
            written = operands[:1]
        case "second":
            written = operands[1:] + _late_options(items, found)
        case "moded":
            written = operands if any(_may_be_mode(item) for item in items) else operands[1:]
        case "copied" | "moved" | "linked":
            written = []
            _copied(program, items, operands, into, found)
            if any(_means(item.name, program.makes) for item in items):
                written = operands
        case _:
            written = []
    for word in written:
        found.write(word)
        if program.beside == "*":
            found.write_beside(word)


def _late_options(items: list[Given], found: Found) -> list[Word]:
    """Return what looks like an option after an operand: some of these programs take it for a file."""
    first = min((item.at for item in items if item.role == "operand"), default=len(found.words))
    return [word for word in found.words[first + 1 :] if word.text.startswith("-")]


def _copied(program: Program, items: list[Given], operands: list[Word], into: Word | None, found: Found) -> None:
    *sources, target = [*operands, into] if into is not None else operands or [_HERE]
    found.links = (
        program.operands in ("moved", "linked")
        or _is_hard_link(program, items)
        or any(_means(item.name, _KEEP_LINKS) for item in items)
    )
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
        backups = any(_means(item.name, program.beside) for item in items)
        if into is None and target.text.rpartition("/")[2] not in ("", ".", ".."):
            found.write(target)
        _arrive(sources or [_HERE], target, found, backups=backups)


def _arrive(sources: list[Word], target: Word, found: Found, *, backups: bool) -> None:
    """Add what is written where ``target`` is a directory."""
    if backups:
        found.write_into(target)
        found.write_beside(target)
    for source in sources:
        name = source.text.rstrip("/").rpartition("/")[2]
        found.write_into(target, "*" if source.varies or name in ("", ".", "..") else name)


def _is_hard_link(program: Program, items: list[Given]) -> bool:
    """Return whether ``cp`` links instead of copying."""
    return program.operands == "copied" and any(_means(item.name, "-l --link -s --symbolic-link") for item in items)


def _means(name: str, options: str) -> bool:
    """Return whether ``name`` is one of ``options``, or may be the beginning of a long one."""
    return any(name == option or (len(name) > 2 and option.startswith(name)) for option in options.split())


def _may_be_mode(item: Given) -> bool:
    """Return whether this stands for the mode, so that the first operand is a file: ``chmod -w FILE``."""
    return item.role != "operand" and item.name not in _NO_MODES


def _is_input(word: Word | None) -> bool:
    return word is not None and word.text in ("-", "/dev/stdin")


def _is_remote(word: Word) -> bool:
    return ":" in word.text.partition("/")[0]
