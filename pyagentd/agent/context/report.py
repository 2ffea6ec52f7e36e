"""What all sessions cost together, by day, model, session or preset: sums over the tables of ``state.db``.

Each request counts once, however many branches and forks have a copy of it; agents count with the session at the root
of their tree. Prices are those of today. What is in the trash is not in the tables, and not here. Blocks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, time, timedelta, tzinfo
from functools import cache
from typing import Any, Literal

from pyagentd.agent.context.usage import FactsOf, Spent, total
from pyagentd.llm.catalog import Prices
from pyagentd.store.db.requests import QUARTER_MS, Counted, Place, places, sums
from pyagentd.store.db.state import State

By = Literal["day", "model", "session", "preset"]

_UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One day, model, session or preset.

    Attributes:
        key: The day in ISO 8601, the model's name, the session's place (as ``chat_sessions.id`` without the branch),
            the preset's name.
        requests: How many requests there were.
        spent: What they cost.
        facts: Of a session ``session_id`` and ``title``.
    """

    key: str
    requests: int
    spent: Spent
    facts: Mapping[str, Any] = field(default_factory=dict)

    def told(self) -> dict[str, Any]:
        """Return it for clients."""
        return {"key": self.key, **self.facts, "requests": self.requests, **self.spent.told()}


def report(state: State, facts_of: FactsOf, by: By, *, since_ms: int = 0, zone: tzinfo | None = None) -> list[Line]:
    """Return what was spent since a moment (epoch ms), days with the newest first, anything else the dearest.

    Args:
        state: The database.
        facts_of: What is known of a model.
        by: What a line is.
        since_ms: From when on.
        zone: In which days are days; None is that of the machine.

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
        return _dearest_first(_lines(found, facts_of, lambda group, _: _preset(known.get(group))))
    titles = {session_of(key): place for key, place in known.items() if not place.is_agent}
    lines = _lines(found, facts_of, lambda group, _: session_of(group))
    return _dearest_first(_titled(line, titles.get(line.key)) for line in lines)


def days_ago(days: int, now: datetime, zone: tzinfo | None = None) -> int:
    """Return in epoch ms when the first of the last ``days`` days began, of which today is one."""
    today = now.astimezone(zone).date()
    begin = datetime.combine(today - timedelta(days=days - 1), time.min, zone)
    return int(begin.timestamp() * 1000)


def together(lines: Iterable[Line], key: str = "") -> Line:
    """Return several lines as one."""
    known = list(lines)
    return Line(key=key, requests=sum(line.requests for line in known), spent=total(line.spent for line in known))


def priced(counted: Counted, facts_of: FactsOf) -> Spent:
    """Return what requests to one model cost."""
    prices = facts_of(counted.served).prices
    if prices is None:
        return Spent(tokens=counted.usage, unpriced=frozenset({counted.served.model or _UNKNOWN}))
    return Spent.of(counted.usage, _at_length(prices, counted.longer).of(counted.usage))


def session_of(key: str) -> str:
    """Return the session at the root of the tree of the branch or agent with this ``chat_sessions.id``."""
    return key.rpartition("/branches/")[0] or key


def _lines(
    found: Iterable[tuple[Any, Counted]], facts_of: FactsOf, key_of: Callable[[Any, Counted], str]
) -> list[Line]:
    requests: dict[str, int] = defaultdict(int)
    spent: dict[str, Spent] = defaultdict(Spent)
    facts = cache(facts_of)
    for group, counted in found:
        key = key_of(group, counted) or _UNKNOWN
        requests[key] += counted.requests
        spent[key] += priced(counted, facts)
    return [Line(key=key, requests=requests[key], spent=spent[key]) for key in requests]


def _dearest_first(lines: Iterable[Line]) -> list[Line]:
    return sorted(lines, key=lambda line: (-line.spent.pico, -line.spent.tokens.total, line.key))


def _titled(line: Line, place: Place | None) -> Line:
    if place is None:
        return line
    return replace(line, facts={"session_id": place.session_id, "title": place.title or None})


def _preset(place: Place | None) -> str:
    return "" if place is None else place.preset or ""


def _day(quarter: int, zone: tzinfo | None) -> str:
    return datetime.fromtimestamp(quarter * QUARTER_MS / 1000, zone).date().isoformat()


def _at_length(prices: Prices, longer: int) -> Prices:
    """Return the prices of requests whose prompts were longer than ``longer``, whatever their sum is."""
    if prices.long is not None and prices.long_above is not None and longer >= prices.long_above:
        return prices.long
    return replace(prices, long=None)
