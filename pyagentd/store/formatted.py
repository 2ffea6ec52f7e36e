"""A document together with its file's bytes, made from those of the document before it.

A conversation grows at its end. Whoever wrote the document when it was shorter has encoded, hashed and printed all
but the new text; of that nothing is done again. What grows with the length is copying: of text, bytes and tuples.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import Any

from pyagentd.store import document
from pyagentd.store.document import Bounds, Document
from pyagentd.store.local_variables import OPENING


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Formatted:
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


def parsed(data: bytes) -> Formatted:
    """Return the document in a file of these bytes; other ``data`` where reading changes line ends."""
    doc = document.parse(data.decode("utf-8", "surrogateescape"))
    body = _encoded(doc.body)
    if not data.startswith(body):
        return replace(formatted(doc), faithful=False)
    return Formatted(
        document=doc,
        data=data,
        length=len(body),
        hash=hashlib.sha256(body),
        opens=OPENING in doc.body,
        sound=_is_utf8(body),
        faithful=True,
    )


def formatted(doc: Document, before: Formatted | None = None) -> Formatted:
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
    bounds = document.print_bounds(doc.spans, known.bounds)
    end = _encoded(document.format_end(doc, bounds, opens=opens))
    return Formatted(
        document=doc,
        data=b"".join((known.data, new, end)),
        length=len(known.data) + len(new),
        hash=state,
        opens=opens,
        sound=sound,
        faithful=sound and bounds.exact and bool(end) and not opens and _is_plain(doc, before),
        bounds=bounds,
    )


def _is_plain(doc: Document, before: Formatted | None) -> bool:
    """Return whether nothing was wrong with the document, and its settings are read as they are."""
    if doc.stale or doc.damage or doc.block is not None:
        return False
    if before is not None and before.faithful and before.document.settings == doc.settings:
        return True
    return document.parse(document.format_file(Document(settings=doc.settings))).settings == doc.settings


def _beginning(doc: Document, before: Formatted | None) -> _Beginning:
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
