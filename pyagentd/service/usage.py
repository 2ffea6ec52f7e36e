"""What a session cost and how full its model's window is; what all of them cost together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

from pyagentd.agent.branches.branch import LiveBranch
from pyagentd.agent.context.meter import Meter
from pyagentd.agent.context.metering import Below, facts_of, look_below
from pyagentd.agent.context.report import By, Line, days_ago, report, together
from pyagentd.agent.context.usage import spent_on, total, used
from pyagentd.errors import BadRequest, NotASession
from pyagentd.service.group import Client, Group
from pyagentd.store import paths
from pyagentd.store.conversation import COMPACTION, Message, message_usage, steps_of
from pyagentd.store.journal import served_by

MOST_MESSAGES = 1000  # in one reply; earlier ones are counted in the sums
MOST_DAYS = 36_500
MOST_LINES = 200  # in one reply; the cheaper ones are one together


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

    async def usage_report(self, client: Client, *, by: By = "day", days: int = 30) -> dict[str, Any]:
        """Return what all sessions cost, by day, model, session or preset: ``{by, days, lines, rest, together…}``.

        ``days`` are local ones of the daemon's machine, today with them; 0 is always. A line has ``key`` (the day in
        ISO 8601, the name of the model or preset, the session's directory), of a session ``session_id``, ``title``
        and ``file``, and ``requests`` and what they cost as in ``usage``; days come with the newest first, the others
        with the dearest. ``rest`` is the sum of the lines that are too many, ``number`` of them, or nil;
        ``together`` that of all. ``indexing`` says that the index is still being built, ``problem`` why it cannot be.
        """
        if by not in get_args(By):
            raise BadRequest(f"Nothing is counted by {by!r}", mend=f"By {', '.join(get_args(By))}")
        if not 0 <= days <= MOST_DAYS:
            raise BadRequest(f"{days} is no number of days", mend=f"Up to {MOST_DAYS}; 0 is always")
        for live in self._host.runs:  # what they have so far
            self._index.branch_written(live.ref)
        complete = await self._index.fresh()
        since = days_ago(days, self._host.clock.now()) if days else 0
        lines = await asyncio.to_thread(report, self._host.state, facts_of(self._host), by, since_ms=since)
        shown, rest = lines[:MOST_LINES], lines[MOST_LINES:]
        return {
            "by": by,
            "days": days,
            "lines": await asyncio.to_thread(lambda: [self._line(line, by) for line in shown]),
            "rest": {**together(rest, "others").told(), "number": len(rest)} if rest else None,
            "together": together(lines, "together").told(),
            "indexing": not complete,
            "problem": self._index.problem or None,
        }

    def _line(self, line: Line, by: By) -> dict[str, Any]:
        if by != "session":
            return line.told()
        place = self._index.projection.directory(line.key)
        return {**line.told(), "key": str(place), "file": _file(place)}

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


def _file(session_dir: Path) -> str | None:
    """Return the conversation of a session's active branch; None when there is none."""
    try:
        return str(paths.session_file(paths.ref_of(session_dir).branch_dir))
    except NotASession:
        return None
