"""Tells clients, when a run has ended, which options its answer offers; see ``chips``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyagentd.agent import chips
from pyagentd.events import Event

if TYPE_CHECKING:
    from pyagentd.agent.branch import LiveBranch
    from pyagentd.agent.run import Outcome
    from pyagentd.agent.settings import SendOptions
    from pyagentd.store.paths import BranchRef


class Suggesting:
    """A listener of the host."""

    def run_ended(self, branch: LiveBranch, outcome: Outcome, options: SendOptions) -> None:
        """Tell whoever watches a branch what its user may pick."""
        if outcome.reason != "done" or not branch.sinks:
            return
        found = chips.standing(branch.conversation)
        if found.options:
            branch.publish(Event("chips", branch.key, 0, (found.told(),)))

    def branch_written(self, ref: BranchRef) -> None:
        """Do nothing: only answers matter here."""
