"""What one client still has to be told: merged while it waits, bounded when the client is slow.

Adjacent ``insert`` events of a branch with the same role become one; other branches' events in between do not
matter, the branch's own do, so the order of each branch is exact. Everything leaves in one frame per beat of the
pulse. While the socket is full nothing leaves and merging goes on; beyond ``BACKLOG`` bytes everything queued is
dropped, each branch concerned is told ``resync`` once and is silent until it is attached anew (``reset``).

The SEQ a client sees means: *with this event, everything up to row SEQ is shown*. Where one row became several
events (a tool's result, a text longer than ``PIECE``) only the last has its number; the others have the number of
the row they complete, or 0 when they complete none. A backlog is dropped between rows, never inside one.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pyagentd.events import Event
from pyagentd.rpc.framing import MAX_FRAME, frame
from pyagentd.sexp import Symbol, Unencodable, encode, tagged

EVENTS: Final = "events"
PIECE: Final = 32_768  # characters of one insert, so ≤ 128 kB as UTF-8
BATCH: Final = 256_000  # bytes of one frame; only a single event may be longer
BACKLOG: Final = 8 << 20

_HEAD: Final = f"(call 0 {EVENTS} ((".encode()
_TAIL: Final = b")))"
_LARGEST: Final = MAX_FRAME - len(_HEAD) - len(_TAIL) - 1
_OVERHEAD: Final = 400  # bytes of an entry beside its text

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Entry:
    """One event to send; the text of an insert stays open for merging, everything else is encoded already."""

    kind: str
    branch: str
    seq: int  # the last row it completes, 0 for none
    row: int  # the last row it belongs to
    rest: bytes  # the arguments (of an insert: the role) with the closing parenthesis
    size: int
    text: str | None = None  # of an insert
    role: Any = None  # of an insert
    before: int = 0  # the last row it completes before ``row``

    def encoded(self) -> bytes:
        head = (Symbol(self.kind), self.branch, self.seq)
        return encode(head if self.text is None else (*head, self.text))[:-1] + self.rest


class Outbox:
    """The queue of events of one connection.

    Args:
        write: Sends a frame; may call ``pause`` before it returns.
        request: Has the function it is given called at the next beat.
    """

    def __init__(self, write: Callable[[bytes], None], request: Callable[[Callable[[], None]], None]) -> None:
        self._write = write
        self._request = request
        self._queue: deque[_Entry] = deque()
        self._last: dict[str, _Entry] = {}  # the newest queued entry of each branch
        self._last_row: dict[str, _Entry] = {}  # ... and the newest that has a number
        self._shown: dict[str, int] = {}  # what each branch has been shown, by the client's own account
        self._unfinished: set[str] = set()  # branches with a row of which only a part has left
        self._silent: set[str] = set()  # branches that lost events and were not attached since
        self._size = 0
        self._paused = False
        self._closed = False

    def push(self, event: Event) -> None:
        """Queue ``event``; never blocks and never raises."""
        if self._closed or event.branch in self._silent:
            return
        try:
            if event.kind == "insert":
                self._push_insert(event.branch, event.seq, *event.args)
            else:
                self._push_other(event)
        except (Unencodable, TypeError):
            _log.exception("An event of kind %s cannot be sent", event.kind)
            return
        if self._size > BACKLOG:
            self._overflow()
        self._wake()

    def reset(self, branch: str, seq: int) -> None:
        """Forget what is queued for ``branch``, whose rows up to ``seq`` the client is told in another way.

        For the operation that attaches: its answer covers ``seq``, and is sent before any later event as long as
        nothing is awaited between this call and the return.
        """
        self._silent.discard(branch)
        self._unfinished.discard(branch)
        self._forget(branch)
        self._shown[branch] = seq

    def pause(self) -> None:
        """Hold everything back: the socket is full."""
        self._paused = True

    def resume(self) -> None:
        """Go on sending."""
        self._paused = False
        self._wake()

    def close(self) -> None:
        """Drop everything, now and later: nobody listens."""
        self._closed = True
        self._clear()

    def flush(self) -> None:
        """Send what is queued, until the socket is full."""
        while self._queue and not self._paused:
            batch = self._next_batch()
            if batch:
                self._write(frame(_HEAD + b" ".join(batch) + _TAIL))

    def _wake(self) -> None:
        if self._queue and not self._paused:
            self._request(self.flush)

    def _push_insert(self, branch: str, seq: int, text: str, role: Any) -> None:
        if not isinstance(text, str):
            raise TypeError(f"The text of an insert is {type(text).__name__}")
        if not text:
            return
        self._reopen_row(branch, seq)
        for start in range(0, len(text), PIECE):
            piece = text[start : start + PIECE]
            complete = start + PIECE >= len(text)
            last = self._last.get(branch)
            if last is not None and last.text is not None and last.role == role and _fits(last.text, piece):
                self._merge(last, piece, seq, complete)
            else:
                rest = b" " + encode(tagged(role)) + b")"
                self._enqueue(_Entry("insert", branch, seq if complete else 0, seq, rest, _size(piece), piece, role))

    def _push_other(self, event: Event) -> None:
        rest = b" " + encode(event.args)[1:] if event.args else b")"
        self._reopen_row(event.branch, event.seq)
        self._enqueue(_Entry(event.kind, event.branch, event.seq, event.seq, rest, _OVERHEAD + len(rest)))

    def _reopen_row(self, branch: str, seq: int) -> None:
        """Let the entry before another one of the same row no longer claim that the row is complete."""
        last = self._last_row.get(branch)
        if last is not None and last.row == seq:
            last.seq = last.before

    def _merge(self, last: _Entry, piece: str, row: int, complete: bool) -> None:
        text = f"{last.text}{piece}"
        size = _size(text)
        self._size += size - last.size
        last.text, last.size = text, size
        if last.row != row:
            last.row, last.before = row, last.seq
        if complete:
            last.seq = row

    def _enqueue(self, entry: _Entry) -> None:
        self._queue.append(entry)
        self._last[entry.branch] = entry
        if entry.row:
            self._last_row[entry.branch] = entry
        self._size += entry.size

    def _dequeue(self) -> None:
        entry = self._queue.popleft()
        self._size -= entry.size
        for newest in (self._last, self._last_row):
            if newest.get(entry.branch) is entry:
                del newest[entry.branch]
        if entry.seq:
            self._shown[entry.branch] = entry.seq
        if entry.seq != entry.row:
            self._unfinished.add(entry.branch)
        elif entry.row:
            self._unfinished.discard(entry.branch)

    def _next_batch(self) -> list[bytes]:
        batch: list[bytes] = []
        total = 0
        while self._queue:
            entry = self._queue[0]
            encoded = entry.encoded()
            if len(encoded) > _LARGEST:
                _log.error("An event of kind %s is too large for a frame", entry.kind)
                self._forget(entry.branch)
                self._resync(entry.branch, self._shown.get(entry.branch, 0))
                continue
            if batch and total + len(encoded) > BATCH:
                break
            self._dequeue()
            batch.append(encoded)
            total += len(encoded) + 1
        return batch

    def _overflow(self) -> None:
        """Drop the backlog; every branch in it starts again from the last row it was shown whole."""
        backlog = tuple(self._queue)
        self._clear()
        reached = dict(self._shown)
        unfinished = set(self._unfinished)
        for entry in backlog:
            if entry.branch in unfinished:
                self._enqueue(entry)
                reached[entry.branch] = entry.seq or reached.get(entry.branch, 0)
                if entry.seq == entry.row != 0:
                    unfinished.discard(entry.branch)
        _log.warning("A client is too slow: %d events dropped", len(backlog) - len(self._queue))
        for branch in dict.fromkeys(entry.branch for entry in backlog):
            self._resync(branch, reached.get(branch, 0))

    def _resync(self, branch: str, seq: int) -> None:
        if not branch:  # events of no branch stand for themselves, and nobody attaches to none
            return
        self._silent.add(branch)
        self._enqueue(_Entry("resync", branch, seq, seq, b")", _OVERHEAD))

    def _forget(self, branch: str) -> None:
        if self._last.pop(branch, None) is not None:
            self._last_row.pop(branch, None)
            self._queue = deque(entry for entry in self._queue if entry.branch != branch)
            self._size = sum(entry.size for entry in self._queue)

    def _clear(self) -> None:
        self._queue.clear()
        self._last.clear()
        self._last_row.clear()
        self._size = 0


def _fits(text: str, piece: str) -> bool:
    return len(text) + len(piece) <= PIECE


def _size(text: str) -> int:
    return _OVERHEAD + sys.getsizeof(text)
