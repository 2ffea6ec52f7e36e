"""What was appended to a log since it was last read, for readers that come back; see ``lines`` for what a line is.

A reader keeps a ``Bookmark``. The log goes on from there if the bytes before it are the same and more follow;
a log that was replaced, cut or repaired is read from its beginning.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import BinaryIO, NamedTuple

from pyagentd import regularfile
from pyagentd.errors import StoreError
from pyagentd.store.journal import read_rows
from pyagentd.store.lines import Numbering, Row, chunks, row_of, rows_of

_WITNESS = 512  # bytes before a bookmark that must be the same


class Bookmark(NamedTuple):
    """How far a log was read: an offset, the number of the last row, and a hash of what stands before."""

    end: int = 0
    seq: int = 0
    witness: str = ""


def read_from(path: Path, mark: Bookmark) -> tuple[list[Row], Bookmark] | None:
    """Return the rows after ``mark`` and where they end; None when the log does not go on from there.

    Raises:
        StoreError: The disk refused; a missing file is an empty log.
    """
    try:
        with regularfile.opened(path, limit=regularfile.LOG) as file:
            size = os.fstat(file.fileno()).st_size
            if mark.end > size or _witness(file, mark.end) != mark.witness:
                return None
            rows, end, numbering = _read(file, mark, size)
            if numbering.disordered:
                return None if mark.end else (read_rows(path), Bookmark(witness="-"))
            return rows, Bookmark(end, numbering.last_seq, _witness(file, end))
    except FileNotFoundError:
        return ([], Bookmark()) if mark.end == 0 else None
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error


def _read(file: BinaryIO, mark: Bookmark, size: int) -> tuple[list[Row], int, Numbering]:
    def read(length: int, offset: int) -> bytes:
        file.seek(offset)
        return file.read(length)

    numbering = Numbering(last_seq=mark.seq)
    rows: list[Row] = []
    end = mark.end
    for chunk in chunks(read, mark.end, size):
        if not chunk.complete and row_of(chunk.text) is None:
            break  # being written, or torn
        found, _ = rows_of(numbering.usable(chunk.text))
        rows += found
        end = chunk.end
    return rows, end, numbering


def _witness(file: BinaryIO, end: int) -> str:
    start = max(0, end - _WITNESS)
    file.seek(start)
    return hashlib.blake2b(file.read(end - start), digest_size=8).hexdigest() if end else ""
