"""``messages.jsonl``: the numbered, append-only lines of one branch.

Knows lines and their numbers but not their meaning (see ``conversation``), except that the full row of a part
replaces its ``delta`` lines. Only lines that are not synced yet are kept in memory; reading reads the file, for
recent lines from a known position. An incomplete last line (of a killed process) is ignored and cut off before the
first append; a complete line is never lost, and damaged lines stay in the file (``lines``).
"""

import json
import logging
import math
import os
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import count, pairwise
from operator import lt
from pathlib import Path
from threading import Lock
from typing import Any, Final, NamedTuple

from pyagentd import regularfile
from pyagentd.clock import new_id
from pyagentd.errors import StoreError
from pyagentd.reader import MAX_DEPTH, is_deeper, storable
from pyagentd.store import atomic

log = logging.getLogger(__name__)


# Reading the lines of a log that may be damaged: which are usable, and their numbers.
#
# A log is one JSON object a line, written by us; but a disk that lost power leaves blocks of zeros, a synchronising
# program or ``git`` merges two machines' lines, doubles them, leaves conflict markers or changes line ends, and an
# editor adds a byte order mark. Every row that can be read is used, in the order of the file, and once. Rows are
# numbered upwards: one whose number is not higher than that of the row before it takes the next one. So a log that
# only we wrote has the numbers that stand in it, and any other has the same numbers whenever it is read.

_CHUNK: Final = 256 * 1024  # bytes read at once
_START: Final = b'{"seq":'
# Our lines begin with their number and type; of a delta the part's id is read, too.
_OURS: Final = re.compile(
    rb'^(\{"seq":(\d{1,15}),"type":"(?:delta","data":\{"part_id":"([^"\\\n]+)")?[^\n]*\})$', re.MULTILINE
)
_NUMBERS: Final = re.compile(rb'^\{"seq":(\d{1,15}),"type":"[^\n]*\}$', re.MULTILINE)
_AROUND: Final = b"\0 \t\r\n\xef\xbb\xbf"  # zeros of a lost block, CRLF, a byte order mark
_HIGHEST: Final = 10**15
# The keys that every reader relies on; a line without them was not written by us.
_NEEDED: Final[dict[str, dict[str, type]]] = {
    "message": {"id": str, "role": str},
    "part": {"id": str, "message_id": str, "type": str, "index": int, "data_json": dict},
    "delta": {"part_id": str, "text": str},
    "run": {"id": str, "message_id": str, "state": str},
    "ask": {"id": str, "decision": object},
    "call": {"id": str},
    "agent": {"id": str, "state": str},
    "mission": {"id": str, "phase": str},
}
_IN_PARTS: Final[dict[str, dict[str, type]]] = {  # the same of ``data_json``, by the beginning of the type
    "text": {"text": str},
    "reasoning": {"text": str},
    "tool": {"toolCallId": str, "state": str, "input": dict},
}
# Optional keys; a value of the wrong type counts as missing.
_TIMES: Final = ("created_at", "updated_at", "decided_at", "archived_at")
_OPTIONAL: Final[dict[str, dict[str, type]]] = {
    "run": {"error": dict},
    "part": {"tool_call_id": str, "tool_state": str},
    "ask": {"run_id": str},
}
_HIDING: Final[dict[str, type]] = {"hidden_op": str}  # of a message's metadata
_NEVER_MS: Final = 253_000_000_000_000  # epoch; a year that no calendar of ours has
_IN_DATA: Final = ("metadata", "providerMetadata")  # of ``data_json``: mappings

_DEEPEST: Final = MAX_DEPTH + 20  # of a row: arguments stand a few levels below it


def _number(text: str) -> float | str:
    value = float(text)
    return value if math.isfinite(value) else text


# `json.dumps` and `json.loads` make one for each call. What is not a JSON number is read as text.
_dumps = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_loads = json.JSONDecoder(parse_constant=str, parse_float=_number).decode


class Row(NamedTuple):
    """One line: its number (from 1), its type, its data."""

    seq: int
    type: str
    data: dict[str, Any]


class Line(NamedTuple):
    """A line that looks usable: its number, its JSON, and the part's id if it is a delta."""

    seq: int
    json: bytes
    delta_of: bytes


