"""A backend that records each request of a run, and the end of its answer."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, aclosing, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pyagentd.clock import Clock, epoch_ms
from pyagentd.errors import PyagentdError
from pyagentd.llm.backend import Backend, ModelRequest, PartFinished, RetryNotice, StepFinished, StreamItem
from pyagentd.log import mask_secrets
from pyagentd.messages import Body, Message, ToolCall
from pyagentd.store.trace import TraceWriter


class RequestWatch(Protocol):
    """Watches the answer to one request.

    Attributes:
        inside: Returns a context manager that is entered during the wait for each batch; None for none.
    """

    inside: Callable[[], AbstractContextManager[object]] | None

    def see(self, batch: Sequence[StreamItem]) -> None:
        """Handle a batch of the answer."""
        ...

    def end(self, error: PyagentdError | None) -> None:
        """Handle the end of the answer; ``error`` is None if it succeeded or was cancelled."""
        ...


Watcher = Callable[[ModelRequest], RequestWatch]
"""Called with each request of a run before it is sent; returns its watch."""


@dataclass(slots=True, kw_only=True, eq=False)
class WatchedBackend:
    """The backend of one run, which completes, traces and watches its requests."""

    backend: Backend  # answers them
    trace: TraceWriter  # records each request as it was sent, and duration and end of its answer
    run_id: str
    clock: Clock  # gives the time of a request
    watchers: Sequence[Watcher] = ()  # further watchers of each request
    # Returns the messages with their attachments; None if a request has none.
    completed: Callable[[tuple[Message, ...]], Awaitable[tuple[Message, ...]] | None] = lambda messages: None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[StreamItem], None]:
        """Send ``request`` and yield its answer, see ``Backend``."""
        step = _Step(self.trace, self.trace.next_step(self.run_id), self.clock, request.purpose)
        watching: list[RequestWatch] = [step]
        inside: Callable[[], AbstractContextManager[object]] = nullcontext
        for watcher in self.watchers:
            watching.append(watch := watcher(request))
            inside = watch.inside or inside
        error: PyagentdError | None = None
        try:
            pending = self.completed(request.messages)
            messages = request.messages if pending is None else await pending
            completed = replace(request, messages=messages, sent=step.sent)
            async with aclosing(self.backend.stream(completed)) as batches:
                while True:
                    # Only the wait is inside: between batches, the consumer's context applies.
                    with inside():
                        batch = await anext(batches, None)
                    if batch is None:
                        return
                    for each in watching:
                        each.see(batch)
                    yield batch
        except PyagentdError as failure:
            error = failure
            raise
        finally:
            for each in watching:
                each.end(error)

    async def close(self) -> None:
        """Close the wrapped backend."""
        await self.backend.close()


class _Step:
    """The trace of one request in flight."""

    inside: Callable[[], AbstractContextManager[object]] | None = None

    def __init__(self, trace: TraceWriter, number: int, clock: Clock, purpose: str) -> None:
        self._trace = trace
        self._purpose = purpose
        self._clock = clock
        self._number = number
        self._now = asyncio.get_running_loop().time
        self._began = self._now()
        self._first_s: float | None = None
        self._sent: Body | None = None
        self._forms = 0
        self._attempts = 0
        self._retries: list[dict[str, Any]] = []
        self._calls: list[dict[str, str]] = []
        self._stop: StepFinished | None = None

    def sent(self, body: Body) -> None:
        """Record an attempt; one with the same body as the last is only counted."""
        self._attempts += 1
        if body != self._sent:
            self._sent = body
            self._forms += 1
            at_ms = epoch_ms(self._clock.now())
            self._trace.request(body, step=self._number, attempt=self._forms, purpose=self._purpose, at_ms=at_ms)

    def see(self, batch: Sequence[StreamItem]) -> None:
        """Record time, retries, calls and the end from a batch."""
        for item in batch:
            match item:
                case RetryNotice():
                    retry = {"attempt": item.attempt, "delay_s": item.delay_s, "message": mask_secrets(item.message)}
                    self._retries.append(retry)
                    continue
                case StepFinished():
                    self._stop = item
                case PartFinished(part=ToolCall(id=id, name=name)):
                    self._calls.append({"id": id, "name": name})
            if self._first_s is None:
                self._first_s = self._now()

    def end(self, error: PyagentdError | None) -> None:
        """Record the end of a request that was sent."""
        if not self._sent:
            return
        failure = None if error is None else {"code": error.code, "message": mask_secrets(str(error))}
        if self._stop is None and failure is None:
            failure = {"code": "aborted", "message": "Stopped before the answer ended"}
        facts = {
            "duration_ms": self._ms(self._now()),
            "first_token_ms": None if self._first_s is None else self._ms(self._first_s),
            "attempts": self._attempts,
            "retries": self._retries,
            "usage": None if self._stop is None else self._stop.usage.to_dict(),
            "calls": self._calls,
            "stop_reason": None if self._stop is None else self._stop.stop_reason,
            "error": failure,
        }
        self._trace.answer(self._number, facts)

    def _ms(self, moment: float) -> int:
        return round(1000 * (moment - self._began))
