"""Keeps a usage meter for each open branch, and adds up what the agents below it cost."""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from pyagentd.errors import PyagentdError, StoreError
from pyagentd.events import Event
from pyagentd.features.agents import child_agents
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.feature import BranchOpened, Feature
from pyagentd.runtime.settings import SendOptions, provider_of
from pyagentd.runtime.turn_agent import answers_next
from pyagentd.runtime.usage import Expense, FactsOf, Meter, session_usage
from pyagentd.store import paths
from pyagentd.store.conversation import Conversation
from pyagentd.store.journal import ProviderModel, read_rows
from pyagentd.store.paths import BranchRef

if TYPE_CHECKING:
    from pyagentd.runtime.kernel import Kernel


class AgentCost(NamedTuple):
    """What an agent cost, without those below it."""

    ref: BranchRef
    parent: str  # branch key
    described: dict[str, Any]
    spent: Expense


def facts_of(kernel: "Kernel") -> FactsOf:
    """Return what tells of a model what is known of it."""
    return lambda served: kernel.model_facts(served.model, served.provider)


class Meters(Feature):
    """Counts what every open branch holds and costs."""

    def __init__(self, kernel: "Kernel") -> None:
        super().__init__(kernel)
        kernel.bus.on(BranchOpened, self._count)

    def _count(self, opened: BranchOpened) -> None:
        if (meter := opened.branch.meter) is None:
            opened.branch.meter = meter_of(self.kernel, opened.branch)
        else:  # kept in memory; agents below it may have gone on
            meter.looked = False


def meter_of(kernel: "Kernel", branch: LiveBranch) -> Meter:
    """Return the meter of a branch that was opened; it tells whoever watches it or a branch above."""
    above = [ref.key for ref in paths.ancestors_of(branch.ref)]

    told = Expense()

    def publish() -> None:
        if branch.sinks:
            branch.publish(Event("context", branch.key, 0, (meter.to_wire(),)))
        else:
            branch.noticed()
        nonlocal told
        if above and meter.own is not told:
            told = meter.own
            for key in above:
                parent = kernel.opened(key)
                if parent is not None and parent.meter is not None:
                    parent.meter.note(branch.key, told)

    def changed() -> None:
        kernel.pulse.request("record", publish)  # many steps and agents change it within one beat

    def served() -> ProviderModel:
        try:
            preset = answers_next(kernel, branch, SendOptions())
            return ProviderModel(provider_of(preset, kernel.config, SendOptions()), preset.model)
        except PyagentdError:
            return ProviderModel("", "")

    meter = Meter(branch.conversation, facts_of(kernel), served=served, changed=changed)
    return meter


async def look_below(kernel: "Kernel", branch: LiveBranch) -> list[AgentCost]:
    """Return every agent below a branch, those above first, and have its meter know what they cost.

    A log that cannot be read counts nothing.
    """
    opened = {live.key: live for live in kernel.all_opened}
    found = await asyncio.to_thread(lambda: list(_below(branch.ref, set(opened), facts_of(kernel))))
    below = []
    for each in found:
        live = kernel.opened(each.ref.key)
        if live is not None and live.meter is not None:
            each = each._replace(spent=live.meter.own, described=_described(live.conversation))
        below.append(each)
    if branch.meter is not None:
        branch.meter.agents = {each.ref.key: each.spent for each in below}
        branch.meter.looked = True
    return below


async def tell_below(kernel: "Kernel", branch: LiveBranch) -> None:
    """Look at the agents below a branch that was opened, and tell its clients what they cost before."""
    async with kernel.using(branch.ref) as live:
        if await look_below(kernel, live) and live.meter is not None:
            live.meter.tell()


def _below(ref: BranchRef, opened: set[str], known: FactsOf) -> Iterator[AgentCost]:
    for child in child_agents(ref):
        # What is open is counted on the loop, where nothing is added to it meanwhile.
        conversation = Conversation() if child.key in opened else _read(child)
        yield AgentCost(child, ref.key, _described(conversation), session_usage(conversation, known))
        yield from _below(child, opened, known)


def _read(ref: BranchRef) -> Conversation:
    try:
        return Conversation(read_rows(paths.journal_file(ref.branch_dir)))
    except StoreError:  # told where somebody opens it
        return Conversation()


def _described(conversation: Conversation) -> dict[str, Any]:
    session = conversation.session
    return {"preset": session.get("agent") or None, "description": session.get("description") or None}
