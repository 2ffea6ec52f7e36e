"""``messages.jsonl``: the numbered, append-only lines of one branch.

Knows lines and their numbers, not what they mean (that is ``conversation``), except that the ``delta`` lines of a
part are superseded by its full row. Nothing is kept in memory; reading means reading the file, from a known place
for the recent past. A line that was not written to its end (a killed process) is dropped when the file is opened and
cut off before the first append; a complete line is never lost.
"""

from __future__ import annotations

import json
import logging
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pyagentd.errors import StoreError
from pyagentd.store import atomic

log = logging.getLogger(__name__)

_DELTA = b'"type":"delta"'
_TYPE_WITHIN = 40  # bytes; our lines begin with "seq" and "type"
_MARK_EVERY = 64 * 1024  # bytes between remembered places

_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode  # `json.dumps` makes one for each call


class Row(NamedTuple):
    """One line: its number (from 1), its type, its data."""

    seq: int
    type: str
    data: dict[str, Any]


class Journal:
    """The log of one branch, open for appending; use ``Journal.open``."""

    def __init__(self, path: Path, fd: int) -> None:
        self._path = path
        self._fd = fd
        self._size = 0  # bytes up to the end of the last complete line
        self._newline_due = False
        self._torn = False
        self._marks: list[tuple[int, int]] = [(0, 0)]  # (seq, offset): the lines after seq begin at offset
        self.last_seq = 0

    @classmethod
    def open(cls, path: Path) -> Journal:
        """Open the log at ``path``, making an empty one if need be.

        Raises:
            StoreError: The disk refused.
        """
        journal = cls(path, atomic.open_append(path))
        journal._inspect(_read(path))
        return journal

    def append(self, type: str, data: Mapping[str, Any]) -> Row:
        """Write one row in one ``write()`` and return it.

        Raises:
            StoreError: The disk refused; nothing was added.
        """
        return self.append_many([(type, data)])[0]

    def append_many(self, facts: Iterable[tuple[str, Mapping[str, Any]]]) -> list[Row]:
        """Write several rows, type and data each, in one ``write()``.

        Raises:
            StoreError: The disk refused; nothing was added.
        """
        rows = [Row(self.last_seq + number, type, dict(data)) for number, (type, data) in enumerate(facts, 1)]
        if not rows:
            return []
        if self._torn:
            atomic.truncate_fd(self._fd, self._size, self._path)
            self._torn = False
        data = b"".join([b"\n" if self._newline_due else b"", *map(_line, rows)])
        atomic.append_fd(self._fd, data, self._path)
        self._newline_due = False
        self._size += len(data)
        self.last_seq = rows[-1].seq
        self._mark(self.last_seq, self._size)
        return rows

    def rows(self, after: int = 0) -> list[Row]:
        """Return every row numbered higher than ``after``, deltas included, as recorded.

        Raises:
            StoreError: The disk refused.
        """
        offset = self._marks[bisect_right(self._marks, (after, self._size)) - 1][1]
        return [row for row in _parse(_read(self._path, offset, self._size)) if row.seq > after]

    def current(self) -> list[Row]:
        """Return the rows from which the present state is folded: without deltas that a full row superseded.

        Raises:
            StoreError: The disk refused.
        """
        return list(_without_superseded(_read(self._path, 0, self._size)))

    def sync(self) -> None:
        """Return when everything appended survives a loss of power; may be called from any thread."""
        atomic.sync_fd(self._fd, self._path)

    def close(self) -> None:
        """Close the file; closing twice is closing once."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _inspect(self, content: bytes) -> None:
        """Find the end of the last complete line, and its number."""
        self._size = content.rfind(b"\n") + 1
        rest = content[self._size :]
        if rest and _row(rest) is not None:  # complete but for its newline
            self._size, self._newline_due = len(content), True
        else:
            self._torn = bool(rest)
        position = 0
        while position < self._size:
            end = content.find(b"\n", min(position + _MARK_EVERY, self._size - 1)) + 1 or self._size
            row = _last_row(content, position, end)
            if row is not None:
                self.last_seq = row.seq
                self._mark(row.seq, end)
            position = end

    def _mark(self, seq: int, offset: int) -> None:
        if offset - self._marks[-1][1] >= _MARK_EVERY:
            self._marks.append((seq, offset))


def read_rows(path: Path) -> list[Row]:
    """Return the rows that make up the present state of the log at ``path``, for readers that do not write.

    Raises:
        StoreError: The disk refused; a missing file is an empty log.
    """
    return list(_without_superseded(_read(path)))


def _read(path: Path, start: int = 0, end: int | None = None) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(start)
            return file.read(-1 if end is None else end - start)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error


def _line(row: Row) -> bytes:
    value = {"seq": row.seq, "type": row.type, "data": row.data}
    try:
        return _dumps(value).encode() + b"\n"
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can hold and UTF-8 cannot
        return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def _row(line: bytes) -> Row | None:
    try:
        value = json.loads(line)
        return Row(value["seq"], value["type"], value["data"])
    except (ValueError, KeyError, TypeError):
        return None


def _last_row(content: bytes, start: int, end: int) -> Row | None:
    """Return the last readable row between two offsets."""
    while end > start:
        line_start = content.rfind(b"\n", start, end - 1) + 1 or start
        row = _row(content[line_start:end])
        if row is not None:
            return row
        end = line_start
    return None


def _parse(content: bytes) -> Iterator[Row]:
    return _rows(content.split(b"\n"))


def _rows(lines: list[bytes]) -> Iterator[Row]:
    """Yield the rows of ``lines``; one that is damaged is skipped and said."""
    lines = [line for line in lines if line]
    try:
        values = json.loads(b"[" + b",".join(lines) + b"]")  # one call is several times faster than one a line
        yield from [Row(value["seq"], value["type"], value["data"]) for value in values]
    except (ValueError, KeyError, TypeError):
        for number, line in enumerate(lines, 1):
            row = _row(line)
            if row is not None:
                yield row
            elif number < len(lines):
                log.warning("a damaged line of the log was skipped (%d bytes)", len(line))


def _without_superseded(content: bytes) -> Iterator[Row]:
    whole: list[bytes] = []
    deltas: list[bytes] = []
    for line in content.split(b"\n"):
        (deltas if _DELTA in line[:_TYPE_WITHIN] else whole).append(line)
    rows = list(_rows(whole))
    finished = {row.data["id"] for row in rows if row.type == "part" and not _is_streaming(row.data)}
    open_deltas = [line for line in deltas if not _belongs(line, finished)]
    if not open_deltas:
        return iter(rows)
    return iter(sorted([*rows, *_rows(open_deltas)], key=lambda row: row.seq))


def _is_streaming(part: Mapping[str, Any]) -> bool:
    return bool(part.get("data_json", {}).get("state") == "streaming")


def _belongs(delta: bytes, parts: set[str]) -> bool:
    """Return whether the delta line is one of these parts; lines not written by us count as belonging to none."""
    _, found, rest = delta.partition(b'"part_id":"')
    return bool(found) and rest[: rest.find(b'"')].decode(errors="replace") in parts
