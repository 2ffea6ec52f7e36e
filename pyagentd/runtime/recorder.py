"""Records rows of a branch: appends them to the log, makes them durable, then shows them to clients.

Everything goes through ``record`` (one line of ``messages.jsonl``, written before the call returns) or ``delta``
(text of a part, merged until the next beat and written with one ``write``). What a row adds to the document is
decided by the store's renderer and handed to ``show`` together with the row's number, so a replay of the file shows
what was shown live.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from pyagentd.clock import Clock, Pulse
from pyagentd.errors import StoreError
from pyagentd.store.conversation import Conversation
from pyagentd.store.document.render import Insert, Renderer
from pyagentd.store.journal import Journal, Row

# Syncing the logs of all branches to disk.
#
# A thread costs more to wake than a fast disk takes to sync, and a slow disk syncs several files in the time of one.
# The first sync begins at once, so that the disk works while the caller goes on. Those that are requested meanwhile,
# in one turn of the event loop, are divided among a few threads.

_THREADS = 4  # at a time
_SHARE = 8  # pieces of work for one thread before another one is woken

Work = Callable[[], None]


class DiskWorker:
    """Does blocking work in threads, many pieces to a thread."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Work, asyncio.Future[None]]] = []
        self._threads = 0
        self._due = False

    def do(self, work: Work) -> asyncio.Future[None]:
        """Do ``work`` in a thread; the future gets the exception that it raised."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._waiting.append((work, done))
        if not self._threads:
            self._start()
        elif not self._due:
            self._due = True
            loop.call_soon(self._start)
        return done

    def _start(self) -> None:
        self._due = False
        loop = asyncio.get_running_loop()
        while self._waiting and self._threads < _THREADS:
            size = max(_SHARE, -(-len(self._waiting) // (_THREADS - self._threads)))
            share, self._waiting = self._waiting[:size], self._waiting[size:]
            self._threads += 1
            loop.run_in_executor(None, _perform, share).add_done_callback(partial(self._finish, share))

    def _finish(
        self, share: Sequence[tuple[Work, asyncio.Future[None]]], thread: asyncio.Future[list[BaseException | None]]
    ) -> None:
        self._threads -= 1
        for (_, done), error in zip(share, thread.result(), strict=True):
            if done.done():
                continue  # the waiting task was cancelled
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)
                done.exception()  # it is no fault that nobody waits for it yet
        if self._waiting:
            self._start()


def _perform(share: Sequence[tuple[Work, asyncio.Future[None]]]) -> list[BaseException | None]:
    """Do each piece of work; return an exception or None for each."""
    failures: list[BaseException | None] = []
    for work, _ in share:
        try:
            work()
        except BaseException as error:  # for the task that waits for this piece
            failures.append(error)
        else:
            failures.append(None)
    return failures


def disk_worker() -> DiskWorker:
    """Return the disk worker of the running event loop."""
    loop = asyncio.get_running_loop()
    if (worker := _all.get(loop)) is None:
        worker = _all[loop] = DiskWorker()
    return worker


_all: WeakKeyDictionary[asyncio.AbstractEventLoop, DiskWorker] = WeakKeyDictionary()


class Recorder:
    """The one writer of a branch's ``messages.jsonl``.

    Attributes:
        now_ms: Returns the time for a row's ``created_at``, in epoch milliseconds.
    """

    def __init__(
        self,
        *,
        journal: Journal,
        conversation: Conversation,
        renderer: Renderer,
        pulse: Pulse,
        clock: Clock,
        show: Callable[[Row, list[Insert]], None],
    ) -> None:
        self.journal = journal
        self.conversation = conversation
        self._renderer = renderer
        self._pulse = pulse
        self.now_ms = clock.now_ms
        self._show = show
        self._pending: dict[str, list[str]] = {}
        self._refused = False  # the disk refused the last beat
        self._held: list[tuple[str, Mapping[str, Any]]] | None = None  # rows of a block that is written at its end

    @property
    def last_seq(self) -> int:
        """The number of the last recorded line."""
        return self.journal.last_seq

    def record(self, kind: str, data: Mapping[str, Any]) -> int:
        """Write one row, show it, and return its number; inside ``together`` it is written and shown at the end.

        Raises:
            StoreError: The disk refused; nothing was shown.
        """
        self.flush()
        if self._held is not None:
            self._held.append((kind, dict(data)))
            return self.last_seq + len(self._held)
        row = self.journal.append(kind, dict(data))
        self._take(row)
        return row.seq

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Write the rows that the block records with one write, then show them; the block must not await.

        Raises:
            StoreError: The disk refused; none of them was shown.
        """
        self.flush()
        self._held = []
        try:
            yield
        finally:
            held, self._held = self._held, None
            try:
                rows = self.journal.append_many(held)
            except StoreError:
                for kind, data in held:
                    if kind == "delta":  # streamed text stays pending
                        self._pending.setdefault(data["part_id"], []).append(data["text"])
                raise
            for row in rows:
                self._take(row)

    def delta(self, part_id: str, text: str) -> None:
        """Add streamed text to a part; it is written and shown at the next beat.

        Raises:
            StoreError: The disk refused at the last beat and still does.
        """
        self._pending.setdefault(part_id, []).append(text)
        if self._refused:
            self.flush()
        self._pulse.request("record", self._beat)

    def flush(self) -> None:
        """Write and show the pending text now.

        Raises:
            StoreError: The disk refused; the text stays pending and nothing was shown.
        """
        if not self._pending:
            return
        deltas = [("delta", {"part_id": part, "text": "".join(texts)}) for part, texts in self._pending.items()]
        if self._held is not None:
            self._held += deltas
            self._pending = {}
            return
        rows = self.journal.append_many(deltas)
        self._pending, self._refused = {}, False
        for row in rows:
            self._take(row)

    def commit(self) -> asyncio.Future[None]:
        """Write pending text and begin to sync the log; once synced, all that was recorded survives a power failure.

        Raises:
            StoreError: The disk refused the text, which stays pending.
        """
        self.flush()
        return disk_worker().do(self.journal.sync)

    def close(self) -> None:
        """Write pending text and close the file."""
        try:
            self.flush()
        finally:
            self.journal.close()

    def _beat(self) -> None:
        try:
            self.flush()
        except StoreError:  # the next ``delta`` of the run tries again and raises
            self._refused = True

    def _take(self, row: Row) -> None:
        self.conversation.apply(row)
        self._show(row, self._renderer.feed(row))
