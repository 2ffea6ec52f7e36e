"""The Agent Client Protocol on stdio: other editors use the same sessions. A client of the daemon, as ``cli`` is.

The daemon owns the turns and their record. Updates for an editor are made from the rows of the log; the first answer
to an ask counts, from whichever client; runs go on when the editor quits.
"""

from typing import TYPE_CHECKING

from pyagentd.door import door

if TYPE_CHECKING:
    from pyagentd.acp import agent
else:
    __getattr__ = door(__name__, "agent")

__all__ = ["agent"]