class Chunk(NamedTuple):
    """Consecutive lines without the last newline, the offset behind them, and whether they had that newline."""

    text: bytes
    end: int
    complete: bool


class Numbering:
    """One pass over the lines of a log, from its beginning or from a place whose number is known.

    Attributes:
        last_seq: The number of the last usable line.
        damaged: The number of unusable lines.
        disordered: Whether a number was not higher than the one before it.
    """

    def __init__(self, *, last_seq: int = 0, once: bool = False) -> None:
        """Begin behind row ``last_seq``; with ``once``, of equal lines only the first counts."""
        self.last_seq = last_seq
        self.damaged = 0
        self.disordered = False
        self._seen: set[int] | None = set() if once else None

    def skip(self, text: bytes) -> None:
        """Count the lines of ``text`` without parsing them."""
        found = _NUMBERS.findall(text)
        if self._seen is None and len(found) == text.count(b"\n") + 1 == text.count(_START):
            numbers = [self.last_seq, *map(int, found)]
            if all(map(lt, numbers, numbers[1:])):
                self.last_seq = numbers[-1]
                return
        self.usable_lines(text)

    def usable_lines(self, text: bytes) -> list[Line]:
        """Return the usable lines of ``text``."""
        found = _OURS.findall(text)
        # Nearly always all lines are ours and in order; otherwise each is checked.
        if self._seen is None and len(found) == text.count(b"\n") + 1 == text.count(_START):
            lines = [Line(int(seq), line, part) for line, seq, part in found]
            if lines[0].seq > self.last_seq and all(one.seq < next.seq for one, next in pairwise(lines)):
                self.last_seq = lines[-1].seq
                return lines
        return [usable for line in text.split(b"\n") for usable in self._check_line(line)]

    def _check_line(self, line: bytes) -> Iterator[Line]:
        ours = _OURS.match(line)
        if ours is None or line.count(_START) != 1:
            yield from self._mend_line(line)
        elif seq := self._next(int(ours[2]), line):
            yield Line(seq, line, ours[3] or b"")

    def _mend_line(self, line: bytes) -> Iterator[Line]:
        """Yield the rows of a line in another format: the line, or all complete rows in it."""
        text = line.strip(_AROUND)
        whole = b"\0" not in line  # else something stood there
        first, *others = [text] if row_of(text) is not None else text.split(_START)
        for piece in [first, *(_START + rest for rest in others)]:
            if (row := row_of(piece)) is None:
                whole = whole and not piece
            elif seq := self._next(row.seq, piece):
                part = str(row.data.get("part_id")) if row.type == "delta" else ""
                yield Line(seq, piece, part.encode(errors="replace"))
        self.damaged += not whole

    def _next(self, seq: int, line: bytes) -> int:
        """Return the number of ``line``, 0 if it is a duplicate."""
        if self._seen is not None:
            mark = hash(line)
            if mark in self._seen:
                return 0
            self._seen.add(mark)
        if seq <= self.last_seq:
            self.disordered = True
            seq = self.last_seq + 1
        self.last_seq = seq
        return seq


def chunks(read: Callable[[int, int], bytes], start: int, end: int) -> Iterator[Chunk]:
    """Yield the lines between two offsets; a last line without newline comes alone.

    Args:
        read: Returns up to a number of bytes (first argument) from an offset (second); b"" at the end.
        start: The offset of the beginning of a line.
        end: The offset to stop at.
    """
    rest: list[bytes] = []  # the beginning of a line longer than what is read at once
    while start < end and (data := read(min(_CHUNK, end - start), start)):
        start += len(data)
        cut = data.rfind(b"\n") + 1
        if not cut:
            rest.append(data)
            continue
        text = b"".join([*rest, data[: cut - 1]])
        rest = [data[cut:]]
        yield Chunk(text, start - len(rest[0]), complete=True)
    if last := b"".join(rest):
        yield Chunk(last, start, complete=False)


def rows_of(lines: list[Line]) -> tuple[list[Row], int]:
    """Return the rows of ``lines``, and the number of damaged lines."""
    try:
        # One call for all lines is several times faster than one for each.
        values = _value(b"[" + b",".join([line.json for line in lines]) + b"]")
        if len(values) == len(lines):
            return [_flatten(_row(value, line.seq), line.json) for line, value in zip(lines, values, strict=True)], 0
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    rows = [row._replace(seq=line.seq) for line in lines if (row := row_of(line.json)) is not None]
    return rows, len(lines) - len(rows)


