"""One branch's meter: how full the model's window is and what the session cost, kept up with every row.

What a step adds costs the same however long the conversation is: each message's share is remembered, and of a row
only its own message is counted again. What agents below cost is told by their own meters, up the tree; of those
that ended before, by their logs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from pyagentd.agent.context.usage import FactsOf, Spent, context_used, markers, spent_on, total
from pyagentd.store.conversation import COMPACTION, Conversation, usage_of
from pyagentd.store.journal import Row, Served, served_by


class Meter:
    """What is told of one branch's context.

    Args:
        conversation: What is counted.
        facts_of: What is known of a model.
        served: Returns who would answer next, for a conversation without an answer.
        changed: Called when what is told has changed.

    Attributes:
        looked: Whether the logs of agents that ended before were looked at.
        agents: What each agent below cost, at any depth, by its branch's key.
    """

    def __init__(
        self,
        conversation: Conversation,
        facts_of: FactsOf,
        *,
        served: Callable[[], Served],
        changed: Callable[[], None],
    ) -> None:
        self.agents: dict[str, Spent] = {}
        self.looked = False
        self._conversation = conversation
        self._facts_of = facts_of
        self._served = served
        self._changed = changed
        self._shares: dict[str, Spent] = {}  # by message
        self._own = Spent()
        self._compactions = 0
        self._counted = False

    @property
    def own(self) -> Spent:
        """What the branch itself cost."""
        self._count()
        return self._own

    @property
    def together(self) -> Spent:
        """What it cost with all agents below it."""
        return total(self.agents.values()) + self.own

    def note(self, key: str, spent: Spent) -> None:
        """Note what the agent with this key cost so far."""
        self.agents[key] = spent
        self._changed()

    def tell(self) -> None:
        """Tell what is known."""
        self._changed()

    def take(self, row: Row) -> None:
        """Take one more row, which the conversation has already."""
        data = row.data
        match row.type:
            case "message" if data["role"] == "assistant" and "usage" in (data.get("metadata_json") or {}):
                self._share(data["id"])
                self._compactions = -1 if self._is_marker(data["id"]) else self._compactions
                self._changed()
            case "part" if data["type"] == "step-start" and "usage" in data["data_json"]:
                self._share(data["message_id"])  # told with the message's row
            case "part" if data["type"] == COMPACTION:
                self._compactions = -1
                self._changed()
            case "edit":
                self._compactions = -1

    def told(self) -> dict[str, Any]:
        """Return the fields of a ``context`` event, see ``events``."""
        self._count()
        if self._compactions < 0:
            self._compactions = markers(self._conversation)
        served, last = self._last()
        facts = self._facts_of(served)
        context = context_used(self._conversation)
        together = self.together
        return {
            "used": context.tokens,
            "estimated": context.estimated,
            "window": facts.context_window,
            "window_known": facts.window_known,
            "usable": facts.usable(),
            "model": served.model,
            "tokens": asdict(self._own.tokens),
            "last": last,
            "cost_usd": together.cost_usd,
            "known_usd": together.known_usd,
            "own_usd": self._own.cost_usd,
            "agents": len(self.agents),
            "agents_total": total(self.agents.values()).tokens.total,
            "compactions": self._compactions,
        }

    def _last(self) -> tuple[Served, dict[str, int]]:
        """Return who answered last and what their last request counted."""
        for message in reversed(self._conversation.messages.values()):
            metadata = message.row.get("metadata_json") or {}
            if message.role == "assistant" and "usage" in metadata and metadata.get("origin") != "compaction":
                return served_by(message.row), asdict(usage_of(metadata.get("last_usage")))
        return self._served(), asdict(usage_of(None))

    def _count(self) -> None:
        if self._counted:
            return
        self._counted, self._compactions = True, -1
        for message in self._conversation.messages.values():
            self._shares[message.id] = spent_on(message, self._facts_of)
        self._own = total(self._shares.values())

    def _is_marker(self, message_id: str) -> bool:
        message = self._conversation.messages.get(message_id)
        return message is not None and any(part.type == COMPACTION for part in message.parts)

    def _share(self, message_id: str) -> None:
        message = self._conversation.messages.get(message_id)
        if message is None or not self._counted:
            return
        old, new = self._shares.get(message_id, Spent()), spent_on(message, self._facts_of)
        if old == new:
            return
        self._shares[message_id] = new
        if old.tokens.total:  # a price that was not known is no price to take away: rare enough to count all
            self._own = _replaced(self._own, old, new) or total(self._shares.values())
        else:
            self._own += new


def _replaced(whole: Spent, old: Spent, new: Spent) -> Spent | None:
    """Return ``whole`` with one share exchanged; None when shares without a price make that no subtraction."""
    if old.unpriced != new.unpriced:
        return None
    counts = {key: count - getattr(old.tokens, key) for key, count in asdict(whole.tokens).items()}
    rest = Spent(tokens=usage_of(counts), pico=whole.pico - old.pico, unpriced=whole.unpriced)
    return rest + new
