"""The builtins as tables of the language reference: ``python -m tests.lisp.builtins.reference docs/lisp.md``.

The tables stand between two marks in the page; everything else in it is written by hand.
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from pyagentd.lisp.builtins import FAMILIES
from pyagentd.lisp.builtins.table import Builtin, Family

BEGIN: Final = "<!-- builtins: made by python -m tests.lisp.builtins.reference -->"
END: Final = "<!-- end of builtins -->"


def with_tables(page: str) -> str:
    """Return a page with its tables made anew.

    Raises:
        ValueError: when the page lacks the marks.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError("the page has no marks for the tables")
    return f"{before}{BEGIN}\n\n{tables()}\n{END}{after}"


def tables() -> str:
    """Return one section with a table for every family."""
    return "\n".join(map(_section, FAMILIES))


def _section(family: Family) -> str:
    names: dict[str, list[str]] = {}
    for each in family.builtins.values():
        names.setdefault(each.alias_of or each.name, []).append(each.name)
    rows = [_row(family.builtins[name], others[1:]) for name, others in names.items()]
    return "\n".join([f"### {family.title}", "", "| call | what it does | example |", "|---|---|---|", *rows, ""])


def _row(builtin: Builtin, others: Iterable[str]) -> str:
    call = _code(f"({' '.join([builtin.name, *builtin.parameters])})")
    also = ", ".join(map(_code, others))
    program, value = builtin.examples[0]
    doc = builtin.doc.replace("``", "`").replace("|", "\\|")
    return f"| {call}{f' also {also}' if also else ''} | {doc} | {_code(program)} → {_code(value)} |"


def _code(text: str) -> str:
    escaped = text.replace("|", "\\|")
    return f"`` {escaped} ``" if "`" in text else f"`{escaped}`"


def main(paths: Iterable[str]) -> None:
    """Make the tables of pages anew."""
    for each in map(Path, paths):
        each.write_text(with_tables(each.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