def current_rows(log: Iterable[Chunk], *, once: bool) -> tuple[list[Row], int]:
    """Return the rows of a whole log without deltas that a full row replaced, and the number of damaged lines.

    With ``once``, of equal lines only the first counts.
    """
    numbering = Numbering(once=once)
    rows: list[Row] = []
    deltas: dict[bytes, list[Line]] = {}  # by part, what no full row has superseded yet
    damaged = 0
    for chunk in log:
        whole: list[Line] = []
        for line in numbering.usable_lines(chunk.text):
            if line.delta_of:
                deltas.setdefault(line.delta_of, []).append(line)
            else:
                whole.append(line)
        found, bad = rows_of(whole)
        rows += found
        damaged += bad
        for row in found:
            if row.type == "part" and deltas:
                # Deltas before the full row of their part are superseded.
                name = str(row.data.get("id", "")).encode(errors="replace")
                if later := [line for line in deltas.pop(name, ()) if line.seq > row.seq]:
                    deltas[name] = later
    if deltas:
        found, bad = rows_of([line for lines in deltas.values() for line in lines])
        rows, damaged = sorted([*rows, *found], key=lambda row: row.seq), damaged + bad
    return rows, damaged + numbering.damaged


def line_of(row: Row) -> bytes:
    """Return ``row`` as we write it, with its newline."""
    value = {"seq": row.seq, "type": row.type, "data": row.data}
    try:
        return _dumps(value).encode() + b"\n"
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can hold and UTF-8 cannot
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def row_of(text: bytes) -> Row | None:
    """Return the row in ``text``, or None."""
    try:
        value = _value(text)
        return _flatten(_row(value, value["seq"]), text)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _value(text: bytes) -> Any:
    return _loads(text.decode("utf-8", "surrogatepass"))


def _flatten(row: Row, line: bytes) -> Row:
    """Return ``row``, whose JSON is ``line``, with text instead of values that are nested too deeply to be shown."""
    if line.count(b"[") + line.count(b"{") > _DEEPEST and is_deeper(row.data, _DEEPEST):
        return row._replace(data=storable(row.data, _DEEPEST))
    return row


def _row(value: Any, seq: Any) -> Row:
    kind, data = value["type"], value["data"]
    if type(seq) is not int or not 0 < seq < _HIGHEST or type(kind) is not str or type(data) is not dict:
        raise TypeError("no row")
    if kind in _NEEDED:
        _require(data, _NEEDED[kind])
        if kind == "part":
            shown = data["data_json"]
            _require(shown, _IN_PARTS.get(data["type"].partition("-")[0], {}))
            if not -_HIGHEST < data["index"] < _HIGHEST:
                raise TypeError("index")
            for key in _IN_DATA:
                if key in shown and type(shown[key]) is not dict:
                    del shown[key]
    if not isinstance(metadata := data.get("metadata_json", {}), dict):
        raise TypeError("no row")
    if kind in _OPTIONAL:
        _drop_others(data, _OPTIONAL[kind])
    if kind == "message":
        _drop_others(metadata, _HIDING)
    for key in _TIMES:
        if (time := data.get(key)) is not None and not (type(time) is int and 0 <= time < _NEVER_MS):
            del data[key]
    return Row(seq, kind, data)


def _drop_others(data: dict[str, Any], known: Mapping[str, type]) -> None:
    """Leave out of ``data`` what is of another type than is known of it."""
    for key, kind in known.items():
        if key in data and not isinstance(data[key], kind):
            del data[key]


def _require(data: Mapping[str, Any], needed: Mapping[str, type]) -> None:
    for key, kind in needed.items():
        if not isinstance(data[key], kind):
            raise TypeError(key)


_MARK_EVERY = 64 * 1024  # bytes between remembered places


