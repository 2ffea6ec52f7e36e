"""Operations on the messages that wait for their turn, and on what a session is doing (neighbours B.3, B.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyagentd.service.group import Client, Group
from pyagentd.service.options import send_options


class Queue(Group):
    """One branch at a time."""

    async def queue(self, client: Client, *, branch: str) -> dict[str, Any]:
        """Return the messages that wait, the next one first: {id, text, queued_at, steer, origin, …} each."""
        async with self._host.using(self._ref(branch)) as live:
            return {"items": live.queue.told(), "paused": live.paused and bool(live.queue.waiting)}

    async def queue_cancel(self, client: Client, *, branch: str, id: str) -> dict[str, Any]:
        """Take a message back; its text is the client's again. What stands in the document stays there."""
        async with self._host.using(self._ref(branch)) as live:
            return {"text": await self._host.queue.cancel(live, id)}

    async def queue_edit(self, client: Client, *, branch: str, id: str, text: str) -> None:
        """Replace the text of a message; its place in the queue stays."""
        async with self._host.using(self._ref(branch)) as live:
            await self._host.queue.edit(live, id, text)

    async def queue_pause(self, client: Client, *, branch: str) -> dict[str, Any]:
        """Have what waits, if anything does, wait until somebody goes on: before a run is stopped."""
        async with self._host.using(self._ref(branch)) as live:
            self._host.queue.pause(live)
            return {"paused": live.paused}

    async def queue_resume(
        self,
        client: Client,
        *,
        branch: str,
        env: Mapping[str, str] | Sequence[Any] = (),
        key: str | None = None,
    ) -> dict[str, Any]:
        """Go on with a queue that is paused; environment and key are for messages whose client is gone."""
        options = send_options(client, env, key, ())
        async with self._host.using(self._ref(branch)) as live:
            live.require_writable()
            return {"waiting": await self._host.queue.resume(live, options)}

    async def get_status(self, client: Client, *, branch: str) -> dict[str, Any]:
        """Return what a session is doing, as its ``status`` events say it; after a restart that is ``idle``."""
        async with self._host.using(self._ref(branch)) as live:
            return live.status

    async def retry_now(self, client: Client, *, branch: str) -> dict[str, Any]:
        """Send the request that failed again at once, if one waits for that."""
        async with self._host.using(self._ref(branch)) as live:
            waits = live.status["state"] == "retrying" and live.run is not None
            if waits and live.run is not None:
                live.run.retry_now()
            return {"retried": waits}
