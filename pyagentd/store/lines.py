"""The lines of a log, whatever happened to them: which can be used, and what their numbers are.

A log is one JSON object a line, written by us; but a disk that lost power leaves blocks of zeros, a synchronising
program or ``git`` merges two machines' lines, doubles them, leaves conflict markers or changes line ends, and an
editor adds a byte order mark. Every row that can be read is used, in the order of the file, and once. Rows are
numbered upwards: one whose number is not higher than that of the row before it takes the next one. So a log that
only we wrote has the numbers that stand in it, and any other has the same numbers whenever it is read.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from operator import lt
from typing import Any, Final, NamedTuple

from pyagentd.jsontext import MAX_DEPTH, is_deeper, storable

_CHUNK: Final = 256 * 1024  # bytes read at once
_START: Final = b'{"seq":'
# Our lines begin with their number and type; of a delta its part is wanted too.
_OURS: Final = re.compile(
    rb'^(\{"seq":(\d{1,15}),"type":"(?:delta","data":\{"part_id":"([^"\\\n]+)")?[^\n]*\})$', re.MULTILINE
)
_NUMBERS: Final = re.compile(rb'^\{"seq":(\d{1,15}),"type":"[^\n]*\}$', re.MULTILINE)
_AROUND: Final = b"\0 \t\r\n\xef\xbb\xbf"  # zeros of a lost block, CRLF, a byte order mark
_HIGHEST: Final = 10**15
# What every reader of a log relies on; a line without it was not written by us.
_NEEDED: Final[dict[str, tuple[str, ...]]] = {
    "session": (),
    "message": ("id", "role"),
    "part": ("id", "message_id", "type", "index", "data_json"),
    "delta": ("part_id", "text"),
    "run": ("id", "message_id", "state"),
    "ask": ("id", "decision"),
    "call": ("id",),
    "agent": ("id", "state"),
    "mission": ("id", "phase"),
    "edit": (),
}

_DEEPEST: Final = MAX_DEPTH + 20  # of a row: arguments stand a few levels below it


def _number(text: str) -> float | str:
    value = float(text)
    return value if math.isfinite(value) else text


# `json.dumps` and `json.loads` make one for each call. What is no JSON number is read as text.
_dumps = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_loads = json.JSONDecoder(parse_constant=str, parse_float=_number).decode


class Row(NamedTuple):
    """One line: its number (from 1), its type, its data."""

    seq: int
    type: str
    data: dict[str, Any]


class Line(NamedTuple):
    """A line that looks usable: the number it has, its JSON, and of a delta the id of its part, else nothing."""

    seq: int
    json: bytes
    delta_of: bytes


class Chunk(NamedTuple):
    """Some lines on end without the last newline, the offset behind them, and whether they had that newline."""

    text: bytes
    end: int
    complete: bool


class Numbering:
    """One pass over the lines of a log, from its beginning or from a place whose number is known.

    Attributes:
        last_seq: The number of the last line that was usable.
        damaged: How many lines were not.
        disordered: Whether a number was not higher than the one before it.
    """

    def __init__(self, *, last_seq: int = 0, once: bool = False) -> None:
        """Begin behind row ``last_seq``; with ``once``, of equal lines only the first counts."""
        self.last_seq = last_seq
        self.damaged = 0
        self.disordered = False
        self._seen: set[int] | None = set() if once else None

    def skip(self, text: bytes) -> None:
        """Count the lines of ``text`` without making anything of them."""
        found = _NUMBERS.findall(text)
        if self._seen is None and len(found) == text.count(b"\n") + 1 == text.count(_START):
            numbers = [self.last_seq, *map(int, found)]
            if all(map(lt, numbers, numbers[1:])):
                self.last_seq = numbers[-1]
                return
        self.usable(text)

    def usable(self, text: bytes) -> list[Line]:
        """Return what can be used of the lines of ``text``."""
        found = _OURS.findall(text)
        # Nearly always all of them are as we wrote them, in order; what is not is looked at one by one.
        if self._seen is None and len(found) == text.count(b"\n") + 1 == text.count(_START):
            lines = [Line(int(seq), line, part) for line, seq, part in found]
            if lines[0].seq > self.last_seq and all(one.seq < next.seq for one, next in pairwise(lines)):
                self.last_seq = lines[-1].seq
                return lines
        return [usable for line in text.split(b"\n") for usable in self._checked(line)]

    def _checked(self, line: bytes) -> Iterator[Line]:
        ours = _OURS.match(line)
        if ours is None or line.count(_START) != 1:
            yield from self._mended(line)
        elif seq := self._next(int(ours[2]), line):
            yield Line(seq, line, ours[3] or b"")

    def _mended(self, line: bytes) -> Iterator[Line]:
        """Yield the rows of a line that is not as we write them: it, or all that stand in it whole."""
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
        """Return the number that ``line`` gets, 0 if it was there before."""
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
    """Yield the lines between two offsets; a last one without newline comes alone.

    Args:
        read: Returns up to so many bytes (first argument) from an offset (second); nothing at the end.
        start: Where a line begins.
        end: Where to stop.
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
    """Return the rows of ``lines``, and how many lines turned out to be damaged."""
    try:
        # One call is several times faster than one a line.
        values = _value(b"[" + b",".join([line.json for line in lines]) + b"]")
        if len(values) == len(lines):
            return [_shallow(_row(value, line.seq), line.json) for line, value in zip(lines, values, strict=True)], 0
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    rows = [row._replace(seq=line.seq) for line in lines if (row := row_of(line.json)) is not None]
    return rows, len(lines) - len(rows)