class Journal:
    """The log of one branch, open for appending if the disk allows; use ``Journal.open``.

    Attributes:
        last_seq: The number of the last row, 0 when there is none.
        damaged: The number of unreadable lines; exact once ``current`` has read them all.
        refusal: Why nothing can be appended, or "".
    """

    def __init__(self, path: Path) -> None:
        self.last_seq = 0
        self.damaged = 0
        self.refusal = ""
        self._path = path
        self._fd = -1  # of a file that exists
        self._closed = False
        self._rested = (0, 0)  # device and inode of the file that was closed for now
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
    def open(cls, path: Path) -> "Journal":
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
    def is_replaced(self) -> bool:
        """Whether another program replaced the open file."""
        try:
            named, held = self._path.lstat(), os.fstat(self._fd)
        except OSError:  # missing: the next append makes it again, or says why not
            return False
        return (named.st_ino, named.st_dev) != (held.st_ino, held.st_dev)

    @property
    def size(self) -> int:
        """The size of its lines in bytes."""
        return self._size

    @property
    def torn(self) -> bool:
        """Whether an incomplete line follows the last one; the next append cuts it off."""
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
        # The file must end where the next row belongs.
        if self._closed:
            raise StoreError(f"{self._path} is closed")
        if self._fd < 0 or self.refusal:
            self._open_for_writing()
        if self._doubted:
            self._write_anew(self._read(self._safe, 0) + self._unsynced)
        if self._torn:
            self._cut_torn()
        self._look_outside()
        if self._torn:  # what another program left
            self._cut_torn()
        rows: list[Row] = []
        lines = [b"\n"] if self._newline_due else []
        for number, (type, fields) in enumerate(given, self.last_seq + 1):
            row = Row(number, type, dict(fields))
            try:
                line = line_of(row)
                kept = _flatten(row, line)
            except (ValueError, RecursionError):  # values that are no JSON, or nested too deeply, become text
                kept = row._replace(data=storable(row.data, _DEEPEST))
            rows.append(kept)
            lines.append(line if kept is row else line_of(kept))
        data = b"".join(lines)
        self._torn = True  # until all of it is written
        atomic.append_fd(self._fd, data, self._path)
        self._torn = self._newline_due = False
        self._unsynced += data
        self._size += len(data)
        self.last_seq = rows[-1].seq
        self._mark(self.last_seq, self._size)
        return rows

    def rows(self, after: int = 0) -> list[Row]:
        """Return every row numbered higher than ``after``, deltas included, as recorded; raises ``StoreError``."""
        return list(self.rows_after(after))

    def rows_after(self, after: int) -> Iterator[Row]:
        """Yield what ``rows`` returns; the log is read as far as the rows are taken.

        Raises:
            StoreError: The disk refused.
        """
        # In a disordered log a number depends on all lines before.
        seq, offset = (0, 0) if self._disordered else self._marks[bisect_right(self._marks, (after, self._size)) - 1]
        numbering = Numbering(last_seq=seq, once=self._disordered)
        for chunk in chunks(self._read, offset, self._size):
            yield from (row for row in rows_of(numbering.usable_lines(chunk.text))[0] if row.seq > after)

    def current(self) -> list[Row]:
        """Return the rows that make up the current state: without deltas that a full row replaced.

        Raises:
            StoreError: The disk refused.
        """
        rows, damaged = current_rows(chunks(self._read, 0, self._size), once=self._disordered)
        self._note_damaged(damaged)
        return rows

    def sync(self) -> None:
        """Sync everything that was appended; may be called from any thread.

        Raises:
            StoreError: The disk failed. All rows can still be read; the next append writes them again first.
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
            hint = "See to the disk; what was recorded is written anew with the next message"
            raise StoreError(error.message, hint=hint) from error
        self._note_safe(end)

    def close(self) -> None:
        """Close the file; may be called again."""
        self._closed = True
        if self._fd >= 0:
            atomic.close_fd(self._fd)
            self._fd = -1

    def rest(self) -> None:
        """Close the file until ``wake`` opens it again; meanwhile nothing can be read or appended."""
        if self._fd >= 0:
            held = os.fstat(self._fd)
            self._rested = held.st_dev, held.st_ino
            atomic.close_fd(self._fd)
            self._fd = -1

    def wake(self) -> bool:
        """Open the file again; return whether it is unchanged since ``sleep``."""
        if self._torn or self._doubted:
            return False
        self._open()
        if self._fd < 0 or self.refusal:
            return False
        found = os.fstat(self._fd)
        return (found.st_dev, found.st_ino) == self._rested and found.st_size == self._size

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

    def _cut_torn(self) -> None:
        atomic.truncate_fd(self._fd, self._size, self._path)
        self._torn = False

    def _open_for_writing(self) -> None:
        fd = atomic.open_append(self._path)
        self._named = self._fd >= 0
        self._replace_fd(fd)
        self.refusal = ""

    def _write_anew(self, content: bytes) -> None:
        """Replace the file by a new one with ``content``, which ends with a row."""
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
        """Check whether another program changed, removed or replaced the file.

        Raises:
            StoreError: It was moved or replaced; our rows were saved beside it.
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
        """Save the rows that only the replaced file has, and return the words that say where."""
        ours = self._read(self._size, 0)
        if regularfile.read_bytes(self._path, limit=regularfile.LOG).startswith(ours):
            return ""
        for number in count(1):  # what was kept when it was replaced before stays
            ending = f".replaced{f'-{number}' if number > 1 else ''}{self._path.suffix}"
            aside = self._path.with_name(f"{self._path.stem}{ending}")
            if not aside.exists() or ours.startswith(regularfile.read_bytes(aside, limit=regularfile.LOG)):
                break
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
        """Find the end of the last line, the beginnings of some lines, and the last number."""
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
                # Zeros and the beginning of a row can be cut off; anything else was written by another program.
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
    """Return the rows that make up the current state of the log at ``path``, for readers that do not write.

    Raises:
        StoreError: The disk refused; a missing file is an empty log.
    """
    journal = Journal.open(path)
    try:
        return journal.current()
    finally:
        journal.close()


