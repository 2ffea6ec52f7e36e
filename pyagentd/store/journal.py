"""``messages.jsonl``: the numbered, append-only lines of one branch.

Knows lines and their numbers, not what they mean (that is ``conversation``), except that the ``delta`` lines of a
part are superseded by its full row. Nothing is kept in memory but what is not yet safe from a loss of power; reading
means reading the file, from a known place for the recent past. A line that was not written to its end (a killed
process) is dropped when the file is opened and cut off before the first append; a complete line is never lost, and
what is damaged stays where it is (``lines``).
"""

from __future__ import annotations

import logging
import os
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

from pyagentd import regularfile
from pyagentd.errors import StoreError
from pyagentd.store import atomic
from pyagentd.store.lines import Numbering, Row, chunks, current_rows, row_of, rows_of, writable_row

__all__ = ["Journal", "Row", "read_rows"]

log = logging.getLogger(__name__)

_MARK_EVERY = 64 * 1024  # bytes between remembered places


class Journal:
    """The log of one branch, open for appending if the disk allows; use ``Journal.open``.

    Attributes:
        last_seq: The number of the last row, 0 when there is none.
        damaged: How many lines cannot be read; exact once ``current`` has read them all.
        refusal: Why nothing can be appended, or "".
    """

    def __init__(self, path: Path) -> None:
        self.last_seq = 0
        self.damaged = 0
        self.refusal = ""
        self._path = path
        self._fd = -1  # of a file that exists
        self._closed = False
        self._size = 0  # bytes up to the end of the last line
        self._newline_due = False
        self._torn = False  # something that is no line may follow
        self._disordered = False
        self._marks: list[tuple[int, int]] = [(0, 0)]  # (seq, offset): the lines after seq begin at offset
        self._safe = 0  # bytes that survive a loss of power, as far as is known
        self._unsynced = bytearray()  # what follows them
        self._named = True  # whether its name in the directory survives one
        self._doubted = False  # whether the disk may lack what the file seems to hold
        self._counting = Lock()  # two threads may sync

    @classmethod
    def open(cls, path: Path) -> Journal:
        """Open the log at ``path``; a missing one is made with the first append.

        Raises:
            StoreError: It cannot be read. If it only cannot be written, ``refusal`` says why.
        """
        journal = cls(path)
        try:
            journal._open()
            journal._inspect()
        except BaseException:
            journal.close()
            raise
        return journal

    @property
    def replaced(self) -> bool:
        """Whether another program put another file in the place of the one that is open."""
        try:
            named, held = self._path.lstat(), os.fstat(self._fd)
        except OSError:  # missing: the next append makes it again, or says why not
            return False
        return (named.st_ino, named.st_dev) != (held.st_ino, held.st_dev)

    @property
    def writable(self) -> bool:
        """Whether rows can be appended, as far as is known without doing it."""
        return not self.refusal

    @property
    def torn(self) -> bool:
        """Whether something that is no line follows the last one; the next append cuts it off."""
        return self._torn

    def append(self, type: str, data: Mapping[str, Any]) -> Row:
        """Write one row in one ``write()`` and return it.

        Raises:
            StoreError: The disk refused; nothing was added.
        """
        return self.append_many([(type, data)])[0]

    def append_many(self, facts: Iterable[tuple[str, Mapping[str, Any]]]) -> list[Row]:
        """Write several rows, type and data each, in one ``write()``.

        Raises:
            StoreError: The disk refused, or the file is not the one that was opened; nothing was added.
        """
        given = list(facts)
        if not given:
            return []
        self._make_ready()
        numbered = enumerate(given, self.last_seq + 1)
        made = [writable_row(Row(number, type, dict(data))) for number, (type, data) in numbered]
        rows = [row for row, _ in made]
        data = b"".join([b"\n" if self._newline_due else b"", *(line for _, line in made)])
        self._torn = True  # until all of it is written
        atomic.append_fd(self._fd, data, self._path)
        self._torn = self._newline_due = False
        self._unsynced += data
        self._size += len(data)
        self.last_seq = rows[-1].seq
        self._mark(self.last_seq, self._size)
        return rows

    def rows(self, after: int = 0) -> list[Row]:
        """Return every row numbered higher than ``after``, deltas included, as recorded.

        Raises:
            StoreError: The disk refused.
        """
        # Of a log in disorder the numbers follow only from all that was before.
        seq, offset = (0, 0) if self._disordered else self._marks[bisect_right(self._marks, (after, self._size)) - 1]
        numbering = Numbering(last_seq=seq, once=self._disordered)
        found: list[Row] = []
        for chunk in chunks(self._read, offset, self._size):
            found += [row for row in rows_of(numbering.usable(chunk.text))[0] if row.seq > after]
        return found

    def current(self) -> list[Row]:
        """Return the rows from which the present state is folded: without deltas that a full row superseded.

        Raises:
            StoreError: The disk refused.
        """
        rows, damaged = current_rows(chunks(self._read, 0, self._size), once=self._disordered)
        self._note_damaged(damaged)
        return rows

    def sync(self) -> None:
        """Return when everything appended survives a loss of power; may be called from any thread.

        Raises:
            StoreError: The disk refused. All rows can be read; the next append writes them anew first.
        """
        if self._fd < 0:
            return
        end = self._size
        try:
            if self._doubted:
                raise StoreError(f"{self._path}: what was recorded last may not be on the disk")
            atomic.sync_fd(self._fd, self._path)
            if not self._named:
                atomic.sync_directory(self._path.parent)
                self._named = True
        except StoreError as error:
            self._doubted = True
            mend = "See to the disk; what was recorded is written anew with the next message"
            raise StoreError(error.message, mend=mend) from error
        self._note_safe(end)

    def close(self) -> None:
        """Close the file; closing twice is closing once."""
        self._closed = True
        if self._fd >= 0:
            atomic.close_fd(self._fd)
            self._fd = -1

    # -- the file ----------------------------------------------------------------------------------------------

    def _open(self) -> None:
        try:
            self._fd = atomic.open_append(self._path, create=False)
        except FileNotFoundError:
            if not os.access(self._path.parent, os.W_OK | os.X_OK):
                self.refusal = f"{self._path}: no file can be made in this directory"
        except StoreError as error:
            self.refusal = error.message
            with suppress(FileNotFoundError):
                self._fd = atomic.open_read(self._path)

    def _make_ready(self) -> None:
        """Have a file that ends where the next row belongs.

        Raises:
            StoreError: The disk refuses still, or the file is gone or another one.
        """
        if self._closed:
            raise StoreError(f"{self._path} is closed")
        if self._fd < 0 or self.refusal:
            self._open_for_writing()
        if self._doubted:
            self._write_anew(self._read(self._safe, 0) + self._unsynced)
        if self._torn:
            atomic.truncate_fd(self._fd, self._size, self._path)
            self._torn = False
        self._look_outside()

    def _open_for_writing(self) -> None:
        fd = atomic.open_append(self._path)
        self._named = self._fd >= 0
        self._replace_fd(fd)
        self.refusal = ""

    def _write_anew(self, content: bytes) -> None:
        """Put a new file with ``content``, which ends with a row, in the place of the old one."""
        atomic.write_bytes(self._path, content)
        self._replace_fd(atomic.open_append(self._path, create=False))
        self._size = len(content)
        self._note_safe(self._size)
        self._named, self._doubted, self._torn = True, False, False

    def _replace_fd(self, fd: int) -> None:
        if self._fd < 0:
            self._fd = fd
        else:
            os.dup2(fd, self._fd, inheritable=False)  # a thread may be syncing it: the number stays good
            atomic.close_fd(fd)

    def _look_outside(self) -> None:
        """See whether another program changed, removed or replaced the file.

        Raises:
            StoreError: It was moved or replaced; then what we wrote is kept beside it.
        """
        held = os.fstat(self._fd)
        try:
            named = os.stat(self._path, follow_symlinks=False)  # noqa: PTH116 - on the way of every row
        except OSError as error:
            if not self._path.parent.is_dir():
                raise StoreError(f"{self._path}: the session was moved or deleted while it was open") from error
            self._write_anew(self._read(self._size, 0))
            return
        if (named.st_ino, named.st_dev) != (held.st_ino, held.st_dev):
            raise StoreError(f"{self._path} was replaced by another program while it was open{self._set_aside()}")
        if held.st_size != self._size:
            self._inspect()

    def _set_aside(self) -> str:
        """Keep what only the replaced file holds, and return the words that say where."""
        ours = self._read(self._size, 0)
        if regularfile.read_bytes(self._path, limit=regularfile.LOG).startswith(ours):
            return ""
        aside = self._path.with_name(f"{self._path.stem}.replaced{self._path.suffix}")
        atomic.write_bytes(aside, ours)
        return f"; what was recorded until then is in {aside.name}"

    def _read(self, size: int, offset: int) -> bytes:
        if self._fd < 0:
            return b""
        parts: list[bytes] = []
        while size > 0 and (part := atomic.read_fd(self._fd, size, offset, self._path)):
            parts.append(part)
            size, offset = size - len(part), offset + len(part)
        return b"".join(parts)

    def _note_safe(self, end: int) -> None:
        with self._counting:
            if end > self._safe:
                del self._unsynced[: end - self._safe]
                self._safe = end

    # -- its lines ---------------------------------------------------------------------------------------------

    def _inspect(self) -> None:
        """Find where the last line ends, where others begin, and the last number."""
        size = os.fstat(self._fd).st_size if self._fd >= 0 else 0
        numbering = self._scan(size, Numbering())
        self._disordered = numbering.disordered
        if self._disordered:
            numbering = self._scan(size, Numbering(once=True))
        self.last_seq = max(self.last_seq, numbering.last_seq)  # also when another program took rows away
        self._note_damaged(numbering.damaged)
        with self._counting:
            self._safe = self._size
            self._unsynced.clear()

    def _note_damaged(self, count: int) -> None:
        if count > self.damaged:
            log.warning("%s: %d damaged lines were skipped", self._path, count)
        self.damaged = count

    def _scan(self, size: int, numbering: Numbering) -> Numbering:
        self._marks, self._size = [(0, 0)], 0
        self._newline_due = self._torn = False
        for chunk in chunks(self._read, 0, size):
            if not chunk.complete:
                # Zeros and the beginning of a row are nothing; anything else was put there by somebody.
                self._torn = row_of(chunk.text) is None and chunk.text.lstrip(b"\0")[:1] in (b"", b"{")
                if self._torn:
                    break
                self._newline_due = True
            numbering.skip(chunk.text)
            self._size = chunk.end
            self._mark(numbering.last_seq, chunk.end)
        return numbering

    def _mark(self, seq: int, offset: int) -> None:
        if offset - self._marks[-1][1] >= _MARK_EVERY:
            self._marks.append((seq, offset))


def read_rows(path: Path) -> list[Row]:
    """Return the rows that make up the present state of the log at ``path``, for readers that do not write.

    Raises:
        StoreError: The disk refused; a missing file is an empty log.
    """
    journal = Journal.open(path)
    try:
        return journal.current()
    finally:
        journal.close()
