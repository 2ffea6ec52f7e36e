"""The services that a mission uses: clock, sleeping, telemetry, cancellation, the caller's event loop; foreign code.

The services are fields of ``Runtime``, so a test can pass a fake clock, and coroutines of a caller with an event loop
are awaited on that loop.
"""

import asyncio
import itertools
import logging
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from pyagentd.lisp.parallel import is_abandoned

# Telemetry: the events of a mission while it runs.
#
# Each event is sent when it happens. Spans nest: mission, turn, LLM request or tool call; a child mission's parent
# span is that of the tool call it runs in. An exception of a listener is logged and has no other effect.

PREFIX = ("ptc", "subagent")

_T = TypeVar("_T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event.

    Attributes:
        name: ``mission_start``, ``mission_stop``, ``turn_start``, ``turn_stop``, ``program_start`` in between, and
            ``llm_`` and ``tool_`` with ``start``, ``stop`` and ``exception``.
        span_id: The same for a start and its stop; of a program it is its turn's.
        parent_span_id: The id of the enclosing span; None for a mission without a parent.
        at_ms: Milliseconds since the epoch.
        measurements: Numbers: ``duration_ms``, ``turns``, ``input_tokens``…
        metadata: The rest; values of tools and turns are not redacted.
    """

    name: str
    span_id: str
    parent_span_id: str | None
    at_ms: int
    measurements: Mapping[str, int | float] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> tuple[str, ...]:
        """The name as a path: ``("ptc", "subagent", "turn_stop")``."""
        return (*PREFIX, self.name)


Listener = Callable[[Event], None]


def new_span() -> str:
    """Return an id for a span."""
    return uuid.uuid4().hex[:16]


# Calling foreign code: tools and LLM callbacks.
#
# ``SystemExit`` (``sys.exit`` in a function made for a command line) and a ``CancelledError`` without a cancellation
# become ordinary exceptions here; otherwise they would end the event loop of the whole daemon. ``KeyboardInterrupt``
# is let through.

_EXITED: Final = "it tried to end the process (sys.exit)"


class ForeignExit(Exception):
    """Foreign code raised ``SystemExit`` or ``CancelledError``; the original exception is the cause."""


def call_foreign(function: Callable[..., Any], *args: Any) -> Any:
    """Return the result of ``function``.

    Raises:
        ForeignExit: It tried to end the process, or was cancelled.
    """
    try:
        return function(*args)
    except SystemExit as error:
        raise ForeignExit(_EXITED) from error
    except asyncio.CancelledError as error:
        raise ForeignExit("it was cancelled") from error


GRACE_S: Final = 0.1
"""Seconds that a call at its deadline has to clean up, before it is left behind."""

CHILD_GRACE_S: Final = 1.0
"""The same for a call in which child missions run: these end by themselves, and their steps are recorded."""

_POLL_S: Final = (0.05, 0.25)
"""Seconds between two checks for cancellation while waiting: at first, and after a while."""


def _pauses() -> Iterator[float]:
    pause, longest = _POLL_S
    while True:
        yield pause
        pause = min(pause * 1.3, longest)


class LeftBehind(TimeoutError):
    """A blocking call was still running at the deadline, or when the mission or a parallel call was cancelled.

    Args:
        what: What was called, such as ``the tool "search"``.
        thread: The name of the thread in which it still runs.
    """

    def __init__(self, what: str, thread: str) -> None:
        super().__init__(
            f'{what} was given up while it was running, and left behind in the thread "{thread}": '
            "its result will be dropped, and what it does is not undone"
        )


def call_until(
    deadline: float, runtime: "Runtime", what: str, function: Callable[[], Any], has_children: Callable[[], bool]
) -> Any:
    """Return the result of a function that may block, called in a thread of its own; ``what`` is for its name.

    ``has_children`` returns whether child missions are running in it.

    Raises:
        LeftBehind: It did not finish in time, or the mission was cancelled.
    """
    name = f"{what} {next(_numbers)}"
    done = _in_thread(function, name)
    overdue_since: float | None = None
    pauses = _pauses()
    while True:
        left = deadline - runtime.monotonic()
        if wait([done], timeout=min(next(pauses), left) if left > 0 else 0.01).done:
            return done.result()
        if runtime.monotonic() < deadline and not runtime.cancelled() and not is_abandoned():
            continue
        now = time.monotonic()
        overdue_since = now if overdue_since is None else overdue_since
        if now - overdue_since >= (CHILD_GRACE_S if has_children() else GRACE_S):
            raise LeftBehind(what, name)


_numbers = itertools.count(1)


def error_text(error: BaseException) -> str:
    """Return the message of an exception, or "" when it has none or its ``__str__`` raises."""
    try:
        return str(error).strip()
    except Exception:  # raised by ``__str__`` of a foreign class
        return ""


# Between a mission's thread and the event loop of its caller.
#
# A mission is synchronous. ``adelegate`` runs it in a new thread, not one of a pool: a child mission needs another
# thread while its parent waits, and a full pool would deadlock. Coroutines and listeners run on the loop, and the
# thread waits for them, so that what a listener records is recorded before the mission continues.


class Bridge:
    """Runs one mission in a thread for a caller with an event loop; made on that loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._cancel = threading.Event()
        self._waiting: set[Future[Any]] = set()
        self._lock = threading.Lock()

    async def run(self, work: Callable[[], _T]) -> _T:
        """Run ``work`` in a thread and return its result; cancelling waits until the thread has ended."""
        finished = asyncio.wrap_future(_in_thread(work, "mission"))
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
        """Return whether the caller cancelled."""
        return self._cancel.is_set()

    def sleep(self, seconds: float) -> None:
        """Wait, in the mission's thread, until the time is over or the caller cancels."""
        self._cancel.wait(seconds)

    def wait_for(self, awaitable: Awaitable[Any], seconds: float) -> Any:
        """Wait, in the mission's thread, for the result of ``awaitable`` on the loop.

        Raises:
            TimeoutError: It took longer than ``seconds``.
        """
        if _running_loop() is self._loop:  # an async tool called delegate without awaiting: this is the loop's thread
            return run_here(awaitable, seconds)
        return self._result(asyncio.run_coroutine_threadsafe(_within(awaitable, seconds), self._loop), ends=True)

    def on_loop(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function for the mission's thread that calls ``function`` on the loop."""

        async def on_loop(args: tuple[Any, ...]) -> Any:
            return function(*args)

        return lambda *args: self._result(asyncio.run_coroutine_threadsafe(on_loop(args), self._loop))

    def _result(self, future: Future[Any], *, ends: bool = False) -> Any:
        with self._lock:
            self._waiting.add(future)
            if ends and self._cancel.is_set():  # cancelled between the start of the coroutine and here
                future.cancel()
        try:
            pauses = _pauses()
            while not wait([future], timeout=next(pauses)).done:
                if ends and is_abandoned():
                    future.cancel()
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
    return _in_thread(lambda: asyncio.run(_within(awaitable, seconds))).result()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def _within(awaitable: Awaitable[Any], seconds: float) -> Any:
    async def own() -> Any:
        try:
            return await awaitable
        except SystemExit as error:  # it would end the event loop
            raise ForeignExit(_EXITED) from error

    return await asyncio.wait_for(own(), None if seconds == float("inf") else max(seconds, 0.001))


def _in_thread(work: Callable[[], _T], name: str | None = None) -> Future[_T]:
    """Start ``work`` in a thread of its own, with the context variables of this one."""
    done: Future[_T] = Future()
    context = copy_context()

    def run() -> None:
        try:
            result = context.run(work)
        except BaseException as error:  # raised again in the thread that waits for the result
            done.set_exception(error)
        else:
            done.set_result(result)

    # A daemon thread: it does not keep the interpreter from exiting if it hangs.
    threading.Thread(target=run, name=name, daemon=True).start()
    return done


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """The services that a mission uses; times are in seconds."""

    monotonic: Callable[[], float] = time.monotonic  # for durations and deadlines
    epoch: Callable[[], float] = time.time  # for facts
    sleep: Callable[[float], None] = time.sleep
    wait_for: Callable[[Awaitable[Any], float], Any] = run_here  # waits for an awaitable, that long at most
    listener: Listener | None = None  # gets every event
    cancelled: Callable[[], bool] = lambda: False

    def now_ms(self) -> int:
        """Return milliseconds since the epoch."""
        return int(self.epoch() * 1000)

    def emit(
        self,
        name: str,
        span: str,
        parent: str | None,
        measurements: Mapping[str, int | float] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Send an event to the listener; an exception of it is logged and has no other effect."""
        if self.listener is None:
            return
        event = Event(
            name=name,
            span_id=span,
            parent_span_id=parent,
            at_ms=self.now_ms(),
            measurements=measurements or {},
            metadata=metadata or {},
        )
        try:
            self.listener(event)
        except Exception:
            _log.exception("A telemetry listener failed at %s", name)
