"""The client of the daemon for an event loop."""

from __future__ import annotations

import asyncio
import socket

import pytest

from pyagentd.acp.wire import Daemon
from pyagentd.wire.frames import answer, call


async def test_a_call_that_is_cancelled_when_its_answer_comes_ends() -> None:
    ours, theirs = socket.socketpair()

    class Linked(Daemon):
        def _connect(self) -> socket.socket:
            return ours

    daemon = Linked("test", on_event=lambda event: asked.cancel(), on_lost=lambda: None)
    asked = asyncio.create_task(daemon.call("status"))
    with theirs:
        assert await asyncio.to_thread(theirs.recv, 4096)
        theirs.sendall(answer(1, []) + call(0, "events", [["notice", "", 0]]))
        with pytest.raises(asyncio.CancelledError):
            await asked
        await daemon.close()