def write_rows(path: Path, facts: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
    """Append rows to the log at ``path``, which must not be open, and sync them.

    Raises:
        StoreError: The disk refused.
    """
    journal = Journal.open(path)
    try:
        journal.append_many(facts)
        journal.sync()
    finally:
        journal.close()


# New ``message`` and ``part`` rows.


class ProviderModel(NamedTuple):
    """The names of a backend, "" if unknown, and of a model."""

    provider: str
    model: str


def served_by(row: Mapping[str, Any]) -> ProviderModel:
    """Return the model in a message's row; older logs have only its name."""
    named = (row.get("metadata_json") or {}).get("model")
    if isinstance(named, Mapping):
        return ProviderModel(str(named.get("provider_id") or ""), str(named.get("model_id") or ""))
    return ProviderModel("", str(named or ""))


def session_row(*, id: str, now_ms: int, **facts: Any) -> dict[str, Any]:
    """Return a ``session`` row with only ``facts``."""
    return {
        "id": id,
        "agent": "",
        "parent_id": None,
        "parent_branch": None,
        "title": "",
        "archived_at": None,
        "permissions_json": [],
        "metadata_json": {},
        "created_at": now_ms,
        "updated_at": now_ms,
        **facts,
    }


def message_row(
    *, role: str, session_id: str, metadata: Mapping[str, Any], now_ms: int, id: str | None = None
) -> dict[str, Any]:
    """Return a new ``message`` row, with a new id or the one that its client made."""
    return {
        "id": id or new_id("msg"),
        "session_id": session_id,
        "role": role,
        "metadata_json": dict(metadata),
        "created_at": now_ms,
        "updated_at": now_ms,
    }


def part_row(*, message_id: str, session_id: str, index: int, data: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
    """Return a new ``part`` row; ``data`` is the part as the AI SDK writes it."""
    row = {
        "id": new_id("prt"),
        "message_id": message_id,
        "session_id": session_id,
        "index": index,
        "type": data["type"],
        "data_json": dict(data),
        "created_at": now_ms,
        "updated_at": now_ms,
    }
    if "toolCallId" in data:
        row |= {"tool_call_id": data["toolCallId"], "tool_state": data["state"]}
    return row


def rows_of_message(parts: Iterable[Mapping[str, Any]], **message: Any) -> list[tuple[str, dict[str, Any]]]:
    """Return the rows, type and data, of a new message with these parts; ``message`` is as for ``message_row``."""
    row = message_row(**message)
    of = {"message_id": row["id"], "session_id": row["session_id"], "now_ms": row["created_at"]}
    rows = [("message", row)]
    for number, data in enumerate(parts):
        rows.append(("part", part_row(**of, index=number, data=data)))
    return rows
