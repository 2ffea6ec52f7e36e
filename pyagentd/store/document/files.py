"""Reads and writes ``session.md`` and caches it; inserts of a run, and edits.

There is one insertion rule (``apply``; the Emacs side has the same): text is inserted at the marker, which moves
behind it, roles right of it shift, and text that the user typed at the marker stays below. The file is written
atomically and never over content that was not read (``write_document``).
"""

import hashlib
import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from pyagentd import regularfile
from pyagentd.errors import StoreError
from pyagentd.store import atomic
from pyagentd.store.document import text
from pyagentd.store.document.pieces import TextMatch, common_text
from pyagentd.store.document.render import Insert
from pyagentd.store.document.text import OPENING, Bounds, Document, Span, Stamp, merge_spans, stamp_in, stamp_of

# A document with its file's bytes, made incrementally from those of the document before.
#
# A conversation grows at its end: all but the new text was encoded, hashed and printed before, and is reused. Only
# the copying of text, bytes and tuples grows with the length.


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DocumentFile:
    """A document and the file that holds it.

    Attributes:
        document: The document.
        data: The whole file.
        length: The length of the body, with which the file begins, in bytes.
        hash: The running SHA-256 of the body; to be copied, never to be updated.
        opens: Whether the body may contain a block of Local Variables.
        sound: Whether the body is valid UTF-8.
        faithful: Whether reading the file gives exactly this document.
        bounds: The roles as printed; None if they were read.
        origin: Equal for files whose bodies each begin with the one before.
    """

    document: Document = field(default_factory=Document)
    data: bytes = b""
    length: int = 0
    hash: Any = field(default_factory=hashlib.sha256)
    opens: bool = False
    sound: bool = True
    faithful: bool = True
    bounds: Bounds | None = None
    origin: object = field(default_factory=object)

    @property
    def sha256(self) -> str:
        """The hash of the body, see ``text.body_sha256``."""
        return str(self.hash.hexdigest())


def parse_bytes(data: bytes) -> DocumentFile:
    """Return the document in a file of these bytes; its ``data`` differ if reading changes line ends."""
    doc = text.parse(data.decode("utf-8", "surrogateescape"))
    body = _encode(doc.body)
    if not data.startswith(body):
        return replace(format_document(doc), faithful=False)
    return DocumentFile(
        document=doc,
        data=data,
        length=len(body),
        hash=hashlib.sha256(body),
        opens=OPENING in doc.body,
        sound=_is_utf8(body),
    )


def lacks_end(found: DocumentFile, before: DocumentFile) -> bool:
    """Return whether the file, which held ``before``, may be written only in part yet."""
    lost_block = len(before.data) > before.length and len(found.data) == found.length
    return lost_block or (found.data != before.data and before.data.startswith(found.data))


def format_document(doc: Document, before: DocumentFile | None = None, kept: int = 0) -> DocumentFile:
    """Return ``doc`` with its file, which is ``format_file(doc)``.

    Args:
        doc: The document.
        before: An earlier one, whose work is reused if ``doc`` begins with its body.
        kept: The number of characters known to be equal in both; for speed only.
    """
    is_longer = before is not None and doc.body.startswith(before.document.body[kept:], kept)
    known = before if before is not None and is_longer else DocumentFile()
    characters = len(known.document.body)
    new = _encode(doc.body[characters:])
    state = known.hash.copy()
    state.update(new)
    opens = known.opens or doc.body.find(OPENING, max(0, characters - len(OPENING))) >= 0
    sound = known.sound and _is_utf8(new)
    same = before is not None and (doc.spans, doc.settings) == (before.document.spans, before.document.settings)
    if before is not None and same and known.bounds is not None and not opens:
        bounds, end = known.bounds, before.data[before.length :]
    else:
        bounds = text.print_bounds(doc.spans, known.bounds)
        end = _encode(text.format_end(doc, bounds, opens=opens))
    return DocumentFile(
        document=doc,
        data=b"".join((memoryview(known.data)[: known.length], new, end)),
        length=known.length + len(new),
        hash=state,
        opens=opens,
        sound=sound,
        faithful=sound and bounds.exact and bool(end) and not opens and _is_plain(doc, before),
        bounds=bounds,
        origin=known.origin,
    )


