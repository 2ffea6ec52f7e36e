"""The Agent Client Protocol on stdio: other editors use the same sessions. A client of the daemon, as ``cli`` is.

The daemon owns the turns and their record: what an editor is told is folded from the rows of the log, an ask is
answered where somebody answers it first, and an editor that goes away leaves its runs going.
"""

from typing import TYPE_CHECKING

from pyagentd.door import door

if TYPE_CHECKING:
    from pyagentd.acp import agent
else:
    __getattr__ = door(__name__, "agent")

__all__ = ["agent"]
