"""Bringing logs to disk for all branches together.

A thread costs more to wake than a fast disk takes to sync, and a slow disk syncs several files in the time of one.
What is asked for in one turn of the loop is therefore done in few threads, each taking its share.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from weakref import WeakKeyDictionary

_THREADS = 4  # at a time
_SHARE = 8  # of one thread, before another one is woken

Work = Callable[[], None]


class Syncing:
    """Does blocking work in threads, many pieces to a thread."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Work, asyncio.Future[None]]] = []
        self._threads = 0
        self._due = False

    async def do(self, work: Work) -> None:
        """Return when ``work`` was done; raises what it raised."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._waiting.append((work, done))
        if not self._due:
            self._due = True
            loop.call_soon(self._start)
        await done

    def _start(self) -> None:
        self._due = False
        loop = asyncio.get_running_loop()
        while self._waiting and self._threads < _THREADS:
            size = max(_SHARE, -(-len(self._waiting) // (_THREADS - self._threads)))
            share, self._waiting = self._waiting[:size], self._waiting[size:]
            self._threads += 1
            thread = loop.run_in_executor(None, _perform, [work for work, _ in share])
            thread.add_done_callback(lambda thread, share=share: self._finish(thread, share))  # type: ignore[misc]

    def _finish(
        self, thread: asyncio.Future[list[Exception | None]], share: Sequence[tuple[Work, asyncio.Future[None]]]
    ) -> None:
        self._threads -= 1
        for (_, done), error in zip(share, thread.result(), strict=True):
            if done.done():
                continue  # whoever waited was cancelled
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)
        if self._waiting:
            self._start()


def _perform(share: Sequence[Work]) -> list[Exception | None]:
    return [_failure(work) for work in share]


def _failure(work: Work) -> Exception | None:
    try:
        work()
    except Exception as error:  # it belongs to whoever waits for this piece
        return error
    return None


def syncing() -> Syncing:
    """Return what does it for the running event loop."""
    return _all.setdefault(asyncio.get_running_loop(), Syncing())


_all: WeakKeyDictionary[asyncio.AbstractEventLoop, Syncing] = WeakKeyDictionary()
