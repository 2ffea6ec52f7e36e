"""Which runs a daemon that stops leaves to the next one.

Those that only wait for a human, or for agents that do, and those with calls that have not begun while nothing has
come yet of a human's answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyagentd.agent.approving.asks import AskBoard
from pyagentd.agent.branches.branch import LiveBranch
from pyagentd.store.unfinished import answered

Opened = Callable[[str], LiveBranch | None]


def waiting(runs: Sequence[LiveBranch], asks: AskBoard, opened: Opened) -> frozenset[str]:
    """Return the keys of those branches whose runs wait.

    Args:
        runs: The branches with a run in flight.
        asks: The open questions.
        opened: Returns the branch with a key if it is open.
    """
    found: set[str] = set()
    for branch in runs:
        if branch.run is not None and (asks.of_run(branch.run.id) or answered(branch.conversation)):
            above: LiveBranch | None = branch
            while above is not None and above.key not in found:
                found.add(above.key)
                above = _waiting_for(above, opened)
    return frozenset(found)


def _waiting_for(agent: LiveBranch, opened: Opened) -> LiveBranch | None:
    """Return the branch whose run waits for an agent's."""
    session, parent = agent.conversation.session, opened(str(agent.ref.branch_dir.parent.parent))
    if not agent.ref.is_agent or session.get("background") or parent is None or parent.run is None:
        return None
    return parent if session.get("parent_run_id") == parent.run.id else None
