"""What a conversation cost and how much of the model's window it takes: sums over what the provider counted.

Three questions with three answers. What was *spent* counts every request, of hidden turns too: the money is gone.
What is *used* (the guide's rollup, neighbours B.3) sums the answers that still count towards the model's context:
hidden ones do not, and after a compaction its tail and its summary do. What the *context* holds is neither, because
each request counts the whole history again (B.13 item 11): it is what the last request read and wrote. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from pyagentd.llm.catalog import ModelFacts
from pyagentd.messages import Usage
from pyagentd.store.conversation import (
    COMPACTION,
    Conversation,
    Message,
    Part,
    estimated,
    message_usage,
    steps_of,
    usage_of,
)
from pyagentd.store.journal import Served, served_by

FactsOf = Callable[[Served], ModelFacts]

_PICO = 10**12  # sums of whole picodollars are exact, however many there are


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What requests cost.

    Attributes:
        tokens: In five buckets.
        pico: The known part of their price, in 1e-12 US dollars.
        unpriced: Models that took part and whose price nobody knows.
    """

    tokens: Usage = field(default_factory=Usage)
    pico: int = 0
    unpriced: frozenset[str] = frozenset()

    @classmethod
    def of(cls, tokens: Usage, usd: float) -> Spent:
        """Return what tokens cost at a price in US dollars for all of them."""
        return cls(tokens=tokens, pico=round(usd * _PICO))

    @property
    def cost_usd(self) -> float | None:
        """The price in US dollars; None when it is not known of everything."""
        return None if self.unpriced else self.known_usd

    @property
    def known_usd(self) -> float:
        """The price in US dollars of that whose price is known."""
        return self.pico / _PICO

    def __add__(self, other: Spent) -> Spent:
        """Return both together."""
        return Spent(
            tokens=self.tokens + other.tokens,
            pico=self.pico + other.pico,
            unpriced=self.unpriced | other.unpriced,
        )

    def told(self) -> dict[str, Any]:
        """Return it for clients: ``tokens`` by bucket, ``total``, ``cost_usd``, ``known_usd`` and ``unpriced``."""
        return {
            "tokens": asdict(self.tokens),
            "total": self.tokens.total,
            "cost_usd": self.cost_usd,
            "known_usd": self.known_usd,
            "unpriced": sorted(self.unpriced),
        }


class InContext(NamedTuple):
    """How many tokens the next request takes before what is new in it; ``estimated``: no provider counted them."""

    tokens: int
    estimated: bool


def spent_on(message: Message, facts_of: FactsOf) -> Spent:
    """Return what one message cost."""
    tokens = message_usage(message)
    if not tokens.total:
        return Spent()
    served = served_by(message.row)
    prices = facts_of(served).prices
    if prices is None:
        return Spent(tokens=tokens, unpriced=frozenset({served.model or "unknown"}))
    return Spent(tokens=tokens, pico=sum(round(prices.of(step) * _PICO) for step in steps_of(message)))


def session_usage(conversation: Conversation, facts_of: FactsOf) -> Spent:
    """Return what a conversation cost, whatever of it is hidden by now."""
    return total(spent_on(message, facts_of) for message in conversation.messages.values())


def total(each: Iterable[Spent]) -> Spent:
    """Return what several cost together."""
    return sum(each, Spent())


def used(conversation: Conversation) -> Usage:
    """Return the tokens of the answers that count towards the model's context: the guide's rollup."""
    marker = last_marker(conversation)
    counted = Usage() if marker is None else Usage(input=_summary_tokens(marker))
    return sum((message_usage(message) for message in _counting(conversation, marker)), counted)


def context_used(conversation: Conversation) -> InContext:
    """Return what the next request takes before what is new in it: what the last one read and what it answered."""
    for message in reversed(conversation.messages.values()):
        if message.is_hidden:
            continue
        marker = _marker_in(message)
        if marker is not None and _is_boundary(marker):
            tail = sum(_estimate(other) for other in _tail(conversation, marker))
            return InContext(_summary_tokens(marker) + tail, True)
        if marker is None and (last := usage_of(_metadata(message).get("last_usage"))).total:
            return InContext(last.total, bool(_metadata(message).get("usage_estimated")))
    return InContext(0, False)


def last_marker(conversation: Conversation) -> Part | None:
    """Return the compaction that holds: the last one that is not hidden."""
    for message in reversed(conversation.messages.values()):
        marker = None if message.is_hidden else _marker_in(message)
        if marker is not None and _is_boundary(marker):
            return marker
    return None


def markers(conversation: Conversation) -> int:
    """Return how many compactions there are that are not hidden."""
    visible = (message for message in conversation.messages.values() if not message.is_hidden)
    return sum(_marker_in(message) is not None for message in visible)


def _counting(conversation: Conversation, marker: Part | None) -> Iterator[Message]:
    if marker is None:
        messages: Iterable[Message] = conversation.messages.values()
    else:
        messages = _tail(conversation, marker)
    return (
        message
        for message in messages
        if message.role == "assistant" and not message.is_hidden and _marker_in(message) is None
    )


def _tail(conversation: Conversation, marker: Part) -> Iterator[Message]:
    """Yield what the model still sees as it is: from the first message kept, or all after the marker."""
    start = marker.data.get("tail_start_id")
    if start not in conversation.messages:
        start = None
    begun = False
    for message in conversation.messages.values():
        begun = begun or message.id == start
        if begun and not message.is_hidden and _marker_in(message) is None:
            yield message
        begun = begun or message.id == marker.row["message_id"]


def _estimate(message: Message) -> int:
    texts = [part.text for part in message.texts() if not part.hidden]
    for part in message.parts:
        if part.is_tool and not part.hidden:
            result = part.result
            texts += [str(part.data.get("input", "")), result[0] if result else ""]
    return sum(estimated(text) for text in texts)


def _marker_in(message: Message) -> Part | None:
    return next((part for part in message.parts[:1] if part.type == COMPACTION and not part.hidden), None)


def _is_boundary(marker: Part) -> bool:
    return bool(marker.data.get("summary"))  # one without a summary only prunes


def _summary_tokens(marker: Part) -> int:
    tokens = marker.data.get("summary_tokens")
    return tokens if type(tokens) is int else estimated(str(marker.data.get("summary", "")))


def _metadata(message: Message) -> dict[str, Any]:
    return message.row.get("metadata_json") or {}
