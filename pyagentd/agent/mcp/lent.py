"""Servers that a client names for one branch: another editor has its own, and sends them with each session it opens.

They are the user's, since the client is; they are kept in memory alone, because their variables and headers are often
secrets. A run goes on without its client, and so do they: until the client names others, or the daemon ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pyagentd.config.tables import ServerSettings
from pyagentd.log import conceal


class Lent:
    """The servers that were lent to branches."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[ServerSettings, ...]] = {}

    def lend(self, key: str, servers: Sequence[ServerSettings]) -> None:
        """Have the branch with that key get ``servers`` from its next run on, in place of those lent before.

        The protocol has no variables in them, so a password may well have a ``${`` in it.
        """
        for server in servers:
            for _, value in (*server.env, *server.headers):
                conceal(value)
        self._of.pop(key, None)
        if servers:
            self._of[key] = tuple(replace(server, literal=True) for server in servers)

    def forget(self, directory: Path) -> None:
        """Take back what was lent to the branches in a directory that is gone: another may get its name."""
        self._of = {key: servers for key, servers in self._of.items() if not Path(key).is_relative_to(directory)}

    def has(self, key: str) -> bool:
        """Return whether anything is lent to a branch."""
        return key in self._of

    def beside(self, key: str, known: Mapping[str, ServerSettings]) -> tuple[list[ServerSettings], list[str]]:
        """Return those lent to a branch, and why others of them are not among them.

        Args:
            key: Of the branch.
            known: The configured servers by name: grants speak of names, so theirs are taken.
        """
        lent = self._of.get(key, ())
        taken = [each for each in lent if each.name in known and _started(each) != _started(known[each.name])]
        problems = [
            f"The editor's MCP server {each.name} is not started: one that you configured has its name"
            for each in taken
        ]
        return [each for each in lent if each.name not in known], problems


def _started(server: ServerSettings) -> tuple[object, ...]:
    return server.command, server.url, dict(server.env), dict(server.headers)
