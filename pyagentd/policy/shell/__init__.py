"""Reads a shell command without running it: what it runs, reads, writes and deletes; what it cannot read is denied.

``read`` takes a line apart; ``refusal`` and ``denied`` hold what it found against ``shell_commands``. The rule:

1. Every simple command of the line must be admitted by an entry of ``allow``: its first words are the entry's, so
   ``git`` admits every ``git`` and ``git log`` only that. What a wrapper, ``find -exec`` or ``sh -c`` runs is a
   command of its own. A program named by its path is not the program of that name. ``cd`` to a literal place is free.
2. An entry admits a program's plain purpose. What an option adds needs its own allowance: an *effect* is admitted by
   an entry that names it (``find -delete``), by one that spells the command out up to that option, or by the program
   that does just that: ``rm`` for whatever deletes, ``sh`` or ``bash`` for whatever runs what nobody can read.
3. Files that are known to be read or written (redirects, options, operands of programs that write) are ``reads`` and
   ``writes``; the guard holds them against ``paths``, also when everything else is allowed.
4. A program that is not known is whatever its name was allowed for.
5. Where nothing confines a command, ``*`` stands for ``understood`` alone, and what such a program is given to look
   at counts as read. A path that lies behind a link the line itself may make is no certain one.
6. What cannot be read for certain is admitted by nobody but a human who sees the whole text.

Programs are a table (``programs``); ``git``, ``find``, ``sed``, ``awk`` and ``tar`` are read by code of their own.
Nothing here looks at the disk, and the grammar is bash's with a clean environment, no aliases and no ``extglob``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyagentd.policy.shell.values import ANY, Effect, ShellReading, SimpleCommand

if TYPE_CHECKING:
    from pyagentd.policy.shell.admission import allowed_by_name, denied, refusal
    from pyagentd.policy.shell.grammar import read

__all__ = ["ANY", "Effect", "ShellReading", "SimpleCommand", "allowed_by_name", "denied", "read", "refusal"]

_MODULES = {"allowed_by_name": "admission", "denied": "admission", "refusal": "admission", "read": "grammar"}


def __getattr__(name: str) -> Any:
    """Load what reads and judges a command line when the first one comes."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return found
