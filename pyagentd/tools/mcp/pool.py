"""All servers of one daemon: two sessions that mean the same server in the same workspace share one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from pyagentd.tools.mcp.connection import Connection
from pyagentd.tools.mcp.launch import Launch

_LOOK_S = 60.0  # between looks for servers that nobody uses

log = logging.getLogger(__name__)

Changed = Callable[[Connection, tuple[str, ...], tuple[str, ...]], None]
Learned = Callable[[Connection], None]


class Pool:
    """The servers that were wanted so far.

    Args:
        changed: Told when one offers other tools than before.
        learned: Told whenever one has said what it offers.
    """

    def __init__(self, changed: Changed = lambda *_: None, learned: Learned = lambda _: None) -> None:
        self._changed = changed
        self._learned = learned
        self._known: dict[Launch, Connection] = {}
        self._looking: asyncio.Task[None] | None = None

    def get(self, launch: Launch) -> Connection:
        """Return the server that is started so; nothing is started yet."""
        if launch not in self._known:
            self._known[launch] = Connection(launch, changed=self._changed, learned=self._learned)
        if self._looking is None:
            self._looking = asyncio.create_task(self._end_idle_ones())
        return self._known[launch]

    def all(self) -> list[Connection]:
        """Return those that were wanted so far."""
        return list(self._known.values())

    async def close(self) -> None:
        """End all of them."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
            self._looking = None
        known, self._known = list(self._known.values()), {}
        await asyncio.gather(*(connection.close() for connection in known))

    async def _end_idle_ones(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            for connection in list(self._known.values()):
                await connection.close_when_idle()
