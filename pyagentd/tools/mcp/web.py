"""A server on the web, as the SDK reaches it: what it refuses is kept to be told, and what it sends is bounded.

Loaded when the first server is started.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client

from pyagentd.tools.mcp.launch import Launch
from pyagentd.tools.mcp.stdio import MOST_BYTES, TOO_LONG

_CONNECT_S = 30.0
_READ_S = 300.0  # between two pieces of a stream, at least
_NO_SESSION = ("400", "404", "410")  # how servers answer that were started anew meanwhile

_WANTS_TOKEN = "it wants another token; see `headers` of its settings"
_WANTS_LOGIN = (
    "it wants a login (OAuth), which is not done here. Have it make a token, keep that in a variable, and name "
    'it in the settings of the server: headers = { Authorization = "Bearer ${NAME}" }'
)


class Web:
    """One server while it is connected.

    Attributes:
        refused: What it answered last, where that was a refusal: number and words; "" otherwise.
    """

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self.refused = ""

    @property
    def knows_nothing_of_us(self) -> bool:
        """Whether it has forgotten the connection."""
        return self.refused.startswith(_NO_SESSION)

    def told(self) -> str:
        """Return why it is of no use, for people; "" when that is not known."""
        return self.refused

    @asynccontextmanager
    async def streams(self) -> AsyncGenerator[Any, None]:
        """Yield the streams of its messages."""
        launch = self._launch
        async with (
            httpx2.AsyncClient(
                headers=dict(launch.headers),
                timeout=httpx2.Timeout(_CONNECT_S, read=max(_READ_S, launch.call_s)),
                event_hooks={"response": [self._answered]},
            ) as http,
            streamable_http_client(launch.url, http_client=http, max_sse_event_size=MOST_BYTES) as streams,
        ):
            yield streams

    async def _answered(self, response: httpx2.Response) -> None:
        code = response.status_code
        self.refused = f"{code} {response.reason_phrase}".strip() if code >= 400 else ""
        if code in (401, 403):
            self.refused += f": {_WANTS_LOGIN if _wants_login(response) else _WANTS_TOKEN}"
        if response.headers.get("content-type", "").startswith("application/json"):  # the SDK bounds the others
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _Bounded(response.stream, self._is_too_long)

    def _is_too_long(self) -> None:
        self.refused = TOO_LONG


class _Bounded(httpx2.AsyncByteStream):
    """An answer of which no more is read than of a program here."""

    def __init__(self, stream: httpx2.AsyncByteStream, exceeded: Callable[[], None]) -> None:
        self._stream = stream
        self._exceeded = exceeded

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > MOST_BYTES:
                self._exceeded()
                raise httpx2.ReadError(TOO_LONG)
            yield chunk

    async def aclose(self) -> None:
        """Let go of it."""
        await self._stream.aclose()


def _wants_login(response: httpx2.Response) -> bool:
    """Return whether a refusal names where a login begins, as servers do that have OAuth (RFC 9728)."""
    return "resource_metadata" in response.headers.get("www-authenticate", "")
