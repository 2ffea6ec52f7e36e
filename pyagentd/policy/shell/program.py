"""What can be said of a program in the table of them, and the roles of its options."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal, get_args

from pyagentd.policy.shell.options import Role

Operands = Literal[
    "",  # read, or no files
    "written",
    "removed",
    "copied",  # all but the last to the last
    "moved",  # the same, and removed
    "linked",  # the same; a hard link lets one write to what it links to
    "first",  # the first is written
    "second",  # what follows the first is written
    "moded",  # the same; the first is a mode, which may look like an option
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Options by what they do, and what its operands are."""

    takes: str = ""
    maybe: str = ""  # an argument only where it is attached
    script: str = ""
    reads: str = ""
    writes: str = ""
    into: str = ""
    runs: str = ""
    does: str = ""  # no argument: makes it run something
    deletes: str = ""  # no argument
    drops: str = ""  # no argument: makes it write files in the current directory
    operands: Operands = ""
    here: bool = False  # it writes files in the current directory, or instead where an ``into`` says
    beside: str = ""  # with one of these, or always with "*", it writes others beside what it writes
    suffix: str = ""  # options whose argument is added to names of files
    makes: str = ""  # with one of these every operand is written
    feeds: int = 0  # with fewer operands than this it takes commands from its standard input
    links: bool = False  # it may make links
    prints: str = ""  # with one of these it writes nothing of all this
    code: str = ""  # a regular expression: an operand or an argument of ``takes`` in which it is found does something
    what: str = "runs something"  # what such an argument and the options of ``does`` do


@cache
def roles_of(program: Program) -> dict[str, Role]:
    """Return what each option that is known of a program does."""
    return {option: role for role in get_args(Role) for option in getattr(program, role, "").split()}
