"""What a command of an agent may touch, as values; where they come from is the business of ``agent``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pyagentd.config import Confinement

Mechanism = Literal["bubblewrap", "landlock"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellScope:
    """The rules for one command, read anew for each. Patterns are those of ``policy.patterns``."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()  # the agent's own and those of every session above it
    protected: tuple[str, ...] = ()  # absolute paths that are read at most: sessions root, configuration
    hidden: tuple[str, ...] = ()  # absolute paths of directories nobody may see: that of the daemon's socket
    closed: tuple[
        str, ...
    ] = ()  # absolute paths of directories seen only where the scope names something inside them
    own: tuple[str, ...] = ()  # absolute paths inside ``closed`` that are seen where the scope is around them
    records: tuple[str, ...] = ()  # directories whose metadata is watched: the agent's and those above it
    commands: tuple[str, ...] = ()  # ``shell_commands.allow``
    network: bool = False
    confine: bool = True  # the preset's word
    wanted: Confinement = "auto"  # the machine's


UNCONFINED = ShellScope(confine=False)
