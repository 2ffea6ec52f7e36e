"""Tells clients what the user may pick and what the agent is about; see ``chips`` and ``todo``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyagentd.agent.dialogue import chips, todo
from pyagentd.events import Event

if TYPE_CHECKING:
    from pyagentd.agent.branches.branch import LiveBranch
    from pyagentd.agent.running.outcome import Outcome
    from pyagentd.agent.running.settings import SendOptions
    from pyagentd.store.paths import BranchRef


def tell_anew(branch: LiveBranch) -> None:
    """Tell whoever watches a branch the agent's steps and what may be picked, after its history changed."""
    if branch.sinks:
        branch.publish(Event("todo", branch.key, 0, ({"items": todo.current(branch.conversation)},)))
        branch.publish(Event("chips", branch.key, 0, (chips.standing(branch.conversation).told(),)))


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