def _is_plain(doc: Document, before: DocumentFile | None) -> bool:
    """Return whether the document was undamaged, and its settings are read back unchanged."""
    if doc.stale or doc.damage or doc.block is not None:
        return False
    if before is not None and before.faithful and before.document.settings == doc.settings:
        return True
    return text.parse(text.format_file(Document(settings=doc.settings))).settings == doc.settings


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


# The session documents that were last read or written: a file with the same bytes is not parsed again.

KEPT = 20  # documents
KEPT_BYTES = 32 << 20  # of them all


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedDocument:
    """A document and the stamp of its file, None if there is no file."""

    formatted: DocumentFile
    stamp: Stamp | None

    @property
    def document(self) -> Document:
        """The document."""
        return self.formatted.document


class DocumentCache:
    """The documents that were used last; thread-safe.

    Attributes:
        parsed: The number of files that had to be parsed.
    """

    def __init__(self) -> None:
        self.parsed = 0
        self._held: OrderedDict[Path, CachedDocument] = OrderedDict()
        self._size = 0  # bytes of their files
        self._lock = threading.Lock()

    def read(self, path: Path) -> CachedDocument:
        """Return the document in the file at ``path``; a missing file is an empty document.

        Raises:
            StoreError: The file cannot be read.
        """
        stamp = stamp_of(path)  # before reading: what changes meanwhile is read again
        try:
            data = regularfile.read_bytes(path, limit=regularfile.DOCUMENT)
        except FileNotFoundError:
            return CachedDocument(formatted=format_document(Document()), stamp=None)
        except OSError as error:
            raise StoreError(f"cannot read {path}: {error.strerror}") from error
        held = self._held.get(path)
        if held is not None and held.formatted.data == data:
            found = replace(held, stamp=stamp)
        else:
            found = CachedDocument(formatted=parse_bytes(data), stamp=stamp)
            self.parsed += 1
        self.remember(path, found)
        return found

    def glance(self, path: Path) -> tuple[Document, object]:
        """Return the document as ``read`` does, and its ``DocumentFile.origin``, None if unknown.

        For readers that read each file once, and again when its stamp has changed: the result is not cached.
        """
        held = self._held.get(path)
        if held is not None and held.stamp == stamp_of(path):
            return held.document, held.formatted.origin
        return text.read(path), None

    def forget(self) -> None:
        """Forget all documents."""
        with self._lock:
            self._held.clear()
            self._size = 0

    def remember(self, path: Path, found: CachedDocument) -> None:
        """Cache the document in the file at ``path``."""
        with self._lock:
            if (old := self._held.pop(path, None)) is not None:
                self._size -= len(old.formatted.data)
            if found.formatted.faithful:
                self._held[path] = found
                self._size += len(found.formatted.data)
            while self._held and (len(self._held) > KEPT or self._size > KEPT_BYTES):
                self._size -= len(self._held.popitem(last=False)[1].formatted.data)


document_cache = DocumentCache()
_END = attrgetter("end")  # of a span


class DocumentChanged(Exception):
    """Another program changed the file of a document since it was read or written."""


def write_document(path: Path, doc: Document, before: CachedDocument | None = None, kept: int = 0) -> CachedDocument:
    """Replace the document that was read or written last.

    Args:
        path: The file.
        doc: The document.
        before: The document that was read or written last; None if there is no file.
        kept: The number of its characters known to be unchanged.

    Raises:
        DocumentChanged: The file was changed since.
        StoreError: The disk failed.
    """

    def check() -> None:
        if stamp_of(path) != (before.stamp if before else None):
            raise DocumentChanged(f"{path} changed since it was read")

    check()
    made = format_document(doc, before.formatted if before else None, kept)
    status = atomic.write_bytes(path, made.data, check=check)  # syncing takes a while
    written = CachedDocument(formatted=made, stamp=stamp_in(status))
    document_cache.remember(path, written)
    return written


