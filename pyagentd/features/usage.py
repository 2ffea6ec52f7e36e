"""Tokens and costs of branches with the agents below them, and of all sessions together."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, time, timedelta, tzinfo
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pyagentd.errors import PyagentdError
from pyagentd.events import Event
from pyagentd.llm.catalog import Prices
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.feature import BranchOpened, Feature
from pyagentd.runtime.presets import answers_next
from pyagentd.runtime.settings import SendOptions, provider_of
from pyagentd.runtime.usage import Expense, FactsOf, Meter, session_usage
from pyagentd.store import paths
from pyagentd.store.conversation import Conversation, read_conversation
from pyagentd.store.db.projection import QUARTER_MS, Place, RequestTotals, places, sums
from pyagentd.store.db.state import State
from pyagentd.store.journal import ProviderModel
from pyagentd.store.metadata import child_agents
from pyagentd.store.paths import BranchRef

if TYPE_CHECKING:
    from pyagentd.runtime.kernel import Kernel


class AgentCost(NamedTuple):
    """The cost of an agent, without the agents below it."""

    ref: BranchRef
    parent: str  # branch key
    described: dict[str, Any]
    spent: Expense


def facts_of(kernel: "Kernel") -> FactsOf:
    """Return a function that looks up the facts about a model."""
    return lambda served: kernel.model_facts(served.model, served.provider)


class Meters(Feature):
    """Gives every open branch a meter for its context and costs."""

    def __init__(self, kernel: "Kernel") -> None:
        super().__init__(kernel)
        kernel.bus.on(BranchOpened, self._count)

    def _count(self, opened: BranchOpened) -> None:
        """Give an opened branch its meter, which informs the clients of it and of the branches above."""
        kernel, branch = self.kernel, opened.branch
        if branch.meter is not None:  # it was kept in memory; agents below it may have spent more
            branch.meter.looked = False
            return
        above, reported = [ref.key for ref in paths.ancestors_of(branch.ref)], Expense()

        def publish() -> None:
            if branch.sinks:
                branch.publish(Event("context", branch.key, 0, (meter.to_wire(),)))
            else:
                branch.noticed()
            nonlocal reported
            if above and meter.own is not reported:
                reported = meter.own
                for key in above:
                    parent = kernel.opened(key)
                    if parent is not None and parent.meter is not None:
                        parent.meter.note(branch.key, reported)

        def served() -> ProviderModel:
            try:
                preset = answers_next(kernel, branch, SendOptions())
                return ProviderModel(provider_of(preset, kernel.config, SendOptions()), preset.model)
            except PyagentdError:
                return ProviderModel("", "")

        def changed() -> None:
            kernel.pulse.request("record", publish)  # many changes are published as one

        meter = Meter(branch.conversation, facts_of(kernel), served=served, changed=changed)
        branch.meter = meter


async def look_below(kernel: "Kernel", branch: LiveBranch) -> list[AgentCost]:
    """Return every agent below a branch, parents first, and add their costs to its meter.

    A log that cannot be read counts as empty.
    """
    opened = {live.key: live for live in kernel.all_opened}
    found = await asyncio.to_thread(lambda: list(_below(branch.ref, set(opened), facts_of(kernel))))
    below = []
    for each in found:
        live = kernel.opened(each.ref.key)
        if live is not None and live.meter is not None:
            each = each._replace(spent=live.meter.own, described=_branch_facts(live.conversation))
        below.append(each)
    if branch.meter is not None:
        branch.meter.set_agents({each.ref.key: each.spent for each in below})
        branch.meter.looked = True
    return below


async def tell_below(kernel: "Kernel", branch: LiveBranch) -> None:
    """Add the costs of the agents below an opened branch to its meter, and tell its clients."""
    async with kernel.using(branch.ref) as live:
        if await look_below(kernel, live) and live.meter is not None:
            live.meter.changed()


def _below(ref: BranchRef, opened: set[str], known: FactsOf) -> Iterator[AgentCost]:
    for child in child_agents(ref):
        # Open branches are counted in the event loop, where nothing changes them meanwhile.
        conversation = Conversation() if child.key in opened else read_conversation(child)
        yield AgentCost(child, ref.key, _branch_facts(conversation), session_usage(conversation, known))
        yield from _below(child, opened, known)


def _branch_facts(conversation: Conversation) -> dict[str, Any]:
    session = conversation.session
    return {"preset": session.get("agent") or None, "description": session.get("description") or None}


# The cost of all sessions, by day, model, session or preset: sums over the tables of ``state.db``.
#
# Each request counts once, however many branches and forks have a copy of it; agents count with the root session of
# their tree. Prices are today's. Sessions in the trash are not in the tables, so not here. Blocks.

By = Literal["day", "model", "session", "preset"]

_UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageLine:
    """The cost of one day, model, session or preset.

    Attributes:
        key: The day in ISO 8601, the model's name, the session's place (``chat_sessions.id`` without the branch), or
            the preset's name.
        requests: The number of requests.
        spent: Their cost.
        facts: For a session, ``session_id`` and ``title``.
    """

    key: str
    requests: int
    spent: "Expense"
    facts: Mapping[str, Any] = field(default_factory=dict)

    def to_wire(self) -> dict[str, Any]:
        """Return the line as sent to clients."""
        return {"key": self.key, **self.facts, "requests": self.requests, **self.spent.to_wire()}


def report(
    state: State, facts_of: FactsOf, by: By, *, since_ms: int = 0, zone: tzinfo | None = None
) -> list[UsageLine]:
    """Return the cost since a moment (epoch ms): days newest first, all else most expensive first.

    Days are in the time zone ``zone``; None is the machine's.

    Raises:
        StoreError: The database cannot be used.
    """
    match by:
        case "day":
            lines = _lines(sums(state, "quarter", since_ms=since_ms), facts_of, lambda group, _: _day(group, zone))
            return sorted(lines, key=lambda line: line.key, reverse=True)
        case "model":
            lines = _lines(sums(state, "model", since_ms=since_ms), facts_of, lambda _, each: each.served.model)
            return _dearest_first(lines)
    known = places(state)
    found = sums(state, "branch", since_ms=since_ms)
    if by == "preset":
        return _dearest_first(
            _lines(found, facts_of, lambda group, _: (known[group].preset if group in known else "") or "")
        )
    titles = {session_of(key): place for key, place in known.items() if not place.is_agent}
    lines = _lines(found, facts_of, lambda group, _: session_of(group))
    return _dearest_first(_with_title(line, titles.get(line.key)) for line in lines)


def days_ago(days: int, now: datetime, zone: tzinfo | None = None) -> int:
    """Return the start of the first of the last ``days`` days, today included, in epoch ms."""
    today = now.astimezone(zone).date()
    begin = datetime.combine(today - timedelta(days=days - 1), time.min, zone)
    return int(begin.timestamp() * 1000)


def sum_of_lines(lines: Iterable[UsageLine], key: str = "") -> UsageLine:
    """Return the sum of several lines."""
    known = list(lines)
    return UsageLine(
        key=key, requests=sum(line.requests for line in known), spent=sum((line.spent for line in known), Expense())
    )


def priced_usage(counted: RequestTotals, facts_of: FactsOf) -> "Expense":
    """Return the cost of requests to one model."""
    prices = facts_of(counted.served).prices
    if prices is None:
        return Expense(tokens=counted.usage, unpriced=frozenset({counted.served.model or _UNKNOWN}))
    return Expense.of(counted.usage, _at_length(prices, counted.longer).of(counted.usage))


def session_of(key: str) -> str:
    """Return the root session of the branch or agent with this ``chat_sessions.id``."""
    return key.rpartition("/branches/")[0] or key


def _lines(
    found: Iterable[tuple[Any, RequestTotals]], facts_of: FactsOf, key_of: Callable[[Any, RequestTotals], str]
) -> list[UsageLine]:
    requests: dict[str, int] = defaultdict(int)
    spent: dict[str, Expense] = defaultdict(Expense)
    facts = cache(facts_of)
    for group, counted in found:
        key = key_of(group, counted) or _UNKNOWN
        requests[key] += counted.requests
        spent[key] += priced_usage(counted, facts)
    return [UsageLine(key=key, requests=requests[key], spent=spent[key]) for key in requests]


def _dearest_first(lines: Iterable[UsageLine]) -> list[UsageLine]:
    return sorted(lines, key=lambda line: (-line.spent.pico, -line.spent.tokens.total, line.key))


def _with_title(line: UsageLine, place: Place | None) -> UsageLine:
    if place is None:
        return line
    return replace(line, facts={"session_id": place.session_id, "title": place.title or None})


def _day(quarter: int, zone: tzinfo | None) -> str:
    return datetime.fromtimestamp(quarter * QUARTER_MS / 1000, zone).date().isoformat()


def _at_length(prices: Prices, longer: int) -> Prices:
    """Return the prices for requests whose prompts were each longer than ``longer``, whatever their sum."""
    if prices.long is not None and prices.long_above is not None and longer >= prices.long_above:
        return prices.long
    return replace(prices, long=None)