def current_rows(log: Iterable[Chunk], *, once: bool) -> tuple[list[Row], int]:
    """Return the rows of a whole log without deltas that a full row superseded, and how many lines are damaged.

    With ``once``, of equal lines only the first counts.
    """
    numbering = Numbering(once=once)
    rows: list[Row] = []
    deltas: dict[bytes, list[Line]] = {}  # by part, what no full row has superseded yet
    damaged = 0
    for chunk in log:
        whole: list[Line] = []
        for line in numbering.usable(chunk.text):
            if line.delta_of:
                deltas.setdefault(line.delta_of, []).append(line)
            else:
                whole.append(line)
        found, bad = rows_of(whole)
        rows += found
        damaged += bad
        for row in found:
            if row.type == "part" and deltas:
                _supersede(deltas, row)
    if deltas:
        found, bad = rows_of([line for lines in deltas.values() for line in lines])
        rows, damaged = sorted([*rows, *found], key=lambda row: row.seq), damaged + bad
    return rows, damaged + numbering.damaged


def _supersede(deltas: dict[bytes, list[Line]], part: Row) -> None:
    """Drop the deltas that came before the full row ``part``."""
    name = str(part.data.get("id", "")).encode(errors="replace")
    if later := [line for line in deltas.pop(name, ()) if line.seq > part.seq]:
        deltas[name] = later


def line_of(row: Row) -> bytes:
    """Return ``row`` as we write it, with its newline."""
    value = {"seq": row.seq, "type": row.type, "data": row.data}
    try:
        return _dumps(value).encode() + b"\n"
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can hold and UTF-8 cannot
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def writable_row(row: Row) -> tuple[Row, bytes]:
    """Return ``row`` as it will be read, and its line: what is no JSON, or nested too deeply to be read, is text."""
    try:
        line = line_of(row)
        kept = _shallow(row, line)
    except (ValueError, RecursionError):
        kept = row._replace(data=storable(row.data, _DEEPEST))
    return kept, line if kept is row else line_of(kept)


def row_of(text: bytes) -> Row | None:
    """Return the row that ``text`` is, None if it is none."""
    try:
        value = _value(text)
        return _shallow(_row(value, value["seq"]), text)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _value(text: bytes) -> Any:
    return _loads(text.decode("utf-8", "surrogatepass"))


def _shallow(row: Row, line: bytes) -> Row:
    """Return ``row``, whose JSON is ``line``, with text in the place of what is nested too deeply to be shown."""
    if line.count(b"[") + line.count(b"{") > _DEEPEST and is_deeper(row.data, _DEEPEST):
        return row._replace(data=storable(row.data, _DEEPEST))
    return row


def _row(value: Any, seq: Any) -> Row:
    kind, data = value["type"], value["data"]
    if type(seq) is not int or not 0 < seq < _HIGHEST or type(kind) is not str or type(data) is not dict:
        raise TypeError("no row")
    for key in _NEEDED.get(kind, ()):
        data[key]
    return Row(seq, kind, data)