def apply(doc: Document, marker: int, *inserts: Insert) -> tuple[Document, int]:
    """Return the document with ``inserts`` in order at offset ``marker``, and the marker behind them."""
    texts: list[str] = []
    own: list[Span] = []
    place = marker
    for insert in inserts:
        texts.append(insert.text)
        begin, place = place, place + len(insert.text)
        match insert.role:
            case ("tool", call_id):
                own.append(Span(begin, place, "tool", call_id))
            case "response" | "ignore":
                own.append(Span(begin, place, insert.role))
    length, spans = place - marker, doc.spans
    # The first span that ends behind the marker: it contains the marker, or begins at or after it.
    index = bisect_left(spans, marker + 1, key=_END)
    left, right = spans[:index], spans[index:]
    if right and right[0].start < marker:  # someone marked text around the marker
        left = (*left, right[0]._replace(end=marker))
        right = (right[0]._replace(start=marker), *right[1:])
    shifted = [Span(start + length, end + length, kind, id) for start, end, kind, id in right]
    joined = (*left[:-1], *merge_spans([*left[-1:], *own, *shifted[:1]]), *shifted[1:])
    body = "".join((doc.body[:marker], *texts, doc.body[marker:]))
    return replace(doc, body=body, spans=joined), marker + length


# Edits of a document: applying them, adapting concurrent ones, and computing the edit between two texts.
#
# An edit is a list of disjoint hunks in order, with offsets of the text before the edit. Of two edits of the same
# text either can be adapted to follow the other (``transform``), with the same result: the deletions and insertions
# of both; where both insert at one place, one of them is ``first``. The Emacs side has the same rules
# (``pyagentd-edit.el``).


class Hunk(NamedTuple):
    """``text`` replaces the range between two offsets; ``spans`` are its roles, with offsets inside ``text``."""

    begin: int
    end: int
    text: str
    spans: tuple[Span, ...] = ()


Edit = tuple[Hunk, ...]


def normalise_hunks(hunks: Iterable[Hunk]) -> Edit:
    """Return ordered hunks with adjacent ones joined, and without those that change nothing."""
    found: list[Hunk] = []
    for hunk in hunks:
        if hunk.begin == hunk.end and not hunk.text:
            continue
        last = found[-1] if found else None
        if last is None or last.end < hunk.begin:
            found.append(hunk)
        else:
            spans = merge_spans([*last.spans, *_shift_spans(hunk.spans, len(last.text))])
            found[-1] = Hunk(last.begin, hunk.end, last.text + hunk.text, tuple(spans))
    return tuple(found)


def offset_after(offset: int, edit: Sequence[Hunk], *, before: bool) -> int:
    """Return the offset after an edit; ``before`` or behind a text that the edit inserts right there."""
    shift = 0
    for hunk in edit:
        if hunk.begin > offset or (hunk.begin == offset and before):
            break
        shift += len(hunk.text) - (min(hunk.end, offset) - hunk.begin)
    return offset + shift


def transform(ours: Sequence[Hunk], theirs: Sequence[Hunk], *, first: bool) -> Edit:
    """Return ``ours`` adapted to follow ``theirs``, an edit of the same text.

    Where both insert at one place, our text comes first if ``first``, else theirs.
    """
    return normalise_hunks(_transform_hunks(ours, theirs, first))


def _transform_hunks(ours: Sequence[Hunk], theirs: Sequence[Hunk], first: bool) -> Iterator[Hunk]:
    for begin, end, words, spans in ours:
        place = offset_after(begin, theirs, before=first)
        yield Hunk(place, place, words, spans)
        start = begin
        for other in theirs:
            if other.end < start or (other.end == start and other.begin < start):
                continue
            if other.begin >= end:
                break
            if other.begin > start:
                yield _transform_deletion(start, other.begin, theirs)
            start = max(start, other.end)
        if start < end:
            yield _transform_deletion(start, end, theirs)


def _transform_deletion(start: int, end: int, theirs: Sequence[Hunk]) -> Hunk:
    """Return the deletion of a range, adapted to follow ``theirs``, which change nothing in it."""
    place = offset_after(start, theirs, before=False)
    return Hunk(place, place + end - start, "")


def clash(ours: Sequence[Hunk], theirs: Sequence[Hunk]) -> list[str]:
    """Return our replacement texts where theirs replaced the same range by another text."""
    return [
        hunk.text
        for hunk in ours
        if hunk.text
        and hunk.begin < hunk.end
        and any(each.text and each.begin < hunk.end and hunk.begin < each.end for each in theirs)
    ]


def apply_edit(document: Document, edit: Sequence[Hunk]) -> Document:
    """Return the document after an edit, with the roles of its hunks."""
    if not edit:
        return document
    body, pieces, position = document.body, [], 0
    for hunk in edit:
        pieces += [body[position : hunk.begin], hunk.text]
        position = hunk.end
    return replace(
        document, body="".join((*pieces, body[position:])), spans=spans_after(document.spans, edit), block=None
    )


