"""Connections to one server: one for each request at a time, used again, closed when nobody needs them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx2
import pytest

from pyagentd.llm import lanes as subject
from pyagentd.llm.lanes import Lanes, lanes


class Lane(httpx2.AsyncBaseTransport):
    """Stands for a connection; counts."""

    made = 0
    open = 0
    closed: asyncio.Event

    def __init__(self) -> None:
        Lane.made += 1
        Lane.open += 1
        self.fails = False

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if "fail" in str(request.url):
            raise httpx2.ConnectError("no")
        return httpx2.Response(200, stream=Body())

    async def aclose(self) -> None:
        Lane.open -= 1
        Lane.closed.set()


class Body(httpx2.AsyncByteStream):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"hi"

    async def aclose(self) -> None:
        pass


@pytest.fixture(autouse=True)
def none_made() -> None:
    Lane.made = Lane.open = 0
    Lane.closed = asyncio.Event()


async def test_requests_at_once_have_connections_of_their_own_and_later_ones_use_them() -> None:
    async with httpx2.AsyncClient(transport=Lanes(Lane)) as client:
        async with client.stream("GET", "http://x/"), client.stream("GET", "http://x/"):
            assert Lane.made == 2
        for _ in range(5):
            assert (await client.get("http://x/")).text == "hi"
        assert Lane.made == 2
    assert Lane.open == 0


async def test_a_request_that_fails_frees_its_connection() -> None:
    async with httpx2.AsyncClient(transport=Lanes(Lane)) as client:
        for _ in range(3):
            with pytest.raises(httpx2.ConnectError):
                await client.get("http://x/fail")
        assert Lane.made == 1


async def test_what_nobody_used_for_a_while_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "IDLE_S", 0.0)
    async with httpx2.AsyncClient(transport=Lanes(Lane)) as client:
        await client.get("http://x/")
        await asyncio.wait_for(Lane.closed.wait(), 10)
        assert Lane.open == 0


def test_a_proxy_of_the_environment_is_left_to_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:1")
    assert lanes() is None
