"""``sed`` and ``awk``: programs whose first operand is a program itself."""

from __future__ import annotations

import re

from pyagentd.policy.shell.found import Found
from pyagentd.policy.shell.options import given
from pyagentd.policy.shell.program import Program, roles_of
from pyagentd.policy.shell.values import Unreadable, Word

_SED = Program(takes="-l --line-length", script="-e --expression", maybe="-i --in-place", runs="-f --file")
_AWK = Program(takes="-F -v")


def read_sed(found: Found) -> None:
    """Add what the script of a ``sed`` runs and writes, and the files it edits in place."""
    items = list(given(found.words, roles_of(_SED)))
    scripts = [item.value for item in items if item.role == "script" and item.value is not None]
    operands = [item.value for item in items if item.role == "operand" and item.value is not None]
    for item in items:
        if item.role == "runs":
            found.runs(item.name, item.at, "runs a script that is in a file")
    if not scripts and not any(item.role == "runs" for item in items):
        scripts, operands = operands[:1], operands[1:]
    if any(item.name in ("-i", "--in-place") for item in items):
        if not all(word.text for word in (*scripts, *operands)):
            raise Unreadable(
                f"`{found.program} -i` followed by an empty word means different things on different systems"
            )
        suffixes = [item.value for item in items if item.name in ("-i", "--in-place") and item.value is not None]
        if any("/" in suffix.text or "*" in suffix.text for suffix in suffixes):
            raise Unreadable(f"`{found.program} -i` keeps copies in places that its suffix describes")
        for word in operands:
            found.write(word)
            if suffixes:
                found.write_beside(word)
    for script in scripts:
        _literal(script, found)
        if not is_harmless_sed(script.text):
            found.runs("e", what="runs programs or writes files, unless its script is one of the plain kind")


def read_awk(found: Found) -> None:
    """Add what the program of an ``awk`` runs and writes."""
    items = list(given(found.words, roles_of(_AWK)))
    for item in items:
        if item.role == "unknown":
            found.runs(item.name, item.at, "runs a program that cannot be read here")
        if item.role == "takes" and item.value is not None:
            _literal(item.value, found)
    program = next((item.value for item in items if item.role == "operand"), None)
    if program is not None:
        _literal(program, found)
        if not is_harmless_awk(program.text):
            found.runs("system", what="runs programs or writes files, which its program seems to do")


def _literal(word: Word, found: Found) -> None:
    if word.varies:
        raise Unreadable(f"what `{found.program}` does is in the pattern `{word.text}`; quote it")


# -- sed -----------------------------------------------------------------------------------------------------------

_ADDRESS = r"(?:\d+(?:~\d+)?|\$|/(?:[^/\\\n\[]|\\[^\n]|\[\^?\]?[^\]/\n]*\])*/[IM]*)"
_WHERE = re.compile(rf"[\s;]*(?:{_ADDRESS}(?:\s*,\s*(?:{_ADDRESS}|[+~]\d+))?)?\s*!?\s*")
_PLAIN = re.compile(r"[{}]|[pdqQnNDgGhHxPl=zF]\s*\d*|[btT]\s*\w*|:\s*\w+|[aic][ \t]+[^\\\n]*(?=\n|$)")
_SEPARATED = re.compile(r"\s*(?:[;\n]|(?=\})|$)")


def is_harmless_sed(script: str) -> bool:
    """Return whether every command of ``script`` is one that neither runs, nor reads or writes another file."""
    at = 0
    while at < len(script):
        where = _WHERE.match(script, at)
        at = where.end() if where else at
        if at == len(script):
            return not script[where.start() if where else 0 : at].strip(" \t\n;")
        command = _PLAIN.match(script, at) or _substitution(script, at)
        if command is None:
            return False
        at = command.end()
        if script[command.start()] not in "{}":
            separated = _SEPARATED.match(script, at)
            if separated is None:
                return False
            at = separated.end()
    return True


def _substitution(script: str, at: int) -> re.Match[str] | None:
    """Match ``s`` or ``y`` with flags that do no harm; every sed must agree on where it ends."""
    delimiter = script[at + 1 : at + 2]
    if script[at] not in "sy" or not delimiter or delimiter.isalnum() or delimiter in "\\\n[] \t":
        return None
    end = re.escape(delimiter)
    text = rf"(?:[^{end}\\\n\[]|\\[^\n]|\[\^?\]?[^\]{end}\n]*\])*"
    other = rf"(?:[^{end}\\\n]|\\[^\n])*"
    return re.compile(rf"[sy]{end}{text}{end}{other}{end}[gpIiMm\d]*").match(script, at)


# -- awk -----------------------------------------------------------------------------------------------------------

_RUNS_OR_READS = re.compile(r"system|getline|@|extension|(?<!\|)\|(?!\|)|\|&")


def is_harmless_awk(program: str) -> bool:
    """Return whether ``program`` has nothing with which awk runs, or writes or reads another file."""
    if _RUNS_OR_READS.search(program):
        return False
    _, brace, statements = program.partition("{")
    return not (brace and "print" in statements and ">" in statements)