def spans_after(spans: tuple[Span, ...], edit: Sequence[Hunk]) -> tuple[Span, ...]:
    """Return the roles of a text after an edit of it."""
    for begin, end, words, own in reversed(edit):
        shift = len(words) - (end - begin)
        index = bisect_left(spans, begin, key=_END)  # the first that ends at ``begin`` or behind it
        left, right = list(spans[:index]), []
        for number, span in enumerate(spans[index:], index):
            if span.start < begin:
                left.append(span._replace(end=min(span.end, begin)))
            if span.end > end:
                start = max(span.start, end)
                right.append(span._replace(start=start + shift, end=span.end + shift))
                if span.start >= end:
                    right += _shift_spans(spans[number + 1 :], shift)
                    break
        middle = _shift_spans(own, begin)
        spans = (*left[:-1], *merge_spans([*left[-1:], *middle, *right[:1]]), *right[1:])
    return spans


def difference(old: str, new: Document) -> Edit:
    """Return the edit from the text ``old`` to ``new``, with the roles of inserted texts.

    Whole words are inserted, deleted and replaced where possible, because others may change neighbouring words.
    """
    hunks: list[Hunk] = []
    position, start = 0, 0
    for match in common_text(old, new.body, exact=True):
        if position < match.old or start < match.new:
            before = position - (hunks[-1].end if hunks else 0)
            by = 0
            if position == match.old:
                by = _to_words(new.body, start, match.new, before, match.size)
            elif start == match.new:
                by = _to_words(old, position, match.old, before, match.size)
            elif match.size and old[match.old].isspace() and not new.body[match.new - 1].isspace():
                match = TextMatch(match.old + 1, match.new + 1, match.size - 1)  # with the blank behind it
            begin, end = start + by, match.new + by
            hunks.append(Hunk(position + by, match.old + by, new.body[begin:end], cut_spans(new.spans, begin, end)))
        position, start = match.old + match.size, match.new + match.size
    return normalise_hunks(hunks)


_FARTHEST = 200  # characters by which a change is moved at most to be of whole words


def _to_words(text: str, begin: int, end: int, before: int, after: int) -> int:
    """Return by how much an inserted or deleted range can be shifted to consist of whole words; 0 if it cannot.

    Args:
        text: The text with the range.
        begin: The beginning of the range.
        end: The end of the range.
        before: The number of characters before it that it may be shifted over.
        after: The number of characters behind it that it may be shifted over.
    """
    for step, most in ((-1, min(before, _FARTHEST)), (1, min(after, _FARTHEST))):
        for by in range(most + 1):
            first, last = begin + step * by, end + step * by
            if (first == 0 or text[first - 1].isspace()) and text[last - 1].isspace():
                return step * by
            if by == most or (text[first - 1] != text[last - 1] if step < 0 else text[first] != text[last]):
                break
    return 0


def join_edits(edits: Iterable[tuple[str, Edit]]) -> list[tuple[str, Edit]]:
    """Return successive edits, with inserts joined that continue the one before."""
    found: list[tuple[str, Edit]] = []
    for id, edit in edits:
        if found and not id and not found[-1][0] and len(edit) == 1 == len(found[-1][1]):
            ((begin, end, text, spans),), ((first, last, before, own),) = edit, found[-1][1]
            if begin == end == first + len(before) and first == last:
                both = merge_spans([*own, *_shift_spans(spans, len(before))])
                found[-1] = ("", (Hunk(first, last, before + text, both),))
                continue
        found.append((id, edit))
    return found


def _shift_spans(spans: Iterable[Span], by: int) -> list[Span]:
    return [span._replace(start=span.start + by, end=span.end + by) for span in spans]


def cut_spans(spans: Sequence[Span], begin: int, end: int) -> tuple[Span, ...]:
    """Return the roles between two offsets, with offsets relative to ``begin``."""
    index = bisect_left(spans, begin + 1, key=_END)
    found = []
    for span in spans[index:]:
        if span.start >= end:
            break
        found.append(span._replace(start=max(span.start, begin) - begin, end=min(span.end, end) - begin))
    return tuple(found)
