"""The Anthropic Messages API, through the official SDK.

The SDK authenticates, sends, and raises its typed errors. The body's JSON is written and the stream's bytes are
decoded here, because its typed layers cost more than the rest of the daemon: copies of the whole conversation for
each step, a model object for each token. Importing this module imports the SDK, about a second: only ``warm`` and
what it loaded do.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

import httpx2
from aiohttp import ClientError
from anthropic import (
    AnthropicError,
    AsyncAnthropic,
    AsyncStream,
    AuthenticationError,
    BadRequestError,
    DefaultAioHttpClient,
    DefaultAsyncHttpxClient,
    PermissionDeniedError,
)

from pyagentd.clock import Clock, SystemClock
from pyagentd.errors import NoKey, ProviderError, TransientProviderError
from pyagentd.llm.backend import ModelRequest, StreamItem
from pyagentd.llm.body import BodyWriter
from pyagentd.llm.concede import Concession, concede, concession
from pyagentd.llm.decode import MAX_ANSWER, StepDecoder, too_much
from pyagentd.llm.failures import provider_error
from pyagentd.llm.sse import SseDecoder
from pyagentd.llm.translate import settings_body

_log = logging.getLogger(__name__)

BASE_URL = "https://api.anthropic.com"
_CONNECT_S = 15.0
# Each agent that waits for an answer holds a connection; one that nobody used for half a minute is closed.
_LIMITS = httpx2.Limits(max_connections=1000, keepalive_expiry=30.0)
_DRAIN_S = 0.5  # what a server may take between the last event and the end of its body
_MODELS_A_PAGE = 1000
_NOT_A_STREAM = ("text/html", "application/json", "text/plain")


def make_client(
    *, api_key: str, base_url: str, timeout_s: float, transport: httpx2.AsyncBaseTransport | None = None
) -> AsyncAnthropic:
    """Return a client that sends one request per call: retries are ours, so that the user sees them.

    Args:
        api_key: Sent as it is; nothing is looked up in the environment or in files.
        base_url: Where ``/v1/messages`` is.
        timeout_s: The longest silence within an answer.
        transport: What answers instead of the network.
    """
    timeout = httpx2.Timeout(timeout_s, connect=min(_CONNECT_S, timeout_s))
    client = (
        # aiohttp costs half of httpx2 with one agent, and with two hundred a fraction.
        DefaultAioHttpClient(timeout=timeout, limits=_LIMITS)
        if transport is None
        else DefaultAsyncHttpxClient(transport=transport, timeout=timeout)
    )
    return AsyncAnthropic(
        api_key=api_key,
        base_url=base_url,
        timeout=timeout,
        max_retries=0,
        open_telemetry=False,
        # The SDK sends a bearer token; servers built for its earlier releases look for this header.
        default_headers=None if base_url == BASE_URL else {"x-api-key": api_key},
        http_client=client,
    )


class AnthropicBackend:
    """Streams answers of one server over one pool of connections."""

    def __init__(self, client: AsyncAnthropic, clock: Clock | None = None) -> None:
        self._client = client
        self._clock = clock or SystemClock()
        self._bodies = BodyWriter()
        self._refused: dict[str, set[Concession]] = {}  # by model

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[StreamItem], None]:
        """Send ``request`` and yield its answer, see ``Backend``."""
        events, step = SseDecoder(), StepDecoder()
        try:
            async with contextlib.AsyncExitStack() as stack:
                chunks = (await self._open(request, stack)).aiter_bytes()
                async for chunk in chunks:
                    if items := step.decode(events.feed(chunk)):
                        yield items
                    if events.held > MAX_ANSWER:
                        raise too_much(f"{MAX_ANSWER // 1_000_000} million characters in one piece")
                    if step.failure is not None:
                        raise step.failure
                    if step.finished:
                        await _drain(chunks)
                        return
        except (AnthropicError, httpx2.HTTPError, ClientError) as error:
            # `from None`: a cause may quote the request's headers in a logged traceback.
            raise provider_error(error, self._clock.now()) from None
        raise TransientProviderError(
            "The model's server ended its answer in the middle", mend="What was said before stands: send again"
        )

    async def models(self) -> tuple[str, ...]:
        """Return the names of the models that the server has for this key.

        Raises:
            NoKey: It refuses the key.
            ProviderError: It has no such list, or cannot be asked now.
        """
        try:
            return tuple([model.id async for model in self._client.models.list(limit=_MODELS_A_PAGE)])
        except (AuthenticationError, PermissionDeniedError) as error:
            raise NoKey(f"The key is refused: {provider_error(error, self._clock.now()).message}") from None
        except (AnthropicError, httpx2.HTTPError, ClientError, ValueError) as error:
            raise provider_error(error, self._clock.now()) from None

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _open(self, request: ModelRequest, stack: contextlib.AsyncExitStack) -> httpx2.Response:
        """Send ``request``, once more for each thing its model turns out to refuse."""
        refused = self._refused.setdefault(request.model, set())
        while True:
            settings = concede(settings_body(request), refused)
            try:
                body = self._bodies.write(settings, request.messages)
                if request.sent is not None:
                    request.sent(body)
                stream = await self._post(body.encoded())
            except BadRequestError as error:
                if (found := concession(settings, error.api_message or "")) is None:
                    raise
                _log.warning("%s takes no %s: sending without", request.model, found)
                refused.add(found)
            else:
                stack.push_async_callback(stream.close)
                _check_stream(stream.response)
                return stream.response

    async def _post(self, body: bytes) -> AsyncStream[object]:
        # `messages.create` copies the whole conversation before it is sent, and knows no `temperature` any more.
        return await self._client.post(
            "/v1/messages",
            content=body,
            cast_to=object,
            stream=True,
            stream_cls=AsyncStream[object],
            options={"headers": {"Content-Type": "application/json", "Accept": "text/event-stream"}},
        )


def _check_stream(response: httpx2.Response) -> None:
    given = response.headers.get("content-type", "")
    if given.startswith(_NOT_A_STREAM):
        raise ProviderError(
            f"The model's server answered with {given.partition(';')[0]} instead of a stream of events",
            mend="Check that the base URL is a Messages API",
        )


async def _drain(chunks: AsyncIterator[bytes]) -> None:
    """Read to the end of the body, so that the connection serves the next request too."""
    with contextlib.suppress(httpx2.HTTPError, ClientError, TimeoutError):
        async with asyncio.timeout(_DRAIN_S):
            async for _ in chunks:
                pass
