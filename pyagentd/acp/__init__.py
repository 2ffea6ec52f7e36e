"""The Agent Client Protocol on stdio, for using the same sessions in other editors; a client of the daemon.

The daemon owns the turns and their log. Updates for an editor are made from the rows of the log; the first answer to
an ask counts, from whichever client; runs go on when the editor quits.
"""

from typing import TYPE_CHECKING

from pyagentd import door

if TYPE_CHECKING:
    from pyagentd.acp import agent
else:
    __getattr__ = door(__name__, "agent")

__all__ = ["agent"]
