"""What a session cost and how full its model's window is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from pyagentd.agent.branches.branch import LiveBranch
from pyagentd.agent.context.meter import Meter
from pyagentd.agent.context.metering import Below, facts_of, look_below
from pyagentd.agent.context.usage import message_usage, spent_on, steps_of, total, used
from pyagentd.service.group import Client, Group
from pyagentd.store.compaction import COMPACTION
from pyagentd.store.conversation import Message
from pyagentd.store.rows import served_by

MOST_MESSAGES = 1000  # in one reply; earlier ones are counted in the sums


class Spending(Group):
    """Tokens and dollars."""

    async def usage(self, client: Client, *, branch: str) -> dict[str, Any]:
        """Return what a branch cost: its own, its agents, both together, and its last messages one by one.

        Tokens come in five buckets, prices in US dollars; a price that is not known of everything is nil, and then
        ``known_usd`` is the part that is and ``unpriced`` names the models. ``rollup`` is the guide's sum over what
        still counts towards the model's context; ``context`` is what a ``context`` event tells.
        """
        async with self._host.using(self._ref(branch)) as live:
            below = await look_below(self._host, live)
            meter = live.meter
            assert meter is not None, "every open branch has one"
            return {
                "branch": live.key,
                "session_id": live.ref.session_id,
                "context": meter.told(),
                "rollup": asdict(used(live.conversation)),
                "own": meter.own.told(),
                "agents": [_agent(each) for each in below],
                "agents_total": total(each.spent for each in below).told(),
                "together": meter.together.told(),
                "messages": list(self._messages(live))[-MOST_MESSAGES:],
            }

    def _messages(self, live: LiveBranch) -> Iterator[dict[str, Any]]:
        known = facts_of(self._host)
        for message in live.conversation.messages.values():
            if message.role == "assistant" and message_usage(message).total:
                yield {
                    "id": message.id,
                    "model": served_by(message.row).model,
                    "created_at": message.row.get("created_at"),
                    "steps": sum(1 for _ in steps_of(message)),
                    "hidden": message.is_hidden,
                    "compaction": _is_compaction(message),
                    **spent_on(message, known).told(),
                }


def summary(meter: Meter) -> dict[str, Any]:
    """Return what ``show`` says of usage: the branch's own and, as far as they are known, its agents'."""
    return {"context": meter.told(), "own": meter.own.told(), "together": meter.together.told()}


def _agent(below: Below) -> dict[str, Any]:
    return {
        "id": below.ref.session_id,
        "branch": below.ref.key,
        "parent": below.parent,
        **below.described,
        **below.spent.told(),
    }


def _is_compaction(message: Message) -> bool:
    return any(part.type == COMPACTION for part in message.parts)
