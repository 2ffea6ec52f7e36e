"""Between a mission's thread and the event loop of who started it.

A mission is synchronous. ``adelegate`` gives it a thread of its own, never one of a pool: a mission below it needs
another while this one waits, and a full pool would wait for itself. Coroutines and listeners run on the loop, and the
thread waits for them, so that what a listener writes down is written before the mission goes on.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextvars import copy_context
from typing import Any, TypeVar

from pyagentd.mission.callbacks import guarded

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
        thread = threading.Thread(target=lambda: context.run(_into, done, work), name="mission", daemon=True)
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

        async def called(args: tuple[Any, ...]) -> Any:
            return function(*args)

        return lambda *args: self._result(asyncio.run_coroutine_threadsafe(called(args), self._loop))

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
    threading.Thread(target=lambda: context.run(_into, done, work), daemon=True).start()
    return done.result()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def _within(awaitable: Awaitable[Any], seconds: float) -> Any:
    return await asyncio.wait_for(guarded(awaitable), None if seconds == float("inf") else max(seconds, 0.001))


def _into(done: Future[_T], work: Callable[[], _T]) -> None:
    try:
        result = work()
    except BaseException as error:  # whoever waits for the thread gets it
        done.set_exception(error)
    else:
        done.set_result(result)
