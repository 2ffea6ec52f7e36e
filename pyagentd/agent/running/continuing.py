"""A run that an earlier daemon left waiting in a branch, found again: what it needs to go on.

What it saw is read from the document as it was when the run began; what of its answer is recorded, and what it had
asked, from the log. Whoever answers stands in for its client (``settings.Late``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyagentd.agent.branches.branch import LiveBranch
from pyagentd.agent.compacting.taken_up import compacted_view
from pyagentd.agent.running.equipping import Equipping
from pyagentd.agent.running.resuming import Resumed
from pyagentd.agent.running.runsettings import RunSettings
from pyagentd.agent.running.settings import SendOptions
from pyagentd.agent.turns import turn
from pyagentd.errors import BadRequest
from pyagentd.messages import Message
from pyagentd.policy.profiles import compile_action
from pyagentd.store import paths
from pyagentd.store.journal import served_by
from pyagentd.store.unfinished import standing as standing_of

if TYPE_CHECKING:  # the host resumes runs
    from pyagentd.agent.host import Host


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """What a run goes on with."""

    options: SendOptions
    view: tuple[Message, ...]  # what the model sees, its finished steps last
    settings: RunSettings
    resumed: Resumed
    asks: tuple[Mapping[str, Any], ...]  # rows of all questions that it asked


async def continuation(host: Host, branch: LiveBranch, run_id: str) -> Continuation | None:
    """Return what the last run of a branch goes on with; None when nothing of it may be, or can be, taken up.

    Raises:
        PyagentdError: The preset, the document or a log is no good.
    """
    last, standing = branch.last_run, standing_of(branch.conversation)
    branch.last_run = None
    if host.closing or branch.refusal or last is None or standing is None:
        return None
    if host.origins.foreign(branch.ref):  # a log can say that a human allowed what no human saw
        raise BadRequest("A run of a session that is not from this machine does not go on", mend="Send it again")
    data = branch.conversation.runs[run_id].data
    late = host.trees.late(paths.root_of(branch.ref).key)
    grants = tuple(map(compile_action, data.get("allow", ())))
    options = SendOptions(interactive=data["interactive"], env=late.env, late=late, grants=grants)
    asks = tuple(ask for ask in branch.conversation.asks.values() if ask.get("run_id") == run_id)
    view, seen = await asyncio.to_thread(turn.of_run, branch.file, branch.conversation.snapshot(), last)
    model = served_by(standing.message.row).model
    asked = branch.conversation.messages[data["message_id"]].row["metadata_json"]
    return Continuation(
        options=options,
        view=compacted_view(_joined(view, standing.done), branch.conversation, run_id),
        settings=await Equipping(host, branch, run_id, options, message=asked).settings(seen, model=model),
        resumed=Resumed(
            standing=standing,
            begun=frozenset(branch.conversation.begun),
            rejoin=host.agents.spawner(branch, options, run_id).rejoin,
        ),
        asks=asks,
    )


def _joined(view: tuple[Message, ...], done: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return a view and what followed it; who steered a run before its first answer goes on with the prompt."""
    if not done or done[0].role != "user":
        return (*view, *done)
    return (*view[:-1], Message(role="user", parts=(*view[-1].parts, *done[0].parts)), *done[1:])
