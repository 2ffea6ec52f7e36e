"""Operations that look back: the events of a branch again, and the trace of its requests."""

from __future__ import annotations

import json
from typing import Any

from pyagentd.agent import replaying
from pyagentd.errors import BadRequest
from pyagentd.events import Event
from pyagentd.service.group import INLINE_LIMIT, Client, Group
from pyagentd.sexp import tagged

_PAGE = INLINE_LIMIT // 4  # characters may have four bytes


class Inspection(Group):
    """What happened, exactly."""

    async def replay(
        self, client: Client, *, branch: str, after: int | None = None, upto: int | None = None
    ) -> dict[str, Any]:
        """Return the events of a branch after row ``after`` (of the run in flight when it is nil), up to ``upto``.

        In pages: until ``done`` the next one begins after ``seq``.
        """
        async with self._host.using(self._ref(branch)) as live:
            live.recorder.flush()
            last = live.recorder.last_seq
            begin = replaying.start_of_run(live) if after is None else after
            if begin < 0:
                raise BadRequest(f"{begin} is no number of a row")
            page = await replaying.page(live, after=begin, upto=last if upto is None else min(upto, last), size=_PAGE)
        return {
            "events": [_travelling(event) for event in page.events],
            "seq": page.seq,
            "done": page.done,
        }


def _travelling(event: Event) -> list[Any]:
    """Return an event as it travels; the arguments of an ask and its like are JSON, as they were recorded."""
    match event.kind, event.args:
        case "insert", (text, role):
            return [event.kind, event.seq, text, tagged(role)]
        case "prompt", (text, _):
            return [event.kind, event.seq, text]
    return [event.kind, event.seq, json.dumps(event.args[0], ensure_ascii=False)]
