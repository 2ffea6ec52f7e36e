"""The outside of a mission: time, waiting, whoever listens and whoever may cancel.

Everything a mission takes from its surroundings comes through here, so that a test gives a clock that stands still
and a caller with an event loop gets its coroutines awaited there.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pyagentd.mission.telemetry import Event, Listener, tell

# Calling what somebody else wrote: tools and callbacks of models.
#
# Whatever they do wrong is an ``Exception`` after this: one that wants to end the process (``sys.exit`` of a
# function made for a command line) or that says it was cancelled, though nobody cancelled the mission, would
# otherwise take the event loop of the whole daemon with it. The user's interrupt passes.

_EXITED: Final = "it wanted to end the process (sys.exit)"


class ForeignExit(Exception):
    """What was called wanted to end more than itself; how it did so is the cause."""


def call_foreign(function: Callable[..., Any], *args: Any) -> Any:
    """Return what ``function`` gives.

    Raises:
        ForeignExit: It wanted to end the process, or was cancelled.
    """
    try:
        return function(*args)
    except SystemExit as error:
        raise ForeignExit(_EXITED) from error
    except asyncio.CancelledError as error:
        raise ForeignExit("it was cancelled") from error


async def await_foreign(awaitable: Awaitable[Any]) -> Any:
    """Return what ``awaitable`` gives; a task that ends with ``SystemExit`` would end its event loop.

    Raises:
        ForeignExit: It wanted to end the process.
    """
    try:
        return await awaitable
    except SystemExit as error:
        raise ForeignExit(_EXITED) from error


def error_text(error: BaseException) -> str:
    """Return what an exception says, or "" when it says nothing or saying it fails."""
    try:
        return str(error).strip()
    except Exception:  # its class is anybody's code
        return ""


# Between a mission's thread and the event loop of who started it.
#
# A mission is synchronous. ``adelegate`` gives it a thread of its own, never one of a pool: a mission below it needs
# another while this one waits, and a full pool would wait for itself. Coroutines and listeners run on the loop, and
# the thread waits for them, so that what a listener writes down is written before the mission goes on.

_T = TypeVar("_T")


class Bridge:
    """Carries one mission; made on the loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._cancel = threading.Event()
        self._waiting: set[Future[Any]] = set()
        self._lock = threading.Lock()

    async def run(self, work: Callable[[], _T]) -> _T:
        """Run ``work`` in a thread and return what it returns; cancelling this ends the thread first."""
        done: Future[_T] = Future()
        context = copy_context()
        thread = threading.Thread(target=lambda: context.run(_resolve, done, work), name="mission", daemon=True)
        thread.start()
        finished = asyncio.wrap_future(done)
        try:
            return await asyncio.shield(finished)
        except asyncio.CancelledError:
            self._stop()
            while not finished.done():
                try:
                    await asyncio.wait({finished})
                except asyncio.CancelledError:
                    continue
            finished.exception()
            raise

    def cancelled(self) -> bool:
        """Return whether the caller wants an end."""
        return self._cancel.is_set()

    def sleep(self, seconds: float) -> None:
        """Wait, in the mission's thread, until the time is over or the caller wants an end."""
        self._cancel.wait(seconds)

    def awaited(self, awaitable: Awaitable[Any], seconds: float) -> Any:
        """Wait, in the mission's thread, for what the loop makes of ``awaitable``.

        Raises:
            TimeoutError: It took longer than ``seconds``.
        """
        if _running_loop() is self._loop:  # a mission that an async tool started without awaiting: it has the thread
            return run_here(awaitable, seconds)
        return self._result(asyncio.run_coroutine_threadsafe(_within(awaitable, seconds), self._loop), ends=True)

    def on_loop(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``function`` so that it is called on the loop, from the mission's thread."""

        async def on_loop(args: tuple[Any, ...]) -> Any:
            return function(*args)

        return lambda *args: self._result(asyncio.run_coroutine_threadsafe(on_loop(args), self._loop))

    def _result(self, future: Future[Any], *, ends: bool = False) -> Any:
        with self._lock:
            self._waiting.add(future)
            if ends and self._cancel.is_set():  # the end came between the start of the coroutine and here
                future.cancel()
        try:
            return future.result()
        finally:
            with self._lock:
                self._waiting.discard(future)

    def _stop(self) -> None:
        self._cancel.set()
        with self._lock:
            waiting = list(self._waiting)
        for future in waiting:
            future.cancel()


def run_here(awaitable: Awaitable[Any], seconds: float) -> Any:
    """Wait for ``awaitable`` in this thread, or in another one if this one has a running event loop.

    Raises:
        TimeoutError: It took longer than ``seconds``.
    """
    if _running_loop() is None:
        return asyncio.run(_within(awaitable, seconds))
    done: Future[Any] = Future()
    context = copy_context()
    work = lambda: asyncio.run(_within(awaitable, seconds))  # noqa: E731  (it is passed on at once)
    threading.Thread(target=lambda: context.run(_resolve, done, work), daemon=True).start()
    return done.result()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def _within(awaitable: Awaitable[Any], seconds: float) -> Any:
    return await asyncio.wait_for(await_foreign(awaitable), None if seconds == float("inf") else max(seconds, 0.001))


def _resolve(done: Future[_T], work: Callable[[], _T]) -> None:
    try:
        result = work()
    except BaseException as error:  # whoever waits for the thread gets it
        done.set_exception(error)
    else:
        done.set_result(result)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """What a mission needs of the world.

    Attributes:
        monotonic: Seconds, for durations and deadlines.
        epoch: Seconds since the epoch, for facts.
        sleep: Waits that many seconds.
        awaited: Waits for what a coroutine function gave, that many seconds at most.
        listener: Told of everything.
        cancelled: Whether somebody asked for the end.
    """

    monotonic: Callable[[], float] = time.monotonic
    epoch: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    awaited: Callable[[Awaitable[Any], float], Any] = run_here
    listener: Listener | None = None
    cancelled: Callable[[], bool] = lambda: False

    def now_ms(self) -> int:
        """Return milliseconds since the epoch."""
        return int(self.epoch() * 1000)

    def tell(
        self,
        name: str,
        span: str,
        parent: str | None,
        measurements: Mapping[str, int | float] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Send an event."""
        event = Event(
            name=name,
            span_id=span,
            parent_span_id=parent,
            at_ms=self.now_ms(),
            measurements=measurements or {},
            metadata=metadata or {},
        )
        tell(self.listener, event)
