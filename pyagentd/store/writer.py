"""The document in memory and on disk, with the place where a run writes.

One insertion rule for everybody (``apply``; the Emacs side follows it too): text goes to the marker and the marker
behind it, roles right of it shift, text the user typed at the marker stays below. The file is written atomically and
never over content that was not read: ``changed_on_disk`` tells, ``persist`` refuses.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from pathlib import Path

from pyagentd.errors import StoreError
from pyagentd.events import InsertRole
from pyagentd.store import atomic, document
from pyagentd.store.condition import Stamp, stamp_of
from pyagentd.store.document import Document, Span, merged
from pyagentd.store.formatted import Formatted, formatted
from pyagentd.store.local_variables import Settings
from pyagentd.store.remembered import memory
from pyagentd.store.render import Insert


def apply(doc: Document, marker: int, *inserts: Insert) -> tuple[Document, int]:
    """Return the document with ``inserts``, one behind the other, at offset ``marker``, and the marker after them."""
    text = "".join(insert.text for insert in inserts)
    length = len(text)
    spans = doc.spans
    # The first span that ends behind the marker: it contains the marker, or begins at or after it.
    index = bisect_left(spans, marker + 1, key=lambda span: span.end)
    left, right = spans[:index], spans[index:]
    if right and right[0].start < marker:  # someone marked text around the marker
        left = (*left, right[0]._replace(end=marker))
        right = (right[0]._replace(start=marker), *right[1:])
    shifted = [Span(start + length, end + length, kind, id) for start, end, kind, id in right]
    own, place = [], marker
    for insert in inserts:
        own += _span(place, place := place + len(insert.text), insert.role)
    joined = (*left[:-1], *merged([*left[-1:], *own, *shifted[:1]]), *shifted[1:])
    body = doc.body[:marker] + text + doc.body[marker:]
    return replace(doc, body=body, spans=joined), marker + length


class DocumentWriter:
    """Writes one ``session.md``; starts with ``doc`` in memory and no file known.

    Attributes:
        marker: The offset at which the next insert goes.
        stamp: Which state of the file was read or written last; None when there was none.
    """

    def __init__(self, path: Path, doc: Document | None = None) -> None:
        self._path = path
        self.stamp: Stamp | None = None
        self._saved: Document | None = None
        self._formatted: Formatted | None = None  # what was read or written last
        self._document = doc or Document()
        self.marker = len(self._document.body)

    @classmethod
    def load(cls, path: Path) -> DocumentWriter:
        """Return a writer for what is on disk; a missing file is an empty document.

        Raises:
            StoreError: The file cannot be read.
        """
        read = memory.read(path)
        writer = cls(path, read.document)
        writer.stamp, writer._formatted = read.stamp, read.formatted
        writer._saved = writer._document
        return writer

    @property
    def document(self) -> Document:
        """The document as it is in memory."""
        return self._document

    @property
    def body(self) -> str:
        """Its text without the Local Variables."""
        return self._document.body

    @property
    def sha256(self) -> str:
        """The hash of that text."""
        known = self._formatted
        return known.sha256 if known and known.document.body is self.body else document.body_sha256(self.body)

    @property
    def spans(self) -> tuple[Span, ...]:
        """Its roles."""
        return self._document.spans

    @property
    def unsaved(self) -> bool:
        """Whether memory holds what the file does not."""
        return self._document is not self._saved

    def insert(self, *inserts: Insert) -> None:
        """Put inserts of the run at the marker."""
        if inserts:
            self._document, self.marker = apply(self._document, self.marker, *inserts)

    def set_settings(self, settings: Settings) -> None:
        """Replace the settings; variables we do not know stay as they were in the file."""
        other = self._document.settings.other
        self._document = replace(self._document, settings=replace(settings, other=other))

    def set_spans(self, spans: tuple[Span, ...]) -> None:
        """Replace the roles by recovered ones of the same text."""
        self._document = replace(self._document, spans=spans, stale=False)

    def renew(self) -> None:
        """Have the file written by the next ``persist`` even if it lacks nothing.

        An editor that lost its lease without noticing finds a file that changed, which Emacs does not overwrite.
        """
        self._saved = None

    def changed_on_disk(self) -> bool:
        """Return whether the file is not what was last read or written here."""
        return stamp_of(self._path) != self.stamp

    def persist(self, *, fsync: bool = True) -> str:
        """Write the file if it lacks something, and return the hash of its body.

        Raises:
            StoreError: The disk refused, or the file holds what was not read.
        """
        if self.changed_on_disk():
            raise StoreError(f"{self._path} changed since it was read", mend="Read it again")
        if self.unsaved:
            written = formatted(self._document, self._formatted)
            atomic.write_bytes(self._path, written.data, fsync=fsync)
            self.stamp, self._saved, self._formatted = stamp_of(self._path), self._document, written
            memory.wrote(self._path, written, self.stamp)
        return self.sha256


def _span(start: int, end: int, role: InsertRole) -> list[Span]:
    match role:
        case None:
            return []
        case ("tool", call_id):
            return [Span(start, end, "tool", call_id)]
        case "response" | "ignore":
            return [Span(start, end, role)]
    raise ValueError(f"no role: {role!r}")
