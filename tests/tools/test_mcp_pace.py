"""A server that says all the time that it changed is asked ever less often, and once at a time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pyagentd.tools.mcp.connection import Catalog, Connection, Launch, Pace, ServerTool

HOUR = 3600.0


class Restless:
    """A server that changes whenever it is listed."""

    def __init__(self, connection: Connection, clock: list[float]) -> None:
        self.connection, self.clock = connection, clock
        self.listed: list[float] = []
        self.at_once = self.most_at_once = 0

    async def catalog(self) -> Catalog:
        self.listed.append(self.clock[0])
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        for _ in range(5):
            self.connection._on_changed()
            await asyncio.get_running_loop().run_in_executor(None, int)
        self.at_once -= 1
        return Catalog(tools=(ServerTool(name=f"t{len(self.listed)}"),))


def test_the_pace_slows_down_and_recovers() -> None:
    pace, now, waits = Pace(), 0.0, []
    for _ in range(8):
        now += pace.wait(now)
        waits.append(now)
        pace.done(now)
    assert waits == [0, 2, 6, 14, 30, 62, 122, 182]
    pace.done(now + HOUR)
    assert pace.wait(now + HOUR) == 2


async def test_one_that_changes_whenever_it_is_listed_is_listed_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, real, told = [0.0], asyncio.sleep, list[Any]()
    connection = Connection(Launch(name="a"), changed=lambda *given: told.append(given), now=lambda: clock[0])
    server = Restless(connection, clock)
    connection._link = server  # type: ignore[assignment]

    async def sleep(seconds: float) -> None:
        clock[0] += seconds
        await real(0)
        if clock[0] > HOUR:
            connection._is_stale = False
            connection._link = None

    monkeypatch.setattr("pyagentd.tools.mcp.connection.asyncio.sleep", sleep)
    connection._on_changed()
    assert connection._listing is not None
    await connection._listing
    assert 60 < len(server.listed) < 70 and server.most_at_once == 1
    assert connection._listing is None and len(told) < len(server.listed)
