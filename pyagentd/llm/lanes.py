"""Connections to one server, each with a pool of its own.

The HTTP library looks at every connection of a pool, down to its socket, whenever a request begins or ends; with two
hundred agents that costs more than all else together. Here a request takes the connection that was used last, and
what nobody has used for a while is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple
from urllib.request import getproxies

import httpx2

IDLE_S = 30.0  # how long an unused connection is kept
_PROXIES = ("http", "https", "all")


class _Idle(NamedTuple):
    lane: httpx2.AsyncBaseTransport
    since: float  # by the loop's clock


def lanes() -> Lanes | None:
    """Return connections with the library's own settings; None where the environment names a proxy."""
    if any(name in getproxies() for name in _PROXIES):
        return None
    limits = httpx2.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=IDLE_S)
    context = httpx2.create_ssl_context()  # reads the certificate store: once for all
    return Lanes(lambda: httpx2.AsyncHTTPTransport(verify=context, limits=limits))


class Lanes(httpx2.AsyncBaseTransport):
    """A transport that has a transport for each request at a time.

    Args:
        make: Returns a transport for one request at a time, which keeps its connection.
    """

    def __init__(self, make: Callable[[], httpx2.AsyncBaseTransport]) -> None:
        self._make = make
        self._idle: deque[_Idle] = deque()  # the one used last at the right
        self._busy: set[httpx2.AsyncBaseTransport] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request over a connection that is free, or over a new one."""
        lane = self._idle.pop().lane if self._idle else self._make()
        self._busy.add(lane)
        try:
            response = await lane.handle_async_request(request)
        except BaseException:
            self._release(lane)
            raise
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Body(response.stream, lambda: self._release(lane))
        return response

    async def aclose(self) -> None:
        """Close every connection."""
        if self._timer is not None:
            self._timer.cancel()
        lanes = [*self._busy, *(idle.lane for idle in self._idle)]
        self._idle.clear()
        for lane in lanes:
            await lane.aclose()
        if self._closing:
            await asyncio.wait(self._closing)

    def _release(self, lane: httpx2.AsyncBaseTransport) -> None:
        if lane not in self._busy:
            return
        self._busy.discard(lane)
        loop = asyncio.get_running_loop()
        self._idle.append(_Idle(lane, loop.time()))
        if self._timer is None:
            self._timer = loop.call_later(IDLE_S, self._sweep)

    def _sweep(self) -> None:
        """Close what was not used for a while."""
        loop = asyncio.get_running_loop()
        while self._idle and self._idle[0].since <= loop.time() - IDLE_S:
            task = loop.create_task(_close(self._idle.popleft().lane))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        self._timer = loop.call_at(self._idle[0].since + IDLE_S, self._sweep) if self._idle else None


class _Body(httpx2.AsyncByteStream):
    """The body of an answer; frees its connection when it is closed."""

    def __init__(self, body: httpx2.AsyncByteStream, closed: Callable[[], None]) -> None:
        self._body = body
        self._closed = closed

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._body:
            yield chunk

    async def aclose(self) -> None:
        try:
            await self._body.aclose()
        finally:
            self._closed()


async def _close(lane: httpx2.AsyncBaseTransport) -> None:
    with contextlib.suppress(httpx2.HTTPError, OSError):
        await lane.aclose()
