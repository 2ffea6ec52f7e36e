"""Operations on the length of a conversation: compacting it when somebody wants it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from pyagentd.agent.branches.branch import LiveBranch
from pyagentd.agent.compacting.manual import compact
from pyagentd.agent.compacting.marking import marker_of
from pyagentd.service.group import Client, Group
from pyagentd.service.options import send_options


class Compaction(Group):
    """One conversation."""

    async def compact(
        self,
        client: Client,
        *,
        branch: str,
        instructions: str = "",
        wait: bool = False,
        env: Mapping[str, str] | Sequence[Any] = (),
        key: str | None = None,
    ) -> dict[str, Any]:
        """Summarise everything said so far; ``instructions`` say what to keep, ``wait`` answers when it is done."""
        options = send_options(client, env, key, ())
        async with self._host.using(self._ref(branch)) as live:
            run = await compact(self._host, live, options, instructions.strip())
            started = {"run": run, "seq": live.recorder.last_seq}
            if not wait or live.task is None:
                return started
            await asyncio.wait([live.task])
            return {**started, "seq": live.recorder.last_seq, **_told(live, run)}


def _told(live: LiveBranch, run: str) -> dict[str, Any]:
    """Return how a compaction ended, and what it made."""
    data = live.conversation.runs[run].data
    error: Mapping[str, Any] = data.get("error") or {}
    ended = {"reason": data.get("reason"), "message": error.get("message") or "", "code": error.get("code") or ""}
    marker = marker_of(live.conversation, run)
    if marker is None:
        return ended
    facts: Mapping[str, Any] = marker.data.get("metadata") or {}
    made = {key: marker.data.get(key) for key in ("summary", "tail_start_id", "auto", "summary_tokens")}
    made |= {"id": marker.row["message_id"], "messages": facts.get("messages"), "tokens": facts.get("tokens")}
    return {**ended, **made}
