"""Reads and writes ``session.md``, caches it, and keeps the place where a run inserts text.

One insertion rule for everybody (``apply``; the Emacs side follows it too): text goes to the marker and the marker
behind it, roles right of it shift, text the user typed at the marker stays below. The file is written atomically and
never over content that was not read: ``changed_on_disk`` tells, ``persist`` refuses.
"""

import hashlib
import threading
import time
from bisect import bisect_left
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from pyagentd import regularfile
from pyagentd.errors import StoreError
from pyagentd.events import InsertRole
from pyagentd.store import atomic
from pyagentd.store.document import text
from pyagentd.store.document.render import Insert
from pyagentd.store.document.text import OPENING, Bounds, Document, Settings, Span, Stamp, merged, stamp_of

# A document together with its file's bytes, made from those of the document before it.
#
# A conversation grows at its end. Whoever wrote the document when it was shorter has encoded, hashed and printed all
# but the new text; of that nothing is done again. What grows with the length is copying: of text, bytes and tuples.


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DocumentFile:
    """A document and the file that holds it.

    Attributes:
        document: The document.
        data: The whole file.
        length: So many bytes of it are the body, which it begins with.
        hash: The running SHA-256 of these; to be copied, never to be updated.
        opens: Whether a block of Local Variables may stand in the body.
        sound: Whether the body is all UTF-8.
        faithful: Whether the file, when it is read, is this very document.
        bounds: The roles as printed; None when they were read.
    """

    document: Document
    data: bytes
    length: int
    hash: Any
    opens: bool
    sound: bool
    faithful: bool
    bounds: Bounds | None = None

    @property
    def sha256(self) -> str:
        """The hash of the body, as ``document.body_sha256`` says it."""
        return str(self.hash.hexdigest())


@dataclass(slots=True)
class _Beginning:
    """What is known of the bytes of a body's first characters."""

    characters: int = 0
    data: bytes | memoryview = b""
    hash: Any = field(default_factory=hashlib.sha256)
    opens: bool = False
    sound: bool = True
    bounds: Bounds | None = None


def parse_bytes(data: bytes) -> DocumentFile:
    """Return the document in a file of these bytes; other ``data`` where reading changes line ends."""
    doc = text.parse(data.decode("utf-8", "surrogateescape"))
    body = _encoded(doc.body)
    if not data.startswith(body):
        return replace(format_document(doc), faithful=False)
    return DocumentFile(
        document=doc,
        data=data,
        length=len(body),
        hash=hashlib.sha256(body),
        opens=OPENING in doc.body,
        sound=_is_utf8(body),
        faithful=True,
    )


def format_document(doc: Document, before: DocumentFile | None = None) -> DocumentFile:
    """Return ``doc`` with its file, which is ``format_file(doc)``.

    Args:
        doc: The document.
        before: Another one; the work is saved where ``doc`` begins with its body.
    """
    known = _beginning(doc, before)
    new = _encoded(doc.body[known.characters :])
    state = known.hash.copy()
    state.update(new)
    opens = known.opens or doc.body.find(OPENING, max(0, known.characters - len(OPENING))) >= 0
    sound = known.sound and _is_utf8(new)
    bounds = text.print_bounds(doc.spans, known.bounds)
    end = _encoded(text.format_end(doc, bounds, opens=opens))
    return DocumentFile(
        document=doc,
        data=b"".join((known.data, new, end)),
        length=len(known.data) + len(new),
        hash=state,
        opens=opens,
        sound=sound,
        faithful=sound and bounds.exact and bool(end) and not opens and _is_plain(doc, before),
        bounds=bounds,
    )


def _is_plain(doc: Document, before: DocumentFile | None) -> bool:
    """Return whether nothing was wrong with the document, and its settings are read as they are."""
    if doc.stale or doc.damage or doc.block is not None:
        return False
    if before is not None and before.faithful and before.document.settings == doc.settings:
        return True
    return text.parse(text.format_file(Document(settings=doc.settings))).settings == doc.settings


def _beginning(doc: Document, before: DocumentFile | None) -> _Beginning:
    if before is None or not doc.body.startswith(before.document.body):
        return _Beginning()
    return _Beginning(
        characters=len(before.document.body),
        data=memoryview(before.data)[: before.length],
        hash=before.hash,
        opens=before.opens,
        sound=before.sound,
        bounds=before.bounds,
    )


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


# Session documents as they were last read or written here, so that a file that did not change is not parsed again.
#
# A file is known by its stamp. As git does with its index, a stamp is believed only if the file was last written a
# while before it was read (else a second write may have left the same stamp), and never right after our own write
# (somebody may have put another file in its place before its stamp was taken): then its bytes are compared.

SETTLED_NS = 50_000_000  # a file system's clock ticks every 10 ms at most, ...
SETTLED_COARSE_NS = 2_100_000_000  # ... or every second or two, where times are whole seconds
KEPT = 20  # documents
KEPT_BYTES = 32 << 20  # of them all


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedDocument:
    """A document and the state of its file; ``stamp`` None: there is no file."""

    formatted: DocumentFile
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


class DocumentCache:
    """The documents that were used last; for any thread.

    Attributes:
        parsed: How many files had to be parsed.
    """

    def __init__(self) -> None:
        self.parsed = 0
        self._held: OrderedDict[Path, CachedDocument] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, path: Path) -> CachedDocument:
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
            return CachedDocument(formatted=format_document(Document()), stamp=None)
        except OSError as error:
            raise StoreError(f"cannot read {path}: {error.strerror}") from error
        if held is not None and held.formatted.data == data:
            found = held.formatted
        else:
            found = parse_bytes(data)
            self.parsed += 1
        read = CachedDocument(formatted=found, stamp=stamp, settled=stamp is not None and _settled(stamp, now))
        self._hold(path, read)
        return read

    def wrote(self, path: Path, written: DocumentFile, stamp: Stamp | None) -> None:
        """Note what was written to ``path``, and the stamp that it had then."""
        self._hold(path, CachedDocument(formatted=written, stamp=stamp))

    def forget(self) -> None:
        """Forget all documents."""
        with self._lock:
            self._held.clear()

    def _hold(self, path: Path, found: CachedDocument) -> None:
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


document_cache = DocumentCache()


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
        self._formatted: DocumentFile | None = None  # what was read or written last
        self._document = doc or Document()
        self.marker = len(self._document.body)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Return a writer for what is on disk; a missing file is an empty document.

        Raises:
            StoreError: The file cannot be read.
        """
        read = document_cache.read(path)
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
        return known.sha256 if known and known.document.body is self.body else text.body_sha256(self.body)

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
            raise StoreError(f"{self._path} changed since it was read", hint="Read it again")
        if self.unsaved:
            written = format_document(self._document, self._formatted)
            atomic.write_bytes(self._path, written.data, fsync=fsync)
            self.stamp, self._saved, self._formatted = stamp_of(self._path), self._document, written
            document_cache.wrote(self._path, written, self.stamp)
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
