"""Everything on disk. No other room opens the files of a session."""

from typing import TYPE_CHECKING

from pyagentd import door

if TYPE_CHECKING:
    from pyagentd.store import configfile, modellists, named_agents, paths, presetfile, registry
else:  # for the command line, most of whose commands need none of them
    __getattr__ = door(__name__, "configfile", "modellists", "named_agents", "paths", "presetfile", "registry")

__all__ = ["configfile", "modellists", "named_agents", "paths", "presetfile", "registry"]
