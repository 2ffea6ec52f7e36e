"""Sends a request again after a transient failure; each wait is an item of the stream.

A request is sent again only if no part of its answer was passed on yet; otherwise the consumer would get the
beginning of one answer followed by another. Waits grow exponentially with jitter, unless the server says how long to
wait.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from pyagentd.errors import TransientProviderError
from pyagentd.llm.backend import Backend, ModelRequest, RetryNotice, SentAgain, StreamItem


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How many attempts to make and how long to wait between them."""

    max_attempts: int = 5  # requests in all, the first one included
    base_s: float = 0.5  # the longest first wait; each next one is twice as long
    cap_s: float = 30.0
    retry_after_cap_s: float = 120.0  # the longest wait that a server can ask for

    def delay(self, attempt: int, retry_after: float | None, jitter: float) -> float:
        """Return the seconds to wait after the failed ``attempt`` (from 1); ``jitter`` is in [0, 1)."""
        if retry_after is not None:
            return min(retry_after, self.retry_after_cap_s)
        longest = min(self.cap_s, self.base_s * 2.0 ** (attempt - 1))
        return longest * (0.5 + jitter / 2)


class RetryingBackend:
    """Wraps a backend, opened with the first request, and retries after its transient failures.

    Args:
        opening: Opens the wrapped backend.
        policy: The attempts and waits; the default is five attempts.
        sleep: Waits the given seconds.
        jitter: Returns a number in [0, 1), for each wait.
    """

    def __init__(
        self,
        opening: Callable[[], Coroutine[Any, Any, Backend]],
        policy: RetryPolicy | None = None,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._open = opening
        self._opening: asyncio.Task[Backend] | None = None
        self._policy = policy or RetryPolicy()
        self._sleep = sleep
        self._jitter = jitter

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[StreamItem], None]:
        """Yield the answer of the first attempt that succeeds, and a ``RetryNotice`` before each wait."""
        attempt = 1
        while True:
            seen = False
            try:
                if self._opening is None or _has_failed(self._opening):
                    self._opening = asyncio.create_task(self._open())
                # Shielded: aborting one run must not fail the others that wait for the same client.
                backend = await asyncio.shield(self._opening)
                async with aclosing(backend.stream(request)) as batches:
                    async for batch in batches:
                        seen = True
                        yield batch
                return
            except TransientProviderError as error:
                if seen or attempt >= self._policy.max_attempts:
                    raise
                delay = self._policy.delay(attempt, error.retry_after, self._jitter())
                message = error.message
            now = asyncio.Event()
            yield [RetryNotice(attempt, delay, message, self._policy.max_attempts, now.set)]
            await self._wait(delay, now)
            attempt += 1
            yield [SentAgain(attempt)]

    async def _wait(self, delay_s: float, now: asyncio.Event) -> None:
        """Wait ``delay_s`` seconds, or until ``now`` is set."""
        waits = [asyncio.ensure_future(self._sleep(delay_s)), asyncio.ensure_future(now.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def close(self) -> None:
        """Close the wrapped backend, if it was opened; the next request opens it anew."""
        opening, self._opening = self._opening, None
        if opening is not None and not _has_failed(opening):
            await (await opening).close()


def _has_failed(task: asyncio.Task[Backend]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
