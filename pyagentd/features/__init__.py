"""Features that a user can name: sub-agents, compaction, history, hooks, schedules, MCP servers and more."""

from typing import TYPE_CHECKING

from pyagentd import door

if TYPE_CHECKING:
    from pyagentd.features import missions
else:
    __getattr__ = door(__name__, "missions")

__all__ = ["missions"]
