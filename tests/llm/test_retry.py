"""Transient failures are repeated, visibly, and only while nothing of the answer was seen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from typing import Any

import pytest
import pytest_asyncio

from pyagentd.errors import NotInstalled, ProviderError, TransientProviderError
from pyagentd.llm.anthropic import AnthropicBackend, server
from pyagentd.llm.backend import Backend, RetryingBackend, RetryNotice, RetryPolicy, StepFinished, StreamItem
from tests.llm.requests import collect, end, flatten, request, said
from tests.server import ModelServer, answer, error_event, refusal, text

BUSY = refusal(529, "overloaded_error", "Overloaded")


class Waits:
    """A sleep that only notes how long it would have been."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


@pytest.fixture
def waits() -> Waits:
    return Waits()


@pytest_asyncio.fixture
async def backend(model_server: ModelServer, waits: Waits) -> AsyncIterator[Backend]:
    policy = RetryPolicy(max_attempts=4, base_s=1.0, cap_s=3.0)
    made = RetryingBackend(opening(model_server), policy, sleep=waits, jitter=lambda: 1.0)
    yield made
    await made.close()


def opening(model_server: ModelServer) -> Callable[[], Coroutine[Any, Any, Backend]]:
    async def opened() -> Backend:
        return AnthropicBackend(server(api_key="k", base_url=model_server.url, timeout_s=10))

    return opened


async def test_a_failure_that_passes_is_shown_as_retrying(model_server: ModelServer, backend: Backend) -> None:
    model_server.say(BUSY, "at last")
    items = await collect(backend, request())
    retrying = items[0]
    assert isinstance(retrying, RetryNotice)
    assert (retrying.attempt, retrying.delay_s) == (1, 1.0)
    assert "529" in retrying.message and "Overloaded" in retrying.message
    assert said(items) == "at last" and end(items).stop_reason == "end_turn"


async def test_the_same_request_is_sent_again(model_server: ModelServer, backend: Backend) -> None:
    model_server.say(BUSY)
    await collect(backend, request("hi", system="s"))
    first, second = model_server.requests
    assert first.body == second.body


async def test_waits_double_up_to_the_cap_and_the_last_attempt_raises(
    model_server: ModelServer, backend: Backend, waits: Waits
) -> None:
    model_server.say(BUSY, BUSY, BUSY, BUSY, "too late")
    items: list[StreamItem] = []
    with pytest.raises(TransientProviderError, match="529"):
        await flatten(backend.stream(request()), items)
    assert waits.seconds == [1.0, 2.0, 3.0]
    assert [item.attempt for item in items if isinstance(item, RetryNotice)] == [1, 2, 3]
    assert len(model_server.requests) == 4


async def test_the_server_says_how_long_to_wait(model_server: ModelServer, backend: Backend, waits: Waits) -> None:
    model_server.say(
        refusal(429, headers={"retry-after": "17"}),
        refusal(429, headers={"retry-after": "86400"}),
        "ok",
    )
    await collect(backend, request())
    assert waits.seconds == [17.0, RetryPolicy().retry_after_cap_s]


async def test_what_will_not_pass_is_not_tried_again(model_server: ModelServer, backend: Backend) -> None:
    model_server.say(refusal(401, "authentication_error", "invalid key"))
    with pytest.raises(ProviderError, match="invalid key"):
        await collect(backend, request())
    assert len(model_server.requests) == 1


@pytest.mark.parametrize("fault", [{"cut_after": 4}, {"insert": {4: error_event("overloaded_error", "busy")}}])
async def test_nothing_is_sent_again_once_something_was_seen(
    model_server: ModelServer, backend: Backend, fault: dict[str, object]
) -> None:
    model_server.say(answer(text("one two", chunks=2), **fault), "another")
    items: list[StreamItem] = []
    with pytest.raises(TransientProviderError):
        await flatten(backend.stream(request()), items)
    assert said(items) == "one "
    assert len(model_server.requests) == 1


async def test_a_stream_that_fails_before_its_first_part_is_sent_again(
    model_server: ModelServer, backend: Backend
) -> None:
    model_server.say(answer("lost", cut_after=2), "found")
    assert said(await collect(backend, request())) == "found"


async def test_aborting_while_waiting_ends_at_once(model_server: ModelServer) -> None:
    patient = RetryingBackend(opening(model_server), RetryPolicy(base_s=3600, cap_s=3600))
    model_server.say(BUSY)
    seen = asyncio.Event()

    async def run() -> None:
        async for _ in patient.stream(request()):
            seen.set()

    task = asyncio.create_task(run())
    await asyncio.wait_for(seen.wait(), 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 10)
    await patient.close()


async def test_aborting_an_answer_ends_its_request(model_server: ModelServer, backend: Backend) -> None:
    model_server.say(answer(text("one two", chunks=2), hang_after=4))
    async with aclosing(backend.stream(request())) as batches:
        async for _ in batches:
            break
    await asyncio.to_thread(model_server.wait_until, lambda: model_server.hangups == 1)


async def test_a_backend_that_could_not_be_opened_keeps_nobody_from_closing_the_others() -> None:
    async def opened() -> Backend:
        raise NotInstalled("This backend needs a Python package")

    backend = RetryingBackend(opened)
    with pytest.raises(NotInstalled):
        await collect(backend, request())
    await backend.close()


def test_jitter_takes_at_most_half_of_a_wait_away() -> None:
    policy = RetryPolicy(base_s=2.0, cap_s=100.0)
    assert [policy.delay(attempt, None, 0.0) for attempt in (1, 2, 3)] == [1.0, 2.0, 4.0]
    assert [policy.delay(attempt, None, 1.0) for attempt in (1, 2, 3)] == [2.0, 4.0, 8.0]
    assert policy.delay(1000, None, 1.0) == 100.0


async def test_the_policy_leaves_a_good_answer_alone(
    model_server: ModelServer, backend: Backend, waits: Waits
) -> None:
    items = await collect(backend, request())
    assert [type(item) for item in items if isinstance(item, RetryNotice | StepFinished)] == [StepFinished]
    assert waits.seconds == []
