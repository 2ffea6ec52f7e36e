"""Session documents as they were last read or written here, so that a file that did not change is not parsed again.

A file is known by its stamp. As git does with its index, a stamp is believed only if the file was last written a
while before it was read (else a second write may have left the same stamp), and never right after our own write
(somebody may have put another file in its place before its stamp was taken): then its bytes are compared.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from pyagentd import regularfile
from pyagentd.errors import StoreError
from pyagentd.store.condition import Stamp, stamp_of
from pyagentd.store.document import Document
from pyagentd.store.formatted import Formatted, formatted, parsed

SETTLED_NS = 50_000_000  # a file system's clock ticks every 10 ms at most, ...
SETTLED_COARSE_NS = 2_100_000_000  # ... or every second or two, where times are whole seconds
KEPT = 20  # documents
KEPT_BYTES = 32 << 20  # of them all


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """A document and the state of its file; ``stamp`` None: there is no file."""

    formatted: Formatted
    stamp: Stamp | None
    settled: bool = False  # the stamp alone tells whether the file changed

    @property
    def document(self) -> Document:
        """The document."""
        return self.formatted.document

    @property
    def sha256(self) -> str:
        """The hash of its body."""
        return self.formatted.sha256


class Memory:
    """The documents that were used last; for any thread.

    Attributes:
        parsed: How many files had to be parsed.
    """

    def __init__(self) -> None:
        self.parsed = 0
        self._held: OrderedDict[Path, Remembered] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, path: Path) -> Remembered:
        """Return the document in the file at ``path``; a missing file is an empty document.

        Raises:
            StoreError: The file cannot be read.
        """
        now, stamp = time.time_ns(), stamp_of(path)  # before reading: what changes meanwhile is read again
        with self._lock:
            held = self._held.get(path)
        if held is not None and held.stamp == stamp and held.settled:
            return held
        try:
            data = regularfile.read_bytes(path, limit=regularfile.DOCUMENT)
        except FileNotFoundError:
            return Remembered(formatted=formatted(Document()), stamp=None)
        except OSError as error:
            raise StoreError(f"cannot read {path}: {error.strerror}") from error
        if held is not None and held.formatted.data == data:
            found = held.formatted
        else:
            found = parsed(data)
            self.parsed += 1
        read = Remembered(formatted=found, stamp=stamp, settled=stamp is not None and _settled(stamp, now))
        self._hold(path, read)
        return read

    def wrote(self, path: Path, written: Formatted, stamp: Stamp | None) -> None:
        """Note what was written to ``path``, and the stamp that it had then."""
        self._hold(path, Remembered(formatted=written, stamp=stamp))

    def forget(self) -> None:
        """Forget all documents."""
        with self._lock:
            self._held.clear()

    def _hold(self, path: Path, found: Remembered) -> None:
        with self._lock:
            self._held.pop(path, None)
            if found.formatted.faithful:
                self._held[path] = found
            size = sum(len(held.formatted.data) for held in self._held.values())
            while self._held and (len(self._held) > KEPT or size > KEPT_BYTES):
                size -= len(self._held.popitem(last=False)[1].formatted.data)


def _settled(stamp: Stamp, now_ns: int) -> bool:
    """Return whether whatever is written from ``now_ns`` (since the epoch) on has another stamp."""
    coarse = stamp.mtime_ns % 1_000_000_000 == 0
    return now_ns - stamp.mtime_ns > (SETTLED_COARSE_NS if coarse else SETTLED_NS)


memory = Memory()
