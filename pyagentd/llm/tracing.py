"""A backend that records every request as it was sent, how long the answer took and how it ended."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, replace
from typing import Any, Protocol

from pyagentd.clock import Clock, epoch_ms
from pyagentd.errors import PyagentdError
from pyagentd.llm.backend import Backend, Body, ModelRequest, PartFinished, Retrying, StepFinished, StreamItem
from pyagentd.log import concealed
from pyagentd.messages import ToolCall


class Trace(Protocol):
    """Where requests are noted; neither method raises."""

    def steps_before(self) -> int:
        """Return how many steps of the run are noted."""
        ...

    def request(self, body: Body, *, step: int, attempt: int, purpose: str, at_ms: int) -> None:
        """Note a request that is being sent."""
        ...

    def answer(self, step: int, facts: Mapping[str, Any]) -> None:
        """Note how it was answered."""
        ...


class TracingBackend:
    """Another backend, noted.

    Args:
        backend: Who answers.
        trace: Where it is noted.
        clock: For when a request was sent.
    """

    def __init__(self, backend: Backend, trace: Trace, clock: Clock) -> None:
        self._backend = backend
        self._trace = trace
        self._clock = clock
        self._step: int | None = None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[StreamItem], None]:
        """Send ``request`` and yield its answer, see ``Backend``."""
        self._step = 1 + (self._trace.steps_before() if self._step is None else self._step)
        step = _Step(self._trace, self._clock, self._step, request.purpose)
        try:
            async with aclosing(self._backend.stream(replace(request, sent=step.sent))) as batches:
                async for batch in batches:
                    step.see(batch)
                    yield batch
        except PyagentdError as error:
            step.error = {"code": error.code, "message": concealed(str(error))}
            raise
        finally:
            step.end()

    async def close(self) -> None:
        """Close the other backend."""
        await self._backend.close()


class _Step:
    """One request on its way."""

    def __init__(self, trace: Trace, clock: Clock, number: int, purpose: str) -> None:
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
        self.error: dict[str, Any] | None = None

    def sent(self, body: Body) -> None:
        """Note an attempt; one that repeats the last, word for word, is counted only."""
        self._attempts += 1
        if body != self._sent:
            self._sent = body
            self._forms += 1
            at_ms = epoch_ms(self._clock.now())
            self._trace.request(body, step=self._number, attempt=self._forms, purpose=self._purpose, at_ms=at_ms)

    def see(self, batch: Sequence[StreamItem]) -> None:
        """Note what of a batch is about time, retries and the end."""
        for item in batch:
            match item:
                case Retrying():
                    told = {"attempt": item.attempt, "delay_s": item.delay_s, "message": concealed(item.message)}
                    self._retries.append(told)
                    continue
                case StepFinished():
                    self._stop = item
                case PartFinished(part=ToolCall(id=id, name=name)):
                    self._calls.append({"id": id, "name": name})
            if self._first_s is None:
                self._first_s = self._now()

    def end(self) -> None:
        """Note the end; what was never sent has none."""
        if not self._sent:
            return
        if self._stop is None and self.error is None:
            self.error = {"code": "aborted", "message": "Stopped before the answer ended"}
        facts = {
            "duration_ms": self._ms(self._now()),
            "first_token_ms": None if self._first_s is None else self._ms(self._first_s),
            "attempts": self._attempts,
            "retries": self._retries,
            "usage": None if self._stop is None else asdict(self._stop.usage),
            "calls": self._calls,
            "stop_reason": None if self._stop is None else self._stop.stop_reason,
            "error": self.error,
        }
        self._trace.answer(self._number, facts)

    def _ms(self, moment: float) -> int:
        return round(1000 * (moment - self._began))
