"""A session document as it is on disk, with what is wrong with the file itself, in words.

What the document means beside the log is no business of this module (``align``); here is what can be seen in the
file alone: its line ends and its block of Local Variables. A file is recognised by its stamp without reading it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pyagentd import regularfile
from pyagentd.errors import StoreError
from pyagentd.store import document
from pyagentd.store.document import Document


class Stamp(NamedTuple):
    """What tells one state of a file from another."""

    mtime_ns: int
    size: int
    inode: int

    @property
    def mtime(self) -> float:
        """The modification time in seconds."""
        return self.mtime_ns / 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A document, the file it was read from, and what is wrong with that."""

    document: Document
    sha256: str  # of the body
    stamp: Stamp | None  # None: there is no file
    notes: tuple[str, ...]  # one line each, for people


def stamp_of(path: Path) -> Stamp | None:
    """Return the stamp of the file at ``path``; None when there is none.

    Raises:
        StoreError: The disk refused.
    """
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    return Stamp(stat.st_mtime_ns, stat.st_size, stat.st_ino)


def inspect(path: Path) -> Condition:
    """Read the document at ``path``; a missing file is an empty one.

    Raises:
        StoreError: The disk refused.
    """
    stamp = stamp_of(path)  # before reading: what changes meanwhile is read again
    try:
        text = regularfile.read_bytes(path, limit=regularfile.DOCUMENT).decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        text = ""
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    doc = document.parse(text)
    return Condition(
        document=doc,
        sha256=document.body_sha256(doc.body),
        stamp=stamp,
        notes=doc.damage,
    )
